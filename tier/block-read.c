/*
 * Reads that may be given up; see block-read.h.
 *
 * Invariants
 * 1. A read is in the list from begin until it ends or is given up; whoever takes it out calls
 * done.
 * 2. One given up counts as lost until it ends.
 * 3. Its memory is released, or kept for another, only when it has ended.
 */
#include "tier/block-read.h"

#include "tier/source.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define PAGE 4096u

struct mc_block_read {
	struct mc_block_reads *rs; /* borrowed */
	struct mc_kv_log *log;     /* borrowed */
	struct mc_block_read *older, *newer;
	struct mc_kv_log_read read;
	struct mc_block_order order;
	uint64_t begun_ns; /* later by the grace */
	bool given_up;     /* under the lock */
};

void mc_block_reads_init(struct mc_block_reads *rs, bool below, void (*ended)(void *ctx), void *ctx)
{
	mc_mutex_init(&rs->lock);
	rs->below = below;
	rs->ended = ended;
	rs->ctx = ctx;
}

void mc_block_reads_done(struct mc_block_reads *rs)
{
	mc_mutex_lock(&rs->lock);
	assert(rs->oldest == NULL && rs->lost == 0);
	while (rs->n_kept > 0)
		free(rs->kept[--rs->n_kept]);
	mc_mutex_unlock(&rs->lock);
	mc_mutex_done(&rs->lock);
}

static void enter_locked(struct mc_block_reads *rs, struct mc_block_read *r) MC_REQUIRES(rs->lock)
{
	r->older = rs->newest;
	if (rs->newest != NULL)
		rs->newest->newer = r;
	else
		rs->oldest = r;
	rs->newest = r;
}

static void leave_locked(struct mc_block_reads *rs, struct mc_block_read *r) MC_REQUIRES(rs->lock)
{
	if (r->older != NULL)
		r->older->newer = r->newer;
	else
		rs->oldest = r->newer;
	if (r->newer != NULL)
		r->newer->older = r->older;
	else
		rs->newest = r->older;
}

static void *take_memory(struct mc_block_reads *rs)
{
	void *buf = NULL;

	mc_mutex_lock(&rs->lock);
	if (rs->n_kept > 0)
		buf = rs->kept[--rs->n_kept];
	mc_mutex_unlock(&rs->lock);
	return buf != NULL ? buf : aligned_alloc(PAGE, MC_BLOCK_SIZE);
}

static void give_memory(struct mc_block_reads *rs, void *buf)
{
	mc_mutex_lock(&rs->lock);
	if (rs->n_kept < MC_BLOCK_READS_KEPT) {
		rs->kept[rs->n_kept++] = buf;
		buf = NULL;
	}
	mc_mutex_unlock(&rs->lock);
	free(buf);
}

static void read_ended(struct mc_kv_log_read *read, int res)
{
	struct mc_block_read *r = read->ctx;
	struct mc_block_reads *rs = r->rs;
	bool given_up;

	mc_mutex_lock(&rs->lock);
	given_up = r->given_up;
	if (!given_up)
		leave_locked(rs, r);
	mc_mutex_unlock(&rs->lock);
	if (!given_up)
		r->order.done(r->order.ctx, read->buf, res == -ETIMEDOUT ? -EIO : res);
	else if (r->order.release != NULL)
		r->order.release(rs->ctx, r->order.memory);
	if (r->order.what.buf == NULL)
		give_memory(rs, read->buf);
	if (given_up)
		mc_kv_log_answered(r->log, rs->below);
	free(r);
	if (given_up) {
		mc_mutex_lock(&rs->lock);
		rs->lost--;
		mc_mutex_unlock(&rs->lock);
	}
	if (rs->ended != NULL)
		rs->ended(rs->ctx);
}

int mc_block_reads_begin(
	struct mc_block_reads *rs, struct mc_kv_log *log, const struct mc_block_order *order)
{
	struct mc_block_read *r = calloc(1, sizeof(*r));
	void *own = order->what.buf == NULL ? take_memory(rs) : NULL;

	assert(order->what.buf != NULL || order->what.len <= MC_BLOCK_SIZE);
	if (r == NULL || (order->what.buf == NULL && own == NULL)) {
		free(r);
		free(own);
		return -ENOMEM;
	}
	*r = (struct mc_block_read){.rs = rs,
		.log = log,
		.read = order->what,
		.order = *order,
		.begun_ns = mc_now_ns() + order->grace_ns};
	if (own != NULL)
		r->read.buf = own;
	r->read.done = read_ended;
	r->read.ctx = r;
	mc_mutex_lock(&rs->lock);
	enter_locked(rs, r);
	mc_mutex_unlock(&rs->lock);
	mc_kv_log_read(log, &r->read);
	return 0;
}

unsigned mc_block_reads_give_up(struct mc_block_reads *rs, uint64_t before_ns)
{
	unsigned n = 0;

	for (;; n++) {
		struct mc_block_order order;
		struct mc_block_read *r;

		mc_mutex_lock(&rs->lock);
		for (r = rs->oldest; r != NULL && r->begun_ns >= before_ns;)
			r = r->newer;
		if (r != NULL) {
			leave_locked(rs, r);
			r->given_up = true;
			rs->lost++;
			order = r->order;
			mc_kv_log_hangs(r->log, rs->below); /* before it can end */
		}
		mc_mutex_unlock(&rs->lock);
		if (r == NULL)
			return n;
		order.done(order.ctx, NULL, -ETIMEDOUT);
	}
}

unsigned mc_block_reads_lost(struct mc_block_reads *rs)
{
	unsigned n;

	mc_mutex_lock(&rs->lock);
	n = rs->lost;
	mc_mutex_unlock(&rs->lock);
	return n;
}
