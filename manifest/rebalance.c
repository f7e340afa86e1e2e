/*
 * The walk of a rebalance: directories are found first, then a crew settles one after the other.
 *
 * 1. A directory is in `dirs` before the crew begins; those that appear later hold objects that
 *    were placed by their writers.
 * 2. next_ns is when the next object may be begun under the limit of bytes a second.
 */
#include "manifest/rebalance.h"

#include "manifest/crew.h"
#include "tier/lock.h"
#include "tier/remote-set.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const roots[] = {"checkpoints", "layouts", "chunks", "kv"};

struct rebalance {
	struct mc_remote *remote;
	const struct mc_rebalance_opts *opts;
	char **dirs; /* owned, owned */
	size_t n, cap;
	struct mc_mutex lock;
	struct mc_rebalance_result res MC_GUARDED_BY(lock);
	uint64_t done MC_GUARDED_BY(lock);    /* directories */
	uint64_t next_ns MC_GUARDED_BY(lock); /* CLOCK_MONOTONIC */
};

static int add_dir(void *ctx, const char *path)
{
	struct rebalance *b = ctx;

	if (b->n == b->cap) {
		size_t cap = b->cap == 0 ? 256 : 2 * b->cap;
		char **more = reallocarray(b->dirs, cap, sizeof(*more));

		if (more == NULL)
			return -ENOMEM;
		b->dirs = more;
		b->cap = cap;
	}
	b->dirs[b->n] = strdup(path);
	if (b->dirs[b->n] == NULL)
		return -ENOMEM;
	b->n++;
	return 0;
}

struct parent {
	struct rebalance *b;
	const char *path;
};

static int find_each(void *ctx, const char *name, const struct mc_remote_attr *attr)
{
	struct parent *p = ctx;
	char path[4096];
	int n = snprintf(path, sizeof(path), "%s/%s", p->path, name);

	if (attr->type != MC_REMOTE_DIR || n >= (int)sizeof(path))
		return 0;
	return add_dir(p->b, path);
}

/* All directories: those found grow the list that is gone through. */
static int find_dirs(struct rebalance *b, struct mc_err *err)
{
	int r = 0;

	for (size_t i = 0; i < sizeof(roots) / sizeof(*roots) && r == 0; i++)
		r = add_dir(b, roots[i]);
	for (size_t i = 0; i < b->n && r == 0; i++) {
		struct parent p = {.b = b, .path = b->dirs[i]};
		struct mc_err why = {0};

		r = mc_remote_list(b->remote, p.path, find_each, &p, &why);
		if (r == -ENOENT)
			r = 0;
		if (r < 0)
			mc_err_set(err, r, "%s", why.text);
	}
	return r;
}

/* Keeps to the limit: sleeps as long as the bytes would have taken. */
static void pace(struct rebalance *b, uint64_t bytes)
{
	uint64_t now = mc_now_ns(), until;
	struct timespec ts;

	if (b->opts->bytes_per_second == 0 || bytes == 0)
		return;
	mc_mutex_lock(&b->lock);
	if (b->next_ns < now)
		b->next_ns = now;
	b->next_ns += (uint64_t)((double)bytes / (double)b->opts->bytes_per_second * 1e9);
	until = b->next_ns;
	mc_mutex_unlock(&b->lock);
	ts = (struct timespec){
		.tv_sec = (time_t)(until / 1000000000), .tv_nsec = (long)(until % 1000000000)};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

static int settled(void *ctx, const char *path, int res, const struct mc_set_moved *moved)
{
	struct rebalance *b = ctx;
	char text[4200];

	mc_mutex_lock(&b->lock);
	b->res.objects++;
	b->res.copied += moved->copied;
	b->res.copied_bytes += moved->copied_bytes;
	b->res.removed += moved->removed;
	b->res.failed += res < 0;
	mc_mutex_unlock(&b->lock);
	if (res < 0 && b->opts->problem != NULL) {
		snprintf(text, sizeof(text), "%s: %s", path,
			res == -EBADMSG          ? "no copy has the right bytes"
				: res == -EAGAIN ? "changes just now, or is being mended; run it "
						   "again"
						 : strerror(-res));
		b->opts->problem(b->opts->ctx, text);
	}
	pace(b, moved->copied_bytes);
	return res == -ESHUTDOWN || res == -ENOMEM || res == -ENOTCONN ? res : 0;
}

static int ignore_dir(void *ctx, const char *path)
{
	(void)ctx;
	(void)path;
	return 0;
}

static int run(void *ctx, unsigned worker, uint64_t item, struct mc_err *err)
{
	struct rebalance *b = ctx;
	const struct mc_set_settle how = {.file = settled, .dir = ignore_dir, .ctx = b};
	int r = mc_remote_set_settle(b->remote, b->dirs[item], &how);

	(void)worker;
	mc_mutex_lock(&b->lock);
	b->done++;
	mc_mutex_unlock(&b->lock);
	if (r == -ENOENT)
		return 0;
	return r < 0 ? mc_err_set(err, r, "%s: %s%s", b->dirs[item],
			       r == -ENOTCONN ? "a remote is away; all are needed" : strerror(-r),
			       r == -ENOTCONN ? "" : mc_err_hint(r))
		     : 0;
}

static void tick(void *ctx)
{
	struct rebalance *b = ctx;
	struct mc_progress now = {.stage = "rebalance", .items_total = b->n};

	mc_mutex_lock(&b->lock);
	now.bytes_done = b->res.copied_bytes;
	now.items_done = b->done;
	mc_mutex_unlock(&b->lock);
	if (b->opts->progress != NULL)
		b->opts->progress(b->opts->ctx, &now);
}

int mc_rebalance(struct mc_remote *r, const struct mc_rebalance_opts *opts,
	struct mc_rebalance_result *ret, struct mc_err *err)
{
	struct rebalance b = {.remote = r, .opts = opts};
	struct mc_crew crew = {.workers = opts->jobs, .run = run, .tick = tick, .ctx = &b};
	int res = mc_remote_sync(r, err); /* what members missed is brought first */

	mc_mutex_init(&b.lock);
	if (res == 0)
		res = find_dirs(&b, err);
	crew.items = b.n;
	if (res == 0)
		res = mc_crew_run(&crew, err);
	if (res == 0)
		res = mc_remote_sync(r, err);
	*ret = b.res;
	for (size_t i = 0; i < b.n; i++)
		free(b.dirs[i]);
	free(b.dirs);
	mc_mutex_done(&b.lock);
	return res < 0 ? mc_err_set(err, res, "%s", strerror(-res)) : 0;
}
