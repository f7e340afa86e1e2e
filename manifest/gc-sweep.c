/*
 * The second half of a garbage collection: every chunk on the remote is in use, young, or garbage.
 *
 * Garbage leaves in three steps: it is renamed into tmp/gc/, looked at there, and removed. An
 * import that finds a chunk touches it before it counts on it. If the touch came before the rename,
 * the look shows it and the chunk goes back; if it comes after, the import finds no chunk and
 * writes it. What a kill leaves in tmp/gc/ is decided anew by the next run. A remote that is away
 * cannot show a touch, so the chunk goes back then, too.
 */
#include "manifest/gc-state.h"

#include "manifest/crew.h"
#include "tier/remote.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRASH "tmp/gc"
#define FOLDERS 256 /* chunks/00 … chunks/ff */
/* Unpublished files may be at work however short the grace period is. */
#define LEFTOVER_MIN_AGE_S (24 * 60 * 60)

struct found {
	uint8_t sha256[MC_SHA256_SIZE];
	uint64_t size;
	int64_t mtime_s;
};

/* One directory of chunks, or the trash. */
struct folder {
	struct mc_gc *g;
	const char *path;
	bool chunks;     /* of chunks/: what is no chunk is a stranger */
	struct found *v; /* owned */
	size_t n, cap;
};

static int keep_found(void *ctx, const char *name, const struct mc_remote_attr *attr)
{
	struct folder *f = ctx;
	struct found one = {.size = attr->size, .mtime_s = attr->mtime_s};

	if (attr->type != MC_REMOTE_FILE || strlen(name) != MC_SHA256_HEX ||
		mc_hex_decode(name, one.sha256, sizeof(one.sha256)) < 0 ||
		(f->chunks && strncmp(name, strrchr(f->path, '/') + 1, 2) != 0)) {
		f->g->strangers++;
		mc_gc_note(f->g, "%s/%s is no chunk; it is left alone", f->path, name);
		return 0;
	}
	if (f->n == f->cap) {
		size_t cap = f->cap == 0 ? 256 : 2 * f->cap;
		struct found *more = reallocarray(f->v, cap, sizeof(*more));

		if (more == NULL)
			return -ENOMEM;
		f->v = more;
		f->cap = cap;
	}
	f->v[f->n++] = one;
	return 0;
}

static int list_folder(struct folder *f, struct mc_err *err)
{
	struct mc_err why = {0};
	int r = mc_remote_list(f->g->remote, f->path, keep_found, f, &why);

	if (r == -ENOENT)
		return 0;
	return r < 0 ? mc_err_set(err, r, "%s", why.text) : 0;
}

static void trash_path(const uint8_t sha256[MC_SHA256_SIZE], char out[MC_CHUNK_PATH])
{
	strcpy(out, TRASH "/");
	mc_hex_encode(sha256, MC_SHA256_SIZE, out + strlen(TRASH) + 1);
}

/* The chunk is in the trash: it goes for good, or back because it is in use again. */
static int decide(struct mc_gc *g, const struct found *f, struct mc_err *err)
{
	char trash[MC_CHUNK_PATH], path[MC_CHUNK_PATH];
	const struct mc_mark *mark = mc_marks_find(&g->marks, f->sha256);
	struct mc_remote_attr attr;
	int r, whole;

	trash_path(f->sha256, trash);
	r = mc_remote_stat(g->remote, trash, &attr, NULL);
	if (r == -ENOENT)
		return 0; /* another gc's work */
	whole = mc_gc_whole(g, err);
	if (r == 0 && (mark != NULL || attr.mtime_s >= g->limit_s || whole < 0)) {
		mc_chunk_path(f->sha256, path);
		r = mc_remote_rename(g->remote, trash, path, whole < 0 ? NULL : err);
		g->restored += r == 0;
		return whole < 0 ? whole : r == -ENOENT ? 0 : r;
	}
	if (r == 0)
		r = mc_remote_unlink(g->remote, trash, err);
	if (r == 0) {
		g->garbage++;
		g->garbage_bytes += f->size;
	}
	return r == -ENOENT ? 0 : r;
}

static int sweep_one(struct mc_gc *g, const struct found *f, struct mc_err *err)
{
	struct mc_mark *mark = mc_marks_find(&g->marks, f->sha256);
	char trash[MC_CHUNK_PATH], path[MC_CHUNK_PATH];
	struct mc_err why = {0};
	int r;

	g->chunks++;
	g->bytes += f->size;
	if (mark != NULL) {
		mark->flags |= MC_MARK_SEEN;
		return 0;
	}
	if (f->mtime_s >= g->limit_s) {
		g->young++;
		g->young_bytes += f->size;
		return 0;
	}
	if (!g->opts->remove) {
		g->garbage++;
		g->garbage_bytes += f->size;
		return 0;
	}
	r = mc_gc_whole(g, err);
	if (r < 0)
		return r;
	mc_chunk_path(f->sha256, path);
	trash_path(f->sha256, trash);
	r = mc_remote_rename(g->remote, path, trash, &why);
	if (r == -ENOENT)
		return 0;
	return r < 0 ? mc_err_set(err, r, "%s", why.text) : decide(g, f, err);
}

