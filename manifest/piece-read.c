/*
 * A synchronous range read.
 *
 * Invariant: left counts requests whose done has not run; the struct lives on the caller's stack
 * and is not left before left is 0 and the last done has dropped the lock.
 */
#include "manifest/range-read.h"

#include "tier/lock.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define REQUEST_MAX MC_BLOCK_SIZE
#define REQUESTS (MC_RANGE_MAX / REQUEST_MAX)

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

int mc_range_read(struct mc_remote *r, const char *path, uint64_t off, uint32_t len,
	const struct mc_guard *guard, void *buf, struct mc_err *err)
{
	struct mc_remote_read req[REQUESTS];
	unsigned n = (unsigned)((len + REQUEST_MAX - 1) / REQUEST_MAX);
	struct range g = {.left = n};
	int res;

	assert(len > 0 && len <= MC_RANGE_MAX);
	mc_mutex_init(&g.lock);
	mc_cond_init(&g.ended);
	for (unsigned i = 0; i < n; i++) {
		uint32_t at = i * (uint32_t)REQUEST_MAX;

		req[i] = (struct mc_remote_read){.path = path,
			.off = off + at,
			.len = len - at < REQUEST_MAX ? len - at : (uint32_t)REQUEST_MAX,
			.buf = (char *)buf + at,
			.done = done,
			.ctx = &g};
		if (guard != NULL)
			req[i].guard = *guard;
		mc_remote_read(r, &req[i]);
	}
	mc_mutex_lock(&g.lock);
	while (g.left > 0)
		mc_cond_wait(&g.ended, &g.lock);
	res = g.res;
	mc_mutex_unlock(&g.lock);
	mc_cond_done(&g.ended);
	mc_mutex_done(&g.lock);
	if (res == -ESTALE)
		return mc_err_set(err, res, "remote %s: %s is not what it was when it was imported",
			mc_remote_url(r), path);
	if (res == -ENOENT)
		return mc_err_set(err, res,
			"remote %s: %s is missing; importing the same source again restores it",
			mc_remote_url(r), path);
	return res < 0 ? mc_err_set(err, res, "remote %s: %s: %s%s", mc_remote_url(r), path,
				 strerror(-res), mc_err_hint(res))
		       : 0;
}
