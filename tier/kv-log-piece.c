/*
 * Reads of segments that somebody waits for: reclaim, and the check of a scrub. When the disk does
 * not answer they are given up, and while one of them has not ended no other is begun on that
 * floor.
 */
#include "tier/kv-log-impl.h"

#include <errno.h>
#include <stdlib.h>

struct piece {
	struct mc_uring_req req;
	struct mc_kv_log *log;
	struct mc_kv_segment *seg; /* of which it is a reader */
	bool over, given_up;       /* given up: buf and this are its own */
	int64_t res;
};

static void piece_done(struct mc_uring_req *req, int64_t res)
{
	struct piece *p = req->ctx;
	struct mc_kv_log *log = p->log;
	struct mc_kv_floor *f = p->seg->floor;
	bool given_up;

	mc_mutex_lock(&log->lock);
	p->over = true;
	p->res = res;
	given_up = p->given_up;
	if (--p->seg->readers == 0 && p->seg->head == 0)
		mc_kv_poke_locked(log);
	if (given_up)
		mc_kv_found_locked(log, f);
	mc_cond_broadcast(&log->moved);
	mc_mutex_unlock(&log->lock);
	if (!given_up)
		return;
	free(req->buf);
	free(p);
}

/* False: there is something that has not ended. */
static bool begin(struct mc_kv_log *log, struct piece *p)
{
	struct mc_kv_floor *f = p->seg->floor;
	bool answers;

	mc_mutex_lock(&log->lock);
	answers = f->lost == 0 && !f->hangs;
	p->seg->readers += answers;
	mc_mutex_unlock(&log->lock);
	if (answers)
		mc_uring_submit(f->uring, &p->req);
	return answers;
}

/* Whether it ended in time. */
static bool await(struct mc_kv_log *log, struct piece *p)
{
	struct mc_kv_floor *f = p->seg->floor;
	uint64_t until = mc_now_ns() + mc_disk_patience_ns(&f->health, p->req.len);
	bool over;

	mc_mutex_lock(&log->lock);
	while (!p->over && mc_cond_wait_until(&log->moved, &log->lock, until) == 0)
		;
	over = p->over;
	p->given_up = !over;
	if (!over)
		mc_kv_lost_locked(log, f);
	mc_mutex_unlock(&log->lock);
	return over;
}

int64_t mc_kv_piece_read(struct mc_kv_log *log, struct mc_kv_segment *seg, uint64_t off,
	uint32_t len, unsigned char **buf)
{
	struct piece *p = malloc(sizeof(*p));
	int64_t res = -ETIMEDOUT;

	if (p == NULL)
		return -ENOMEM;
	*p = (struct piece){.log = log, .seg = seg};
	p->req = (struct mc_uring_req){.kind = MC_URING_READ,
		.fd = seg->place.fd,
		.off = seg->place.at + off,
		.len = (uint32_t)mc_kv_up(len, MC_KV_ALIGN),
		.need = len,
		.buf = *buf,
		.done = piece_done,
		.ctx = p};
	if (begin(log, p)) {
		if (!await(log, p)) {
			*buf = NULL;
			return res;
		}
		res = p->res;
		if (res < 0)
			mc_kv_failed(log, seg->floor, (int)res);
	}
	free(p);
	return res;
}
