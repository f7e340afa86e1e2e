/*
 * A backend before that of a mounted directory whose calls may hang in the kernel for as long as
 * the file system likes: threads of its own make them, and who waits goes on at the deadline. For
 * members of a set, where another one can do it.
 *
 * 1. A job is in the queue, with one of the threads, or over. Its caller owns it, but for one that
 *    was left: its thread frees it, whenever the kernel lets go of it. It has copies of all that
 * the caller lent.
 * 2. While a job is left (n_left > 0) no other one begins, and no read: so hanging calls take no
 * more threads than were at work when the first of them passed its deadline, and what they do when
 * the file system answers again comes before whatever is asked of it then.
 * 3. After close the last thread frees everything, if some was left.
 */
#include "tier/remote-aside.h"

#include "tier/lock.h"
#include "tier/remote-aside-job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 32
#define GRACE_NS UINT64_C(200000000) /* for calls that look at their deadline themselves */
#define ALIGN 4096                   /* what O_DIRECT wants of a put's bytes */

struct aside {
	struct mc_backend base;
	struct mc_backend *inner;           /* owned; NULL until it is open */
	struct mc_remote_opts opts;         /* of the opening; node is owned */
	struct mc_remote_counters counters; /* the inner one's: it may outlive the caller's */
	struct mc_remote_counters *outer;   /* borrowed until close */
	struct mc_mutex lock;
	struct mc_cond work, done;
	struct aside_job *head MC_GUARDED_BY(lock); /* FIFO */
	struct aside_job **tail MC_GUARDED_BY(lock);
	unsigned n_threads MC_GUARDED_BY(lock);
	unsigned n_idle MC_GUARDED_BY(lock);
	unsigned n_left MC_GUARDED_BY(lock);
	bool stopping MC_GUARDED_BY(lock), closing MC_GUARDED_BY(lock);
	bool orphaned MC_GUARDED_BY(lock); /* closed with something left */
};

static int run(struct aside *a, struct aside_job *j)
{
	const struct mc_backend_ops *ops = a->inner != NULL ? a->inner->ops : NULL;

	switch (j->op) {
	case ASIDE_OPEN:
		return mc_remote_dir_open(j->path, &a->opts, &a->counters, &a->inner, &j->err);
	case ASIDE_STAT:
		return ops->stat(a->inner, &j->c, &j->attr);
	case ASIDE_PUT:
		return ops->put(a->inner, &j->c, j->buf, j->len, j->flags);
	case ASIDE_SYNC:
		return ops->sync(a->inner, &j->c);
	case ASIDE_LIST:
		return ops->list(a->inner, &j->c, mc_aside_job_keep, j);
	case ASIDE_MKDIR:
		return ops->mkdir(a->inner, &j->c);
	case ASIDE_UNLINK:
		return ops->unlink(a->inner, &j->c);
	case ASIDE_RENAME:
		return ops->rename(a->inner, &j->c);
	case ASIDE_TOUCH:
		return ops->touch(a->inner, &j->c);
	case ASIDE_SPACE:
		return ops->space(a->inner, &j->c, &j->space);
	}
	return -EINVAL;
}

/* ---- threads */

static void aside_free(struct aside *a)
{
	if (a->inner != NULL)
		a->inner->ops->close(a->inner);
	mc_cond_done(&a->work);
	mc_cond_done(&a->done);
	mc_mutex_done(&a->lock);
	free((char *)(uintptr_t)a->opts.node);
	free(a);
}

static struct aside_job *pop_locked(struct aside *a) MC_REQUIRES(a->lock)
{
	struct aside_job *j = a->head;

	a->head = j->next;
	if (a->head == NULL)
		a->tail = &a->head;
	j->running = true;
	return j;
}

static void *aside_main(void *arg)
{
	struct aside *a = arg;
	bool last;

	pthread_setname_np(pthread_self(), "mc-dir-call");
	mc_mutex_lock(&a->lock);
	for (;;) {
		struct aside_job *j;

		a->n_idle++;
		while (a->head == NULL && !a->closing)
			mc_cond_wait(&a->work, &a->lock);
		a->n_idle--;
		if (a->head == NULL)
			break;
		j = pop_locked(a);
		mc_mutex_unlock(&a->lock);
		j->res = run(a, j);
		mc_mutex_lock(&a->lock);
		j->over = true;
		a->n_left -= j->left;
		if (j->left)
			mc_aside_job_free(j);
		mc_cond_broadcast(&a->done);
	}
	last = --a->n_threads == 0 && a->orphaned;
	mc_cond_broadcast(&a->done);
	mc_mutex_unlock(&a->lock);
	if (last)
		aside_free(a);
	return NULL;
}

