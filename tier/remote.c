/*
 * The door to a remote: opening, closing and reads; remote-call.c has the other operations. Checks
 * the contract before and after, counts, and knows nothing of kinds.
 *
 * 1. A backend is entered only between enter and leave; `active` counts who is inside: synchronous
 *    calls, and reads from mc_remote_read until their done has returned.
 * 2. closing goes from false to true once, in mc_remote_close; from then on enter fails. close
 * frees when active is 0.
 * 3. A read in flight has owner set; mc_backend_read_done clears it, and asserts that it was set: a
 *    second completion is a broken contract.
 */
#include "tier/remote-impl.h"

#include "tier/remote-aside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

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

int mc_remote_enter(struct mc_remote *r)
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

void mc_remote_leave(struct mc_remote *r)
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
	mc_remote_leave(r);
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
		res = mc_remote_enter(r);
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
	mc_remote_read_until(r, req, mc_now_ns() + mc_remote_patience(r));
}
