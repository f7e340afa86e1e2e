/*
 * Names in kv/: lookup, forget, mkdir, rmdir, unlink, rename. Those that may block run on the pool.
 *
 * While a key has both a sealed version and a put under way, the name is the sealed version's: it
 * is what LOOKUP finds, what RENAME moves; UNLINK ends both. A key with only a put is the put's.
 * What the kernel sends a second time, because nobody answered, may have been done.
 */
#include "fs/kv-state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/ops.h"

#define CHANGING_S 1.0 /* other nodes may replace a key */
#define MISSING_S 1.0

/* The node of an unsealed key with one more reference, or NULL. */
static struct mc_knode *staged(struct mc_kvfs *k, const char *key, uint64_t *ret_seq)
{
	struct mc_kstage *s;
	struct mc_knode *n = NULL;

	mc_mutex_lock(&k->lock);
	s = mc_kstage_find_locked(k, key);
	if (s != NULL) {
		n = s->node;
		mc_knode_ref_locked(n);
	}
	*ret_seq = k->seq;
	mc_mutex_unlock(&k->lock);
	return n;
}

/* How long the kernel may remember what key was: not at all while a put may replace it. */
static double remember(struct mc_kvfs *k, uint64_t seq, double timeout)
{
	mc_mutex_lock(&k->lock);
	if (k->seq != seq)
		timeout = 0;
	mc_mutex_unlock(&k->lock);
	return timeout;
}

/* r, attr: what the store says about key. */
static void reply_found(
	struct mc_kvfs *k, fuse_req_t req, const char *key, int r, const struct mc_kv_attr *attr)
{
	struct fuse_entry_param missing = {.entry_timeout = MISSING_S};
	struct mc_knode *n, *put;
	uint64_t seq;
	bool changes;

	put = staged(k, key, &seq);
	mc_mutex_lock(&k->lock);
	changes = put != NULL || mc_kreq_begins_locked(k, key);
	mc_mutex_unlock(&k->lock);
	if (r == 0) {
		r = mc_knode_get(k, key, attr, &n);
		if (r == 0)
			mc_kvfs_reply_entry(k, req, n, remember(k, seq, changes ? 0 : CHANGING_S));
		else
			fuse_reply_err(req, mc_kvfs_errno(r));
	} else if (r == -ENOENT && put != NULL) {
		mc_kvfs_reply_entry(k, req, put, 0);
		put = NULL;
	} else if (r == -ENOENT) {
		missing.entry_timeout = remember(k, seq, changes ? 0 : MISSING_S);
		fuse_reply_entry(req, &missing);
	} else {
		if (mc_kvfs_errno(r) == EIO)
			mc_kvfs_told(k, key, r);
		fuse_reply_err(req, mc_kvfs_errno(r));
	}
	if (put != NULL)
		mc_knode_put(k, put, 1);
}

static void asked(void *ctx, int res, const struct mc_kv_attr *attr)
{
	struct mc_kreq *q = ctx;
	fuse_req_t req = mc_call_take(&q->call);

	if (req != NULL)
		reply_found(q->k, req, q->key, res, attr);
	mc_kreq_end(q);
}

static void lookup_gated(struct mc_kreq *q)
{
	struct mc_kvfs *k = q->k;
	struct mc_kv_attr attr;
	struct mc_knode *n;
	uint64_t seq;
	fuse_req_t req;
	int r = mc_kv_lookup(k->kv, q->key, &attr);

	if (r == -ENOENT || (r == 0 && attr.ask)) {
		n = staged(k, q->key, &seq);
		if (n == NULL) {
			mc_kv_ask(k->kv, q->key, asked, q);
			return;
		}
		mc_knode_put(k, n, 1);
	}
	req = mc_call_take(&q->call);
	if (req != NULL)
		reply_found(k, req, q->key, r, &attr);
	mc_kreq_end(q);
}

