/*
 * Recovery: the journal says which objects are there, the directory says which files are. An object
 * without its file is forgotten; a file without an object is removed, or kept as a free segment; a
 * segment that was being filled is given up as it is. The snapshot that follows makes the next
 * generations of free segments durable before anything is written to them.
 *
 * The table is not locked here: nobody else changes it, or looks at it, until recovering is false.
 */
#include "tier/kv-log-impl.h"

#include "tier/cleanup.h"
#include "tier/digest.h"
#include "tier/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int walk(const char *path, int (*each)(void *ctx, const char *name), void *ctx)
{
	DIR *d = opendir(path);
	struct dirent *e;
	int r = 0;

	if (d == NULL)
		return errno == ENOENT ? 0 : -errno;
	while (r == 0 && (e = readdir(d)) != NULL)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			r = each(ctx, e->d_name);
	closedir(d);
	return r;
}

static void drop(struct mc_kv_log *log, uint32_t slot, const char *why) MC_NO_TSA
{
	log->stats.bad++;
	if (log->watch != NULL)
		log->watch->bad(log->watch->ctx, slot, why);
	mc_kv_entry_drop_locked(log, slot);
}

/* ---- segments */

static int look_at_segment(void *ctx, uint32_t id, const struct mc_kv_place *p, bool whole)
{
	struct mc_kv_log *log = ctx;
	struct mc_kv_segment *seg = mc_kv_segment_get(log, id);

	if (seg == NULL)
		return 0;
	seg->place = *p;
	seg->failed = !whole; /* made with another size: never written again */
	log->n_files++;
	return 1;
}

static void settle_segments(struct mc_kv_log *log) MC_NO_TSA
{
	for (uint32_t id = 1; id < log->n_segs; id++) {
		struct mc_kv_segment *seg = log->segs[id];

		if (seg == NULL)
			continue;
		while (seg->place.fd < 0 && seg->head != 0)
			drop(log, seg->head, "its segment is missing");
		seg->filled = log->segment_bytes;
		seg->state = seg->head != 0 ? MC_KV_SEG_SEALED : MC_KV_SEG_FREE;
		if (seg->head != 0)
			continue;
		seg->generation++;
		if (log->watch != NULL)
			continue;
		if (seg->failed && seg->place.fd >= 0)
			mc_kv_segment_remove(log, seg);
		seg->failed = false;
	}
}

/* ---- images */

struct look {
	struct mc_kv_log *log;
	unsigned folder;
	struct mc_kv_gone *known; /* owned, sorted */
	bool *found;              /* owned */
	size_t n;
};

static int by_name(const void *a, const void *b)
{
	const struct mc_kv_gone *x = a, *y = b;
	int r = memcmp(x->version, y->version, sizeof(x->version));

	if (r != 0)
		return r;
	return x->generation < y->generation ? -1 : x->generation > y->generation;
}

static int list_images(struct look *l)
{
	const struct mc_kv_table *t = &l->log->table;
	size_t n = 0;

	for (uint32_t at = l->log->image_head; at != 0; at = mc_kv_table_get(t, at)->seg_next)
		n++;
	l->known = calloc(n + 1, sizeof(*l->known));
	l->found = calloc(n + 1, sizeof(*l->found));
	if (l->known == NULL || l->found == NULL)
		return -ENOMEM;
	for (uint32_t at = l->log->image_head; at != 0; at = mc_kv_table_get(t, at)->seg_next) {
		const struct mc_kv_entry *e = mc_kv_table_get(t, at);
		struct mc_kv_gone *g = &l->known[l->n++];

		memcpy(g->version, e->version, sizeof(g->version));
		g->generation = e->generation;
		g->size = e->size;
	}
	qsort(l->known, l->n, sizeof(*l->known), by_name);
	return 0;
}

static void remove_file(struct mc_kv_log *log, const char *path)
{
	struct stat st;

	if (log->watch == NULL)
		log->io->unlink(log->io, path);
	else if (lstat(path, &st) == 0 && !S_ISDIR(st.st_mode))
		log->watch->leftover(log->watch->ctx, path, (uint64_t)st.st_blocks * 512);
}

static int look_at_image(void *ctx, const char *name)
{
	struct look *l = ctx;
	cleanup_free char *path = NULL, *again = NULL;
	struct mc_kv_gone want = {0}, *got;
	char hex[33] = "", *end = NULL;
	struct stat st;

	if (asprintf(&path, "%s/kvimages/%02x/%s", l->log->store->name, l->folder, name) < 0)
		return -ENOMEM;
	if (strlen(name) > 33 && name[32] == '.') {
		memcpy(hex, name, 32);
		want.generation = (uint32_t)strtoul(name + 33, &end, 10);
	}
	if (end == NULL || *end != '\0' || mc_hex_decode(hex, want.version, 16) != 0 ||
		mc_kv_image_path(l->log, want.version, want.generation, &again) != 0 ||
		strcmp(path, again) != 0) {
		remove_file(l->log, path);
		return 0;
	}
	got = bsearch(&want, l->known, l->n, sizeof(want), by_name);
	if (got == NULL || stat(path, &st) != 0 || (uint64_t)st.st_size < got->size) {
		remove_file(l->log, path);
		return 0;
	}
	l->found[got - l->known] = true;
	l->log->image_bytes += mc_kv_up(got->size, MC_KV_ALIGN);
	return 0;
}

