/* A ring of buffers: the oldest piece is waited for and handed over, its buffer takes the next. */
#include "tier/read-ahead.h"

#include "tier/lock.h"
#include "tier/uring.h"

#include <errno.h>
#include <stdlib.h>

#define PIECES 8

struct piece {
	struct mc_uring_req req;
	struct mc_ahead *ahead;
	bool over; /* under the lock */
	int64_t res;
};

struct mc_ahead {
	struct mc_uring *uring; /* owned */
	struct mc_mutex lock;
	struct mc_cond ended;
	struct piece pieces[PIECES];
};

int mc_ahead_open(const struct mc_io *io, struct mc_ahead **ret)
{
	struct mc_uring_opts u = {.depth = PIECES, .io = io};
	struct mc_ahead *a = calloc(1, sizeof(*a));
	int r;

	if (a == NULL)
		return -ENOMEM;
	mc_mutex_init(&a->lock);
	mc_cond_init(&a->ended);
	r = mc_uring_open(&u, &a->uring);
	for (unsigned i = 0; i < PIECES && r == 0; i++) {
		a->pieces[i].ahead = a;
		a->pieces[i].req.buf = aligned_alloc(4096, MC_AHEAD_PIECE);
		if (a->pieces[i].req.buf == NULL)
			r = -ENOMEM;
	}
	if (r != 0) {
		mc_ahead_close(a);
		return r;
	}
	*ret = a;
	return 0;
}

void mc_ahead_close(struct mc_ahead *a)
{
	if (a == NULL)
		return;
	mc_uring_close(a->uring);
	for (unsigned i = 0; i < PIECES; i++)
		free(a->pieces[i].req.buf);
	mc_cond_done(&a->ended);
	mc_mutex_done(&a->lock);
	free(a);
}

static void piece_done(struct mc_uring_req *req, int64_t res)
{
	struct piece *p = req->ctx;
	struct mc_ahead *a = p->ahead;

	mc_mutex_lock(&a->lock);
	p->res = res;
	p->over = true;
	mc_cond_signal(&a->ended);
	mc_mutex_unlock(&a->lock);
}

static bool submit(struct mc_ahead *a, struct piece *p, int fd, const struct mc_ahead_user *user)
{
	void *buf = p->req.buf;
	uint64_t off;
	uint32_t len;

	if (!user->next(user->ctx, &off, &len))
		return false;
	p->req = (struct mc_uring_req){.kind = MC_URING_READ,
		.fd = fd,
		.off = off,
		.len = len,
		.buf = buf,
		.done = piece_done,
		.ctx = p};
	p->over = false;
	mc_uring_submit(a->uring, &p->req);
	return true;
}

static void hand_over(struct mc_ahead *a, struct piece *p, const struct mc_ahead_user *user)
{
	mc_mutex_lock(&a->lock);
	while (!p->over)
		mc_cond_wait(&a->ended, &a->lock);
	mc_mutex_unlock(&a->lock);
	if (p->res < 0)
		user->take(user->ctx, p->req.off, NULL, p->req.len, (int)p->res);
	else
		user->take(user->ctx, p->req.off, p->req.buf, (uint32_t)p->res, 0);
}

void mc_ahead_read(struct mc_ahead *a, int fd, const struct mc_ahead_user *user)
{
	uint64_t submitted = 0, taken = 0;
	bool more = true;

	while (more || taken < submitted) {
		while (more && submitted - taken < PIECES) {
			more = submit(a, &a->pieces[submitted % PIECES], fd, user);
			submitted += more;
		}
		if (taken < submitted)
			hand_over(a, &a->pieces[taken++ % PIECES], user);
	}
}
