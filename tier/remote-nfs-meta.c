/*
 * Metadata operations of remote kind "nfs": plain sequences of calls in the caller's thread.
 *
 * A call without replay whose answer was lost (-ECONNRESET) may have run. It is sent again, and
 * what the second answer means is then decided by the state: "not there" after a lost REMOVE is
 * success, "exists" after a lost MKDIR too.
 */
#include "tier/remote-nfs-put.h"

#include "tier/future.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void call_over(struct mc_nfs_call *c, int res)
{
	mc_future_set(c->ctx, res);
}

int mc_nfs_call_run(struct mc_nfs_conn *conn, struct mc_nfs_call *call)
{
	struct mc_future x;

	mc_future_init(&x);
	call->done = call_over;
	call->ctx = &x;
	mc_nfs_conn_submit(conn, call);
	return (int)mc_future_wait(&x);
}

/* Runs a call that takes a name away; lost answers see the state. */
static int run_remove(struct mc_nfs *n, const struct mc_nfs_proc *proc, struct mc_nfs_fh *dir,
	const char *name, uint64_t deadline_ns)
{
	bool lost = false;

	for (;;) {
		struct mc_nfs_call call = {
			.proc = proc, .fh = *dir, .name = name, .deadline_ns = deadline_ns};
		int r = mc_nfs_call_run(n->meta, &call);

		if (r != -ECONNRESET)
			return r == -ENOENT && lost ? 0 : r;
		lost = true;
	}
}

int mc_nfs_stat(struct mc_backend *b, const struct mc_remote_call *c, struct mc_remote_attr *ret)
{
	struct mc_nfs *n = (struct mc_nfs *)b;
	struct mc_nfs_node node;
	int r = mc_nfs_walk_run(n, c->path, false, c->deadline_ns, &node);

	mc_nfs_reads_forget(n, c->path, r == 0 ? &node.fh : NULL);
	if (r == 0)
		*ret = node.attr;
	return r;
}

/* Attributes of an entry whose listing came without; -ENOENT when it is gone. */
static int entry_attr(struct mc_nfs *n, const struct mc_nfs_fh *dir, const char *name,
	uint64_t deadline_ns, struct mc_remote_attr *ret)
{
	struct mc_nfs_call call = {
		.proc = &mc_nfs_lookup, .fh = *dir, .name = name, .deadline_ns = deadline_ns};
	int r = mc_nfs_call_run(n->meta, &call);

	if (r == 0 && !call.has_attr) {
		struct mc_nfs_call get = {
			.proc = &mc_nfs_getattr, .fh = call.ofh, .deadline_ns = deadline_ns};

		r = mc_nfs_call_run(n->meta, &get);
		call.attr = get.attr;
	}
	if (r == 0)
		*ret = call.attr;
	return r == -ESTALE ? -ENOENT : r;
}

/* Hands one answer's entries over, and remembers where the next answer begins. */
static int deliver(struct mc_nfs *n, struct mc_nfs_call *call, mc_remote_each *each, void *ctx)
{
	int r = 0;

	for (struct mc_nfs_entry *e = call->entries; e != NULL && r == 0; e = e->next) {
		call->off = e->cookie;
		if (strcmp(e->name, ".") == 0 || strcmp(e->name, "..") == 0)
			continue;
		if (!e->has_attr) {
			r = entry_attr(n, &call->fh, e->name, call->deadline_ns, &e->attr);
			if (r == -ENOENT) { /* removed meanwhile */
				r = 0;
				continue;
			}
		}
		if (r == 0)
			r = each(ctx, e->name, &e->attr);
	}
	return r;
}

int mc_nfs_list(
	struct mc_backend *b, const struct mc_remote_call *c, mc_remote_each *each, void *ctx)
{
	struct mc_nfs *n = (struct mc_nfs *)b;
	struct mc_nfs_call call = {.proc = &mc_nfs_readdirplus, .deadline_ns = c->deadline_ns};
	struct mc_nfs_node dir;
	int r = mc_nfs_walk_run(n, c->path, true, c->deadline_ns, &dir);

	if (r == 0 && dir.attr.type != MC_REMOTE_DIR)
		r = -ENOTDIR;
	if (r == 0)
		call.fh = dir.fh;
	while (r == 0 && !call.eof) {
		uint64_t at = call.off;

		call.entries = NULL;
		r = mc_nfs_call_run(n->meta, &call);
		if (r == 0)
			r = deliver(n, &call, each, ctx);
		if (r == 0 && !call.eof && call.off == at)
			r = -EBADMSG; /* a server that never ends */
		mc_nfs_entries_free(call.entries);
	}
	return r;
}

static int make_one(struct mc_nfs *n, const char *path, uint64_t deadline_ns)
{
	struct mc_nfs_node parent;
	const char *name;
	int r = mc_nfs_walk_parent(n, path, deadline_ns, &parent, &name);

	while (r == 0) {
		struct mc_nfs_call call = {.proc = &mc_nfs_mkdir_proc,
			.fh = parent.fh,
			.name = name,
			.deadline_ns = deadline_ns};

		r = mc_nfs_call_run(n->meta, &call);
		if (r != -ECONNRESET)
			return r;
		r = 0; /* once more; -EEXIST then says that the first one ran */
	}
	return r;
}

