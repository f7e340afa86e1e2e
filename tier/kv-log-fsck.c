/*
 * The offline check of the KV log: the records of the journal, the segments that lie there, and
 * every live record read with its framing.
 *
 * A repair leaves out of the table what is damaged, writes framing again where only that is
 * damaged, and makes the rest durable by snapshots as a start does. Files go after that.
 */
#include "tier/kv-log-scan.h"

#include "tier/array.h"
#include "tier/cleanup.h"
#include "tier/fsck-impl.h"
#include "tier/io.h"
#include "tier/journal-super.h"
#include "tier/kv-log-mend.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOURNAL_BYTES                                                                              \
	(UINT64_C(1) << 20) /* of the log that a repair leaves; a start makes its own */

struct check {
	struct mc_fsck *f;
	struct mc_kv_log *log;
	struct mc_ahead *ahead;
	struct mc_kv_watch watch;
	bool store_bad, below_bad; /* superblocks of the store, and of the device below it */
	uint64_t before;           /* what had been told of when this part began */
	struct mc_kv_bad *bad;     /* owned: of the segment being read */
	size_t n_bad, cap_bad;
	char **remove; /* owned, each owned: files that a repair removes */
	size_t n_remove, cap_remove;
	int error;
};

static void later_remove(struct check *c, const char *path)
{
	char *copy = NULL;

	if (mc_array_room(&c->remove, &c->cap_remove, c->n_remove + 1) == 0)
		copy = strdup(path);
	if (copy == NULL)
		c->error = -ENOMEM;
	else
		c->remove[c->n_remove++] = copy;
}

/* ---- what is told */

static void tell_journal(void *ctx, const char *file, const char *what)
{
	struct check *c = ctx;

	mc_fsck_tell(c->f, MC_FSCK_DAMAGE, "%skvjournal/%s: %s", c->f->prefix, file, what);
}

static void tell_leftover(void *ctx, const char *path, uint64_t bytes)
{
	struct check *c = ctx;

	mc_fsck_leftover(c->f, path, bytes);
	later_remove(c, path);
}

/* Where the object lies, below the directory. */
static int place_of(const struct check *c, const struct mc_kv_entry *e, char **ret)
{
	int n;

	if (e->segment == MC_KV_SPLIT)
		n = asprintf(ret, "in parts");
	else if (c->f->is_device || (e->segment & MC_KV_BELOW) != 0)
		n = asprintf(ret, "segment %" PRIu32 " of the block tier at %" PRIu64,
			e->segment & ~MC_KV_BELOW, e->off);
	else
		n = asprintf(ret, "%ssegments/%08" PRIx32 " at %" PRIu64, c->f->prefix, e->segment,
			e->off);
	return n < 0 ? -ENOMEM : 0;
}

/* An object whose bytes are not there any more. */
static void tell_gone(void *ctx, uint32_t object, uint32_t record, const char *why)
{
	struct check *c = ctx;
	const struct mc_kv_entry *e = mc_kv_table_get(&c->log->table, object);
	cleanup_free char *place = NULL;

	if (place_of(c, mc_kv_table_get(&c->log->table, record), &place) != 0) {
		c->error = -ENOMEM;
		return;
	}
	c->f->res.bad_objects++;
	if (e->copies > 0) {
		mc_fsck_tell(c->f, MC_FSCK_DAMAGE,
			"object %s: %s (%s); it is read from its %u copies on remotes",
			mc_kv_entry_key(e), why, place, e->copies);
		return;
	}
	c->f->res.lost++;
	mc_fsck_tell(c->f, MC_FSCK_LOST,
		"object %s: %s (%s); it was the last copy, %" PRIu64 " bytes", mc_kv_entry_key(e),
		why, place, e->size);
}

/* ---- objects */

static void judged(void *ctx, const struct mc_kv_bad *b, uint64_t bytes)
{
	struct check *c = ctx;

	c->f->res.objects += mc_kv_table_get(&c->log->table, b->slot)->kind == MC_KV_OBJECT;
	mc_fsck_advance(c->f, bytes);
	if (b->wrong == MC_KV_WHOLE)
		return;
	if (mc_array_room(&c->bad, &c->cap_bad, c->n_bad + 1) != 0)
		c->error = -ENOMEM;
	else
		c->bad[c->n_bad++] = *b;
}

