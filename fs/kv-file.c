/* Open files of kv/: read, write, flush, release, fsync, fallocate, lseek. */
#include "fs/kv-state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/log.h"
#include "fs/ops.h"
#include "tier/cleanup.h"

#define LOST_TEXT                                                                                  \
	"kv: this version lost its name, and the process that kept it for those who had it "       \
	"open has died: open it anew"

static void read_failed(struct mc_kreq *q, int res)
{
	static struct mc_log_limit limit;
	uint64_t suppressed;

	atomic_fetch_add_explicit(&q->k->fs->counters.read_errors, 1, memory_order_relaxed);
	if (mc_log_allowed(&limit, &suppressed)) {
		cleanup_free char *key = mc_knode_key(q->k, q->node);

		mc_log(MC_LOG_ERROR, "kv-read-failed",
			"key=\"%s\" offset=%llu length=%u error=%d why=\"%s\" suppressed=%llu",
			key != NULL ? key : "", (unsigned long long)q->read.off, q->read.len, -res,
			res == -ESTALE ? LOST_TEXT : mc_kv_why(q->k->kv, res),
			(unsigned long long)suppressed);
	}
}

static void read_done(struct mc_kv_read *r, int res)
{
	struct mc_kreq *q = r->ctx;
	fuse_req_t req = mc_call_take(&q->call);

	if (res < 0)
		read_failed(q, res);
	if (req != NULL && res < 0)
		fuse_reply_err(req, mc_kvfs_errno(res));
	else if (req != NULL)
		fuse_reply_iov(req, r->iov, (int)r->n_iov);
	if (res == 0)
		mc_kv_read_end(r);
	mc_kopen_read_end(q->k, q->node);
	mc_kreq_end(q);
}

/* The version that the process before this one had open, which was not to be had at the start, or
 * another one by now: the open file has it from now on. */
static void found_again(void *ctx, int res, struct mc_kv_object *obj)
{
	struct mc_kreq *q = ctx;
	struct mc_kv_attr attr;

	if (res < 0) {
		read_done(&q->read, res == -ENOENT ? -ESTALE : res);
		return;
	}
	mc_kv_object_attr(obj, &attr);
	mc_mutex_lock(&q->k->lock);
	if (memcmp(attr.version, q->node->attr.version, sizeof(attr.version)) == 0 &&
		q->node->opened->obj == NULL && q->node->opened->mode == MC_MODE_CACHED) {
		q->node->opened->obj = obj;
		obj = NULL;
	}
	q->read.obj = q->node->opened->obj;
	mc_mutex_unlock(&q->k->lock);
	if (obj != NULL)
		mc_kv_object_put(obj);
	if (q->read.obj != NULL)
		mc_kv_read(&q->read);
	else
		read_done(&q->read, -ESTALE);
}

/* The file counts as open until the read ends: its client may be killed and release it before. obj
 * may be NULL: it has to be found. */
static void read_object(
	fuse_req_t req, struct mc_knode *n, struct mc_kv_object *obj, uint64_t off, uint32_t len)
{
	struct mc_kvfs *k = mc_kvfs_of(req);
	struct mc_kreq *q = mc_kreq_new(k, req, n, obj == NULL ? mc_knode_key(k, n) : NULL);

	if (q == NULL) {
		mc_kopen_read_end(k, n);
		return;
	}
	q->read = (struct mc_kv_read){
		.obj = obj, .off = off, .len = len, .done = read_done, .ctx = q};
	atomic_fetch_add_explicit(&k->fs->counters.reads, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&k->fs->counters.read_bytes, len, memory_order_relaxed);
	if (obj != NULL)
		mc_kv_read(&q->read);
	else if (q->key != NULL)
		mc_kv_get(k->kv, q->key, found_again, q);
	else
		read_done(&q->read, -ENOMEM);
}

/* Why there is no put under way: its file is open for reading, or it was lost. Positive. */
static int no_put(struct mc_kvfs *k, const struct mc_knode *n)
{
	bool lost;

	if (n == NULL)
		return EBADF;
	mc_mutex_lock(&k->lock);
	lost = n->kind == MC_KNODE_LOST;
	mc_mutex_unlock(&k->lock);
	return lost ? EIO : EBADF;
}

/* What the daemon wrote into it so far. */
static void read_staging(fuse_req_t req, struct mc_knode *n, size_t size, off_t off)
{
	struct mc_kstage *s = mc_kstage_hold(mc_kvfs_of(req), n);
	cleanup_free char *buf = NULL;
	ssize_t len = -1;
	int error = no_put(mc_kvfs_of(req), n);

	if (s != NULL) {
		error = ENOMEM;
		buf = malloc(size);
		if (buf != NULL) {
			len = pread(s->fd, buf, size, off);
			error = errno;
		}
		mc_kstage_drop(s);
	}
	if (len < 0)
		fuse_reply_err(req, mc_kvfs_errno(-error));
	else
		fuse_reply_buf(req, buf, (size_t)len);
}

void mc_kvop_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off)
{
	struct mc_kvfs *k = mc_kvfs_of(req);
	struct mc_knode *n = mc_knode_find(k, ino);
	struct mc_kv_object *obj = NULL;
	uint64_t total = 0, left;
	bool sealed, some = false;

	if (n == NULL || off < 0) {
		fuse_reply_err(req, n == NULL ? EBADF : EINVAL);
		return;
	}
	mc_mutex_lock(&k->lock);
	sealed = n->opened != NULL;
	if (sealed) {
		total = n->opened->size;
		some = (uint64_t)off < total && size > 0;
		if (some) {
			obj = n->opened->obj;
			n->opened->reads++;
		}
	}
	mc_mutex_unlock(&k->lock);
	if (!sealed) {
		read_staging(req, n, size, off);
	} else if (!some) {
		fuse_reply_buf(req, NULL, 0);
	} else {
		left = total - (uint64_t)off;
		read_object(req, n, obj, (uint64_t)off, (uint32_t)(size < left ? size : left));
	}
}