/* Finds the deepest directory that exists from the end, then makes the rest. */
int mc_nfs_make_dirs(struct mc_nfs *n, const char *path, bool self, uint64_t deadline_ns)
{
	char dir[MC_REMOTE_PATH_MAX];
	size_t len = strlen(path), ends[MC_REMOTE_PATH_MAX / 2];
	size_t missing = 0;
	int r = -ENOENT;

	memcpy(dir, path, len + 1);
	if (!self)
		len = strrchr(path, '/') == NULL ? 0 : (size_t)(strrchr(path, '/') - path);
	while (len > 0 && r == -ENOENT) {
		dir[len] = '\0';
		r = make_one(n, dir, deadline_ns);
		if (r == -ENOENT) {
			ends[missing++] = len;
			while (len > 0 && dir[len] != '/')
				len--;
		}
	}
	if (len == 0 && missing == 0)
		return 0;
	while ((r == 0 || r == -EEXIST) && missing > 0) {
		memcpy(dir, path, ends[--missing]);
		dir[ends[missing]] = '\0';
		r = make_one(n, dir, deadline_ns);
	}
	return r == -EEXIST ? 0 : r;
}

int mc_nfs_mkdir(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_nfs *n = (struct mc_nfs *)b;
	struct mc_nfs_node node;
	int r = mc_nfs_make_dirs(n, c->path, true, c->deadline_ns);

	if (r < 0)
		return r;
	r = mc_nfs_walk_run(n, c->path, true, c->deadline_ns, &node);
	return r == 0 && node.attr.type != MC_REMOTE_DIR ? -EEXIST : r;
}

int mc_nfs_unlink(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_nfs *n = (struct mc_nfs *)b;
	struct mc_nfs_node dir;
	const char *name;
	int r = mc_nfs_walk_parent(n, c->path, c->deadline_ns, &dir, &name), r2;

	if (r < 0)
		return r;
	r = run_remove(n, &mc_nfs_remove, &dir.fh, name, c->deadline_ns);
	mc_nfs_reads_forget(n, c->path, NULL);
	if (r != -EISDIR && r != -EPERM && r != -EINVAL)
		return r;
	/* A directory; servers differ in how they say so. */
	r2 = run_remove(n, &mc_nfs_rmdir, &dir.fh, name, c->deadline_ns);
	mc_nfs_dirs_forget(n);
	return r2 == -ENOTDIR ? r : r2;
}

int mc_nfs_move(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_nfs *n = (struct mc_nfs *)b;
	struct mc_nfs_node from, to, there;
	const char *name, *new_name;
	bool lost = false;
	int r = mc_nfs_walk_parent(n, c->path, c->deadline_ns, &from, &name);

	if (r == 0)
		r = mc_nfs_walk_parent(n, c->new_path, c->deadline_ns, &to, &new_name);
	if (r < 0)
		return r;
	for (;;) {
		struct mc_nfs_call call = {.proc = &mc_nfs_rename,
			.fh = from.fh,
			.name = name,
			.fh2 = to.fh,
			.name2 = new_name,
			.deadline_ns = c->deadline_ns};

		r = mc_nfs_call_run(n->meta, &call);
		if (r != -ECONNRESET)
			break;
		lost = true;
	}
	/* The answer of the one that did it may have been lost. */
	if (lost && r == -ENOENT &&
		mc_nfs_walk_run(n, c->new_path, false, c->deadline_ns, &there) == 0)
		r = 0;
	mc_nfs_reads_forget(n, c->path, NULL);
	mc_nfs_reads_forget(n, c->new_path, NULL);
	return r;
}

int mc_nfs_touch(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_nfs *n = (struct mc_nfs *)b;
	struct mc_nfs_call call = {.proc = &mc_nfs_settime, .deadline_ns = c->deadline_ns};
	struct mc_nfs_putting put = {.n = n, .deadline_ns = c->deadline_ns};
	struct mc_nfs_node node;
	int r = mc_nfs_walk_run(n, c->path, false, c->deadline_ns, &node);

	if (r < 0)
		return r;
	call.fh = node.fh;
	r = mc_nfs_call_run(n->meta, &call);
	mc_nfs_reads_forget(n, c->path, NULL); /* its attributes are known there */
	if (r < 0 || node.attr.type != MC_REMOTE_FILE)
		return r;
	/* Who touches counts on the name; whoever made it may have died before its sync. The
	 * verifier of its writes is not known: the sync looks the name up. */
	put.fh = node.fh;
	put.fileid = node.attr.fileid;
	return mc_nfs_sync_note(&put, c->path);
}

int mc_nfs_space(struct mc_backend *b, const struct mc_remote_call *c, struct mc_remote_space *ret)
{
	struct mc_nfs *n = (struct mc_nfs *)b;
	struct mc_nfs_call call = {.proc = &mc_nfs_fsstat, .deadline_ns = c->deadline_ns};
	struct mc_nfs_node node;
	int r = mc_nfs_walk_run(n, "", true, c->deadline_ns, &node);

	if (r < 0)
		return r;
	call.fh = node.fh;
	r = mc_nfs_call_run(n->meta, &call);
	if (r == 0) {
		ret->total = call.total;
		ret->avail = call.avail;
	}
	return r;
}
