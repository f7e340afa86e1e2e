/*
 * Recovery: the journal says which objects are there, the store says which segments are. An object
 * without its segment is forgotten; a segment without objects is removed, or kept as a free one; a
 * segment that was being filled is given up as it is. The snapshot that follows makes the next
 * generations of free segments durable before anything is written to them.
 *
 * What is there and cannot be read now may be readable later: nothing is said of it then, and
 * recovery begins anew (kv-log-commit.c). Segments that cannot be opened though the disk works are
 * set aside in the end.
 *
 * The table is not locked here: nobody else changes it, or looks at it, until recovering is false.
 */
#include "tier/kv-log-impl.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

void mc_kv_bad_drop(struct mc_kv_log *log, uint32_t slot, const char *why) MC_NO_TSA
{
	const struct mc_kv_entry *e = mc_kv_table_get(&log->table, slot);
	uint32_t object = e->kind != MC_KV_PART
		? slot
		: mc_kv_split_find_locked(log, e->version, mc_kv_entry_key(e));

	if (object != 0) {
		log->stats.bad++;
		if (log->watch != NULL)
			log->watch->bad(log->watch->ctx, object, slot, why);
		mc_kv_entry_drop_locked(log, object);
	}
	if (object != slot)
		mc_kv_entry_drop_locked(log, slot);
}

/* ---- segments */

/* Limits of ours pass; what has no records is not waited for. */
static bool may_set_aside(const struct mc_kv_log *log, const struct mc_kv_segment *seg, int error)
{
	if (error == -EMFILE || error == -ENFILE || error == -ENOMEM)
		return false;
	return log->watch != NULL || log->impatient || seg->head == 0;
}

struct look {
	struct mc_kv_log *log;
	struct mc_kv_floor *floor;
};

static int look_at_segment(void *ctx, const struct mc_kv_found *f)
{
	struct mc_kv_log *log = ((struct look *)ctx)->log;
	struct mc_kv_floor *floor = ((struct look *)ctx)->floor;
	struct mc_kv_segment *seg = NULL;

	if (f->id < MC_KV_BELOW)
		seg = mc_kv_segment_get(log, f->id | (floor == &log->floors[0] ? 0 : MC_KV_BELOW));
	if (seg == NULL)
		return 0;
	if (f->error != 0 && !may_set_aside(log, seg, f->error))
		return f->error;
	seg->aside = f->error;
	seg->place = f->place;
	seg->made = true; /* an earlier life may have ended before it synced the name */
	seg->failed = f->error == 0 && !f->whole; /* of another size: never written again */
	floor->n_files++;
	return 1;
}

/* A check has no later life to wait for. Of a floor that it does not look at nothing is known. */
static void forget_lost(struct mc_kv_log *log) MC_NO_TSA
{
	for (uint32_t i = 1; i < log->n_segs; i++) {
		struct mc_kv_segment *seg = log->segs[i];

		if (seg == NULL || seg->place.fd >= 0 || (seg->aside != 0 && log->watch == NULL) ||
			(seg->floor->store == NULL && log->watch != NULL))
			continue;
		while (seg->head != 0)
			mc_kv_bad_drop(log, seg->head,
				seg->aside != 0 ? "its segment cannot be opened"
						: "its segment is missing");
	}
}

/* What lies in a segment that is aside, in *ret. */
static void mark_unreadable(struct mc_kv_log *log, const struct mc_kv_segment *seg,
	struct mc_kv_log_aside *ret) MC_NO_TSA
{
	struct mc_kv_table *t = &log->table;

	for (uint32_t at = seg->head; at != 0; at = mc_kv_table_get(t, at)->seg_next) {
		struct mc_kv_entry *e = mc_kv_table_get(t, at);

		if (e->kind == MC_KV_PART)
			e = mc_kv_table_get(
				t, mc_kv_split_find_locked(log, e->version, mc_kv_entry_key(e)));
		if (e->unreadable)
			continue; /* another part of it was seen */
		e->unreadable = true;
		log->stats.unreadable++;
		ret->objects++;
		ret->copied += e->copies > 0;
	}
}