void mc_kvop_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct mc_kvfs *k = mc_kvfs_of(req);
	struct mc_kv_attr attr;
	struct mc_kreq *q;
	struct mc_knode *n;
	bool closed;
	char *key;
	int r = mc_knode_child_key(k, parent, name, &key);

	if (r < 0) {
		fuse_reply_err(req, mc_kvfs_errno(r));
		return;
	}
	n = mc_kintent_find(k, fuse_req_ctx(req)->pid, key);
	if (n != NULL) {
		mc_kvfs_reply_entry(k, req, n, 0);
		free(key);
		return;
	}
	mc_mutex_lock(&k->lock);
	closed = mc_kgate_closed_locked(k, key);
	mc_mutex_unlock(&k->lock);
	if (!closed && mc_kv_lookup(k->kv, key, &attr) == 0 && !attr.ask) {
		reply_found(k, req, key, 0, &attr);
		free(key);
		return;
	}
	q = mc_kreq_new(k, req, NULL, key);
	if (q != NULL)
		mc_kreq_gate(q, q->key, lookup_gated);
}

void mc_kvop_lookup_root(fuse_req_t req)
{
	struct mc_kvfs *k = mc_kvfs_of(req);
	struct mc_knode *n = mc_knode_find(k, MC_KVFS_ROOT_ID);

	mc_mutex_lock(&k->lock);
	mc_knode_ref_locked(n);
	mc_mutex_unlock(&k->lock);
	mc_kvfs_reply_entry(k, req, n, 86400.0);
}

void mc_kvop_forget(struct mc_kvfs *k, fuse_ino_t ino, uint64_t nlookup)
{
	struct mc_knode *n = mc_knode_find(k, ino);

	if (n != NULL)
		mc_knode_forget(k, n, nlookup);
}

/* A request on a name, which goes on with run once no put of it is about to end. */
static void begin(
	fuse_req_t req, fuse_ino_t parent, const char *name, void (*run)(struct mc_kreq *q))
{
	struct mc_kreq *q = mc_kreq_of_name(mc_kvfs_of(req), req, parent, name);

	if (q != NULL)
		mc_kreq_gate(q, q->key, run);
}

static void mkdir_now(struct mc_kreq *q)
{
	struct mc_kvfs *k = q->k;
	struct mc_kv_attr attr;
	struct mc_knode *n;
	uint64_t seq;
	fuse_req_t req;
	int r;

	n = staged(k, q->key, &seq);
	if (n != NULL) {
		mc_knode_put(k, n, 1);
		mc_kreq_err(q, -EEXIST);
		return;
	}
	r = mc_kv_mkdir(k->kv, q->key);
	if (r == 0 || (r == -EEXIST && q->repeated))
		r = mc_kv_lookup(k->kv, q->key, &attr);
	if (r == 0 && !attr.is_dir)
		r = -EEXIST;
	if (r < 0) {
		mc_kreq_err(q, r);
		return;
	}
	req = mc_call_take(&q->call);
	if (req != NULL)
		reply_found(k, req, q->key, 0, &attr);
	mc_kreq_end(q);
}

static void mkdir_work(struct mc_kreq *q)
{
	mc_kreq_work(q, mkdir_now);
}

void mc_kvop_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	begin(req, parent, name, mkdir_work);
}

static void rmdir_now(struct mc_kreq *q)
{
	int r = mc_kstage_below(q->k, q->key) ? -ENOTEMPTY : mc_kv_rmdir(q->k->kv, q->key);

	mc_kreq_err(q, r == -ENOENT && q->repeated ? 0 : r);
}

static void rmdir_work(struct mc_kreq *q)
{
	mc_kreq_work(q, rmdir_now);
}

void mc_kvop_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	begin(req, parent, name, rmdir_work);
}

static void unlink_now(struct mc_kreq *q)
{
	unsigned puts = mc_kstage_orphan(q->k, q->key);
	int r = mc_kv_unlink(q->k->kv, q->key);

	mc_kreq_err(q, r == -ENOENT && (puts > 0 || q->repeated) ? 0 : r);
}

