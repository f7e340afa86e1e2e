/*
 * Asynchronous reads and writes of blocks.
 *
 * A write reserves its space before it starts, then becomes pending; the committer makes it
 * present. A read trusts nothing but its checksum; when the block was evicted and punched while it
 * was under way it is tried again, so a mismatch means damage.
 */
#include "tier/nvme-impl.h"

#include "tier/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct transfer {
	struct mc_uring_req req;
	struct mc_nvme_op *op; /* borrowed until done */
	unsigned epoch;        /* write */
	bool fresh;            /* write: the space was reserved for it */
	uint64_t gave_up;      /* read: img->gave_up at its start */
};

static struct transfer *transfer_new(struct mc_nvme_op *op, enum mc_uring_kind kind,
	void (*done)(struct mc_uring_req *req, int64_t res))
{
	struct mc_nvme_image *img = op->img;
	uint32_t need = mc_block_len(img->id.size, op->block);
	struct transfer *t = calloc(1, sizeof(*t));

	assert(op->block < img->n_blocks && img->fd >= 0);
	assert(((uintptr_t)op->buf & (MC_NVME_ALIGN - 1)) == 0);
	if (t == NULL)
		return NULL;
	t->op = op;
	t->req.kind = kind;
	t->req.fd = img->fd;
	t->req.off = op->block << MC_BLOCK_SHIFT;
	t->req.need = need;
	t->req.len = img->nvme->direct ? (uint32_t)mc_nvme_space(img, op->block) : need;
	t->req.buf = op->buf;
	t->req.done = done;
	t->req.ctx = t;
	return t;
}

/* The image's transfer is over. */
static void leave_locked(struct mc_nvme_image *img)
{
	assert(img->in_flight > 0);
	if (--img->in_flight == 0)
		mc_cond_broadcast(&img->nvme->idle);
}

/* ---- reads */

static int start_read_locked(struct mc_nvme_image *img, struct transfer *t)
{
	if (img->dropped || !mc_bitmap_get(img->present, t->op->block))
		return -ENOENT;
	if (img->nvme->health.bypassed)
		return -EIO;
	t->gave_up = img->gave_up;
	img->in_flight++;
	return 0;
}

void mc_nvme_quarantine_locked(struct mc_nvme_image *img, uint64_t block)
{
	if (!mc_bitmap_clear(img->present, block))
		return;
	__atomic_fetch_sub(&img->n_present, 1, __ATOMIC_RELAXED);
	img->verified = false;
	img->nvme->stats.bad_blocks++;
	if (mc_nvme_log_evicted(img, block, 1) == 0)
		img->nvme->log_dirty = true;
	mc_cond_signal(&img->nvme->work);
}

/* The bytes do not match: damage, unless the block was given up meanwhile. */
static int judge_mismatch(struct mc_nvme *n, struct mc_nvme_image *img, struct transfer *t)
{
	int r = -EBADMSG;

	mc_mutex_lock(&n->lock);
	leave_locked(img);
	if (t->gave_up != img->gave_up) {
		r = start_read_locked(img, t);
		if (r == 0)
			r = 1;
	} else if (!img->dropped) {
		mc_nvme_quarantine_locked(img, t->op->block);
	}
	mc_mutex_unlock(&n->lock);
	return r;
}

static void read_done(struct mc_uring_req *req, int64_t res)
{
	struct transfer *t = req->ctx;
	struct mc_nvme_op *op = t->op;
	struct mc_nvme_image *img = op->img;
	struct mc_nvme *n = img->nvme;
	uint32_t len = mc_block_len(img->id.size, op->block);
	int r = 0;

	if (res < 0) {
		mc_nvme_failed(n);
		r = -EIO;
	} else if (res < len || mc_crc32c(0, op->buf, len) != img->crc[op->block]) {
		r = judge_mismatch(n, img, t);
		if (r == 1) {
			mc_uring_submit(n->uring, &t->req);
			return;
		}
		free(t);
		op->done(op, r);
		return;
	}
	mc_mutex_lock(&n->lock);
	if (r == 0)
		n->stats.bytes_read += len;
	leave_locked(img);
	mc_mutex_unlock(&n->lock);
	free(t);
	op->done(op, r);
}

void mc_nvme_read(struct mc_nvme_op *op)
{
	struct mc_nvme_image *img = op->img;
	struct mc_nvme *n = img->nvme;
	struct transfer *t = transfer_new(op, MC_URING_READ, read_done);
	int r;

	if (t == NULL) {
		op->done(op, -ENOMEM);
		return;
	}
	mc_mutex_lock(&n->lock);
	r = start_read_locked(img, t);
	mc_mutex_unlock(&n->lock);
	if (r == 0) {
		mc_uring_submit(n->uring, &t->req);
		return;
	}
	free(t);
	op->done(op, r);
}

