/*
 * Memory comes back: clean objects leave DRAM in the order of policy.h, writers wait for room, held
 * files are looked at again.
 *
 * Transition made here: CLEAN → EVICTING → out of DRAM, or back to CLEAN where somebody still has
 * the backing file.
 */
#include "tier/kv-impl.h"
#include "tier/kv-remote.h"

#include "tier/lease.h"

#include <fcntl.h>
#include <string.h>

#define SCAN 256
#define LATER_NS UINT64_C(1000000000) /* a held object is looked at again then */
#define TICK_NS UINT64_C(100000000)
#define SPARE 1 /* percent of the capacity that is kept free, twice as much after eviction */
#define SPARE_WRITERS 4 /* that part of it at most is, for what writers may write */
#define HELD_TEXT "a client has it open or mapped"

/* Pins hold while they leave room for others; below DRAM they always do. */
static bool pins_hold_locked(const struct mc_kv *kv) MC_REQUIRES(kv->lock)
{
	return kv->index->pinned_bytes <= kv->opts.dram_capacity / 4 * 3;
}

/* Why the object has to stay in DRAM, or NULL. */
static const char *why_stays(struct mc_kv *kv, const struct kv_object *obj) MC_REQUIRES(kv->lock)
{
	if ((obj->flags & KV_PINNED) != 0 && pins_hold_locked(kv))
		return "it is pinned";
	if (!kv_has_copy(obj))
		return "no tier below has a copy";
	if (obj->state != MC_KV_CLEAN || !obj->res->ready || obj->res->pins > 0 ||
		(obj->flags & KV_BUSY) != 0 || kv_gate_closed_locked(kv, obj))
		return "it is being read, copied or renamed";
	if (obj->res->next != NULL && kv->trouble[KV_REMOTE].error == 0)
		return "a copy of it is about to be made";
	return obj->res->later_ns > mc_now_ns() ? HELD_TEXT : NULL;
}

static bool evictable(void *ctx, const struct mc_policy_entry *e) MC_NO_TSA
{
	if (((const struct kv_cached *)(const void *)e)->is_block)
		return atomic_load(&((const struct kv_block *)(const void *)e)->refs) == 1;
	return why_stays(ctx, ((const struct kv_res *)(const void *)e)->obj) == NULL;
}

/* Whether somebody else has the file open or mapped; nobody can open it meanwhile. */
static bool is_held(struct mc_kv *kv, const struct kv_res *res)
{
	cleanup_close int fd = res->is_file ? kv_file_open(kv, res->data, O_RDWR) : -1;

	if (fd < 0)
		return false;
	if (mc_lease_take(fd) != 0)
		return true;
	mc_lease_drop(fd);
	return false;
}

/* The object is EVICTING. Answers 0 when it left, -EBUSY when it had to stay. */
static int finish(struct mc_kv *kv, struct kv_object *obj)
{
	struct kv_res *res = obj->res;
	bool held = is_held(kv, res);
	struct kv_wait *waiters, *w;

	mc_mutex_lock(&kv->lock);
	waiters = res->waiters;
	res->waiters = NULL;
	obj->state = MC_KV_CLEAN;
	if (held) {
		res->later_ns = mc_now_ns() + LATER_NS;
	} else {
		mc_policy_evict(kv->policy, &res->policy);
		kv_dirty_remove_locked(kv, res);
		obj->res = NULL;
		atomic_fetch_add(&kv->evicted, 1);
	}
	mc_cond_broadcast(&kv->change);
	mc_mutex_unlock(&kv->lock);
	if (!held)
		kv_res_free(kv, res, obj->size);
	while ((w = waiters) != NULL) {
		waiters = w->next;
		kv_get_step(kv, w);
	}
	return held ? -EBUSY : 0;
}

