/*
 * Bringing whole files into a local tier: reads of one block, a few at a time, that nobody looks
 * at.
 *
 * Invariants: 1. a slot is free, or its read is under way and its file referenced by the caller of
 * mc_store_warm, who returns only when all slots are free; 2. flying, first_error and arrived
 * change under lock.
 */
#include "tier/store-warm.h"

#include "tier/store-impl.h"

#include <errno.h>
#include <string.h>

#define SLOTS 16
#define PASSES 3 /* what was evicted meanwhile is fetched again, but not for ever */
#define LOOK_NS UINT64_C(20000000)

struct warm;

struct slot {
	struct mc_file_read read;
	struct warm *warm;
	bool flying;
};

struct warm {
	const struct mc_warm_opts *opts;
	struct mc_file *file;
	struct mc_mutex lock;
	struct mc_cond changed;
	struct slot slots[SLOTS];
	unsigned flying;
	int first_error;
	uint64_t arrived;  /* bytes read, or there before */
	uint64_t *next_ns; /* the rate allows no read before; borrowed */
	bool canceled;
};

/* Whether the tier lacks the block; holes are nowhere and lacking nowhere. */
static bool lacks(struct mc_file *f, enum mc_tier tier, uint64_t block)
{
	struct mc_store *s = f->store;
	struct mc_pair *p;
	bool there;

	if (mc_file_block_is_hole(f, block))
		return false;
	if (tier == MC_TIER_NVME)
		return mc_file_nvme_open(f, false) < 0 || !mc_nvme_present(f->nvme, block);
	if (tier == MC_TIER_BLOCK)
		return !mc_block_cache_has(s->opts.blocks, &f->id, block);
	mc_mutex_lock(&s->lock);
	p = mc_file_pair(f, block);
	there = p != NULL && p->blk[block & 1].state == MC_BLK_VALID;
	mc_mutex_unlock(&s->lock);
	return !there;
}

static uint64_t next_lacking(struct mc_file *f, enum mc_tier tier, uint64_t block)
{
	while (block < f->blocks && !lacks(f, tier, block))
		block++;
	return block;
}

static void came(struct mc_file_read *r, int res)
{
	struct slot *slot = r->ctx;
	struct warm *w = slot->warm;

	if (res == 0) {
		if (w->opts->tier != MC_TIER_DRAM) { /* it was asked for as it is not there */
			mc_behind_forget(r->file, r->off >> MC_BLOCK_SHIFT);
			mc_behind_start(r->file, r->off >> MC_BLOCK_SHIFT);
		}
		mc_file_read_end(r);
	}
	mc_mutex_lock(&w->lock);
	if (res == 0)
		w->arrived += r->len;
	else if (w->first_error == 0)
		w->first_error = res;
	slot->flying = false;
	w->flying--;
	mc_cond_signal(&w->changed);
	mc_mutex_unlock(&w->lock);
}

/* Blocks on their way to NVMe or the device, waiting ones included. */
static uint64_t backlog(struct mc_store *s)
{
	uint64_t n;

	mc_mutex_lock(&s->lock);
	n = s->behind_blocks + s->behind_todo.n;
	mc_mutex_unlock(&s->lock);
	return n;
}

/* Bytes that are durable in the tier. */
static uint64_t durable_bytes(struct mc_file *f, enum mc_tier tier)
{
	if (tier == MC_TIER_BLOCK)
		return mc_block_cache_resident(f->store->opts.blocks, &f->id);
	return mc_file_nvme_open(f, false) == 0 ? mc_nvme_resident_bytes(f->nvme) : 0;
}

/* Asks the caller whether to go on; what is waited for has arrived when it is durable. */
static bool goes_on(struct warm *w)
{
	const struct mc_warm_opts *o = w->opts;
	uint64_t done;

	mc_mutex_lock(&w->lock);
	done = w->arrived;
	mc_mutex_unlock(&w->lock);
	if (o->tier != MC_TIER_DRAM && !o->unsettled)
		done = durable_bytes(w->file, o->tier);
	if (!w->canceled && o->keep_on != NULL)
		w->canceled = !o->keep_on(o->ctx, done);
	return !w->canceled;
}

/* A moment, or until a read has come, or the rate allows one. */
static void wait_a_moment(struct warm *w)
{
	uint64_t now = mc_now_ns(), until = now + LOOK_NS;

	if (*w->next_ns > now && *w->next_ns < until)
		until = *w->next_ns;
	mc_mutex_lock(&w->lock);
	mc_cond_wait_until(&w->changed, &w->lock, until);
	mc_mutex_unlock(&w->lock);
}