/* ---- writes */

static int keep_pending_room_locked(struct mc_nvme *n)
{
	size_t need = n->n_pending + n->writing + 1, cap;
	struct mc_nvme_pending *grown;

	if (need <= n->cap_pending)
		return 0;
	cap = n->cap_pending * 2 > need ? n->cap_pending * 2 : need + 63;
	grown = reallocarray(n->pending, cap, sizeof(*grown));
	if (grown == NULL)
		return -ENOMEM;
	n->pending = grown;
	n->cap_pending = cap;
	return 0;
}

/* 0: go; 1: the bytes are there or on their way already; -errno. */
static int start_write_locked(struct mc_nvme *n, struct transfer *t)
{
	struct mc_nvme_image *img = t->op->img;
	uint64_t block = t->op->block, space = mc_nvme_space(img, block);
	int r;

	if (n->health.bypassed)
		return -EIO;
	if (img->dropped)
		return -ESTALE;
	if (mc_bitmap_get(img->punching, block))
		return -EAGAIN;
	if (mc_bitmap_get(img->present, block) || mc_bitmap_get(img->busy, block))
		return 1;
	r = keep_pending_room_locked(n);
	if (r != 0)
		return r;
	if (!mc_bitmap_get(img->allocated, block)) {
		if (n->used + space > n->capacity)
			return -ENOSPC;
		n->used += space;
		mc_bitmap_set(img->allocated, block);
		img->n_allocated++;
		t->fresh = true;
	}
	mc_bitmap_set(img->busy, block);
	img->crc[block] = t->op->crc;
	img->in_flight++;
	img->refs++;
	t->epoch = n->epoch;
	n->in_epoch[t->epoch]++;
	n->writing++;
	return 0;
}

static void end_write_locked(struct mc_nvme *n, const struct transfer *t)
{
	n->writing--;
	if (--n->in_epoch[t->epoch] == 0)
		mc_cond_broadcast(&n->idle);
	leave_locked(t->op->img);
}

/* Part of the block may have been allocated: it is given back before the space counts as free. */
static void undo_write(struct mc_nvme *n, struct transfer *t)
{
	struct mc_nvme_image *img = t->op->img;
	uint64_t block = t->op->block;
	bool freed = t->fresh && mc_nvme_punch_file(img, block, 1) == 0;

	mc_mutex_lock(&n->lock);
	mc_bitmap_clear(img->busy, block);
	if (freed) {
		mc_bitmap_clear(img->allocated, block);
		img->n_allocated--;
		n->used -= mc_nvme_space(img, block);
	}
	end_write_locked(n, t);
	mc_mutex_unlock(&n->lock);
	mc_nvme_image_put(img);
}

static void write_done(struct mc_uring_req *req, int64_t res)
{
	struct transfer *t = req->ctx;
	struct mc_nvme_op *op = t->op;
	struct mc_nvme_image *img = op->img;
	struct mc_nvme *n = img->nvme;
	bool late = false;
	int r = 0;

	if (res < 0) {
		r = res == -ENOSPC || res == -EDQUOT ? -ENOSPC : -EIO;
		if (r == -EIO)
			mc_nvme_failed(n);
		undo_write(n, t);
	} else {
		mc_mutex_lock(&n->lock);
		late = n->n_pending >= MC_NVME_GROUP;
		n->pending[n->n_pending++] = (struct mc_nvme_pending){
			.img = img, .block = op->block, .op = late ? op : NULL};
		n->n_fresh++;
		n->stats.bytes_written += t->req.len;
		if (n->oldest_ns == 0)
			n->oldest_ns = mc_now_ns();
		end_write_locked(n, t);
		mc_cond_signal(&n->work);
		mc_mutex_unlock(&n->lock);
	}
	free(t);
	if (!late)
		op->done(op, r);
}

void mc_nvme_write(struct mc_nvme_op *op)
{
	struct mc_nvme *n = op->img->nvme;
	struct transfer *t = transfer_new(op, MC_URING_WRITE, write_done);
	int r;

	if (t == NULL) {
		op->done(op, -ENOMEM);
		return;
	}
	mc_mutex_lock(&n->lock);
	r = start_write_locked(n, t);
	mc_mutex_unlock(&n->lock);
	if (r == 0) {
		/* Whole sectors go out; the committer cuts the file to its size again. */
		if (t->req.len > t->req.need)
			memset((char *)op->buf + t->req.need, 0, t->req.len - t->req.need);
		t->req.need = t->req.len;
		mc_uring_submit(n->uring, &t->req);
		return;
	}
	free(t);
	op->done(op, r == 1 ? 0 : r);
}