/* One victim. False: there is none. */
static bool evict_one(struct mc_kv *kv)
{
	struct kv_object *obj = NULL;
	struct kv_block *block = NULL;
	struct kv_cached *e;

	mc_mutex_lock(&kv->lock);
	e = (void *)mc_policy_victim(kv->policy, evictable, kv, SCAN);
	if (e != NULL && e->is_block) {
		block = (struct kv_block *)e;
		kv_block_evict_locked(kv, block);
	} else if (e != NULL) {
		obj = ((struct kv_res *)e)->obj;
		obj->state = MC_KV_EVICTING;
		obj->refs++;
	}
	mc_mutex_unlock(&kv->lock);
	if (block != NULL)
		kv_block_put(kv, block);
	if (obj == NULL)
		return block != NULL;
	finish(kv, obj);
	mc_mutex_lock(&kv->lock);
	kv_object_drop_locked(kv, obj);
	kv_room_changed_locked(kv);
	mc_mutex_unlock(&kv->lock);
	kv_reap(kv);
	return true;
}

void kv_make_room(struct mc_kv *kv, uint64_t bytes)
{
	kv_look(kv);
	for (;;) {
		bool fits;

		mc_mutex_lock(&kv->lock);
		fits = kv_total_locked(kv) + bytes <= kv->opts.dram_capacity;
		mc_mutex_unlock(&kv->lock);
		if (fits || (!kv_pool_shrink(kv) && !evict_one(kv)))
			return;
	}
}

bool kv_make_block_room(struct mc_kv *kv)
{
	for (;;) {
		bool fits = mc_slab_has_block(kv->slab);

		mc_mutex_lock(&kv->lock);
		fits |= kv_total_locked(kv) + MC_SLAB_PIECE <= kv->opts.dram_capacity;
		mc_mutex_unlock(&kv->lock);
		if (fits)
			return true;
		if (!kv_pool_shrink(kv) && !evict_one(kv))
			return false;
	}
}

int kv_evict_dram(struct mc_kv *kv, struct kv_object *obj, const char **ret_why)
{
	int r = 0;

	mc_mutex_lock(&kv->lock);
	kv_blocks_forget_locked(kv, obj);
	if (kv_is_kept(obj) && obj->state == MC_KV_DIRTY)
		kv_unkeep_locked(kv, obj);
	else if (kv_is_kept(obj))
		kv_settle_locked(kv, obj);
	if (obj->state == MC_KV_DIRTY || obj->state == MC_KV_FLUSHING) {
		mc_mutex_unlock(&kv->lock);
		r = kv_wait_safe(kv, obj, false);
		mc_mutex_lock(&kv->lock);
	}
	/* It may have been removed, renamed or evicted while it was flushed. */
	if (obj->dir == NULL || obj->res == NULL) {
		r = obj->dir == NULL ? -ENOENT : r;
	} else {
		if (obj->res->later_ns > 0)
			obj->res->later_ns = 0;
		*ret_why = (obj->flags & KV_PINNED) != 0 ? "it is pinned" : why_stays(kv, obj);
		if (*ret_why == NULL && r < 0)
			*ret_why = "it could not be flushed";
		r = *ret_why == NULL ? 1 : -EBUSY;
		if (r == 1)
			obj->state = MC_KV_EVICTING;
	}
	mc_mutex_unlock(&kv->lock);
	if (r == 1) {
		r = finish(kv, obj);
		*ret_why = r < 0 ? HELD_TEXT : NULL;
	}
	return r;
}

/* ---- waiting for room */

void mc_kv_wait_room(struct mc_kv *kv, void (*done)(void *ctx, int res), void *ctx)
{
	struct kv_room_wait *w = calloc(1, sizeof(*w));
	int r = w == NULL ? -ENOSPC : 0;

	if (w != NULL) {
		w->done = done;
		w->ctx = ctx;
		w->deadline_ns = mc_now_ns() + kv->deadline_ns;
		mc_mutex_lock(&kv->lock);
		if (kv->closing || kv->leaving)
			r = -ESHUTDOWN;
		if (r == 0) {
			*kv->room_tail = w;
			kv->room_tail = &w->next;
			kv_room_changed_locked(kv);
		}
		mc_mutex_unlock(&kv->lock);
	}
	if (r < 0) {
		free(w);
		done(ctx, r);
	}
}

