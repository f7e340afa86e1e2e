/*
 * From a path to a file handle: one LOOKUP per component, as a chain of calls on the metadata
 * connection.
 *
 * 1. Directories met on the way are remembered for MC_NFS_TTL_NS. What a remembered one says to the
 *    contrary (no such name, stale) is believed only after a walk from the root said it too, unless
 * it is younger than RECENT_NS.
 * 2. A symbolic link is replaced by its target in the text of the path and the walk begins anew;
 * ".." is resolved in the text, which holds no link left of it but those the target itself names.
 * What would leave the URL's directory is -EACCES.
 * 3. The last component is always asked from the server.
 */
#include "tier/remote-nfs.h"

#include "tier/future.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIRS 4096
#define MAX_LINKS 40
#define MAX_RESTARTS 2
#define RECENT_NS UINT64_C(500000000)

struct nfs_dir {
	struct mc_lru_node node;
	struct mc_nfs_fh fh;
	uint64_t seen_ns;
};

static void step(struct mc_nfs_walk *w);

int mc_nfs_dirs_init(struct mc_nfs *n)
{
	return mc_lru_init(&n->dirs, MAX_DIRS);
}

static void clear_locked(struct mc_nfs *n) MC_REQUIRES(n->lock)
{
	struct nfs_dir *d;

	while ((d = mc_lru_oldest(&n->dirs)) != NULL) {
		mc_lru_remove(&n->dirs, &d->node);
		free(d);
	}
}

void mc_nfs_dirs_forget(struct mc_nfs *n)
{
	mc_mutex_lock(&n->lock);
	clear_locked(n);
	mc_mutex_unlock(&n->lock);
}

void mc_nfs_dirs_done(struct mc_nfs *n)
{
	mc_nfs_dirs_forget(n);
	mc_lru_done(&n->dirs);
}

/* Remembers that full[0 .. len) leads to fh. Memory short: it is not remembered. */
static void dir_remember(struct mc_nfs *n, char *full, size_t len, const struct mc_nfs_fh *fh)
{
	char saved = full[len];
	struct nfs_dir *d;

	full[len] = '\0';
	mc_mutex_lock(&n->lock);
	d = mc_lru_find(&n->dirs, full);
	if (d == NULL) {
		d = calloc(1, sizeof(*d));
		if (d != NULL && mc_lru_insert(&n->dirs, &d->node, full) < 0) {
			free(d);
			d = NULL;
		}
	}
	if (d != NULL) {
		d->fh = *fh;
		d->seen_ns = mc_now_ns();
	}
	if (n->dirs.n > MAX_DIRS) {
		d = mc_lru_oldest(&n->dirs);
		mc_lru_remove(&n->dirs, &d->node);
		free(d);
	}
	mc_mutex_unlock(&n->lock);
	full[len] = saved;
}

static bool dir_known(
	struct mc_nfs *n, char *full, size_t len, uint64_t max_age_ns, struct mc_nfs_fh *ret)
{
	char saved = full[len];
	struct nfs_dir *d;
	bool known;

	full[len] = '\0';
	mc_mutex_lock(&n->lock);
	d = mc_lru_find(&n->dirs, full);
	known = d != NULL && mc_now_ns() - d->seen_ns < max_age_ns;
	if (known)
		*ret = d->fh;
	mc_mutex_unlock(&n->lock);
	full[len] = saved;
	return known;
}

static void end(struct mc_nfs_walk *w, int res)
{
	free(w->full);
	w->full = NULL;
	w->done(w, res);
}

/* Begins with the deepest directory that is known, else with the root. */
static void begin(struct mc_nfs_walk *w, uint64_t max_age_ns)
{
	size_t len = strlen(w->full);

	w->from_known = false;
	while (max_age_ns > 0 && len > 0) {
		while (len > 0 && w->full[len - 1] != '/')
			len--;
		if (len == 0)
			break;
		len--; /* at the slash: full[0 .. len) is the directory */
		if (dir_known(w->n, w->full, len, max_age_ns, &w->node.fh)) {
			w->from_known = true;
			w->pos = len + 1;
			step(w);
			return;
		}
	}
	mc_mutex_lock(&w->n->lock);
	w->node.fh = w->n->root;
	mc_mutex_unlock(&w->n->lock);
	w->pos = 0;
	step(w);
}