/* Entries without a file leave; what dropping them notes as gone never had one. */
static void settle_images(struct look *l) MC_NO_TSA
{
	struct mc_kv_log *log = l->log;

	for (uint32_t at = log->image_head, next; at != 0; at = next) {
		const struct mc_kv_entry *e = mc_kv_table_get(&log->table, at);
		struct mc_kv_gone want = {.generation = e->generation};
		const struct mc_kv_gone *got;

		next = e->seg_next;
		memcpy(want.version, e->version, sizeof(want.version));
		got = bsearch(&want, l->known, l->n, sizeof(want), by_name);
		if (got != NULL && l->found[got - l->known])
			continue;
		drop(log, at, "its image is missing, or too short");
	}
	log->n_gone = 0;
}

static int look_at_folder(void *ctx, const char *name)
{
	struct look *l = ctx;
	cleanup_free char *path = NULL;
	char again[3];

	if (asprintf(&path, "%s/kvimages/%s", l->log->store->name, name) < 0)
		return -ENOMEM;
	if (sscanf(name, "%2x", &l->folder) != 1 ||
		snprintf(again, sizeof(again), "%02x", l->folder) != 2 ||
		strcmp(name, again) != 0) {
		remove_file(l->log, path);
		return 0;
	}
	return walk(path, look_at_image, l);
}

static int look_at_images(struct mc_kv_log *log)
{
	struct look l = {.log = log};
	cleanup_free char *path = NULL;
	int r = list_images(&l);

	if (r == 0 && asprintf(&path, "%s/kvimages", log->store->name) < 0)
		r = -ENOMEM;
	if (r == 0)
		r = walk(path, look_at_folder, &l);
	if (r == 0)
		settle_images(&l);
	free(l.known);
	free(l.found);
	return r;
}

/* ---- the whole */

static void tell_entry(const struct mc_kv_log_replay *to, const struct mc_kv_entry *e)
{
	struct mc_kv_meta m = mc_kv_entry_meta(e);
	struct mc_kv_loc loc = mc_kv_entry_loc(e);

	if (e->kind == MC_KV_DIR && to->dir != NULL)
		to->dir(to->ctx, m.key, true);
	else if (e->kind == MC_KV_PIN && to->pin != NULL)
		to->pin(to->ctx, m.key, true);
	if (e->kind != MC_KV_OBJECT)
		return;
	if (to->put != NULL)
		to->put(to->ctx, &m, &loc);
	if (e->copies > 0 && to->remote != NULL)
		to->remote(to->ctx, m.key, e->version, e->copies);
}

/* Nobody changes the table before this is over. Directories first: objects lie in them. */
static void tell_all(struct mc_kv_log *log)
{
	for (int objects = 0; objects < 2; objects++)
		for (uint32_t slot = 1; slot < log->table.n_slots; slot++) {
			const struct mc_kv_entry *e = mc_kv_table_get(&log->table, slot);

			if (e != NULL && (e->kind != MC_KV_DIR) == objects)
				tell_entry(&log->replay, e);
		}
}

int mc_kv_replay(struct mc_kv_log *log,
	void (*damaged)(void *ctx, const char *file, const char *what), void *ctx,
	struct mc_err *err)
{
	struct mc_journal_opts o = {.max_bytes = log->journal_bytes,
		.apply = mc_kv_journal_apply,
		.ctx = log,
		.damaged = damaged,
		.damaged_ctx = ctx};
	struct mc_journal *journal = NULL;
	unsigned places = 0;
	int r;

	mc_kv_store_journal(log->store, &o);
	r = mc_journal_open(&o, &journal, &places, err);
	if (r != 0)
		return r;
	mc_mutex_lock(&log->lock);
	log->journal = journal;
	log->stats.errors += places;
	log->n_gone = 0; /* replay notes images whose files are looked at below */
	mc_mutex_unlock(&log->lock);
	return 0;
}

int mc_kv_settle(struct mc_kv_log *log)
{
	int r = mc_kv_store_find(log->store, look_at_segment, log);

	if (r != 0)
		return r;
	settle_segments(log);
	return look_at_images(log);
}

int mc_kv_recover(struct mc_kv_log *log, struct mc_err *err)
{
	int r = mc_kv_replay(log, NULL, NULL, err);

	if (r == 0)
		r = mc_kv_settle(log);
	if (r == 0)
		tell_all(log);
	return r;
}