void mc_kv_leave(struct mc_kv *kv)
{
	mc_mutex_lock(&kv->lock);
	kv->leaving = true;
	mc_cond_signal(&kv->wake);
	mc_mutex_unlock(&kv->lock);
}

/* Bytes to be kept free. How much a client writes is known when it has closed the file: each may
 * need once more what puts came to lately, and what it writes past us nobody can make room for. */
static uint64_t spare_locked(const struct mc_kv *kv) MC_REQUIRES(kv->lock)
{
	uint64_t least = kv->opts.dram_capacity / 100 * SPARE;
	uint64_t most = kv->opts.dram_capacity / SPARE_WRITERS;
	uint64_t want = kv->n_writers * kv->likely;

	return want < least ? least : want < most ? want : most;
}

void kv_room_changed_locked(struct mc_kv *kv)
{
	if (kv->room != NULL || kv_total_locked(kv) + spare_locked(kv) > kv->opts.dram_capacity)
		mc_cond_signal(&kv->wake);
}

/* What a writer that waits will ask for. */
static uint64_t wanted_locked(const struct mc_kv *kv) MC_REQUIRES(kv->lock)
{
	return kv->refused > kv->typical ? kv->refused : kv->typical;
}

/* The waiters to be answered now: all there is room for, the late, all when closing. */
static struct kv_room_wait *take_waiters_locked(struct mc_kv *kv) MC_REQUIRES(kv->lock)
{
	struct kv_room_wait *list = NULL, **at = &kv->room;
	uint64_t now = mc_now_ns(), promised = 0;

	while (*at != NULL) {
		struct kv_room_wait *w = *at;
		bool room = kv_room_locked(kv, promised + wanted_locked(kv));

		if (!room && w->deadline_ns > now && !kv->closing && !kv->leaving) {
			at = &w->next;
			continue;
		}
		w->res = kv->closing || kv->leaving ? -ESHUTDOWN : room ? 0 : -ENOSPC;
		promised += wanted_locked(kv);
		*at = w->next;
		w->next = list;
		list = w;
	}
	kv->room_tail = at;
	return list;
}

static void answer_waiters(struct mc_kv *kv)
{
	struct kv_room_wait *list, *w;

	mc_mutex_lock(&kv->lock);
	list = take_waiters_locked(kv);
	mc_mutex_unlock(&kv->lock);
	while ((w = list) != NULL) {
		list = w->next;
		w->done(w->ctx, w->res);
		free(w);
	}
}

void *kv_keeper_main(void *arg)
{
	struct mc_kv *kv = arg;
	uint64_t next_held = 0;

	mc_mutex_lock(&kv->lock);
	while (!kv->stopping) {
		uint64_t capacity = kv->opts.dram_capacity, want, spare;
		bool high;

		mc_mutex_unlock(&kv->lock);
		kv_look(kv);
		mc_mutex_lock(&kv->lock);
		want = kv->room != NULL ? wanted_locked(kv) : 0;
		spare = spare_locked(kv);
		high = kv_total_locked(kv) + (want > spare ? want : spare) > capacity;
		mc_mutex_unlock(&kv->lock);
		if (high)
			kv_make_room(kv, spare + capacity / 100 * SPARE + want);
		answer_waiters(kv);
		if (mc_now_ns() >= next_held) {
			kv_held_check(kv);
			next_held = mc_now_ns() + LATER_NS;
		}
		kv_replicas_tick(kv);
		kv_deletes_tick(kv);
		kv_asks_tick(kv);
		kv_sweep_tick(kv);
		kv_reads_tick(kv);
		kv_trouble_tick(kv);
		mc_mutex_lock(&kv->lock);
		if (!kv->stopping)
			mc_cond_wait_until(&kv->wake, &kv->lock, mc_now_ns() + TICK_NS);
	}
	mc_mutex_unlock(&kv->lock);
	answer_waiters(kv);
	return NULL;
}