static void issue(struct mc_nfs_walk *w, const struct mc_nfs_proc *proc,
	void (*done)(struct mc_nfs_call *c, int res))
{
	w->call = (struct mc_nfs_call){.proc = proc,
		.fh = w->node.fh,
		.name = w->name,
		.deadline_ns = w->deadline_ns,
		.done = done,
		.ctx = w};
	mc_nfs_conn_submit(w->n->meta, &w->call);
}

/* The server contradicts: perhaps because what we remembered is old; see 1. */
static void refuse(struct mc_nfs_walk *w, int res)
{
	bool old = w->from_known && (res == -ENOENT || res == -ENOTDIR);

	if (res == -ESTALE && w->pos == 0)
		mc_nfs_conn_remount(w->n->meta);
	if ((old || res == -ESTALE) && w->restarts++ < MAX_RESTARTS) {
		if (res == -ESTALE)
			mc_nfs_dirs_forget(w->n);
		begin(w, res == -ESTALE || w->restarts > 1 ? 0 : RECENT_NS);
		return;
	}
	end(w, res);
}

/* Replaces full[pos .. end) by target and takes ".", ".." and empty components out of the text. */
static int splice(struct mc_nfs_walk *w, const char *target)
{
	size_t floor = strlen(w->n->server.sub), len = 0;
	char *raw = NULL, *out;

	if (target[0] == '/')
		return -EACCES;
	if (asprintf(&raw, "%.*s%s%s", (int)w->pos, w->full, target, w->full + w->end) < 0)
		return -ENOMEM;
	out = calloc(1, strlen(raw) + 1);
	if (out == NULL) {
		free(raw);
		return -ENOMEM;
	}
	for (const char *p = raw; *p != '\0';) {
		size_t n = strcspn(p, "/");

		if (n == 2 && p[0] == '.' && p[1] == '.') {
			if (len <= floor)
				break;
			while (len > 0 && out[len - 1] != '/')
				len--;
			len -= len > 0;
		} else if (n > 0 && !(n == 1 && p[0] == '.')) {
			if (len > 0)
				out[len++] = '/';
			memcpy(out + len, p, n);
			len += n;
		}
		out[len] = '\0';
		p += n + (p[n] == '/');
		if (*p == '\0') {
			free(raw);
			free(w->full);
			w->full = out;
			return len >= MC_REMOTE_PATH_MAX ? -ENAMETOOLONG : 0;
		}
	}
	free(raw);
	free(out);
	return -EACCES;
}

static void on_readlink(struct mc_nfs_call *c, int res)
{
	struct mc_nfs_walk *w = c->ctx;
	char *target = c->text;

	if (res < 0) {
		refuse(w, res);
		return;
	}
	res = ++w->links > MAX_LINKS ? -ELOOP : splice(w, target);
	free(target);
	if (res < 0)
		end(w, res);
	else
		begin(w, w->fresh ? 0 : MC_NFS_TTL_NS);
}

/* node is what full[0 .. end) leads to. */
static void arrived(struct mc_nfs_walk *w)
{
	bool last = w->full[w->end] == '\0';

	if (w->node.attr.type == MC_REMOTE_SYMLINK && (!last || w->follow)) {
		issue(w, &mc_nfs_readlink, on_readlink);
		return;
	}
	if (w->node.attr.type == MC_REMOTE_DIR)
		dir_remember(w->n, w->full, w->end, &w->node.fh);
	if (last) {
		end(w, 0);
		return;
	}
	if (w->node.attr.type != MC_REMOTE_DIR) {
		refuse(w, -ENOTDIR);
		return;
	}
	w->pos = w->end + 1;
	step(w);
}

