/*
 * The door to a remote: checks the contract before and after, counts, and knows nothing of kinds.
 *
 * 1. A backend is entered only between enter and leave; `active` counts who is inside: synchronous
 *    calls, and reads from mc_remote_read until their done has returned.
 * 2. closing goes from false to true once, in mc_remote_close; from then on enter fails. close
 * frees when active is 0.
 * 3. A read in flight has owner set; mc_backend_read_done clears it, and asserts that it was set: a
 *    second completion is a broken contract.
 */
#include "tier/remote-aside.h"
#include "tier/remote-backend.h"

#include "tier/cleanup.h"
#include "tier/lock.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

struct mc_remote {
	struct mc_backend *b;                /* owned */
	char *url;                           /* owned */
	struct mc_remote_counters *counters; /* owned */
	_Atomic uint64_t deadline_ns;        /* length of one operation */
	_Atomic uint64_t quick_ns;           /* of one that moves no data */
	struct mc_mutex lock;
	struct mc_cond idle;
	uint64_t active MC_GUARDED_BY(lock);
	bool closing MC_GUARDED_BY(lock);
	_Atomic uint64_t bytes_read, bytes_written, errors, in_flight;
};

static const struct {
	const char *scheme;
	mc_backend_open *open;
} kinds[] = {
	{"dir:", mc_remote_dir_open},
	{"nfs://", mc_remote_nfs_open},
};

int mc_remote_path_check(const char *path, bool root)
{
	const char *p = path;

	if (path == NULL)
		return -EINVAL;
	if (*path == '\0')
		return root ? 0 : -EINVAL;
	for (;;) {
		size_t n = strcspn(p, "/");

		if (n == 0 || n > MC_REMOTE_NAME_MAX || (n == 1 && p[0] == '.') ||
			(n == 2 && p[0] == '.' && p[1] == '.'))
			return -EINVAL;
		p += n;
		if (p - path >= MC_REMOTE_PATH_MAX)
			return -EINVAL;
		if (*p == '\0')
			return 0;
		p++;
	}
}

static int enter(struct mc_remote *r)
{
	int res = 0;

	mc_mutex_lock(&r->lock);
	if (r->closing)
		res = -ESHUTDOWN;
	else
		r->active++;
	mc_mutex_unlock(&r->lock);
	return res;
}

static void leave(struct mc_remote *r)
{
	mc_mutex_lock(&r->lock);
	assert(r->active > 0);
	if (--r->active == 0)
		mc_cond_broadcast(&r->idle);
	mc_mutex_unlock(&r->lock);
}