static void unlink_work(struct mc_kreq *q)
{
	mc_kreq_work(q, unlink_now);
}

void mc_kvop_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	begin(req, parent, name, unlink_work);
}

/* Only a put has the name: it goes on under the new one. */
static int rename_put(struct mc_kreq *q)
{
	struct mc_kvfs *k = q->k;
	struct mc_kv_attr attr;
	struct mc_knode *n;
	uint64_t seq;
	int r = mc_kv_find(k->kv, q->to, &attr);
	bool exists = r == 0;

	if (r < 0 && r != -ENOENT)
		return r;
	if (exists && attr.is_dir)
		return -EISDIR;
	n = staged(k, q->key, &seq);
	if (n == NULL)
		return -ENOENT;
	mc_knode_put(k, n, 1);
	n = staged(k, q->to, &seq);
	if (n != NULL)
		mc_knode_put(k, n, 1);
	if ((exists || n != NULL) && (q->flags & MC_KV_NOREPLACE) != 0)
		return -EEXIST;
	mc_kstage_orphan(k, q->to);
	return mc_kstage_rename(k, q->key, q->to);
}

/* The version is called key from now on, which is malloced and taken. */
static void renamed(struct mc_kvfs *k, const uint8_t version[16], char *key)
{
	struct mc_knode *n;

	mc_mutex_lock(&k->lock);
	n = mc_knode_of_version_locked(k, version);
	if (n != NULL) {
		mc_knode_rename_locked(k, n, key);
		key = NULL;
	}
	k->seq++;
	mc_mutex_unlock(&k->lock);
	free(key);
}

static int rename_object(struct mc_kreq *q, const struct mc_kv_attr *attr)
{
	struct mc_kvfs *k = q->k;
	char *key = strdup(q->to);
	int r = key != NULL ? mc_kv_rename(k->kv, q->key, q->to, q->flags) : -ENOMEM;

	if (r < 0) {
		free(key);
		return r;
	}
	mc_kstage_orphan(k, q->to);
	renamed(k, attr->version, key);
	return 0;
}

/* Whether the process before this one did it, and did not answer. */
static int was_renamed(struct mc_kreq *q)
{
	struct mc_kv_attr attr;
	int r = mc_kv_find(q->k->kv, q->to, &attr);
	char *key;

	if (r < 0 || attr.is_dir)
		return r < 0 ? r : -ENOENT;
	key = strdup(q->to);
	if (key == NULL)
		return -ENOMEM;
	renamed(q->k, attr.version, key);
	return 0;
}

static void rename_now(struct mc_kreq *q)
{
	struct mc_kv_attr attr;
	int r = mc_kv_find(q->k->kv, q->key, &attr);

	if (r == 0 && attr.is_dir)
		r = -EXDEV;
	else if (r == 0)
		r = rename_object(q, &attr);
	else if (r == -ENOENT)
		r = rename_put(q);
	if (r == -ENOENT && q->repeated)
		r = was_renamed(q);
	mc_kreq_err(q, r);
}

static void rename_work(struct mc_kreq *q)
{
	mc_kreq_work(q, rename_now);
}

static void rename_gate_to(struct mc_kreq *q)
{
	mc_kreq_gate(q, q->to, rename_work);
}

void mc_kvop_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
	const char *newname, unsigned flags)
{
	struct mc_kvfs *k = mc_kvfs_of(req);
	struct mc_kreq *q;
	int r;

	if ((flags & ~(unsigned)RENAME_NOREPLACE) != 0) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	q = mc_kreq_of_name(k, req, parent, name);
	if (q == NULL)
		return;
	r = mc_knode_child_key(k, newparent, newname, &q->to);
	if (r < 0) {
		mc_kreq_err(q, r);
		return;
	}
	q->flags = (flags & RENAME_NOREPLACE) != 0 ? MC_KV_NOREPLACE : 0;
	mc_kreq_gate(q, q->key, rename_gate_to);
}
