/*
 * The administrator takes a file out of a tier. What moves at that moment is waited for, up to the
 * store's deadline; what a client reads past us stays.
 */
#include "tier/store-impl.h"

#include <errno.h>

#define POLL_NS 2000000 /* between looks at what is being filled, written or read */

enum may { MAY_LEAVE, MAY_LATER, MAY_NOT };

/* The file as a whole. */
static const char *why_stays_locked(struct mc_store *s, const struct mc_file *f, enum mc_tier tier)
	MC_REQUIRES(s->lock)
{
	if (f->pinned)
		return "it is pinned";
	return f->backing[tier] > 0 ? "a client has it open" : NULL;
}

static int64_t evict_pair(struct mc_file *f, uint64_t i, enum may *ret_may)
{
	struct mc_store *s = f->store;
	struct mc_pair *p;

	mc_mutex_lock(&s->lock);
	p = f->pairs[i];
	*ret_may = p == NULL || !mc_policy_linked(&p->entry)        ? MAY_NOT
		: p->pins > 0 || p->blk[0].state == MC_BLK_EVICTING ? MAY_LATER
								    : MAY_LEAVE;
	if (*ret_may == MAY_LEAVE)
		mc_pair_mark_locked(s, p);
	mc_mutex_unlock(&s->lock);
	return *ret_may == MAY_LEAVE ? mc_pair_evict(p) : 0;
}

/* DRAM blocks of an evicted run are not on NVMe any more. */
static void forget_behind_locked(struct mc_store *s, struct mc_file *f, uint64_t run)
	MC_REQUIRES(s->lock)
{
	uint64_t first = run << MC_RUN_SHIFT;

	for (uint64_t b = first; b < first + MC_RUN_BLOCKS && b < f->blocks; b++) {
		struct mc_pair *p = f->pairs[b >> 1];

		if (p != NULL && p->blk[b & 1].behind == MC_BEHIND_DONE)
			p->blk[b & 1].behind = MC_BEHIND_NONE;
	}
}

/* What of the file waits to be written below DRAM does not any more. */
static void unqueue_locked(struct mc_store *s, struct mc_file *f) MC_REQUIRES(s->lock)
{
	for (uint64_t b = 0; b < f->blocks; b += 2) {
		struct mc_pair *p = f->pairs[b >> 1];

		if (p != NULL && p->todo.on != NULL)
			mc_queue_take(&s->behind_todo, &p->todo);
	}
}

static bool goes_to_device_locked(struct mc_store *s, const struct mc_file *f) MC_REQUIRES(s->lock)
{
	if (f->sinking > 0 || s->nvme != NULL)
		return f->sinking > 0;
	for (uint64_t b = 0; b < f->blocks; b++) {
		const struct mc_pair *p = f->pairs[b >> 1];

		if (p != NULL && p->blk[b & 1].behind == MC_BEHIND_RUNNING)
			return true;
	}
	return false;
}

/* [blocks] Nothing of the file is on its way to the device; not for longer than a read. */
static void await_device(struct mc_file *f)
{
	struct mc_store *s = f->store;
	uint64_t deadline = mc_now_ns() + s->opts.deadline_ms * UINT64_C(1000000);

	mc_mutex_lock(&s->lock);
	while (goes_to_device_locked(s, f) && mc_now_ns() < deadline)
		mc_cond_wait_until(&s->left, &s->lock, mc_now_ns() + POLL_NS);
	mc_mutex_unlock(&s->lock);
}

/* Blocks on a device are dropped at once, whoever reads them: readers have what they read in DRAM.
 */
static int evict_device(struct mc_store *s, const struct mc_file_id *id, struct mc_file *f)
{
	int64_t n;

	if (f != NULL)
		await_device(f);
	n = mc_block_cache_drop(s->opts.blocks, id);
	if (s->nvme != NULL)
		return n < 0 ? (int)n : 0;
	mc_mutex_lock(&s->lock);
	for (uint64_t run = 0; f != NULL && run << MC_RUN_SHIFT < f->blocks; run++)
		forget_behind_locked(s, f, run);
	mc_mutex_unlock(&s->lock);
	return n < 0 ? (int)n : 0;
}