static void tell_aside(struct mc_kv_log *log)
{
	for (uint32_t i = 1; i < log->n_segs; i++) {
		const struct mc_kv_segment *seg = log->segs[i];
		struct mc_kv_log_aside what = {0};
		char file[PATH_MAX];

		if (seg == NULL || seg->aside == 0 || seg->head == 0)
			continue;
		mark_unreadable(log, seg, &what);
		snprintf(file, sizeof(file), "%s/segments/%08" PRIx32, seg->floor->store->name,
			seg->id);
		what.file = file;
		what.error = seg->aside;
		if (log->replay.aside != NULL)
			log->replay.aside(log->replay.ctx, &what);
	}
}

static void settle_segments(struct mc_kv_log *log) MC_NO_TSA
{
	for (uint32_t i = 1; i < log->n_segs; i++) {
		struct mc_kv_segment *seg = log->segs[i];

		if (seg == NULL)
			continue;
		seg->filled = seg->floor->segment_bytes;
		seg->state = seg->head != 0 || seg->aside != 0 ? MC_KV_SEG_SEALED : MC_KV_SEG_FREE;
		if (seg->state == MC_KV_SEG_SEALED)
			continue;
		seg->generation++;
		if (log->watch != NULL)
			continue;
		if (seg->failed && seg->place.fd >= 0)
			mc_kv_segment_remove(log, seg);
		seg->failed = false;
	}
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
	if (e->unreadable && to->unreadable != NULL)
		to->unreadable(to->ctx, m.key, e->version);
}

/* Nobody changes the table before this is over. Directories first: objects lie in them. Pins last:
 * they are of objects. */
static void tell_all(struct mc_kv_log *log)
{
	static const enum mc_kv_kind order[] = {MC_KV_DIR, MC_KV_OBJECT, MC_KV_PIN};

	atomic_store(&log->told.total, UINT64_C(3) * log->table.n_slots);
	for (unsigned i = 0; i < 3; i++)
		for (uint32_t slot = 1; slot < log->table.n_slots; slot++) {
			const struct mc_kv_entry *e = mc_kv_table_get(&log->table, slot);

			atomic_fetch_add_explicit(&log->told.seen, 1, memory_order_relaxed);
			if (e != NULL && e->kind == order[i])
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
		.damaged_ctx = ctx,
		.share = &log->read};
	struct mc_journal *journal = NULL;
	unsigned places = 0;
	int r;

	/* It may be the second try. */
	atomic_store(&log->read.seen, 0);
	atomic_store(&log->read.total, 0);
	atomic_store(&log->told.seen, 0);
	mc_kv_store_journal(mc_kv_top(log)->store, &o);
	r = mc_journal_open(&o, &journal, &places, err);
	if (r != 0)
		return r;
	atomic_store(&log->read.seen, atomic_load(&log->read.total));
	mc_mutex_lock(&log->lock);
	log->journal = journal;
	log->stats.errors += places;
	mc_mutex_unlock(&log->lock);
	return 0;
}

int mc_kv_settle(struct mc_kv_log *log)
{
	int r = 0;

	for (unsigned i = 0; i < MC_KV_FLOORS && r == 0; i++) {
		struct look l = {log, &log->floors[i]};

		if (l.floor->store != NULL)
			r = mc_kv_store_find(l.floor->store, look_at_segment, &l);
	}
	if (r != 0)
		return r;
	forget_lost(log);
	r = mc_kv_splits_settle(log);
	if (r != 0)
		return r;
	settle_segments(log);
	return 0;
}

/* Nothing was read. */
static void forget_all(struct mc_kv_log *log)
{
	struct mc_journal *journal;

	mc_mutex_lock(&log->lock);
	journal = log->journal;
	log->journal = NULL;
	mc_kv_table_clear(&log->table);
	mc_kv_segments_leave(log);
	log->split_seq = 0;
	log->n_gone = 0;
	log->stats.live = log->stats.objects = log->stats.parts = log->stats.bad = 0;
	log->stats.unreadable = 0;
	mc_mutex_unlock(&log->lock);
	mc_journal_close(journal);
}

int mc_kv_recover(struct mc_kv_log *log, struct mc_err *err)
{
	int r = mc_kv_replay(log, NULL, NULL, err);

	if (r == 0)
		r = mc_kv_settle(log);
	if (r != 0) {
		forget_all(log);
		return r;
	}
	tell_aside(log);
	tell_all(log);
	return 0;
}
