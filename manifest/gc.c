/* Garbage collection of a remote: marks, then sweeps, by the server's clock. */
#include "manifest/gc-state.h"

#include "tier/remote-set.h"
#include "tier/remote.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

int mc_gc_keep_name(void *names, const char *name)
{
	struct mc_gc_names *l = names;
	char **more = reallocarray(l->v, l->n + 1, sizeof(*more));

	if (more == NULL)
		return -ENOMEM;
	l->v = more;
	l->v[l->n] = strdup(name);
	return l->v[l->n] == NULL ? -ENOMEM : (l->n++, 0);
}

void mc_gc_names_done(struct mc_gc_names *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i]);
	free(l->v);
}

void mc_gc_note(struct mc_gc *g, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	if (g->opts->note == NULL)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	mc_mutex_lock(&g->note_lock);
	g->opts->note(g->opts->ctx, text);
	mc_mutex_unlock(&g->note_lock);
}

void mc_gc_tick(void *gc)
{
	struct mc_gc *g = gc;
	const struct mc_progress now = {
		.stage = g->stage, .items_done = g->done, .items_total = g->total};

	if (g->opts->progress != NULL)
		g->opts->progress(g->opts->ctx, &now);
}

int mc_gc_whole(struct mc_gc *g, struct mc_err *err)
{
	struct mc_set_status set;

	mc_remote_set_status(g->remote, &set);
	for (unsigned i = 0; i < set.n; i++)
		if (!set.members[i].up)
			return mc_err_set(err, -ENOTCONN,
				"remote %s is away; all are needed to know what is in use",
				set.members[i].url);
	return 0;
}

/* What time it is on the server: that of a file written now. */
static int server_now(struct mc_remote *r, int64_t *ret_s, struct mc_err *err)
{
	struct mc_remote_attr attr;
	char path[64];
	uint64_t salt;
	int res;

	if (getrandom(&salt, sizeof(salt), 0) != (ssize_t)sizeof(salt))
		return mc_err_set(err, -EIO, "getrandom: %s", strerror(errno));
	snprintf(path, sizeof(path), "tmp/clock/%016llx", (unsigned long long)salt);
	res = mc_remote_put(r, path, "t", 1, 0, err);
	if (res < 0)
		return res;
	res = mc_remote_stat(r, path, &attr, err);
	if (res == 0)
		*ret_s = attr.mtime_s;
	mc_remote_unlink(r, path, NULL);
	return res;
}

int mc_gc(struct mc_remote *r, const struct mc_gc_opts *opts, struct mc_gc_result *ret,
	struct mc_err *err)
{
	struct mc_gc g = {.remote = r, .opts = opts};
	int64_t now = 0;
	int res = mc_gc_whole(&g, err);

	if (res == 0)
		res = server_now(r, &now, err);
	if (res < 0)
		return res;
	mc_mutex_init(&g.note_lock);
	/* Within the second of now everything is young: times on servers may be whole seconds. */
	g.limit_s = now - (int64_t)opts->grace_s;
	res = mc_gc_mark(&g, err);
	if (res == 0)
		res = mc_gc_whole(&g, err);
	if (res == 0)
		res = mc_gc_sweep(&g, err);
	if (res == 0)
		*ret = (struct mc_gc_result){.revisions = g.revisions,
			.referenced = g.marks.n,
			.missing = g.missing,
			.chunks = g.chunks,
			.bytes = g.bytes,
			.garbage = g.garbage,
			.garbage_bytes = g.garbage_bytes,
			.young = g.young,
			.young_bytes = g.young_bytes,
			.restored = g.restored,
			.leftovers = g.leftovers,
			.leftover_bytes = g.leftover_bytes,
			.strangers = g.strangers};
	free(g.marks.v);
	mc_mutex_done(&g.note_lock);
	return res;
}
