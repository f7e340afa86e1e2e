/*
 * Segments: their space, their generations, which is next.
 *
 * Invariants:
 * 1. A generation is durable in the journal before a write of it: a fresh segment is known by the
 *    first PUT in it, a reused one by its SEGMENT record or a snapshot.
 * 2. Numbers are never given twice while the daemon lives, nor while a journal names the first use.
 * 3. n_files × segment_bytes ≤ capacity on each floor, unless the capacity was lowered.
 */
#include "tier/kv-log-impl.h"

#include <errno.h>
#include <stdlib.h>

/* Where it is in segs: the floors take turns. */
static uint32_t index_of(uint32_t id)
{
	return 2 * mc_kv_segment_number(id) + ((id & MC_KV_BELOW) != 0);
}

struct mc_kv_segment *mc_kv_segment_get(const struct mc_kv_log *log, uint32_t id)
{
	return id < 2 * MC_KV_BELOW && index_of(id) < log->n_segs ? log->segs[index_of(id)] : NULL;
}

struct mc_kv_segment *mc_kv_segment_note(struct mc_kv_log *log, uint32_t id)
{
	struct mc_kv_segment *seg = mc_kv_segment_get(log, id);
	uint32_t number = mc_kv_segment_number(id), at = index_of(id);

	if (seg != NULL || number == 0 || id >= 2 * MC_KV_BELOW)
		return seg;
	if (at >= log->cap_segs) {
		uint32_t cap = at + at / 2 + 64;
		struct mc_kv_segment **grown = reallocarray(log->segs, cap, sizeof(*grown));

		if (grown == NULL)
			return NULL;
		log->segs = grown;
		log->cap_segs = cap;
	}
	seg = calloc(1, sizeof(*seg));
	if (seg == NULL)
		return NULL;
	*seg = (struct mc_kv_segment){.id = id,
		.generation = 1,
		.floor = &log->floors[(id & MC_KV_BELOW) != 0],
		.place = {.fd = -1}};
	while (log->n_segs <= at)
		log->segs[log->n_segs++] = NULL;
	log->segs[at] = seg;
	if (seg->floor->next <= number)
		seg->floor->next = number + 1;
	return seg;
}

static uint64_t max_files(const struct mc_kv_floor *f)
{
	return f->capacity / f->segment_bytes;
}

uint32_t mc_kv_segments_left_locked(const struct mc_kv_log *log, const struct mc_kv_floor *f)
{
	uint64_t max = max_files(f);
	uint32_t left = 0;

	for (uint32_t i = 1; i < log->n_segs; i++)
		left += log->segs[i] != NULL && log->segs[i]->floor == f &&
			log->segs[i]->state == MC_KV_SEG_FREE && log->segs[i]->place.fd >= 0;
	if (!f->disk_full && max > f->n_files)
		left += (uint32_t)(max - f->n_files);
	return left;
}

static int make_place(struct mc_kv_log *log, struct mc_kv_segment *seg)
{
	struct mc_kv_place place;
	int r = mc_kv_store_make(seg->floor->store, mc_kv_segment_number(seg->id), &place);

	if (r != 0)
		return r;
	mc_mutex_lock(&log->lock);
	seg->place = place;
	seg->made = true;
	seg->floor->n_files++;
	mc_mutex_unlock(&log->lock);
	return 0;
}

/* A FREE one, with space if possible and not bare; else a new number. */
static struct mc_kv_segment *choose_locked(
	struct mc_kv_log *log, struct mc_kv_floor *f, bool want_bare) MC_REQUIRES(log->lock)
{
	struct mc_kv_segment *bare = NULL;

	for (uint32_t i = 1; i < log->n_segs; i++) {
		struct mc_kv_segment *seg = log->segs[i];

		if (seg == NULL || seg->floor != f || seg->state != MC_KV_SEG_FREE)
			continue;
		if (seg->place.fd < 0)
			bare = seg;
		else if (!want_bare)
			return seg;
	}
	if (bare != NULL || f->next >= MC_KV_BELOW)
		return bare;
	return mc_kv_segment_note(log, f->next | (f == &log->floors[0] ? 0 : MC_KV_BELOW));
}

static bool is_full(int r)
{
	return r == -ENOSPC || r == -EDQUOT || r == -EFBIG;
}

void mc_kv_segments_look(struct mc_kv_log *log, struct mc_kv_floor *f)
{
	struct mc_kv_segment *seg = NULL;
	int r;

	mc_mutex_lock(&log->lock);
	if (f->disk_full && max_files(f) > f->n_files)
		seg = choose_locked(log, f, true);
	if (seg != NULL)
		seg->state = MC_KV_SEG_OPEN;
	mc_mutex_unlock(&log->lock);
	if (seg == NULL)
		return;
	r = make_place(log, seg);
	mc_mutex_lock(&log->lock);
	seg->state = MC_KV_SEG_FREE;
	f->disk_full = r != 0;
	mc_mutex_unlock(&log->lock);
	if (r != 0 && !is_full(r))
		mc_kv_failed(log, f, r);
}