/* One more thread where all are busy. -errno when there is none at all. */
static int spawn_locked(struct aside *a) MC_REQUIRES(a->lock)
{
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	if (a->n_idle > 0 || a->n_threads == MAX_THREADS)
		return 0;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	r = -pthread_create(&thread, &attr, aside_main, a);
	pthread_attr_destroy(&attr);
	a->n_threads += r == 0;
	return a->n_threads > 0 ? 0 : r;
}

static void unqueue_locked(struct aside *a, struct aside_job *j) MC_REQUIRES(a->lock)
{
	struct aside_job **at = &a->head;

	while (*at != j)
		at = &(*at)->next;
	*at = j->next;
	if (*at == NULL)
		a->tail = at;
}

/*
 * Has the job done; by its deadline it is done, or not: -ETIMEDOUT. *j is NULL afterwards when it
 * was left.
 */
static int do_aside(struct aside *a, struct aside_job **ret_job)
{
	struct aside_job *j = *ret_job;
	uint64_t until = j->c.deadline_ns + GRACE_NS;
	int r;

	mc_mutex_lock(&a->lock);
	r = a->stopping ? -ESHUTDOWN : a->n_left > 0 ? -ETIMEDOUT : spawn_locked(a);
	if (r < 0)
		goto out;
	*a->tail = j;
	a->tail = &j->next;
	mc_cond_signal(&a->work);
	while (!j->over && (j->running || !a->stopping) && mc_now_ns() < until)
		mc_cond_wait_until(&a->done, &a->lock, until);
	if (j->over) {
		r = j->res;
		goto out;
	}
	r = a->stopping ? -ESHUTDOWN : -ETIMEDOUT;
	if (j->running) {
		j->left = true;
		a->n_left++;
		*ret_job = NULL;
	} else {
		unqueue_locked(a, j);
	}
out:
	mc_mutex_unlock(&a->lock);
	return r;
}

/* ---- the operations */

static struct aside *self(struct mc_backend *b)
{
	return (struct aside *)b;
}

/* Does the job, which is the caller's again afterwards, or NULL. */
static int call(struct mc_backend *b, const struct mc_remote_call *c, struct aside_job **j)
{
	int r;

	if (*j == NULL)
		return -ENOMEM;
	atomic_fetch_add(&self(b)->outer->requests, 1);
	r = do_aside(self(b), j);
	if (c->err != NULL && *j != NULL && (*j)->err.text[0] != '\0')
		*c->err = (*j)->err;
	return r;
}

/* One without bytes that go in or come out. */
static int call_plain(struct mc_backend *b, const struct mc_remote_call *c, enum aside_op op)
{
	struct aside_job *j = mc_aside_job_new(op, c);
	int r = call(b, c, &j);

	mc_aside_job_free(j);
	return r;
}

static int aside_stat(
	struct mc_backend *b, const struct mc_remote_call *c, struct mc_remote_attr *ret)
{
	struct aside_job *j = mc_aside_job_new(ASIDE_STAT, c);
	int r = call(b, c, &j);

	if (r == 0)
		*ret = j->attr;
	mc_aside_job_free(j);
	return r;
}

static int aside_put(struct mc_backend *b, const struct mc_remote_call *c, const void *buf,
	size_t len, unsigned flags)
{
	struct aside_job *j = mc_aside_job_new(ASIDE_PUT, c);
	int r = -ENOMEM;

	if (j != NULL)
		j->buf = aligned_alloc(ALIGN, len / ALIGN * ALIGN + ALIGN);
	if (j != NULL && j->buf != NULL) {
		if (len > 0)
			memcpy(j->buf, buf, len);
		j->len = len;
		j->flags = flags;
		r = call(b, c, &j);
	}
	mc_aside_job_free(j);
	return r;
}

static int aside_list(
	struct mc_backend *b, const struct mc_remote_call *c, mc_remote_each *each, void *ctx)
{
	struct aside_job *j = mc_aside_job_new(ASIDE_LIST, c);
	int r = call(b, c, &j);