/* Fills in the defaults; node must hold 17 bytes. */
static int fill_opts(const struct mc_remote_opts *in, struct mc_remote_opts *out, char *node)
{
	uint64_t seed;

	*out = in != NULL ? *in : (struct mc_remote_opts){0};
	if (out->connections == 0)
		out->connections = 2;
	if (out->depth == 0)
		out->depth = 8;
	if (out->inactivity_ms == 0)
		out->inactivity_ms = 5000;
	if (out->deadline_ms == 0)
		out->deadline_ms = 30000;
	if (out->node == NULL) {
		if (getrandom(&seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
			return -EIO;
		snprintf(node, 17, "%016llx", (unsigned long long)seed);
		out->node = node;
	}
	return mc_remote_path_check(out->node, false) < 0 || strchr(out->node, '/') != NULL
		? -EINVAL
		: 0;
}

static struct mc_remote *remote_new(const char *url)
{
	struct mc_remote *r = calloc(1, sizeof(*r));

	if (r == NULL)
		return NULL;
	r->url = strdup(url);
	if (r->url == NULL) {
		free(r);
		return NULL;
	}
	mc_mutex_init(&r->lock);
	mc_cond_init(&r->idle);
	return r;
}

static void remote_free(struct mc_remote *r)
{
	mc_cond_done(&r->idle);
	mc_mutex_done(&r->lock);
	free(r->counters);
	free(r->url);
	free(r);
}

int mc_remote_open(const char *url, const struct mc_remote_opts *opts, struct mc_remote **ret,
	struct mc_err *err)
{
	struct mc_remote_opts full;
	mc_backend_open *open_kind = NULL;
	struct mc_remote *r;
	char node[17];
	int res = fill_opts(opts, &full, node);

	if (res < 0)
		return mc_err_set(err, res, "%s: no usable node name", url);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (strncmp(url, kinds[i].scheme, strlen(kinds[i].scheme)) == 0)
			open_kind = kinds[i].open;
	if (open_kind == mc_remote_dir_open && full.aside)
		open_kind = mc_remote_aside_open;
	if (open_kind == NULL)
		return mc_err_set(err, -EINVAL,
			"%s: unknown kind of remote; use nfs://SERVER/EXPORT or dir:/PATH", url);
	r = remote_new(url);
	if (r == NULL)
		return -ENOMEM;
	r->counters = calloc(1, sizeof(*r->counters));
	mc_remote_limit(r, (uint64_t)full.deadline_ms * 1000000, UINT64_MAX);
	res = r->counters == NULL ? -ENOMEM : open_kind(url, &full, r->counters, &r->b, err);
	if (res < 0) {
		remote_free(r);
		return mc_err_set(err, res, "%s: %s%s", url, strerror(-res), mc_err_hint(res));
	}
	if (opts != NULL && opts->node != NULL) {
		mc_remote_reap(r, opts->node);
		atomic_store(&r->errors, 0); /* nothing to reap is no error of the caller's */
	}
	*ret = r;
	return 0;
}

int mc_remote_from_backend(const char *url, uint64_t deadline_ns, struct mc_backend *b,
	struct mc_remote_counters *counters, struct mc_remote **ret)
{
	struct mc_remote *r = remote_new(url);

	if (r == NULL)
		return -ENOMEM;
	mc_remote_limit(r, deadline_ns, UINT64_MAX);
	r->counters = counters;
	r->b = b;
	*ret = r;
	return 0;
}

struct mc_backend *mc_remote_backend(struct mc_remote *r)
{
	return r->b;
}

void mc_remote_limit(struct mc_remote *r, uint64_t deadline_ns, uint64_t quick_ns)
{
	atomic_store(&r->deadline_ns, deadline_ns);
	atomic_store(&r->quick_ns, quick_ns < deadline_ns ? quick_ns : deadline_ns);
}

uint64_t mc_remote_patience(const struct mc_remote *r)
{
	return atomic_load(&r->deadline_ns);
}

void mc_remote_stop(struct mc_remote *r)
{
	bool first;

	mc_mutex_lock(&r->lock);
	first = !r->closing;
	r->closing = true;
	mc_mutex_unlock(&r->lock);
	if (first)
		r->b->ops->stop(r->b);
}

void mc_remote_close(struct mc_remote *r)
{
	if (r == NULL)
		return;
	mc_remote_stop(r);
	mc_mutex_lock(&r->lock);
	while (r->active > 0)
		mc_cond_wait(&r->idle, &r->lock);
	mc_mutex_unlock(&r->lock);
	r->b->ops->close(r->b);
	remote_free(r);
}

const char *mc_remote_url(const struct mc_remote *r)
{
	return r->url;
}

void mc_remote_stats(struct mc_remote *r, struct mc_remote_stats *ret)
{
	*ret = (struct mc_remote_stats){
		.bytes_read = atomic_load(&r->bytes_read),
		.bytes_written = atomic_load(&r->bytes_written),
		.requests = atomic_load(&r->counters->requests),
		.errors = atomic_load(&r->errors),
		.reconnects = atomic_load(&r->counters->reconnects),
		.in_flight = atomic_load(&r->in_flight),
		.connected =
			atomic_load(&r->counters->up) > 0 || atomic_load(&r->counters->down) == 0,
	};
}

void mc_backend_read_done(struct mc_remote_read *req, int res)
{
	struct mc_remote *r = req->owner;

	assert(r != NULL); /* completed once */
	assert(res <= 0 && res > -4096);
	req->owner = NULL;
	if (res == 0)
		atomic_fetch_add(&r->bytes_read, req->len);
	else
		atomic_fetch_add(&r->errors, 1);
	atomic_fetch_sub(&r->in_flight, 1);
	req->done(req, res);
	leave(r);
}

uint64_t mc_remote_deadline(const struct mc_remote *r)
{
	return mc_now_ns() + mc_remote_patience(r);
}

void mc_remote_read_until(struct mc_remote *r, struct mc_remote_read *req, uint64_t deadline_ns)
{
	int res = mc_remote_path_check(req->path, false);

	assert(req->done != NULL && req->buf != NULL);
	if (req->len == 0 || req->len > MC_REMOTE_READ_MAX ||
		req->off > (uint64_t)INT64_MAX - req->len)
		res = -EINVAL;
	if (res == 0 && req->guard.set && req->off + req->len > req->guard.size)
		res = -ESTALE;
	if (res == 0)
		res = enter(r);
	if (res < 0) {
		atomic_fetch_add(&r->errors, 1);
		req->done(req, res);
		return;
	}
	atomic_fetch_add(&r->in_flight, 1);
	req->owner = r;
	req->served = 0;
	req->deadline_ns = deadline_ns;
	req->next = NULL;
	r->b->ops->read(r->b, req);
}

void mc_remote_read(struct mc_remote *r, struct mc_remote_read *req)
{
	mc_remote_read_until(r, req, mc_remote_deadline(r));
}

enum {
	CALL_ROOT = 1,  /* the root will do */
	CALL_QUICK = 2, /* moves no data */
};

/* Starts a synchronous operation: 0 with *ret_call filled, or an error that is counted. */
static int call_begin(struct mc_remote *r, const char *path, unsigned flags, struct mc_err *err,
	struct mc_remote_call *ret_call)
{
	uint64_t ns = (flags & CALL_QUICK) != 0 ? atomic_load(&r->quick_ns) : mc_remote_patience(r);
	int res = mc_remote_path_check(path, (flags & CALL_ROOT) != 0);

	if (res == 0)
		res = enter(r);
	if (res < 0) {
		atomic_fetch_add(&r->errors, 1);
		return mc_err_set(err, res, "%s: %s: %s", r->url, path != NULL ? path : "(null)",
			res == -EINVAL ? "not a valid path" : strerror(-res));
	}
	*ret_call =
		(struct mc_remote_call){.path = path, .deadline_ns = mc_now_ns() + ns, .err = err};
	return 0;
}

static int call_end(struct mc_remote *r, const struct mc_remote_call *c, int res)
{
	assert(res > -4096);
	if (res < 0) {
		atomic_fetch_add(&r->errors, 1);
		mc_err_set(c->err, res, "%s: %s: %s%s", r->url, c->path, strerror(-res),
			mc_err_hint(res));
	}
	leave(r); /* last: r may be freed now */
	return res;
}

int mc_remote_stat(
	struct mc_remote *r, const char *path, struct mc_remote_attr *ret, struct mc_err *err)
{
	struct mc_remote_attr attr = {0};
	struct mc_remote_call c;
	int res = call_begin(r, path, CALL_ROOT | CALL_QUICK, err, &c);

	if (res < 0)
		return res;
	res = r->b->ops->stat(r->b, &c, &attr);
	if (res == 0)
		*ret = attr;
	return call_end(r, &c, res);
}

int mc_remote_get(struct mc_remote *r, const char *path, size_t max, void **ret_buf,
	size_t *ret_len, struct mc_err *err)
{
	struct mc_remote_call c;
	int res = call_begin(r, path, 0, err, &c);

	return res < 0 ? res : call_end(r, &c, mc_remote_get_whole(r, &c, max, ret_buf, ret_len));
}

int mc_remote_put(struct mc_remote *r, const char *path, const void *buf, size_t len,
	unsigned flags, struct mc_err *err)
{
	struct mc_remote_call c;
	int res = call_begin(r, path, 0, err, &c);

	assert((flags & ~(unsigned)(MC_PUT_EXCL | MC_PUT_DURABLE)) == 0 &&
		(buf != NULL || len == 0));
	if (res < 0)
		return res;
	res = r->b->ops->put(r->b, &c, buf, len, flags);
	if (res == 0)
		atomic_fetch_add(&r->bytes_written, len);
	return call_end(r, &c, res);
}

int mc_remote_sync(struct mc_remote *r, struct mc_err *err)
{
	struct mc_remote_call c;
	int res = call_begin(r, "", CALL_ROOT, err, &c);

	return res < 0 ? res : call_end(r, &c, r->b->ops->sync(r->b, &c));
}

/* Between a backend's list and the caller: what a careless or hostile server may name is stopped.
 */
struct list_filter {
	mc_remote_each *each;
	void *ctx;
};

static int list_each(void *ctx, const char *name, const struct mc_remote_attr *attr)
{
	struct list_filter *f = ctx;

	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return 0;
	if (mc_remote_path_check(name, false) < 0 || strchr(name, '/') != NULL)
		return -EBADMSG;
	return f->each(f->ctx, name, attr);
}

int mc_remote_list(struct mc_remote *r, const char *path,
	int (*each)(void *ctx, const char *name, const struct mc_remote_attr *attr), void *ctx,
	struct mc_err *err)
{
	struct list_filter f = {.each = each, .ctx = ctx};
	struct mc_remote_call c;
	int res = call_begin(r, path, CALL_ROOT, err, &c);

	return res < 0 ? res : call_end(r, &c, r->b->ops->list(r->b, &c, list_each, &f));
}

int mc_remote_mkdir(struct mc_remote *r, const char *path, struct mc_err *err)
{
	struct mc_remote_call c;
	int res = call_begin(r, path, CALL_ROOT | CALL_QUICK, err, &c);

	if (res < 0)
		return res;
	return call_end(r, &c, *path == '\0' ? 0 : r->b->ops->mkdir(r->b, &c));
}

int mc_remote_unlink(struct mc_remote *r, const char *path, struct mc_err *err)
{
	struct mc_remote_call c;
	int res = call_begin(r, path, CALL_QUICK, err, &c);

	return res < 0 ? res : call_end(r, &c, r->b->ops->unlink(r->b, &c));
}

int mc_remote_remove(struct mc_remote *r, const char *path, struct mc_err *err)
{
	struct mc_remote_call c;
	int res = call_begin(r, path, 0, err, &c);

	if (res < 0)
		return res;
	c.durable = true;
	return call_end(r, &c, r->b->ops->unlink(r->b, &c));
}

int mc_remote_rename(
	struct mc_remote *r, const char *path, const char *new_path, struct mc_err *err)
{
	struct mc_remote_call c;
	int res = call_begin(r, path, false, err, &c);

	if (res < 0)
		return res;
	c.new_path = new_path;
	res = mc_remote_path_check(new_path, false);
	return call_end(r, &c, res < 0 ? res : r->b->ops->rename(r->b, &c));
}

int mc_remote_touch(struct mc_remote *r, const char *path, struct mc_err *err)
{
	struct mc_remote_call c;
	int res = call_begin(r, path, CALL_QUICK, err, &c);

	return res < 0 ? res : call_end(r, &c, r->b->ops->touch(r->b, &c));
}

int mc_remote_space(struct mc_remote *r, struct mc_remote_space *ret, struct mc_err *err)
{
	struct mc_remote_space space = {0};
	struct mc_remote_call c;
	int res = call_begin(r, "", CALL_ROOT | CALL_QUICK, err, &c);

	if (res < 0)
		return res;
	res = r->b->ops->space(r->b, &c, &space);
	if (res == 0)
		*ret = space;
	return call_end(r, &c, res);
}
