/*
 * Reads: lending out resident blocks, waiting for the others, fetching ahead.
 *
 * A read looks at all its blocks under one lock. If all are VALID it pins them and is done;
 * otherwise it pins nothing (T3), waits on those that are not, and looks again when the last of
 * them has come.
 */
#include "tier/store-through.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static uint64_t first_block(const struct mc_file_read *r)
{
	return r->off >> MC_BLOCK_SHIFT;
}

static unsigned n_blocks(const struct mc_file_read *r)
{
	return (unsigned)(((r->off + r->len - 1) >> MC_BLOCK_SHIFT) - first_block(r)) + 1;
}

static struct mc_pair_block *block_of(const struct mc_file *f, uint64_t block)
{
	struct mc_pair *p = mc_file_pair(f, block);

	return p != NULL ? &p->blk[block & 1] : NULL;
}

static bool all_valid_locked(struct mc_store *s, const struct mc_file_read *r, const bool *hole)
	MC_REQUIRES(s->lock)
{
	for (unsigned i = 0; i < n_blocks(r); i++) {
		struct mc_pair_block *b = block_of(r->file, first_block(r) + i);

		if (!hole[i] && (b == NULL || b->state != MC_BLK_VALID))
			return false;
	}
	return true;
}

/* Pins the VALID blocks that are not pinned yet. */
static void pin_locked(struct mc_store *s, struct mc_file_read *r, const bool *hole)
	MC_REQUIRES(s->lock)
{
	for (unsigned i = 0; i < n_blocks(r); i++) {
		struct mc_pair *p = mc_file_pair(r->file, first_block(r) + i);
		struct mc_pair_block *b = block_of(r->file, first_block(r) + i);

		if (hole[i] || r->pinned & 1u << i || b == NULL || b->state != MC_BLK_VALID)
			continue;
		p->pins++;
		r->pinned |= 1u << i;
		if (!b->ahead || mc_policy_is_ahead(&p->entry))
			mc_policy_hit(s->dram_policy, &p->entry);
		b->ahead = false;
	}
}

static void unpin_locked(struct mc_store *s, struct mc_file_read *r) MC_REQUIRES(s->lock)
{
	if (r->pinned == 0)
		return;
	for (unsigned i = 0; i < MC_READ_IOV; i++)
		if (r->pinned & 1u << i)
			mc_file_pair(r->file, first_block(r) + i)->pins--;
	r->pinned = 0;
	mc_store_room_locked(s);
}

static void end_turn_locked(struct mc_store *s, struct mc_file_read *r) MC_REQUIRES(s->lock)
{
	if (r->turn)
		s->turns++;
	r->turn = false;
}

/* Registers the read with one block that is not VALID; starts its fetch when nobody has. */
static int wait_for_locked(struct mc_store *s, struct mc_file_read *r, unsigned i)
	MC_REQUIRES(s->lock)
{
	uint64_t block = first_block(r) + i;
	struct mc_pair_block *b = block_of(r->file, block);
	struct mc_file_wait *w = &r->wait[i];
	int e;

	if (b == NULL || b->state == MC_BLK_ABSENT) {
		e = mc_fetch_block_locked(s, r->file, block, false, r->deadline_ns);
		if (e < 0)
			return e;
		b = block_of(r->file, block);
	} else if (b->state == MC_BLK_FILLING) {
		mc_fetch_urgent_locked(b->job, r->deadline_ns);
	}
	w->read = r;
	w->next = b->waiters;
	b->waiters = w;
	r->waiting++;
	return 0;
}

static void wait_all_locked(struct mc_store *s, struct mc_file_read *r, const bool *hole)
	MC_REQUIRES(s->lock)
{

	if (++r->tries > 2 && !r->turn && s->turns > 0) {
		r->turn = true;
		s->turns--;
	}
	if (r->turn)
		pin_locked(s, r, hole);
	else
		unpin_locked(s, r);
	if (mc_now_ns() > r->deadline_ns) {
		r->res = -ETIMEDOUT;
		return;
	}
	for (unsigned i = 0; i < n_blocks(r) && r->res == 0; i++) {
		struct mc_pair_block *b = block_of(r->file, first_block(r) + i);

		if (!hole[i] && (b == NULL || b->state != MC_BLK_VALID))
			r->res = wait_for_locked(s, r, i);
	}
}

/* All blocks are pinned: points iov at them and tells the caller. */
static void finish_ok(struct mc_file_read *r, const bool *hole)
{
	struct mc_file *f = r->file;
	uint64_t at = r->off, end = r->off + r->len;

	r->n_iov = 0;
	for (unsigned i = 0; at < end; i++) {
		uint64_t block = at >> MC_BLOCK_SHIFT;
		uint64_t in = at & (MC_BLOCK_SIZE - 1);
		uint64_t n = MC_BLOCK_SIZE - in < end - at ? MC_BLOCK_SIZE - in : end - at;
		uint8_t *base = hole[i] ? f->store->zeros : mc_dram_ptr(f->dram, block);

		r->iov[r->n_iov++] = (struct iovec){.iov_base = base + in, .iov_len = n};
		at += n;
	}
	r->done(r, 0);
}

