/*
 * Reads by range of objects that are not in DRAM whole: blocks that are there (kv-block.c), from
 * NVMe, else from the remote, each verified against the checksum of the version that the handle is
 * bound to. Bytes of another version never pass: they do not match.
 */
#include "tier/kv-impl.h"
#include "tier/kv-remote.h"

#include "tier/digest.h"

#include <string.h>

struct range {
	struct mc_kv_read *r;
	struct kv_object *obj; /* a reference */
	uint64_t first;        /* block */
	unsigned n, i;         /* blocks, and which is being read */
	struct kv_block *blocks[MC_KV_READ_IOV];
	bool has[MC_KV_READ_IOV]; /* its bytes */
	struct mc_kv_loc at;      /* where the block is read now */
	struct mc_remote_read remote;
	uint32_t avoid; /* copies of the block that were bad */
	char path[KV_REMOTE_PATH];
	int res_nvme; /* of the last read there */
};

static void next_block(struct range *g);

static void range_free(struct mc_kv *kv, struct range *g)
{
	for (unsigned i = 0; i < g->n; i++)
		if (g->blocks[i] != NULL)
			kv_block_put(kv, g->blocks[i]);
	free(g);
}

static void range_done(struct range *g, int res)
{
	struct mc_kv_read *r = g->r;
	struct mc_kv *kv = r->obj->kv;
	struct kv_block *last = NULL;
	uint64_t at = r->off;
	bool kept = true;

	r->n_iov = 0;
	for (unsigned i = 0; i < g->n && res == 0; i++) {
		uint64_t start = (g->first + i) << MC_BLOCK_SHIFT;
		uint64_t end = start + mc_block_len(g->obj->size, g->first + i);
		uint64_t to = r->off + r->len < end ? r->off + r->len : end;

		r->iov[r->n_iov++] = (struct iovec){
			.iov_base = g->blocks[i]->bytes + (at - start), .iov_len = to - at};
		at = to;
	}
	mc_mutex_lock(&kv->lock);
	for (unsigned i = 0; i < g->n && res == 0; i++)
		kept = kv_block_keep_locked(kv, kv_now(g->obj), g->blocks[i]);
	if (res == 0 && g->n > 0) { /* a sequential reader comes back to the last one */
		last = r->obj->last;
		r->obj->last = kept ? NULL : g->blocks[g->n - 1];
		if (!kept)
			atomic_fetch_add(&r->obj->last->refs, 1);
	}
	kv_object_drop_locked(kv, g->obj);
	mc_mutex_unlock(&kv->lock);
	kv_reap(kv);
	if (last != NULL)
		kv_block_put(kv, last);
	if (res == 0)
		r->priv[1] = g;
	else
		range_free(kv, g);
	r->done(r, res);
}

static bool block_matches(const struct range *g)
{
	uint64_t b = g->first + g->i;

	return mc_crc32c(0, g->blocks[g->i]->bytes, mc_block_len(g->obj->size, b)) ==
		kv_crcs(g->obj)[b];
}

static void read_remote(struct range *g);

static void remote_done(struct mc_remote_read *req, int res)
{
	struct range *g = req->ctx;
	bool bad = res == 0 && !block_matches(g);

	kv_trouble_read(g->r->obj->kv, res);
	if (bad && req->served != 0) { /* another copy; the remote says when none is left */
		g->avoid |= req->served;
		read_remote(g);
		return;
	}
	if (bad)
		res = -EBADMSG;
	if (res == -EBADMSG)
		kv_tell_bad(g->r->obj->kv, g->obj, true);
	if (res < 0) {
		range_done(g, kv_caller_error(res));
		return;
	}
	g->i++;
	next_block(g);
}

static void read_remote(struct range *g)
{
	struct mc_kv *kv = g->r->obj->kv;
	uint64_t b = g->first + g->i;

	if (kv->opts.remote == NULL || g->path[0] == '\0') {
		range_done(g, kv_caller_error(g->res_nvme));
		return;
	}
	g->remote = (struct mc_remote_read){
		.path = g->path,
		.off = b << MC_BLOCK_SHIFT,
		.len = mc_block_len(g->obj->size, b),
		.buf = g->blocks[g->i]->bytes,
		.avoid = g->avoid,
		.done = remote_done,
		.ctx = g,
	};
	mc_remote_read(kv->opts.remote, &g->remote);
}

static void read_block(struct range *g);