/* A free slot once rate, backlog and slots allow a read; NULL: canceled or failed. */
static struct slot *wait_turn(struct warm *w)
{
	struct mc_store *s = w->file->store;
	struct slot *free_slot;
	int error;

	for (;;) {
		free_slot = NULL;
		mc_mutex_lock(&w->lock);
		error = w->first_error;
		for (unsigned i = 0; i < SLOTS; i++)
			if (!w->slots[i].flying)
				free_slot = &w->slots[i];
		mc_mutex_unlock(&w->lock);
		if (!goes_on(w) || error != 0)
			return NULL;
		/* More than the backlog takes would leave DRAM without having reached the tier. */
		if (free_slot != NULL && mc_now_ns() >= *w->next_ns &&
			(w->opts->tier == MC_TIER_DRAM || backlog(s) < s->max_behind))
			return free_slot;
		wait_a_moment(w);
	}
}

static void send(struct warm *w, struct slot *slot, uint64_t block)
{
	uint64_t now = mc_now_ns();
	uint32_t len = mc_block_len(w->file->id.size, block);

	if (w->opts->bytes_per_second > 0)
		*w->next_ns = (*w->next_ns > now ? *w->next_ns : now) +
			(uint64_t)len * 1000000000u / w->opts->bytes_per_second;
	slot->warm = w;
	slot->read = (struct mc_file_read){.file = w->file,
		.off = block << MC_BLOCK_SHIFT,
		.len = len,
		.planned = w->opts->bytes_per_second > 0, /* a stream would run ahead of the rate */
		.done = came,
		.ctx = slot};
	mc_mutex_lock(&w->lock);
	slot->flying = true;
	w->flying++;
	mc_mutex_unlock(&w->lock);
	mc_file_read(&slot->read);
}

static void wait_all(struct warm *w)
{
	bool any;

	do {
		mc_mutex_lock(&w->lock);
		any = w->flying > 0;
		if (any)
			mc_cond_wait_until(&w->changed, &w->lock, mc_now_ns() + LOOK_NS);
		mc_mutex_unlock(&w->lock);
		goes_on(w);
	} while (any);
}

/* Waits until nothing is on its way, then for the commit of what was written; the device has what
 * it has durably. */
static void wait_durable(struct warm *w)
{
	struct mc_file *f = w->file;

	while (next_lacking(f, w->opts->tier, 0) < f->blocks && backlog(f->store) > 0 && goes_on(w))
		wait_a_moment(w);
	if (!w->canceled && w->opts->tier == MC_TIER_NVME)
		mc_nvme_sync(f->store->nvme); /* should it fail, blocks are lacking */
}

/* Once over the file: sends what is lacking, and waits for it. */
static void pass(struct warm *w)
{
	struct mc_file *f = w->file;
	enum mc_tier tier = w->opts->tier;
	struct slot *slot;

	for (uint64_t b = next_lacking(f, tier, 0); b < f->blocks;
		b = next_lacking(f, tier, b + 1)) {
		slot = wait_turn(w);
		if (slot == NULL)
			break;
		send(w, slot, b);
	}
	wait_all(w);
	if (tier != MC_TIER_DRAM && !w->opts->unsettled)
		wait_durable(w);
}

static bool fits(struct mc_file *f, enum mc_tier tier)
{
	struct mc_store_stats st;

	mc_store_stats(f->store, &st);
	return f->id.size <= (tier == MC_TIER_DRAM                  ? st.dram.capacity
					     : tier == MC_TIER_NVME ? st.nvme.capacity
								    : st.device.capacity);
}

int mc_store_warm(struct mc_file *f, const struct mc_warm_opts *opts)
{
	uint64_t alone = 0;
	struct warm w = {
		.opts = opts, .file = f, .next_ns = opts->next_ns != NULL ? opts->next_ns : &alone};
	int r = -ENOSPC;

	if (opts->tier == MC_TIER_REMOTE || !mc_store_has(f->store, opts->tier))
		return -ENODEV;
	if (opts->tier == MC_TIER_BLOCK && f->store->nvme != NULL)
		return -EOPNOTSUPP;
	if (!fits(f, opts->tier))
		return -ENOSPC;
	mc_mutex_init(&w.lock);
	mc_cond_init(&w.changed);
	for (int i = 0; i < PASSES && r == -ENOSPC; i++) {
		pass(&w);
		if (w.canceled)
			r = -ECANCELED;
		else if (w.first_error != 0)
			r = w.first_error;
		else if (opts->unsettled || next_lacking(f, opts->tier, 0) == f->blocks)
			r = 0;
	}
	mc_cond_done(&w.changed);
	mc_mutex_done(&w.lock);
	return r;
}