/* Only the framing is damaged: it stays, and can be written again. */
static void settle_framing(struct check *c, const struct mc_kv_bad *b)
{
	const struct mc_kv_entry *e = mc_kv_table_get(&c->log->table, b->slot);
	const char *what = b->wrong == MC_KV_BAD_HEADER ? "header" : "key and checksums";
	cleanup_free char *place = NULL;
	int r = place_of(c, e, &place);

	if (r != 0) {
		c->error = r;
		return;
	}
	mc_fsck_tell(c->f, MC_FSCK_DAMAGE, "object %s: %s damaged (%s), its bytes are whole",
		mc_kv_entry_key(e), what, place);
	r = c->f->opts->repair ? mc_kv_record_mend(c->log, b->slot, b->room) : 0;
	if (r != 0)
		mc_fsck_give_up(c->f, place, r, NULL);
}

static void settle_bad(struct check *c, const struct mc_kv_bad *b)
{
	char why[64];

	if (b->wrong == MC_KV_BAD_HEADER || b->wrong == MC_KV_BAD_TAIL) {
		settle_framing(c, b);
	} else if (b->wrong == MC_KV_UNREADABLE) {
		mc_kv_bad_drop(c->log, b->slot, "cannot be read");
	} else {
		snprintf(why, sizeof(why), "damaged in its MiB %" PRIu32,
			b->block == UINT32_MAX ? 0 : b->block);
		mc_kv_bad_drop(c->log, b->slot, why);
	}
}

static int check_segment(struct check *c, struct mc_kv_scan *scan, const struct mc_kv_segment *seg)
{
	int r = mc_kv_scan_segment(scan, seg);

	for (size_t i = 0; i < c->n_bad && r == 0; i++)
		settle_bad(c, &c->bad[i]);
	if (c->n_bad > 0 && c->f->opts->repair && r == 0)
		r = mc_kv_store_sync(seg->floor->store, &seg->place, false);
	c->n_bad = 0;
	return r;
}

static int check_segments(struct check *c, struct mc_kv_scan *scan)
{
	int r = 0;

	for (uint32_t i = 1; i < c->log->n_segs && r == 0; i++) {
		const struct mc_kv_segment *seg = c->log->segs[i];

		if (seg != NULL && seg->head != 0 && seg->place.fd >= 0)
			r = check_segment(c, scan, seg);
		if (c->error != 0)
			r = c->error;
	}
	return r;
}

/* Segments of another size are not written to again, and go once they are empty. */
static void check_empty(struct check *c)
{
	for (uint32_t i = 1; i < c->log->n_segs; i++) {
		const struct mc_kv_segment *seg = c->log->segs[i];

		if (seg != NULL && seg->failed && seg->head == 0 && seg->place.fd >= 0 &&
			seg->floor == mc_kv_top(c->log))
			mc_fsck_tell(c->f, MC_FSCK_LEFTOVER,
				"%ssegments/%08" PRIx32 ": empty, and not as long as the others",
				c->f->prefix, seg->id);
	}
}

/* ---- the whole */

static int open_device(struct check *c, const char *path, struct mc_kv_floor *floor, bool *ret_bad,
	struct mc_err *err)
{
	unsigned bad = 0;
	struct mc_kv_store *s;
	int r = mc_kv_store_device_look(path, c->f->io, &bad, &s, err);

	if (r != 0)
		return r;
	mc_kv_floor_set(floor, s, UINT64_MAX);
	*ret_bad = bad > 0;
	if (bad > 0)
		mc_fsck_tell(c->f, MC_FSCK_DAMAGE, "%s: one of two superblocks is not whole", path);
	return 0;
}

/* The journal of a device below a directory is the directory's. */
static int open_alone(struct check *c, struct mc_err *err)
{
	int r = open_device(c, c->f->dir, mc_kv_top(c->log), &c->store_bad, err);

	return r == 0 ? mc_kv_store_together(mc_kv_top(c->log)->store, NULL, err) : r;
}

static int open_below(struct check *c, struct mc_err *err)
{
	const char *below = c->f->opts->below;
	struct mc_kv_store *top = mc_kv_top(c->log)->store;
	struct mc_kv_floor *floor = &c->log->floors[1];
	int r;

	c->f->res.unseen = below == NULL && mc_kv_store_is_bound(top);
	if (below == NULL)
		return 0;
	r = open_device(c, below, floor, &c->below_bad, err);
	return r == 0 ? mc_kv_store_together(top, floor->store, err) : r;
}

