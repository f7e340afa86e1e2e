/*
 * The remote that misbehaves on order; see remote-fault.h. Rules and synchronous operations;
 * remote-fault-read.c has the reads.
 *
 * 1. A read is held (in the list), or at the inner remote, or ended. The one thread takes reads out
 * of the list: when they are due, released, past their deadline, or at stop.
 * 2. A synchronous operation is held by waiting in its own thread.
 * 3. generation counts releases: what was held before one goes on after it.
 */
#include "tier/remote-fault-impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct fault_verdict mc_fault_judge(struct mc_fault *f, enum mc_fault_op op, const char *path)
{
	struct fault_verdict v = {.hit = false};

	mc_mutex_lock(&f->lock);
	f->seen[op]++;
	f->seen[MC_FAULT_OPS]++;
	for (unsigned i = 0; i < f->n_rules; i++) {
		struct fault_rule *r = &f->rules[i];
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
		v.due_ns = FAULT_FOREVER;
	else if (v.hit && v.r.kind == MC_FAULT_DELAY)
		v.due_ns = mc_now_ns() + v.r.value * 1000000;
	return v;
}

int mc_fault_ripe_locked(struct mc_fault *f, const struct fault_verdict *v, uint64_t deadline_ns,
	uint64_t now) MC_REQUIRES(f->lock)
{
	if (f->stopping)
		return -ESHUTDOWN;
	if (f->generation != v->generation || now >= v->due_ns)
		return 1;
	return now >= deadline_ns ? -ETIMEDOUT : 0;
}

/* Begins a synchronous operation: 0, or the error that it ends with. */
static int sync_begin(struct mc_fault *f, enum mc_fault_op op, const struct mc_remote_call *c,
	struct fault_verdict *ret_v)
{
	struct fault_verdict v = mc_fault_judge(f, op, c->path);
	int r = 1;

	if (v.due_ns != 0) {
		mc_mutex_lock(&f->lock);
		f->held++;
		mc_cond_broadcast(&f->change);
		while ((r = mc_fault_ripe_locked(f, &v, c->deadline_ns, mc_now_ns())) == 0)
			mc_cond_wait_until(
				&f->change, &f->lock, mc_fault_earlier(v.due_ns, c->deadline_ns));
		f->held--;
		mc_mutex_unlock(&f->lock);
	}
	*ret_v = v;
	if (r < 0)
		return r;
	return v.hit && v.r.kind == MC_FAULT_FAIL ? v.r.error : 0;
}

static int sync_end(const struct fault_verdict *v, int res)
{
	return v->hit && v->r.kind == MC_FAULT_LOST ? v->r.error : res;
}

void mc_fault_damage(const struct fault_verdict *v, void *buf, size_t len)
{
	uint8_t *b = buf;

	if (!v->hit || len == 0)
		return;
	if (v->r.kind == MC_FAULT_FLIP)
		b[v->r.value / 8 % len] ^= (uint8_t)(1u << v->r.value % 8);
	else if (v->r.kind == MC_FAULT_SHORT && v->r.value < len)
		memset(b + v->r.value, 0, len - v->r.value);
}

static int fault_stat(
	struct mc_backend *b, const struct mc_remote_call *c, struct mc_remote_attr *ret)
{
	struct mc_fault *f = (struct mc_fault *)b;
	struct fault_verdict v;
	int r = sync_begin(f, MC_FAULT_STAT, c, &v);

	return r < 0 ? r : sync_end(&v, mc_remote_stat(f->inner, c->path, ret, c->err));
}

static int fault_put(struct mc_backend *b, const struct mc_remote_call *c, const void *buf,
	size_t len, unsigned flags)
{
	struct mc_fault *f = (struct mc_fault *)b;
	void *copy = NULL;
	struct fault_verdict v;
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
		mc_fault_damage(&v, copy, len);
		buf = copy;
	}
	r = mc_remote_put(f->inner, c->path, buf, len, flags, c->err);
	free(copy);
	return sync_end(&v, r);
}

static int fault_sync(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_fault *f = (struct mc_fault *)b;
	struct fault_verdict v;
	int r = sync_begin(f, MC_FAULT_SYNC, c, &v);

	return r < 0 ? r : sync_end(&v, mc_remote_sync(f->inner, c->err));
}

static int fault_list(
	struct mc_backend *b, const struct mc_remote_call *c, mc_remote_each *each, void *ctx)
{
	struct mc_fault *f = (struct mc_fault *)b;
	struct fault_verdict v;
	int r = sync_begin(f, MC_FAULT_LIST, c, &v);

	return r < 0 ? r : sync_end(&v, mc_remote_list(f->inner, c->path, each, ctx, c->err));
}

static int fault_mkdir(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_fault *f = (struct mc_fault *)b;
	struct fault_verdict v;
	int r = sync_begin(f, MC_FAULT_MKDIR, c, &v);

	return r < 0 ? r : sync_end(&v, mc_remote_mkdir(f->inner, c->path, c->err));
}

static int fault_unlink(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_fault *f = (struct mc_fault *)b;
	struct fault_verdict v;
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
	struct fault_verdict v;
	int r = sync_begin(f, MC_FAULT_RENAME, c, &v);

	return r < 0 ? r : sync_end(&v, mc_remote_rename(f->inner, c->path, c->new_path, c->err));
}

static int fault_touch(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_fault *f = (struct mc_fault *)b;
	struct fault_verdict v;
	int r = sync_begin(f, MC_FAULT_TOUCH, c, &v);

	return r < 0 ? r : sync_end(&v, mc_remote_touch(f->inner, c->path, c->err));
}

static int fault_space(
	struct mc_backend *b, const struct mc_remote_call *c, struct mc_remote_space *ret)
{
	struct mc_fault *f = (struct mc_fault *)b;
	struct fault_verdict v;
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
	.read = mc_fault_read,
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
	assert(f->n_rules < FAULT_RULES);
	f->rules[f->n_rules++] = (struct fault_rule){.r = *rule};
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
	r = -pthread_create(&f->thread, NULL, mc_fault_main, f);
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