void mc_kvop_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off)
{
	struct mc_kvfs *k = mc_kvfs_of(req);
	struct mc_knode *n = mc_knode_find(k, ino);
	struct mc_kstage *s = n != NULL ? mc_kstage_hold(k, n) : NULL;
	size_t done;
	int error;

	if (s == NULL) {
		fuse_reply_err(req, no_put(k, n));
		return;
	}
	done = mc_kv_writer_write(s->writer, buf, size, (uint64_t)off, &error);
	if (error < 0)
		mc_kstage_fail(s, error, "writing");
	mc_kstage_drop(s);
	if (done == 0 && error < 0)
		fuse_reply_err(req, mc_kvfs_errno(error));
	else
		fuse_reply_write(req, done);
}

void mc_kvop_flush(fuse_req_t req, fuse_ino_t ino)
{
	struct mc_kvfs *k = mc_kvfs_of(req);
	struct mc_knode *n = mc_knode_find(k, ino);
	struct mc_kstage *s = n != NULL ? mc_kstage_hold(k, n) : NULL;
	int error = 0;

	if (s != NULL) {
		int r = mc_kstage_flush(s, fuse_req_ctx(req)->pid);

		error = r < 0 ? mc_kvfs_errno(r) : 0;
		mc_kstage_drop(s);
	} else if (no_put(k, n) == EIO) {
		error = EIO;
	}
	fuse_reply_err(req, error);
}

void mc_kvop_release(fuse_req_t req, fuse_ino_t ino)
{
	struct mc_kvfs *k = mc_kvfs_of(req);
	struct mc_knode *n = mc_knode_find(k, ino);
	bool reading, last;

	if (n == NULL) {
		fuse_reply_err(req, 0);
		return;
	}
	mc_mutex_lock(&k->lock);
	reading = n->opened != NULL;
	last = n->stage != NULL && n->stage->opens == 1;
	mc_knode_ref_locked(n); /* a FORGET may follow the answer at once */
	mc_mutex_unlock(&k->lock);
	if (last)
		mc_kstage_leave(k, n);
	fuse_reply_err(req, 0);
	/* After the answer: were it sent to another process again, it would count twice. */
	if (reading)
		mc_kopen_release(k, n);
	else if (!last)
		mc_kstage_leave(k, n);
	mc_knode_put(k, n, 1);
}

static void sync_now(struct mc_kreq *q)
{
	struct mc_kvfs *k = q->k;
	struct mc_kstage *s = mc_kstage_hold(k, q->node);
	bool orphan;
	int r;

	if (s == NULL && no_put(k, q->node) == EIO) {
		mc_kreq_err(q, -EIO);
		return;
	}
	if (s == NULL) {
		r = mc_kv_sync(k->kv, q->key);
		if (r < 0 && r != -ENOENT)
			mc_kvfs_failed(k, q->key, r, "fsync");
		mc_kreq_err(q, r == -ENOENT ? 0 : r); /* removed: nothing is promised */
		return;
	}
	mc_mutex_lock(&k->lock);
	orphan = s->orphan;
	mc_mutex_unlock(&k->lock);
	r = orphan ? 0 : mc_kstage_check(s); /* tells by itself */
	if (r == 0 && !orphan) {
		r = mc_kv_writer_sync(s->writer, q->key);
		if (r == 0)
			mc_kstage_synced(s);
		else
			mc_kvfs_failed(k, q->key, r, "fsync");
	}
	mc_kstage_drop(s);
	mc_kreq_err(q, r);
}

void mc_kvop_fsync(fuse_req_t req, fuse_ino_t ino)
{
	struct mc_kvfs *k = mc_kvfs_of(req);
	struct mc_knode *n = mc_knode_find(k, ino);
	struct mc_kreq *q;

	if (n == NULL || n->kind == MC_KNODE_DIR) {
		fuse_reply_err(req, n == NULL ? ESTALE : 0);
		return;
	}
	q = mc_kreq_of_node(k, req, n);
	if (q != NULL)
		mc_kreq_work(q, sync_now);
}

void mc_kvop_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len)
{
	struct mc_kvfs *k = mc_kvfs_of(req);
	struct mc_knode *n = mc_knode_find(k, ino);
	struct mc_kstage *s = n != NULL ? mc_kstage_hold(k, n) : NULL;
	int error;

	if (s == NULL) {
		fuse_reply_err(req, no_put(k, n));
		return;
	}
	error = -mc_kv_writer_allocate(s->writer, mode, (uint64_t)off, (uint64_t)len);
	mc_kstage_drop(s);
	if (error != 0 && error != EOPNOTSUPP) {
		cleanup_free char *key = mc_knode_key(k, n);

		mc_kvfs_failed(k, key, -error, "allocating");
	}
	fuse_reply_err(req, error == 0 ? 0 : mc_kvfs_errno(-error));
}

/* Objects have no holes: all is data up to the end. */
void mc_kvop_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence)
{
	struct mc_kvfs *k = mc_kvfs_of(req);
	struct mc_knode *n = mc_knode_find(k, ino);
	struct stat st;

	if (n == NULL) {
		fuse_reply_err(req, EBADF);
		return;
	}
	mc_kvfs_attr(k, n, &st);
	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		fuse_reply_err(req, EINVAL);
	else if (off < 0 || off >= st.st_size)
		fuse_reply_err(req, ENXIO);
	else
		fuse_reply_lseek(req, whence == SEEK_DATA ? off : st.st_size);
}