static int open_files(struct check *c, struct mc_err *err)
{
	struct mc_dir_id id;
	struct mc_kv_store *s;
	uint8_t uuid[16];
	bool known;
	int r = mc_kv_store_files_look(c->f->dir, c->f->io, c->f->opts->repair, &s);

	if (r != 0)
		return r;
	mc_kv_floor_set(mc_kv_top(c->log), s, UINT64_MAX);
	s->spare = tell_leftover;
	s->spare_ctx = c;
	id = mc_kv_store_files_id(s);
	known = mc_journal_super_uuid(s->io, s->journal_dir, uuid) == 0;
	r = mc_fsck_id(c->f, &id, known ? uuid : NULL, s->uuid, &c->store_bad, err);
	return r == 0 ? open_below(c, err) : r;
}

static void remove_empty(struct check *c)
{
	for (uint32_t i = 1; i < c->log->n_segs; i++) {
		struct mc_kv_segment *seg = c->log->segs[i];

		if (seg != NULL && seg->failed && seg->head == 0 && seg->place.fd >= 0)
			mc_kv_segment_remove(c->log, seg);
	}
}

static int repair_store(struct check *c)
{
	struct mc_kv_store *s = mc_kv_top(c->log)->store;
	struct mc_dir_id id;
	int r;

	if (c->below_bad) {
		r = mc_kv_store_device_mend(mc_kv_bottom(c->log)->store);
		if (r != 0)
			return r;
	}
	if (c->f->is_device)
		return c->store_bad ? mc_kv_store_device_mend(s) : 0;
	id = mc_kv_store_files_id(s);
	r = mc_kv_store_files_layout(s);
	return r == 0 && c->store_bad ? mc_dir_id_write(s->io, &id, s->uuid) : r;
}

static int repair(struct check *c)
{
	struct mc_kv_store *s = mc_kv_top(c->log)->store;
	int r = repair_store(c);

	/* Twice: both pages of SUPER are whole then. */
	for (int i = 0; i < 2 && r == 0; i++)
		r = mc_kv_snapshot(c->log);
	if (r != 0)
		return r;
	remove_empty(c);
	for (size_t i = 0; i < c->n_remove; i++)
		s->io->unlink(s->io, c->remove[i]);
	return 0;
}

static int prepare(struct check *c, struct mc_err *err)
{
	int r = c->f->is_device ? open_alone(c, err) : open_files(c, err);

	if (r != 0)
		return r;
	c->watch = (struct mc_kv_watch){.bad = tell_gone, .ctx = c};
	c->log->watch = &c->watch;
	c->log->journal_bytes = JOURNAL_BYTES;
	r = mc_kv_table_init(&c->log->table);
	return r == 0 ? mc_ahead_open(c->f->opts->io, &c->ahead) : r;
}

static int check(struct check *c, struct mc_err *err)
{
	struct mc_kv_scan scan = {.log = c->log, .judged = judged, .ctx = c};
	int r = prepare(c, err);

	if (r == 0)
		r = mc_kv_replay(c->log, tell_journal, c, err);
	if (r == 0)
		r = mc_kv_settle(c->log);
	if (r != 0)
		return r;
	scan.ahead = c->ahead;
	c->f->res.objects += c->log->table.n_heads;
	c->f->bytes_total += c->log->stats.live;
	r = check_segments(c, &scan);
	if (r == 0)
		r = mc_kv_splits_settle(c->log); /* parts of what was dropped go, too */
	if (r == 0)
		check_empty(c);
	if (r == 0 && c->f->opts->repair && c->f->res.damaged + c->f->res.leftovers > c->before)
		r = repair(c);
	return r;
}

int mc_kv_fsck(struct mc_fsck *f, struct mc_err *err)
{
	struct mc_kv_log_opts o = {.dir = f->dir, .io = f->io, .capacity = UINT64_MAX};
	struct check c = {
		.f = f, .log = mc_kv_log_new(&o), .before = f->res.damaged + f->res.leftovers};
	int r;

	if (c.log == NULL)
		return -ENOMEM;
	r = check(&c, err);
	mc_kv_log_free(c.log);
	mc_ahead_close(c.ahead);
	for (size_t i = 0; i < c.n_remove; i++)
		free(c.remove[i]);
	free(c.remove);
	free(c.bad);
	return r;
}
