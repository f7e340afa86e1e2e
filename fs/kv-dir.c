/*
 * Listing kv/. An offset is the store's cursor + 2 (0 ".", 1 ".."): a stable order, no snapshot per
 * opendir. Names carry their type and number but no attributes and make no nodes, so that a
 * directory of a million objects is one walk of the index. What is not sealed is not listed.
 */
#include "fs/kv-state.h"

#include <errno.h>

#include "fs/page.h"

static int each(void *ctx, const char *name, const struct mc_kv_attr *attr, uint64_t next)
{
	return !mc_page_put_bare(ctx, name, attr->is_dir ? S_IFDIR : S_IFREG,
		attr->ino > 1 ? attr->ino : 2, (off_t)next + 2);
}

static int fill(struct mc_kvfs *k, struct mc_page *p, const char *key, uint64_t ino, off_t off)
{
	uint64_t cursor;

	if (!mc_page_put_dots(p, ino, &off))
		return 0;
	cursor = (uint64_t)off - 2;
	return mc_kv_list(k->kv, key, &cursor, each, p);
}

static void answer(
	struct mc_kvfs *k, fuse_req_t req, struct mc_knode *n, size_t size, off_t off, bool plus)
{
	struct mc_page p;
	struct stat st;
	int r = mc_page_init(&p, req, size, plus);

	mc_kvfs_attr(k, n, &st);
	if (r == 0)
		r = fill(k, &p, n->key, st.st_ino, off); /* a directory keeps its key */
	if (r == -ENOENT)
		r = 0; /* removed while open: empty */
	if (r < 0)
		fuse_reply_err(req, mc_kvfs_errno(r));
	else
		mc_page_reply(&p);
	mc_page_done(&p);
}

static void answer_now(struct mc_kreq *q)
{
	fuse_req_t req = mc_call_take(&q->call);

	if (req != NULL)
		answer(q->k, req, q->node, q->read.len, (off_t)q->read.off, q->plus);
	mc_kreq_end(q);
}

static void answer_whole(struct mc_kreq *q)
{
	mc_kv_wait_whole(q->k->kv);
	answer_now(q);
}

static void answer_gated(struct mc_kreq *q)
{
	if (mc_kv_is_whole(q->k->kv))
		answer_now(q);
	else
		mc_kreq_work(q, answer_whole);
}

/* The first page waits for what was closed before; each one for what the process before this one
 * left, so that no name is missed that was there all the time. */
static void begin(struct mc_kreq *q, size_t size, off_t off, bool plus)
{
	q->read.len = (uint32_t)size;
	q->read.off = (uint64_t)off;
	q->plus = plus;
	if (off == 0)
		mc_kreq_gate_list(q, answer_gated);
	else
		mc_kreq_work(q, answer_whole);
}

void mc_kvop_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus)
{
	struct mc_kvfs *k = mc_kvfs_of(req);
	struct mc_knode *n = mc_knode_find(k, ino);
	struct mc_kreq *q;

	if (n == NULL || off < 0) {
		fuse_reply_err(req, n == NULL ? ESTALE : EINVAL);
		return;
	}
	if (off > 0 && mc_kv_is_whole(k->kv)) {
		answer(k, req, n, size, off, plus);
		return;
	}
	q = mc_kreq_of_node(k, req, n);
	if (q != NULL)
		begin(q, size, off, plus);
}
