/*
 * The remote that misbehaves on order; see remote-fault.h.
 *
 * 1. A read is held (in the list), or at the inner remote, or ended. The one thread takes reads out
 * of the list: when they are due, released, past their deadline, or at stop.
 * 2. A synchronous operation is held by waiting in its own thread.
 * 3. generation counts releases: what was held before one goes on after it.
 */
#include "tier/remote-fault.h"

#include "tier/lock.h"
#include "tier/remote-backend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RULES 16
#define FOREVER UINT64_MAX

struct rule {
	struct mc_fault_rule r;
	uint64_t seen;
};

/* What is to be done to one operation. */
struct verdict {
	bool hit;
	struct mc_fault_rule r;
	uint64_t due_ns;     /* when it may begin; 0 = now, FOREVER = at a release */
	uint64_t generation; /* then */
};

struct fault_read {
	struct mc_remote_read inner;
	struct mc_remote_read *outer;
	struct mc_fault *f;
	struct verdict v;
	struct fault_read *next; /* held */
};

struct mc_fault {
	struct mc_backend base;
	struct mc_remote *inner; /* owned */
	struct mc_remote_counters *counters;
	pthread_t thread;
	struct mc_mutex lock;
	struct mc_cond change;
	struct rule rules[MAX_RULES] MC_GUARDED_BY(lock);
	unsigned n_rules MC_GUARDED_BY(lock);
	uint64_t seen[MC_FAULT_OPS + 1] MC_GUARDED_BY(lock);
	uint64_t hits MC_GUARDED_BY(lock);
	uint64_t generation MC_GUARDED_BY(lock);
	unsigned held MC_GUARDED_BY(lock);
	struct fault_read *held_reads MC_GUARDED_BY(lock);
	bool stopping MC_GUARDED_BY(lock);
};

static struct verdict judge(struct mc_fault *f, enum mc_fault_op op, const char *path)
{
	struct verdict v = {.hit = false};

	mc_mutex_lock(&f->lock);
	f->seen[op]++;
	f->seen[MC_FAULT_OPS]++;
	for (unsigned i = 0; i < f->n_rules; i++) {
		struct rule *r = &f->rules[i];
		uint64_t first = r->r.first == 0 ? 1 : r->r.first;

		if ((r->r.op != op && r->r.op != MC_FAULT_OPS) ||
			(r->r.path != NULL && strstr(path, r->r.path) == NULL))
			continue;
		r->seen++;
		if (v.hit || r->seen < first || (r->r.count != 0 && r->seen - first >= r->r.count))
			continue;
		v.hit = true;
		v.r = r->r;
	}
	f->hits += v.hit;
	v.generation = f->generation;
	mc_mutex_unlock(&f->lock);
	if (v.hit && v.r.kind == MC_FAULT_HANG)
		v.due_ns = FOREVER;
	else if (v.hit && v.r.kind == MC_FAULT_DELAY)
		v.due_ns = mc_now_ns() + v.r.value * 1000000;
	return v;
}

/* Whether something held may go on: 1, not yet: 0, or why it ends. */
static int ripe_locked(struct mc_fault *f, const struct verdict *v, uint64_t deadline_ns,
	uint64_t now) MC_REQUIRES(f->lock)
{
	if (f->stopping)
		return -ESHUTDOWN;
	if (f->generation != v->generation || now >= v->due_ns)
		return 1;
	return now >= deadline_ns ? -ETIMEDOUT : 0;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Begins a synchronous operation: 0, or the error that it ends with. */
static int sync_begin(struct mc_fault *f, enum mc_fault_op op, const struct mc_remote_call *c,
	struct verdict *ret_v)
{
	struct verdict v = judge(f, op, c->path);
	int r = 1;

	if (v.due_ns != 0) {
		mc_mutex_lock(&f->lock);
		f->held++;
		mc_cond_broadcast(&f->change);
		while ((r = ripe_locked(f, &v, c->deadline_ns, mc_now_ns())) == 0)
			mc_cond_wait_until(&f->change, &f->lock, earlier(v.due_ns, c->deadline_ns));
		f->held--;
		mc_mutex_unlock(&f->lock);
	}
	*ret_v = v;
	if (r < 0)
		return r;
	return v.hit && v.r.kind == MC_FAULT_FAIL ? v.r.error : 0;
}

static int sync_end(const struct verdict *v, int res)
{
	return v->hit && v->r.kind == MC_FAULT_LOST ? v->r.error : res;
}

static void damage(const struct verdict *v, void *buf, size_t len)
{
	uint8_t *b = buf;

	if (!v->hit || len == 0)
		return;
	if (v->r.kind == MC_FAULT_FLIP)
		b[v->r.value / 8 % len] ^= (uint8_t)(1u << v->r.value % 8);
	else if (v->r.kind == MC_FAULT_SHORT && v->r.value < len)
		memset(b + v->r.value, 0, len - v->r.value);
}

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
		damage(&t->v, req->buf, req->len);
	read_end(t, t->v.hit && t->v.r.kind == MC_FAULT_LOST ? t->v.r.error : res);
}