static int sweep_folder(void *ctx, unsigned worker, uint64_t item, struct mc_err *err)
{
	char path[sizeof("chunks/00")];
	struct folder f = {.g = ctx, .path = path, .chunks = true};
	int r;

	(void)worker;
	snprintf(path, sizeof(path), "chunks/%02x", (unsigned)item);
	r = list_folder(&f, err);
	for (size_t i = 0; i < f.n && r == 0; i++)
		r = sweep_one(f.g, &f.v[i], err);
	free(f.v);
	f.g->done++;
	return r;
}

static int empty_trash(struct mc_gc *g, struct mc_err *err)
{
	struct folder f = {.g = g, .path = TRASH};
	int r = mc_remote_mkdir(g->remote, TRASH, err);

	if (r == 0)
		r = list_folder(&f, err);
	for (size_t i = 0; i < f.n && r == 0; i++)
		r = decide(g, &f.v[i], err);
	free(f.v);
	return r;
}

/* Asked again: another gc has a chunk out of its place for a moment. */
static void count_missing(struct mc_gc *g)
{
	for (size_t i = 0; i < g->marks.n; i++) {
		char path[MC_CHUNK_PATH];
		struct mc_remote_attr attr;

		if (g->marks.v[i].flags != MC_MARK_REVISION)
			continue;
		mc_chunk_path(g->marks.v[i].sha256, path);
		if (mc_remote_stat(g->remote, path, &attr, NULL) == -ENOENT) {
			g->missing++;
			mc_gc_note(g, "%s is missing on the remote, and a revision needs it", path);
		}
	}
}

static int keep_node(void *ctx, const char *name, const struct mc_remote_attr *attr)
{
	if (attr->type != MC_REMOTE_DIR || strcmp(name, "gc") == 0)
		return 0;
	return mc_gc_keep_name(ctx, name);
}

struct leftovers {
	struct mc_gc_names names;
	int64_t limit_s;
	uint64_t bytes;
};

static int keep_leftover(void *ctx, const char *name, const struct mc_remote_attr *attr)
{
	struct leftovers *l = ctx;

	if (attr->type != MC_REMOTE_FILE || attr->mtime_s >= l->limit_s)
		return 0;
	l->bytes += attr->size;
	return mc_gc_keep_name(&l->names, name);
}

static int sweep_node(struct mc_gc *g, const char *node, struct mc_err *err)
{
	int64_t age = g->opts->grace_s > LEFTOVER_MIN_AGE_S
		? 0
		: LEFTOVER_MIN_AGE_S - (int64_t)g->opts->grace_s;
	struct leftovers l = {.limit_s = g->limit_s - age};
	char path[1024];
	int r;

	snprintf(path, sizeof(path), "tmp/%s", node);
	r = mc_remote_list(g->remote, path, keep_leftover, &l, err);
	for (size_t i = 0; i < l.names.n && r == 0 && g->opts->remove; i++) {
		snprintf(path, sizeof(path), "tmp/%s/%s", node, l.names.v[i]);
		r = mc_remote_unlink(g->remote, path, err);
		if (r == -ENOENT)
			r = 0;
	}
	if (r == 0) {
		g->leftovers += l.names.n;
		g->leftover_bytes += l.bytes;
	}
	mc_gc_names_done(&l.names);
	return r == -ENOENT ? 0 : r;
}

static int sweep_tmp(struct mc_gc *g, struct mc_err *err)
{
	struct mc_gc_names nodes = {0};
	struct mc_err why = {0};
	int r = mc_remote_list(g->remote, "tmp", keep_node, &nodes, &why);

	if (r == -ENOENT)
		r = 0;
	else if (r < 0)
		mc_err_set(err, r, "%s", why.text);
	for (size_t i = 0; i < nodes.n && r == 0; i++)
		r = sweep_node(g, nodes.v[i], err);
	mc_gc_names_done(&nodes);
	return r;
}

int mc_gc_sweep(struct mc_gc *g, struct mc_err *err)
{
	const struct mc_crew crew = {.items = FOLDERS,
		.workers = g->opts->jobs,
		.run = sweep_folder,
		.tick = mc_gc_tick,
		.ctx = g};
	int r = g->opts->remove ? empty_trash(g, err) : 0;

	g->stage = "sweep";
	g->done = 0;
	g->total = FOLDERS;
	if (r == 0)
		r = mc_crew_run(&crew, err);
	if (r == 0)
		r = sweep_tmp(g, err);
	if (r == 0)
		count_missing(g);
	return r;
}