/* The block is the read's now, and another one takes its place. */
static bool replace_block(struct range *g)
{
	g->blocks[g->i] = kv_block_new(g->r->obj->kv, g->obj, g->first + g->i);
	return g->blocks[g->i] != NULL;
}

static void release_block(void *kv, void *block)
{
	kv_block_put(kv, block);
}

static void nvme_done(void *ctx, const void *bytes, int res)
{
	struct range *g = ctx;

	(void)bytes;
	if (res == -ETIMEDOUT && !replace_block(g)) {
		range_done(g, -ENOMEM);
		return;
	}
	if (res == -ESTALE && kv_moved(g->r->obj->kv, g->obj, &g->at)) {
		read_block(g);
		return;
	}
	if (res == 0 && !block_matches(g))
		res = -EBADMSG;
	if (res == -EBADMSG)
		kv_tell_bad(g->r->obj->kv, g->obj, false);
	g->res_nvme = res == -ETIMEDOUT ? -EIO : res;
	if (res < 0) {
		read_remote(g);
		return;
	}
	g->i++;
	next_block(g);
}

/* From where the object lies now. */
static void read_block(struct range *g)
{
	struct mc_kv *kv = g->r->obj->kv;
	uint64_t b = g->first + g->i;
	struct mc_block_order order = {.what = {.off = b << MC_BLOCK_SHIFT,
					       .len = mc_block_len(g->obj->size, b),
					       .buf = g->blocks[g->i]->bytes},
		.done = nvme_done,
		.ctx = g,
		.release = release_block,
		.memory = g->blocks[g->i]};

	g->avoid = 0;
	if (!kv_reads_place(kv, g->obj, true, &order.what.loc)) {
		g->res_nvme = -EIO;
		read_remote(g);
		return;
	}
	g->at = order.what.loc;
	if (kv_reads_begin(kv, g->obj, true, &order) < 0)
		nvme_done(g, NULL, -ENOMEM);
}

/* The next one that is not here. */
static void next_block(struct range *g)
{
	while (g->i < g->n && g->has[g->i])
		g->i++;
	if (g->i == g->n)
		range_done(g, 0);
	else
		read_block(g);
}

/* The blocks of the read: those that are here, and room for the others. */
static int find_blocks(struct range *g)
{
	struct mc_kv_object *h = g->r->obj;
	int r = 0;

	mc_mutex_lock(&h->kv->lock);
	if (g->n > 0 && h->last != NULL && h->last->index == g->first) {
		g->blocks[0] = h->last;
		atomic_fetch_add(&g->blocks[0]->refs, 1);
	}
	mc_mutex_unlock(&h->kv->lock);
	for (unsigned i = 0; i < g->n && r == 0; i++) {
		if (g->blocks[i] == NULL)
			g->blocks[i] = kv_block_find(h->kv, g->obj, g->first + i);
		g->has[i] = g->blocks[i] != NULL;
		if (!g->has[i])
			g->blocks[i] = kv_block_new(h->kv, g->obj, g->first + i);
		r = g->blocks[i] == NULL ? -ENOMEM : 0;
	}
	return r;
}

void kv_range_read(struct mc_kv_read *r)
{
	struct mc_kv *kv = r->obj->kv;
	struct range *g = calloc(1, sizeof(*g));
	char key[KV_KEY_MAX + 1];
	bool named;

	if (g == NULL) {
		r->done(r, -ENOMEM);
		return;
	}
	g->r = r;
	mc_mutex_lock(&kv->lock);
	g->obj = kv_now(r->obj->obj);
	g->obj->refs++;
	named = g->obj->dir != NULL;
	if (named)
		kv_key_of(g->obj, key);
	mc_mutex_unlock(&kv->lock);
	if (named ? kv_remote_path(key, g->path) < 0
		  : !kv_delete_held_path(kv, g->obj->version, g->path))
		g->path[0] = '\0';
	g->first = r->off >> MC_BLOCK_SHIFT;
	if (r->len > 0)
		g->n = (unsigned)(((r->off + r->len - 1) >> MC_BLOCK_SHIFT) - g->first + 1);
	assert(g->n <= MC_KV_READ_IOV);
	if (find_blocks(g) < 0)
		range_done(g, -ENOMEM);
	else
		next_block(g);
}

void kv_range_end(struct mc_kv_read *r)
{
	range_free(r->obj->kv, r->priv[1]);
}