	for (struct aside_entry *e = r == 0 ? j->first : NULL; e != NULL && r == 0; e = e->next)
		r = each(ctx, e->name, &e->attr);
	mc_aside_job_free(j);
	return r;
}

static int aside_space(
	struct mc_backend *b, const struct mc_remote_call *c, struct mc_remote_space *ret)
{
	struct aside_job *j = mc_aside_job_new(ASIDE_SPACE, c);
	int r = call(b, c, &j);

	if (r == 0)
		*ret = j->space;
	mc_aside_job_free(j);
	return r;
}

static int aside_sync(struct mc_backend *b, const struct mc_remote_call *c)
{
	return call_plain(b, c, ASIDE_SYNC);
}

static int aside_mkdir(struct mc_backend *b, const struct mc_remote_call *c)
{
	return call_plain(b, c, ASIDE_MKDIR);
}

static int aside_unlink(struct mc_backend *b, const struct mc_remote_call *c)
{
	return call_plain(b, c, ASIDE_UNLINK);
}

static int aside_rename(struct mc_backend *b, const struct mc_remote_call *c)
{
	return call_plain(b, c, ASIDE_RENAME);
}

static int aside_touch(struct mc_backend *b, const struct mc_remote_call *c)
{
	return call_plain(b, c, ASIDE_TOUCH);
}

/* Reads wait for nobody: the inner one's threads hang, and the set asks another member. */
static void aside_read(struct mc_backend *b, struct mc_remote_read *req)
{
	struct aside *a = self(b);
	bool hangs;

	atomic_fetch_add(&a->outer->requests, 1);
	mc_mutex_lock(&a->lock);
	hangs = a->n_left > 0;
	mc_mutex_unlock(&a->lock);
	if (hangs)
		mc_backend_read_done(req, -ETIMEDOUT);
	else
		a->inner->ops->read(a->inner, req);
}

static void aside_stop(struct mc_backend *b)
{
	struct aside *a = self(b);

	mc_mutex_lock(&a->lock);
	a->stopping = true;
	mc_cond_broadcast(&a->done);
	mc_mutex_unlock(&a->lock);
	if (a->inner != NULL)
		a->inner->ops->stop(a->inner);
}

static void aside_close(struct mc_backend *b)
{
	struct aside *a = self(b);
	bool orphaned;

	mc_mutex_lock(&a->lock);
	a->closing = true;
	mc_cond_broadcast(&a->work);
	while (a->n_threads > a->n_left)
		mc_cond_wait(&a->done, &a->lock);
	orphaned = a->orphaned = a->n_threads > 0;
	mc_mutex_unlock(&a->lock);
	if (!orphaned)
		aside_free(a);
}

static const struct mc_backend_ops aside_ops = {
	.read = aside_read,
	.stat = aside_stat,
	.put = aside_put,
	.sync = aside_sync,
	.list = aside_list,
	.mkdir = aside_mkdir,
	.unlink = aside_unlink,
	.rename = aside_rename,
	.touch = aside_touch,
	.space = aside_space,
	.stop = aside_stop,
	.close = aside_close,
};

int mc_remote_aside_open(const char *url, const struct mc_remote_opts *opts,
	struct mc_remote_counters *counters, struct mc_backend **ret, struct mc_err *err)
{
	struct aside *a = calloc(1, sizeof(*a));
	struct mc_remote_call c = {.path = url,
		.deadline_ns = mc_now_ns() + opts->deadline_ms * UINT64_C(1000000),
		.err = err};
	struct aside_job *j;
	int r;

	if (a == NULL)
		return -ENOMEM;
	a->base.ops = &aside_ops;
	a->opts = *opts;
	a->opts.node = strdup(opts->node);
	a->outer = counters;
	mc_mutex_init(&a->lock);
	mc_cond_init(&a->work);
	mc_cond_init(&a->done);
	mc_mutex_lock(&a->lock);
	a->tail = &a->head;
	mc_mutex_unlock(&a->lock);
	j = a->opts.node != NULL ? mc_aside_job_new(ASIDE_OPEN, &c) : NULL;
	r = call(&a->base, &c, &j);
	mc_aside_job_free(j);
	if (r < 0) {
		aside_close(&a->base);
		return r == -ETIMEDOUT
			? mc_err_set(err, r, "%s: the file system does not answer", url)
			: r;
	}
	atomic_store(&counters->up, 1);
	*ret = &a->base;
	return 0;
}
