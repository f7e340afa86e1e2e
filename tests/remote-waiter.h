/* A read of a remote that a test waits for; its answer must come exactly once. */
#pragma once

#include <check.h>

#include "tier/future.h"
#include "tier/remote.h"

struct waiter {
	struct mc_remote_read req; /* guard and avoid are the test's */
	struct mc_future over;
	_Atomic int calls;
	char buf[16]; /* room for a small read */
};

static inline void waiter_done(struct mc_remote_read *req, int res)
{
	struct waiter *w = req->ctx;

	w->calls++;
	mc_future_set(&w->over, res);
}

static inline void waiter_start(struct mc_remote *r, struct waiter *w, const char *path,
	uint64_t off, uint32_t len, void *buf)
{
	mc_future_init(&w->over);
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
	int res = (int)mc_future_wait(&w->over);

	ck_assert_int_eq(w->calls, 1);
	return res;
}