static void finish_error(struct mc_file_read *r)
{
	struct mc_store *s = r->file->store;

	mc_mutex_lock(&s->lock);
	s->st.read_errors++;
	unpin_locked(s, r);
	end_turn_locked(s, r);
	mc_mutex_unlock(&s->lock);
	r->done(r, r->res);
}

static void read_try(struct mc_file_read *r, bool first)
{
	struct mc_store *s = r->file->store;
	bool hole[MC_READ_IOV], ready, failed = false;

	for (unsigned i = 0; i < n_blocks(r); i++)
		hole[i] = mc_file_block_is_hole(r->file, first_block(r) + i);
	mc_mutex_lock(&s->lock);
	ready = all_valid_locked(s, r, hole);
	if (ready) {
		pin_locked(s, r, hole);
		end_turn_locked(s, r);
		if (first) {
			s->st.hits_dram += n_blocks(r);
			r->file->hits++;
		}
	} else {
		wait_all_locked(s, r, hole);
		failed = r->res < 0 && r->waiting == 0;
	}
	mc_mutex_unlock(&s->lock);
	if (ready)
		finish_ok(r, hole);
	else if (failed)
		finish_error(r);
}

bool mc_read_fetch_ahead(struct mc_file *f, uint64_t block)
{
	struct mc_store *s = f->store;
	struct mc_pair_block *blk;
	bool full;

	if (mc_file_block_is_hole(f, block))
		return true;
	mc_mutex_lock(&s->lock);
	blk = block_of(f, block);
	full = s->prefetch.n >= s->max_prefetch || s->derive.n >= s->max_gathering ||
		s->no_room.n > 0;
	if (!full && (blk == NULL || blk->state == MC_BLK_ABSENT) &&
		mc_fetch_block_locked(s, f, block, true,
			mc_now_ns() + s->opts.deadline_ms * UINT64_C(1000000)) == 0)
		s->st.prefetched++;
	mc_mutex_unlock(&s->lock);
	return !full;
}

/* Starts what the file's streams say should be fetched before it is asked for. */
static void fetch_ahead(struct mc_file *f, uint64_t first, uint32_t n)
{
	bool more = true;

	for (uint64_t b = first; more && b < first + n && b < f->blocks; b++)
		more = mc_read_fetch_ahead(f, b);
}

void mc_file_read(struct mc_file_read *r)
{
	struct mc_file *f = mc_file_ref(r->file); /* fetch_ahead runs after done may have run */
	struct mc_store *s = f->store;
	uint64_t ahead = 0;
	uint32_t n = 0;
	bool through;

	assert(r->len > 0 && r->off + r->len <= f->id.size && n_blocks(r) <= MC_READ_IOV);
	r->deadline_ns = mc_now_ns() + s->opts.deadline_ms * UINT64_C(1000000);
	r->waiting = 0;
	r->pinned = 0;
	r->tries = 0;
	r->turn = false;
	r->res = 0;
	r->through = NULL;
	mc_mutex_lock(&s->lock);
	s->st.reads++;
	s->st.read_bytes += r->len;
	if (!r->planned)
		n = mc_streams_note(&f->streams, r->off, r->len, s->max_window, &ahead);
	through = mc_through_wanted_locked(s, r);
	mc_mutex_unlock(&s->lock);
	if (through)
		mc_through_start(r);
	else
		read_try(r, true);
	if (n > 0 && through)
		mc_through_ahead(f, ahead, n);
	else if (n > 0)
		fetch_ahead(f, ahead, n);
	mc_file_put(f);
}

void mc_file_read_end(struct mc_file_read *r)
{
	struct mc_store *s = r->file->store;

	if (r->through != NULL) {
		mc_through_end(r);
		return;
	}
	mc_mutex_lock(&s->lock);
	unpin_locked(s, r);
	mc_mutex_unlock(&s->lock);
}

void mc_read_block_done_locked(
	struct mc_store *s, struct mc_pair *p, unsigned i, int res, struct mc_file_wait **ret_ready)
{
	struct mc_file_wait *w = p->blk[i].waiters;
	uint64_t block = ((uint64_t)p->index << 1) + i;

	p->blk[i].waiters = NULL;
	while (w != NULL) {
		struct mc_file_wait *next = w->next;
		struct mc_file_read *r = w->read;

		if (res < 0 && r->res == 0)
			r->res = res;
		r->waiting--;
		if (r->res == 0 && (r->waiting == 0 || r->turn)) {
			p->pins++;
			r->pinned |= 1u << (block - first_block(r));
		}
		if (r->waiting == 0) {
			w->next = *ret_ready;
			*ret_ready = w;
		}
		w = next;
	}
}

void mc_read_resume(struct mc_file_wait *ready)
{
	while (ready != NULL) {
		struct mc_file_wait *next = ready->next;
		struct mc_file_read *r = ready->read;

		if (r->res < 0)
			finish_error(r);
		else
			read_try(r, false);
		ready = next;
	}
}