static void on_getattr(struct mc_nfs_call *c, int res)
{
	struct mc_nfs_walk *w = c->ctx;

	if (res < 0) {
		refuse(w, res);
		return;
	}
	w->node.attr = c->attr;
	arrived(w);
}

static void on_lookup(struct mc_nfs_call *c, int res)
{
	struct mc_nfs_walk *w = c->ctx;

	if (res < 0) {
		refuse(w, res);
		return;
	}
	w->node.fh = c->ofh;
	if (!c->has_attr) {
		issue(w, &mc_nfs_getattr, on_getattr);
		return;
	}
	w->node.attr = c->attr;
	arrived(w);
}

/* Asks for the component at pos; node.fh is its directory. */
static void step(struct mc_nfs_walk *w)
{
	size_t n = strcspn(w->full + w->pos, "/");

	w->end = w->pos + n;
	if (n == 0) { /* the root itself */
		issue(w, &mc_nfs_getattr, on_getattr);
		return;
	}
	if (n > MC_REMOTE_NAME_MAX) {
		end(w, -ENAMETOOLONG);
		return;
	}
	memcpy(w->name, w->full + w->pos, n);
	w->name[n] = '\0';
	issue(w, &mc_nfs_lookup, on_lookup);
}

void mc_nfs_walk_start(struct mc_nfs *n, struct mc_nfs_walk *w)
{
	const char *sub = n->server.sub;

	w->n = n;
	w->links = 0;
	w->restarts = 0;
	if (asprintf(&w->full, "%s%s%s", sub, *sub != '\0' && *w->path != '\0' ? "/" : "",
		    w->path) < 0) {
		w->full = NULL;
		w->done(w, -ENOMEM);
		return;
	}
	begin(w, w->fresh ? 0 : MC_NFS_TTL_NS);
}

static void walk_over(struct mc_nfs_walk *w, int res)
{
	mc_future_set(w->ctx, res);
}

int mc_nfs_walk_run(struct mc_nfs *n, const char *path, bool follow, uint64_t deadline_ns,
	struct mc_nfs_node *ret)
{
	struct mc_future x;
	struct mc_nfs_walk w = {.path = path,
		.follow = follow,
		.deadline_ns = deadline_ns,
		.done = walk_over,
		.ctx = &x};
	int r;

	mc_future_init(&x);
	mc_nfs_walk_start(n, &w);
	r = (int)mc_future_wait(&x);
	if (r == 0)
		*ret = w.node;
	return r;
}

int mc_nfs_walk_parent(struct mc_nfs *n, const char *path, uint64_t deadline_ns,
	struct mc_nfs_node *ret, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	char parent[MC_REMOTE_PATH_MAX];
	size_t len = slash == NULL ? 0 : (size_t)(slash - path);
	int r;

	memcpy(parent, path, len);
	parent[len] = '\0';
	*ret_name = slash == NULL ? path : slash + 1;
	r = mc_nfs_walk_run(n, parent, true, deadline_ns, ret);
	return r == 0 && ret->attr.type != MC_REMOTE_DIR ? -ENOTDIR : r;
}

int mc_nfs_walk_dir_of(struct mc_nfs *n, const char *path, bool fresh, uint64_t deadline_ns,
	struct mc_nfs_fh *ret, const char **ret_name)
{
	const char *sub = n->server.sub, *slash = strrchr(path, '/');
	char full[2 * MC_REMOTE_PATH_MAX];
	struct mc_nfs_node node;
	int len, r;

	*ret_name = slash == NULL ? path : slash + 1;
	len = snprintf(full, sizeof(full), "%s%s%.*s", sub,
		*sub != '\0' && slash != NULL ? "/" : "", slash == NULL ? 0 : (int)(slash - path),
		path);
	if (!fresh && len > 0 && (size_t)len < sizeof(full) &&
		dir_known(n, full, (size_t)len, MC_NFS_TTL_NS, ret))
		return 0;
	r = mc_nfs_walk_parent(n, path, deadline_ns, &node, ret_name);
	*ret = node.fh;
	return r;
}
