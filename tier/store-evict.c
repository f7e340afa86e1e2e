/*
 * Making room. DRAM is freed by pairs, NVMe by runs, in the order the policy says.
 *
 * A victim is marked EVICTING (T5), the memory is given back outside the lock, and readers that
 * came meanwhile go on afterwards: they fetch it anew, or, when the kernel still holds the image
 * (its lease was refused) and nothing was freed, find it VALID again.
 */
#include "tier/store-impl.h"

#include <errno.h>
#include <stdlib.h>

#define SCAN 64             /* entries looked at for one victim */
#define HELD_NS 1000000000u /* how long a held image is left in peace */
#define MAX_DEMOTIONS 8     /* victims sent to NVMe first, in one search */

struct mc_run *mc_run_pin(struct mc_file *f, uint64_t block)
{
	struct mc_store *s = f->store;
	struct mc_run *run;

	mc_mutex_lock(&s->lock);
	run = f->runs[block >> MC_RUN_SHIFT];
	if (run != NULL && run->evicting)
		run = NULL;
	if (run != NULL)
		run->pins++;
	mc_mutex_unlock(&s->lock);
	return run;
}

void mc_run_unpin(struct mc_store *s, struct mc_run *run)
{
	mc_mutex_lock(&s->lock);
	run->pins--;
	mc_mutex_unlock(&s->lock);
}

static bool dram_evictable(void *ctx, const struct mc_policy_entry *e)
{
	const struct mc_pair *p =
		(const struct mc_pair *)((const char *)e - offsetof(struct mc_pair, entry));

	return p->pins == 0 && p->file->backing[MC_TIER_DRAM] == 0 &&
		!mc_pin_holds(p->file, MC_TIER_DRAM) &&
		p->file->held_until_ns[MC_TIER_DRAM] < *(uint64_t *)ctx &&
		p->blk[0].state != MC_BLK_EVICTING;
}

static bool nvme_evictable(void *ctx, const struct mc_policy_entry *e)
{
	const struct mc_run *r =
		(const struct mc_run *)((const char *)e - offsetof(struct mc_run, entry));

	return r->pins == 0 && !r->evicting && r->file->backing[MC_TIER_NVME] == 0 &&
		!mc_pin_holds(r->file, MC_TIER_NVME) &&
		r->file->held_until_ns[MC_TIER_NVME] < *(uint64_t *)ctx;
}

/* Blocks of the pair that should go to NVMe before they leave DRAM, as a bit mask. */
static unsigned to_demote_locked(struct mc_store *s, const struct mc_pair *p) MC_REQUIRES(s->lock)
{
	unsigned mask = 0;

	if (!mc_store_has_lower(s) || s->behind_blocks >= s->max_behind || s->stopping)
		return 0;
	for (unsigned i = 0; i < 2; i++)
		if (p->blk[i].state == MC_BLK_VALID && p->blk[i].behind == MC_BEHIND_NONE)
			mask |= 1u << i;
	return mask;
}

static struct mc_pair *victim_locked(struct mc_store *s) MC_REQUIRES(s->lock)
{
	uint64_t now = mc_now_ns();
	struct mc_policy_entry *e = mc_policy_victim(s->dram_policy, dram_evictable, &now, SCAN);

	return e != NULL ? mc_pair_of(e) : NULL;
}

void mc_pair_mark_locked(struct mc_store *s, struct mc_pair *p)
{
	for (unsigned i = 0; i < 2; i++) {
		p->blk[i].was_valid = p->blk[i].state == MC_BLK_VALID;
		if (p->blk[i].was_valid)
			p->file->n_valid--;
		p->blk[i].state = MC_BLK_EVICTING;
	}
}

/* A reader waits for a block that has just left: its fetch starts anew. */
static void restart_locked(struct mc_store *s, struct mc_pair *p, unsigned i,
	struct mc_file_wait **ready) MC_REQUIRES(s->lock)
{
	struct mc_file *f = p->file;
	uint64_t block = ((uint64_t)p->index << 1) + i;
	uint64_t deadline = mc_now_ns() + f->store->opts.deadline_ms * UINT64_C(1000000);
	int r;

	if (p->blk[i].waiters == NULL)
		return;
	r = mc_fetch_block_locked(s, f, block, false, deadline);
	if (r < 0)
		mc_read_block_done_locked(s, p, i, r, ready);
}

/* The pair's memory is gone (freed ≥ 0), or was refused: states, readers, policy. */
static void settle_locked(struct mc_store *s, struct mc_pair *p, int64_t freed,
	struct mc_file_wait **ready) MC_REQUIRES(s->lock)
{
	struct mc_file *f = p->file;