static void read_begin(struct fault_read *t)
{
	if (t->v.hit && t->v.r.kind == MC_FAULT_FAIL)
		read_end(t, t->v.r.error);
	else
		mc_remote_read_until(t->f->inner, &t->inner, t->outer->deadline_ns);
}

static void fault_read(struct mc_backend *b, struct mc_remote_read *req)
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
	t->v = judge(f, MC_FAULT_READ, req->path);
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

	*ret_until = FOREVER;
	for (struct fault_read **at = &f->held_reads; *at != NULL; at = &(*at)->next) {
		struct fault_read *t = *at;

		*ret_r = ripe_locked(f, &t->v, t->outer->deadline_ns, now);
		if (*ret_r != 0) {
			*at = t->next;
			f->held--;
			return t;
		}
		*ret_until = earlier(*ret_until, earlier(t->v.due_ns, t->outer->deadline_ns));
	}
	return NULL;
}

static void *fault_main(void *arg)
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
		} else if (until == FOREVER) {
			mc_cond_wait(&f->change, &f->lock);
		} else {
			mc_cond_wait_until(&f->change, &f->lock, until);
		}
	}
	mc_mutex_unlock(&f->lock);
	return NULL;
}

static int fault_stat(
	struct mc_backend *b, const struct mc_remote_call *c, struct mc_remote_attr *ret)
{
	struct mc_fault *f = (struct mc_fault *)b;
	struct verdict v;
	int r = sync_begin(f, MC_FAULT_STAT, c, &v);

	return r < 0 ? r : sync_end(&v, mc_remote_stat(f->inner, c->path, ret, c->err));
}

static int fault_put(struct mc_backend *b, const struct mc_remote_call *c, const void *buf,
	size_t len, unsigned flags)
{
	struct mc_fault *f = (struct mc_fault *)b;
	void *copy = NULL;
	struct verdict v;
	int r = sync_begin(f, MC_FAULT_PUT, c, &v);

	if (r < 0)
		return r;
	if (v.hit && v.r.kind == MC_FAULT_SHORT && v.r.value < len) {
		len = v.r.value;
	} else if (v.hit && v.r.kind == MC_FAULT_FLIP && len > 0) {
		copy = malloc(len);
		if (copy == NULL)
			return -ENOMEM;
		memcpy(copy, buf, len);
		damage(&v, copy, len);
		buf = copy;
	}
	r = mc_remote_put(f->inner, c->path, buf, len, flags, c->err);
	free(copy);
	return sync_end(&v, r);
}

static int fault_sync(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_fault *f = (struct mc_fault *)b;
	struct verdict v;
	int r = sync_begin(f, MC_FAULT_SYNC, c, &v);

	return r < 0 ? r : sync_end(&v, mc_remote_sync(f->inner, c->err));
}

static int fault_list(
	struct mc_backend *b, const struct mc_remote_call *c, mc_remote_each *each, void *ctx)
{
	struct mc_fault *f = (struct mc_fault *)b;
	struct verdict v;
	int r = sync_begin(f, MC_FAULT_LIST, c, &v);

	return r < 0 ? r : sync_end(&v, mc_remote_list(f->inner, c->path, each, ctx, c->err));
}

static int fault_mkdir(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_fault *f = (struct mc_fault *)b;
	struct verdict v;
	int r = sync_begin(f, MC_FAULT_MKDIR, c, &v);

	return r < 0 ? r : sync_end(&v, mc_remote_mkdir(f->inner, c->path, c->err));
}

static int fault_unlink(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_fault *f = (struct mc_fault *)b;
	struct verdict v;
	int r = sync_begin(f, MC_FAULT_UNLINK, c, &v);

	if (r == 0)
		r = sync_end(&v,
			c->durable ? mc_remote_remove(f->inner, c->path, c->err)
				   : mc_remote_unlink(f->inner, c->path, c->err));
	return r;
}