static int64_t evict_run(struct mc_file *f, uint64_t i, enum may *ret_may)
{
	struct mc_store *s = f->store;
	struct mc_run *run;
	int64_t freed;

	mc_mutex_lock(&s->lock);
	run = f->runs[i];
	*ret_may = run == NULL                                                     ? MAY_NOT
		: run->pins > 0 || run->evicting || !mc_policy_linked(&run->entry) ? MAY_LATER
										   : MAY_LEAVE;
	if (*ret_may == MAY_LEAVE)
		mc_run_mark_locked(s, run);
	mc_mutex_unlock(&s->lock);
	if (*ret_may != MAY_LEAVE)
		return 0;
	freed = mc_run_evict(run);
	mc_mutex_lock(&s->lock);
	if (freed >= 0)
		forget_behind_locked(s, f, i);
	mc_mutex_unlock(&s->lock);
	return freed;
}

/* One pair or run; waits for what moves. */
static int evict_part(struct mc_file *f, enum mc_tier tier, uint64_t i, uint64_t deadline_ns,
	const char **ret_why)
{
	struct mc_store *s = f->store;
	enum may may;

	for (;;) {
		const struct timespec pause = {.tv_nsec = POLL_NS};
		int64_t freed;

		mc_mutex_lock(&s->lock);
		*ret_why = why_stays_locked(s, f, tier);
		mc_mutex_unlock(&s->lock);
		if (*ret_why != NULL)
			return -EBUSY;
		freed = tier == MC_TIER_DRAM ? evict_pair(f, i, &may) : evict_run(f, i, &may);
		if (freed < 0) {
			*ret_why = freed == -EAGAIN ? "a client has it open or mapped" : NULL;
			return freed == -EAGAIN ? -EBUSY : (int)freed;
		}
		if (may != MAY_LATER)
			return 0;
		if (mc_now_ns() >= deadline_ns) {
			*ret_why = "it is being read or filled all the time";
			return -EBUSY;
		}
		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	}
}

static int evict_file(struct mc_file *f, enum mc_tier tier, const char **ret_why)
{
	uint64_t deadline = mc_now_ns() + f->store->opts.deadline_ms * UINT64_C(1000000);
	uint64_t n = tier == MC_TIER_DRAM ? (f->blocks + 1) / 2
					  : (f->blocks + MC_RUN_BLOCKS - 1) >> MC_RUN_SHIFT;
	int r = tier == MC_TIER_DRAM ? mc_file_dram_open(f, false) : 0;

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	for (uint64_t i = 0; i < n && r == 0; i++)
		r = evict_part(f, tier, i, deadline, ret_why);
	return r;
}

int mc_store_evict(
	struct mc_store *s, const struct mc_file_id *id, enum mc_tier tier, const char **ret_why)
{
	struct mc_file *f;
	int r;

	*ret_why = NULL;
	if (tier == MC_TIER_REMOTE) {
		*ret_why = "it is the last good copy; mooncakefs rm removes a revision";
		return -EBUSY;
	}
	mc_mutex_lock(&s->lock);
	f = mc_file_find_locked(s, id);
	if (f != NULL) {
		mc_file_ref_locked(s, f);
		if (tier != MC_TIER_DRAM)
			unqueue_locked(s, f);
	}
	mc_mutex_unlock(&s->lock);
	if (tier == MC_TIER_BLOCK)
		r = s->opts.blocks != NULL ? evict_device(s, id, f) : 0;
	else
		r = f != NULL ? evict_file(f, tier, ret_why) : 0;
	if (f != NULL)
		mc_file_put(f);
	return r;
}
