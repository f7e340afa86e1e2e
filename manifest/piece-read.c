/*
 * A piece of a plan, synchronously.
 *
 * Invariant: left counts requests whose done has not run; the struct lives on the caller's stack
 * and is not left before left is 0 and the last done has dropped the lock.
 */
#include "manifest/piece-read.h"

#include "tier/lock.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define REQUEST_MAX MC_BLOCK_SIZE
#define REQUESTS (MC_PIECE_MAX / REQUEST_MAX)

struct range {
	struct mc_mutex lock;
	struct mc_cond ended;
	unsigned left MC_GUARDED_BY(lock);
	int res MC_GUARDED_BY(lock); /* first failure */
};

static void done(struct mc_remote_read *req, int res)
{
	struct range *g = req->ctx;

	mc_mutex_lock(&g->lock);
	if (res < 0 && g->res == 0)
		g->res = res;
	g->left--;
	if (g->left == 0)
		mc_cond_signal(&g->ended);
	mc_mutex_unlock(&g->lock);
}

static int read_object(struct mc_remote *r, const struct mc_piece *p, void *buf)
{
	struct mc_remote_read req[REQUESTS];
	unsigned n = (unsigned)((p->len + REQUEST_MAX - 1) / REQUEST_MAX);
	struct range g = {.left = n};
	int res;

	assert(p->len > 0 && p->len <= MC_PIECE_MAX);
	mc_mutex_init(&g.lock);
	mc_cond_init(&g.ended);
	for (unsigned i = 0; i < n; i++) {
		uint32_t at = i * (uint32_t)REQUEST_MAX;

		req[i] = (struct mc_remote_read){.path = p->path,
			.off = p->off + at,
			.len = p->len - at < REQUEST_MAX ? p->len - at : (uint32_t)REQUEST_MAX,
			.buf = (char *)buf + at,
			.guard = p->guard,
			.done = done,
			.ctx = &g};
		mc_remote_read(r, &req[i]);
	}
	mc_mutex_lock(&g.lock);
	while (g.left > 0)
		mc_cond_wait(&g.ended, &g.lock);
	res = g.res;
	mc_mutex_unlock(&g.lock);
	mc_cond_done(&g.ended);
	mc_mutex_done(&g.lock);
	return res;
}

int mc_piece_read(struct mc_remote *r, const struct mc_piece *p, void *buf, struct mc_err *err)
{
	int res;

	switch (p->kind) {
	case MC_PIECE_HOLE:
		memset(buf, 0, p->len);
		return 0;
	case MC_PIECE_INLINE:
		memcpy(buf, p->data, p->len);
		return 0;
	case MC_PIECE_OBJECT:
		res = read_object(r, p, buf);
		break;
	default:
		return mc_err_set(err, -EINVAL, "the file is made of other files");
	}
	if (res == -ESTALE)
		return mc_err_set(err, res, "remote %s: %s is not what it was when it was imported",
			mc_remote_url(r), p->path);
	if (res == -ENOENT)
		return mc_err_set(err, res,
			"remote %s: %s is missing; importing the same source again restores it",
			mc_remote_url(r), p->path);
	return res < 0 ? mc_err_set(err, res, "remote %s: %s: %s%s", mc_remote_url(r), p->path,
				 strerror(-res), mc_err_hint(res))
		       : 0;
}