	for (unsigned i = 0; i < 2; i++) {
		bool valid = freed < 0 && p->blk[i].was_valid;

		p->blk[i].state = valid ? MC_BLK_VALID : MC_BLK_ABSENT;
		if (valid) {
			f->n_valid++;
			mc_read_block_done_locked(s, p, i, 0, ready);
		}
	}
	if (freed < 0) {
		f->held_until_ns[MC_TIER_DRAM] = mc_now_ns() + HELD_NS;
		for (unsigned i = 0; i < 2; i++)
			if (p->blk[i].state == MC_BLK_ABSENT)
				restart_locked(s, p, i, ready);
		return;
	}
	s->st.evicted_dram += (uint64_t)freed;
	mc_policy_evict(s->dram_policy, &p->entry);
	for (unsigned i = 0; i < 2; i++)
		restart_locked(s, p, i, ready);
	if (p->pins == 0)
		mc_pair_free_locked(s, p);
}

/* A victim whose image was closed: open it and look for a victim anew. */
static void open_victim(struct mc_store *s, struct mc_file *f, bool empty)
{
	int r = mc_file_dram_open(f, empty);

	if (r < 0) {
		mc_mutex_lock(&s->lock);
		f->held_until_ns[MC_TIER_DRAM] = mc_now_ns() + HELD_NS;
		mc_mutex_unlock(&s->lock);
	}
	mc_file_put(f);
}

static void demote_and_put(struct mc_file *f, uint64_t pair, unsigned mask)
{
	for (unsigned i = 0; i < 2; i++)
		if (mask & 1u << i)
			mc_behind_start(f, 2 * pair + i);
	mc_file_put(f);
}

int64_t mc_pair_evict(struct mc_pair *p)
{
	struct mc_file *f = p->file;
	struct mc_store *s = f->store;
	struct mc_file_wait *ready = NULL;
	int64_t freed = mc_dram_punch(f->dram, p->index);

	mc_mutex_lock(&s->lock);
	settle_locked(s, p, freed, &ready);
	mc_mutex_unlock(&s->lock);
	mc_read_resume(ready);
	return freed;
}

uint64_t mc_evict_dram(struct mc_store *s)
{
	for (unsigned tries = 0; tries < SCAN; tries++) {
		struct mc_pair *p;
		struct mc_file *f;
		unsigned demote = 0;
		bool closed, empty;
		uint64_t index;
		int64_t freed;

		mc_mutex_lock(&s->lock);
		p = victim_locked(s);
		if (p == NULL) {
			mc_mutex_unlock(&s->lock);
			return 0;
		}
		index = p->index;
		f = mc_file_ref_locked(s, p->file);
		closed = f->dram == NULL;
		empty = f->n_valid == 0;
		if (!closed && tries < MAX_DEMOTIONS)
			demote = to_demote_locked(s, p);
		if (!closed && demote == 0)
			mc_pair_mark_locked(s, p);
		mc_mutex_unlock(&s->lock);
		if (closed || demote != 0) {
			if (closed)
				open_victim(s, f, empty);
			else
				demote_and_put(f, index, demote);
			continue;
		}
		freed = mc_pair_evict(p);
		mc_file_put(f);
		if (freed > 0)
			return (uint64_t)freed;
	}
	return 0;
}

void mc_run_mark_locked(struct mc_store *s, struct mc_run *run)
{
	run->evicting = true;
	run->file->evicting_runs++;
}

int64_t mc_run_evict(struct mc_run *run)
{
	struct mc_file *f = run->file;
	struct mc_store *s = f->store;
	int64_t freed = mc_file_nvme_open(f, false);

	if (freed == 0)
		freed = mc_nvme_evict(f->nvme, (uint64_t)run->index << MC_RUN_SHIFT, MC_RUN_BLOCKS);
	else if (freed == -ENOENT)
		freed = 0; /* nothing was ever written */
	mc_mutex_lock(&s->lock);
	run->evicting = false;
	f->evicting_runs--;
	if (freed < 0) {
		f->held_until_ns[MC_TIER_NVME] = mc_now_ns() + HELD_NS;
	} else {
		s->st.evicted_nvme += (uint64_t)freed;
		mc_policy_evict(s->nvme_policy, &run->entry);
		mc_run_free_locked(s, run);
	}
	mc_store_room_locked(s); /* readers wait for what was on its way down */
	mc_mutex_unlock(&s->lock);
	return freed;
}

uint64_t mc_evict_nvme(struct mc_store *s)
{
	for (unsigned tries = 0; tries < SCAN; tries++) {
		uint64_t now = mc_now_ns();
		struct mc_policy_entry *e;
		struct mc_run *run;
		struct mc_file *f;
		int64_t freed;

		mc_mutex_lock(&s->lock);
		e = mc_policy_victim(s->nvme_policy, nvme_evictable, &now, SCAN);
		if (e == NULL) {
			mc_mutex_unlock(&s->lock);
			return 0;
		}
		run = mc_run_of(e);
		mc_run_mark_locked(s, run);
		f = mc_file_ref_locked(s, run->file);
		mc_mutex_unlock(&s->lock);
		mc_sink_run(s, run);
		freed = mc_run_evict(run);
		mc_file_put(f);
		if (freed > 0)
			return (uint64_t)freed;
	}
	return 0;
}