int mc_kv_segment_take(
	struct mc_kv_log *log, struct mc_kv_floor *f, bool spare, struct mc_kv_segment **ret)
{
	struct mc_kv_segment *seg = NULL;
	uint32_t need = spare ? 1 : 2;
	int r = 0;

	mc_mutex_lock(&log->lock);
	/* A disk that was full may have room again. */
	if (f->disk_full && mc_kv_segments_left_locked(log, f) < need)
		f->disk_full = false;
	if (mc_kv_segments_left_locked(log, f) < need)
		r = -EAGAIN;
	else if ((seg = choose_locked(log, f, false)) == NULL)
		r = -ENOMEM;
	if (r == 0) {
		seg->state = MC_KV_SEG_OPEN;
		seg->taken = ++f->taken;
	}
	mc_mutex_unlock(&log->lock);
	if (r != 0)
		return r;
	if (seg->place.fd < 0)
		r = make_place(log, seg);
	if (r != 0) {
		mc_mutex_lock(&log->lock);
		seg->state = MC_KV_SEG_FREE;
		if (is_full(r)) {
			f->disk_full = true;
			r = -EAGAIN;
		}
		mc_mutex_unlock(&log->lock);
		if (r != -EAGAIN)
			mc_kv_failed(log, f, r);
		return r;
	}
	*ret = seg;
	return 0;
}

static bool is_empty_locked(const struct mc_kv_segment *seg)
{
	return (seg->state == MC_KV_SEG_SEALED || seg->state == MC_KV_SEG_MOVING) &&
		seg->aside == 0 && seg->head == 0 && seg->writers == 0 && seg->readers == 0;
}

void mc_kv_segments_leave(struct mc_kv_log *log)
{
	for (uint32_t i = 1; i < log->n_segs; i++) {
		if (log->segs[i] != NULL)
			mc_kv_store_leave(log->segs[i]->floor->store, &log->segs[i]->place);
		free(log->segs[i]);
	}
	log->n_segs = 0;
	for (unsigned i = 0; i < MC_KV_FLOORS; i++) {
		log->floors[i].n_files = 0;
		log->floors[i].next = 1;
	}
}

void mc_kv_segment_remove(struct mc_kv_log *log, struct mc_kv_segment *seg)
{
	mc_kv_store_remove(seg->floor->store, mc_kv_segment_number(seg->id), &seg->place);
	mc_mutex_lock(&log->lock);
	seg->place.fd = -1;
	seg->floor->n_files--;
	mc_mutex_unlock(&log->lock);
}

void mc_kv_segment_clear(struct mc_kv_log *log, struct mc_kv_segment *seg)
{
	bool remove;

	mc_mutex_lock(&log->lock);
	remove = mc_kv_segment_failed(seg) || seg->floor->n_files > max_files(seg->floor);
	mc_mutex_unlock(&log->lock);
	if (remove && seg->place.fd >= 0)
		mc_kv_segment_remove(log, seg);
	else if (seg->place.fd >= 0)
		mc_kv_store_discard(seg->floor->store, &seg->place);
	mc_mutex_lock(&log->lock);
	mc_kv_segment_set_failed(seg, false);
	seg->state = MC_KV_SEG_FREE;
	log->stats.reclaimed++;
	seg->floor->freed++;
	seg->floor->clearing -= mc_kv_is_lower(log, seg->floor);
	mc_mutex_unlock(&log->lock);
}

/* Its next generation is durable. Of the lower floor the rest is its thread's. */
static void set_free(struct mc_kv_log *log, struct mc_kv_segment *seg)
{
	if (!mc_kv_is_lower(log, seg->floor)) {
		mc_kv_segment_clear(log, seg);
		return;
	}
	mc_mutex_lock(&log->lock);
	seg->state = MC_KV_SEG_CLEARING;
	seg->floor->clearing++;
	mc_cond_signal(&seg->floor->wake);
	mc_mutex_unlock(&log->lock);
}

void mc_kv_segments_free(struct mc_kv_log *log)
{
	bool any = false;
	uint32_t n;

	mc_mutex_lock(&log->lock);
	n = log->n_segs;
	for (uint32_t i = 1; i < n; i++) {
		struct mc_kv_segment *seg = log->segs[i];

		if (seg == NULL)
			continue;
		if (is_empty_locked(seg)) {
			seg->state = MC_KV_SEG_FREEING;
			seg->generation++;
			mc_kv_log_segment_locked(log, seg);
		}
		any |= seg->state == MC_KV_SEG_FREEING;
	}
	mc_mutex_unlock(&log->lock);
	if (!any || mc_kv_commit(log) != 0)
		return;
	for (uint32_t i = 1; i < n; i++) {
		struct mc_kv_segment *seg;

		mc_mutex_lock(&log->lock);
		seg = log->segs[i];
		mc_mutex_unlock(&log->lock);
		if (seg != NULL && seg->state == MC_KV_SEG_FREEING)
			set_free(log, seg);
	}
	mc_mutex_lock(&log->lock);
	mc_cond_broadcast(&log->moved);
	mc_cond_signal(&log->work);
	mc_mutex_unlock(&log->lock);
}
