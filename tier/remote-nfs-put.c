/*
 * Publishing in remote kind "nfs": CREATE under tmp/, write durably, check the size, RENAME (or
 * LINK) into place; a later sync makes the name durable.
 *
 * 1. The name appears only after the data is on stable storage.
 * 2. RENAME and LINK are not sent blindly twice: after a lost answer the target is looked at.
 * 3. Directories known from before save their lookups; one that turns out to be gone is made and
 * looked up anew, once.
 */
#include "tier/remote-nfs-put.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* CREATEs the temporary file, in a directory known or looked up. */
static int create_once(struct mc_nfs_putting *p, bool fresh)
{
	struct mc_nfs_call c = {.proc = &mc_nfs_create, .deadline_ns = p->deadline_ns};
	int r = mc_nfs_walk_dir_of(p->n, p->tmp, fresh, p->deadline_ns, &p->dir, &p->tmp_name);

	if (r < 0)
		return r;
	c.fh = p->dir;
	c.name = p->tmp_name;
	r = mc_nfs_call_run(p->n->meta, &c);
	if (r == 0 && (!c.has_fh || !c.has_attr)) {
		struct mc_nfs_node node;

		r = mc_nfs_walk_run(p->n, p->tmp, false, p->deadline_ns, &node);
		c.ofh = node.fh;
		c.attr = node.attr;
	}
	if (r == 0) {
		p->fh = c.ofh;
		p->fileid = c.attr.fileid;
	}
	return r;
}

/* The empty file under tmp/<node>/, its handle and number. */
static int create_tmp(struct mc_nfs_putting *p)
{
	int r = create_once(p, false);

	if (r != -ENOENT && r != -ESTALE)
		return r;
	r = mc_nfs_make_dirs(p->n, p->tmp, false, p->deadline_ns);
	return r < 0 ? r : create_once(p, true);
}

static int check_size(struct mc_nfs_putting *p)
{
	struct mc_nfs_call c = {
		.proc = &mc_nfs_getattr, .fh = p->fh, .deadline_ns = p->deadline_ns};
	int r;

	if (!p->have_size) {
		r = mc_nfs_call_run(p->n->meta, &c);
		if (r < 0)
			return r;
		p->size = c.attr.size;
	}
	return p->size == p->len ? 0 : -EIO;
}

static void remove_tmp(struct mc_nfs_putting *p)
{
	struct mc_nfs_call c = {.proc = &mc_nfs_remove,
		.fh = p->dir,
		.name = p->tmp_name,
		.deadline_ns = p->deadline_ns};

	while (mc_nfs_call_run(p->n->meta, &c) == -ECONNRESET)
		;
}

/* True when the name leads to the file that we wrote. */
static bool is_ours(struct mc_nfs_putting *p, const struct mc_nfs_fh *dir, const char *name)
{
	struct mc_nfs_call c = {
		.proc = &mc_nfs_lookup, .fh = *dir, .name = name, .deadline_ns = p->deadline_ns};

	return mc_nfs_call_run(p->n->meta, &c) == 0 && c.has_attr && c.attr.fileid == p->fileid;
}

/* RENAME or LINK once per turn, until an answer came; see 4. */
static int move(struct mc_nfs_putting *p, const struct mc_nfs_fh *dir, const char *name, bool excl)
{
	bool lost = false;

	for (;;) {
		struct mc_nfs_call c = {.proc = excl ? &mc_nfs_link : &mc_nfs_rename,
			.fh = excl ? p->fh : p->dir,
			.name = p->tmp_name,
			.fh2 = *dir,
			.name2 = name,
			.deadline_ns = p->deadline_ns};
		int r = mc_nfs_call_run(p->n->meta, &c);

		if (r == -ECONNRESET) {
			lost = true;
			continue;
		}
		if (lost && (r == -ENOENT || r == -EEXIST) && is_ours(p, dir, name))
			return 0;
		return r;
	}
}

static int publish_once(struct mc_nfs_putting *p, const char *path, bool excl, bool fresh)
{
	struct mc_nfs_fh dir;
	const char *name;
	int r = mc_nfs_walk_dir_of(p->n, path, fresh, p->deadline_ns, &dir, &name);

	return r < 0 ? r : move(p, &dir, name, excl);
}

static int publish(struct mc_nfs_putting *p, const char *path, bool excl)
{
	int r = publish_once(p, path, excl, false);

	if (r == -ENOENT || r == -ESTALE) {
		r = mc_nfs_make_dirs(p->n, path, false, p->deadline_ns);
		if (r == 0)
			r = publish_once(p, path, excl, true);
	}
	mc_nfs_reads_forget(p->n, path, NULL);
	if (r == 0 && excl)
		remove_tmp(p);
	return r;
}

int mc_nfs_put(struct mc_backend *b, const struct mc_remote_call *c, const void *buf, size_t len,
	unsigned flags)
{
	struct mc_nfs *n = (struct mc_nfs *)b;
	struct mc_nfs_putting p = {.n = n, .buf = buf, .len = len, .deadline_ns = c->deadline_ns};
	int r;

	snprintf(p.tmp, sizeof(p.tmp), "%s/%016llx-%llx", n->tmp, (unsigned long long)n->salt,
		(unsigned long long)atomic_fetch_add(&n->serial, 1));
	r = create_tmp(&p);
	if (r < 0)
		return r;
	r = mc_nfs_write_durably(&p);
	if (r == 0)
		r = check_size(&p);
	if (r == 0)
		r = publish(&p, c->path, (flags & MC_PUT_EXCL) != 0);
	if (r < 0) {
		remove_tmp(&p);
		return r;
	}
	r = mc_nfs_sync_note(&p, c->path);
	return r == 0 && (flags & MC_PUT_DURABLE) != 0 ? mc_nfs_sync(b, c) : r;
}
