/*
 * Listing kv/. An offset is the store's cursor + 2 (0 ".", 1 ".."): a stable order, no snapshot per
 * opendir. Names carry their type and number but no attributes and make no nodes, so that a
 * directory of a million objects is one walk of the index. What is not sealed is not listed.
 */
#include "fs/kv-state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tier/cleanup.h"

struct page {
	fuse_req_t req;
	char *buf;
	size_t size, used; /* bytes */
	bool plus;
};

static bool put(struct page *p, const char *name, const struct stat *st, off_t next)
{
	size_t left = p->size - p->used, len;

	if (p->plus) {
		const struct fuse_entry_param e = {.attr = *st}; /* ino 0: no node */

		len = fuse_add_direntry_plus(p->req, p->buf + p->used, left, name, &e, next);
	} else {
		len = fuse_add_direntry(p->req, p->buf + p->used, left, name, st, next);
	}
	if (len > left)
		return false;
	p->used += len;
	return true;
}

static int each(void *ctx, const char *name, const struct mc_kv_attr *attr, uint64_t next)
{
	const struct stat st = {.st_ino = attr->ino > 1 ? attr->ino : 2,
		.st_mode = attr->is_dir ? S_IFDIR : S_IFREG};

	return !put(ctx, name, &st, (off_t)next + 2);
}

static int fill(struct mc_kvfs *k, struct page *p, const char *key, uint64_t ino, off_t off)
{
	const struct stat st = {.st_ino = ino, .st_mode = S_IFDIR};
	uint64_t cursor;

	for (; off < 2; off++) {
		if (!put(p, off == 0 ? "." : "..", &st, off + 1))
			return 0;
	}
	cursor = (uint64_t)off - 2;
	return mc_kv_list(k->kv, key, &cursor, each, p);
}

void mc_kvop_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus)
{
	struct mc_kvfs *k = mc_kvfs_of(req);
	struct mc_knode *n = mc_knode_find(k, ino);
	struct page p = {.req = req, .size = size, .plus = plus};
	cleanup_free char *buf = NULL;
	struct stat st;
	int r;

	if (n == NULL || off < 0) {
		fuse_reply_err(req, n == NULL ? ESTALE : EINVAL);
		return;
	}
	buf = malloc(size);
	if (buf == NULL) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	p.buf = buf;
	mc_kvfs_attr(k, n, &st);
	r = fill(k, &p, n->key, st.st_ino, off); /* a directory keeps its key */
	if (r == -ENOENT)
		r = 0; /* removed while open: empty */
	if (r < 0)
		fuse_reply_err(req, mc_kvfs_errno(r));
	else
		fuse_reply_buf(req, p.buf, p.used);
}
