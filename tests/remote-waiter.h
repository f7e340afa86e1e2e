/* A read of a remote that a test waits for; its answer must come exactly once. */
#pragma once

#include <check.h>

#include "tier/lock.h"
#include "tier/remote.h"

struct waiter {
	struct mc_remote_read req; /* cancel and guard are the test's */
	struct mc_mutex lock;
	struct mc_cond cond;
	int calls, res;
	char buf[16]; /* room for a small read */
};

static inline void waiter_done(struct mc_remote_read *req, int res)
{
	struct waiter *w = req->ctx;

	mc_mutex_lock(&w->lock);
	w->calls++;
	w->res = res;
	mc_cond_signal(&w->cond);
	mc_mutex_unlock(&w->lock);
}

static inline void waiter_start(struct mc_remote *r, struct waiter *w, const char *path,
	uint64_t off, uint32_t len, void *buf)
{
	mc_mutex_init(&w->lock);
	mc_cond_init(&w->cond);
	w->calls = 0;
	w->req.path = path;
	w->req.off = off;
	w->req.len = len;
	w->req.buf = buf;
	w->req.done = waiter_done;
	w->req.ctx = w;
	mc_remote_read(r, &w->req);
}

/* The result of the read. */
static inline int waiter_wait(struct waiter *w)
{
	int res;

	mc_mutex_lock(&w->lock);
	while (w->calls == 0)
		mc_cond_wait(&w->cond, &w->lock);
	res = w->res;
	ck_assert_int_eq(w->calls, 1);
	mc_mutex_unlock(&w->lock);
	return res;
}