static int fault_rename(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_fault *f = (struct mc_fault *)b;
	struct verdict v;
	int r = sync_begin(f, MC_FAULT_RENAME, c, &v);

	return r < 0 ? r : sync_end(&v, mc_remote_rename(f->inner, c->path, c->new_path, c->err));
}

static int fault_touch(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_fault *f = (struct mc_fault *)b;
	struct verdict v;
	int r = sync_begin(f, MC_FAULT_TOUCH, c, &v);

	return r < 0 ? r : sync_end(&v, mc_remote_touch(f->inner, c->path, c->err));
}

static int fault_space(
	struct mc_backend *b, const struct mc_remote_call *c, struct mc_remote_space *ret)
{
	struct mc_fault *f = (struct mc_fault *)b;
	struct verdict v;
	int r = sync_begin(f, MC_FAULT_SPACE, c, &v);

	return r < 0 ? r : sync_end(&v, mc_remote_space(f->inner, ret, c->err));
}

static void fault_stop(struct mc_backend *b)
{
	struct mc_fault *f = (struct mc_fault *)b;

	mc_mutex_lock(&f->lock);
	f->stopping = true;
	mc_cond_broadcast(&f->change);
	mc_mutex_unlock(&f->lock);
	mc_remote_stop(f->inner);
}

static void fault_close(struct mc_backend *b)
{
	struct mc_fault *f = (struct mc_fault *)b;

	pthread_join(f->thread, NULL);
	mc_remote_close(f->inner);
	mc_cond_done(&f->change);
	mc_mutex_done(&f->lock);
	free(f);
}

static const struct mc_backend_ops fault_ops = {
	.read = fault_read,
	.stat = fault_stat,
	.put = fault_put,
	.sync = fault_sync,
	.list = fault_list,
	.mkdir = fault_mkdir,
	.unlink = fault_unlink,
	.rename = fault_rename,
	.touch = fault_touch,
	.space = fault_space,
	.stop = fault_stop,
	.close = fault_close,
};

void mc_fault_add(struct mc_fault *f, const struct mc_fault_rule *rule)
{
	mc_mutex_lock(&f->lock);
	assert(f->n_rules < MAX_RULES);
	f->rules[f->n_rules++] = (struct rule){.r = *rule};
	mc_mutex_unlock(&f->lock);
}

void mc_fault_release(struct mc_fault *f)
{
	mc_mutex_lock(&f->lock);
	f->generation++;
	mc_cond_broadcast(&f->change);
	mc_mutex_unlock(&f->lock);
}

void mc_fault_clear(struct mc_fault *f)
{
	mc_mutex_lock(&f->lock);
	f->n_rules = 0;
	mc_mutex_unlock(&f->lock);
	mc_fault_release(f);
}

uint64_t mc_fault_seen(struct mc_fault *f, enum mc_fault_op op)
{
	uint64_t n;

	mc_mutex_lock(&f->lock);
	n = f->seen[op];
	mc_mutex_unlock(&f->lock);
	return n;
}

uint64_t mc_fault_hits(struct mc_fault *f)
{
	uint64_t n;

	mc_mutex_lock(&f->lock);
	n = f->hits;
	mc_mutex_unlock(&f->lock);
	return n;
}

void mc_fault_wait_held(struct mc_fault *f, unsigned n)
{
	mc_mutex_lock(&f->lock);
	while (f->held < n)
		mc_cond_wait(&f->change, &f->lock);
	mc_mutex_unlock(&f->lock);
}

int mc_remote_fault_open(
	struct mc_remote *inner, struct mc_fault **ret_control, struct mc_remote **ret)
{
	struct mc_remote_counters *counters = calloc(1, sizeof(*counters));
	struct mc_fault *f = calloc(1, sizeof(*f));
	int r;

	if (f == NULL || counters == NULL) {
		free(counters);
		free(f);
		return -ENOMEM;
	}
	f->base.ops = &fault_ops;
	f->inner = inner;
	f->counters = counters;
	mc_mutex_init(&f->lock);
	mc_cond_init(&f->change);
	r = -pthread_create(&f->thread, NULL, fault_main, f);
	if (r == 0) {
		r = mc_remote_from_backend(
			mc_remote_url(inner), mc_remote_patience(inner), &f->base, counters, ret);
		if (r == 0) {
			*ret_control = f;
			return 0;
		}
		mc_mutex_lock(&f->lock);
		f->stopping = true;
		mc_cond_broadcast(&f->change);
		mc_mutex_unlock(&f->lock);
		pthread_join(f->thread, NULL);
	}
	mc_cond_done(&f->change);
	mc_mutex_done(&f->lock);
	free(counters);
	free(f);
	return r;
}
