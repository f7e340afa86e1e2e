/* The reads of a remote that misbehaves on order: held, damaged or failed as their verdict says. */
#include "tier/remote-fault-impl.h"

#include <errno.h>
#include <stdlib.h>

struct fault_read {
	struct mc_remote_read inner;
	struct mc_remote_read *outer;
	struct mc_fault *f;
	struct fault_verdict v;
	struct fault_read *next; /* held */
};

static void read_end(struct fault_read *t, int res)
{
	struct mc_remote_read *outer = t->outer;

	free(t);
	mc_backend_read_done(outer, res);
}

static void inner_done(struct mc_remote_read *req, int res)
{
	struct fault_read *t = req->ctx;

	t->outer->instance = req->instance;
	t->outer->served = req->served;
	if (res == 0)
		mc_fault_damage(&t->v, req->buf, req->len);
	read_end(t, t->v.hit && t->v.r.kind == MC_FAULT_LOST ? t->v.r.error : res);
}

static void read_begin(struct fault_read *t)
{
	if (t->v.hit && t->v.r.kind == MC_FAULT_FAIL)
		read_end(t, t->v.r.error);
	else
		mc_remote_read_until(t->f->inner, &t->inner, t->outer->deadline_ns);
}

void mc_fault_read(struct mc_backend *b, struct mc_remote_read *req)
{
	struct mc_fault *f = (struct mc_fault *)b;
	struct fault_read *t = calloc(1, sizeof(*t));
	bool stopping;

	if (t == NULL) {
		mc_backend_read_done(req, -ENOMEM);
		return;
	}
	atomic_fetch_add(&f->counters->requests, 1);
	t->f = f;
	t->outer = req;
	t->inner = (struct mc_remote_read){.path = req->path,
		.off = req->off,
		.len = req->len,
		.buf = req->buf,
		.guard = req->guard,
		.avoid = req->avoid,
		.done = inner_done,
		.ctx = t};
	t->v = mc_fault_judge(f, MC_FAULT_READ, req->path);
	if (t->v.due_ns == 0) {
		read_begin(t);
		return;
	}
	mc_mutex_lock(&f->lock);
	stopping = f->stopping;
	if (!stopping) {
		t->next = f->held_reads;
		f->held_reads = t;
		f->held++;
		mc_cond_broadcast(&f->change);
	}
	mc_mutex_unlock(&f->lock);
	if (stopping)
		read_end(t, -ESHUTDOWN);
}

/* Takes one held read that need not wait longer; else tells how long the thread may sleep. */
static struct fault_read *take_ripe_locked(struct mc_fault *f, int *ret_r, uint64_t *ret_until)
	MC_REQUIRES(f->lock)
{
	uint64_t now = mc_now_ns();

	*ret_until = FAULT_FOREVER;
	for (struct fault_read **at = &f->held_reads; *at != NULL; at = &(*at)->next) {
		struct fault_read *t = *at;

		*ret_r = mc_fault_ripe_locked(f, &t->v, t->outer->deadline_ns, now);
		if (*ret_r != 0) {
			*at = t->next;
			f->held--;
			return t;
		}
		*ret_until = mc_fault_earlier(
			*ret_until, mc_fault_earlier(t->v.due_ns, t->outer->deadline_ns));
	}
	return NULL;
}

void *mc_fault_main(void *arg)
{
	struct mc_fault *f = arg;

	mc_mutex_lock(&f->lock);
	for (;;) {
		uint64_t until;
		int r = 0;
		struct fault_read *t = take_ripe_locked(f, &r, &until);

		if (t != NULL) {
			mc_mutex_unlock(&f->lock);
			if (r > 0)
				read_begin(t);
			else
				read_end(t, r);
			mc_mutex_lock(&f->lock);
		} else if (f->stopping) {
			break;
		} else if (until == FAULT_FOREVER) {
			mc_cond_wait(&f->change, &f->lock);
		} else {
			mc_cond_wait_until(&f->change, &f->lock, until);
		}
	}
	mc_mutex_unlock(&f->lock);
	return NULL;
}
