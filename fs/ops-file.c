/* Files: open, read, release, lseek. Reads never block a loop thread. */
#include "fs/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/generated.h"
#include "fs/kv.h"
#include "fs/log.h"
#include "fs/mode.h"
#include "fs/tiers.h"
#include "fs/ops-draft.h"
#include "manifest/path.h"

static struct mc_node *file_node(struct mc_fs *fs, fuse_ino_t ino, int *ret_errno)
{
	struct mc_node *n = mc_nodes_find(fs->nodes, ino);
	struct mc_entry e;

	*ret_errno = ESTALE;
	if (n == NULL)
		return NULL;
	*ret_errno = EISDIR;
	if (n->kind != MC_NODE_ENTRY)
		return NULL;
	mc_manifest_entry(n->place->manifest, n->entry, &e);
	if (e.type == MC_ENTRY_DIR)
		return NULL;
	*ret_errno = ELOOP;
	return e.type == MC_ENTRY_FILE ? n : NULL;
}

void mc_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mc_fs *fs = mc_ops_fs(req);
	int error, r;
	struct mc_node *n;

	if (mc_kvfs_has(ino)) {
		mc_kvop_open(req, ino, fi);
		return;
	}
	if (mc_dop_open(req, ino, fi))
		return;
	if (mc_tiers_has(ino)) {
		fuse_reply_err(req, EACCES);
		return;
	}
	if (mc_generated_has(ino)) {
		mc_genop_open(req, ino, fi);
		return;
	}
	n = file_node(fs, ino, &error);
	if (n == NULL) {
		fuse_reply_err(req, error);
		return;
	}
	if ((fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC) != 0) {
		fuse_reply_err(req, EROFS);
		return;
	}
	fi->fh = 0;
	r = mc_mode_open(fs, n, fi);
	if (r < 0)
		fuse_reply_err(req, mc_ops_errno(r));
	else if (fuse_reply_open(req, fi) == -ENOENT)
		mc_mode_release(fs, n); /* the request was aborted: no release will come */
}

void mc_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mc_fs *fs = mc_ops_fs(req);
	struct mc_node *n;

	if (mc_kvfs_has(ino)) {
		mc_kvop_release(req, ino);
		return;
	}
	if (mc_dop_release(req, ino))
		return;
	if (mc_generated_has(ino)) {
		mc_handles_remove(fs->handles, fi->fh);
		fuse_reply_err(req, 0);
		return;
	}
	n = mc_nodes_find(fs->nodes, ino);
	if (n != NULL)
		mc_nodes_ref(fs->nodes, n); /* a FORGET may follow the answer at once */
	fuse_reply_err(req, 0);
	/* After the answer: were it sent to another process again, it would count twice. */
	if (n != NULL) {
		mc_mode_release(fs, n);
		mc_mode_end(fs, mc_nodes_forget(fs->nodes, n, 1));
	}
}

/* A read in flight. */
struct reading {
	struct mc_call call;
	struct mc_file_read read;
	struct mc_fs *fs;
	struct mc_place *place; /* owned reference: the request may outlive the node */
	uint32_t entry;
};

static const char *read_hint(int res)
{
	if (res == -ETIMEDOUT)
		return "no answer in time; it works again when the remote does";
	if (res == -EIO)
		return "no tier has good bytes; the lines before say why, mooncakefs verify checks "
		       "the remote";
	if (res == -EMFILE)
		return "no file descriptor left: raise the limit (LimitNOFILE, ulimit -n)";
	if (res == -ENFILE)
		return "no file descriptor left: raise fs.file-max";
	return strerror(-res);
}

static void read_failed(const struct reading *x, int res)
{
	static struct mc_log_limit limit;
	const struct mc_place *p = x->place;
	char digest[MC_SHA256_HEX + 1], path[MC_PATH_MAX + 1];
	uint64_t suppressed;

	atomic_fetch_add_explicit(&x->fs->counters.read_errors, 1, memory_order_relaxed);
	if (!mc_log_allowed(&limit, &suppressed))
		return;
	mc_hex_encode(mc_file_id(x->read.file)->digest, MC_SHA256_SIZE, digest);
	if (mc_manifest_path(p->manifest, x->entry, path, sizeof(path)) < 0)
		path[0] = '\0';
	mc_log(MC_LOG_ERROR, "read-failed",
		"file=\"%s/%s@%s/%.400s\" digest=%s offset=%llu length=%u tier=remote url=\"%s\" "
		"error=\"%s\" suppressed=%llu",
		p->org, p->model, p->rev, path, digest, (unsigned long long)x->read.off,
		x->read.len, mc_remote_url(x->fs->opts->remote), read_hint(res),
		(unsigned long long)suppressed);
}

static void reading_end(struct reading *x)
{
	mc_place_unref(x->place);
	mc_file_put(x->read.file);
	mc_call_end(&x->call);
	free(x);
}

static void read_done(struct mc_file_read *r, int res)
{
	struct reading *x = r->ctx;
	fuse_req_t req = mc_call_take(&x->call);

	if (res < 0)
		read_failed(x, res);
	if (req != NULL && res < 0)
		fuse_reply_err(req, res == -ENFILE ? EIO : mc_ops_errno(res));
	else if (req != NULL)
		fuse_reply_iov(req, r->iov, (int)r->n_iov);
	if (res == 0)
		mc_file_read_end(r);
	reading_end(x);
}

static void read_begin(
	fuse_req_t req, const struct mc_node *n, struct mc_file *file, uint64_t off, uint32_t len)
{
	struct mc_fs *fs = mc_ops_fs(req);
	struct reading *x = malloc(sizeof(*x));

	if (x == NULL) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	x->fs = fs;
	x->place = mc_place_ref(n->place);
	x->entry = n->entry;
	x->read = (struct mc_file_read){.file = mc_file_ref(file),
		.off = off,
		.len = len,
		.direct = true,
		.done = read_done,
		.ctx = x};
	atomic_fetch_add_explicit(&fs->counters.reads, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&fs->counters.read_bytes, len, memory_order_relaxed);
	mc_call_begin(&fs->calls, &x->call, req);
	if (!atomic_load(&fs->stopping)) {
		mc_file_read(&x->read);
		return;
	}
	/* Either this sees that we stop, or who stops us sees the call: none is left waiting. */
	req = mc_call_take(&x->call);
	if (req != NULL)
		fuse_reply_err(req, EIO);
	reading_end(x);
}

void mc_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct mc_opened *o = NULL;
	struct mc_node *n;

	if (mc_kvfs_has(ino)) {
		mc_kvop_read(req, ino, size, off);
		return;
	}
	if (mc_generated_has(ino)) {
		mc_genop_read(req, fi, size, off);
		return;
	}
	n = mc_nodes_find(mc_ops_fs(req)->nodes, ino);
	if (n != NULL)
		o = atomic_load_explicit(&n->opened, memory_order_acquire);
	if (o == NULL) {
		if (!mc_dop_read(req, ino, size, off))
			fuse_reply_err(req, EBADF);
	} else if (off < 0 || (uint64_t)off >= o->size || size == 0) {
		fuse_reply_buf(req, NULL, 0);
	} else {
		uint64_t left = o->size - (uint64_t)off;

		read_begin(req, n, o->file, (uint64_t)off, (uint32_t)(size < left ? size : left));
	}
}

/* The result of lseek(2) for SEEK_DATA and SEEK_HOLE; the kernel does the others. */
static int64_t seek(const struct mc_opened *o, uint64_t off, int whence)
{
	uint64_t start, end;
	int r;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return -EINVAL;
	if (off >= o->size)
		return -ENXIO;
	r = mc_file_next_data(o->file, off, &start, &end);
	if (r < 0 && r != -ENXIO)
		return r;
	if (whence == SEEK_DATA)
		return r < 0 ? r : (int64_t)start;
	/* Data that follows data without a hole between is one stretch. */
	while (r == 0 && start <= off) {
		off = end;
		if (off >= o->size)
			break;
		r = mc_file_next_data(o->file, off, &start, &end);
	}
	return r < 0 && r != -ENXIO ? r : (int64_t)off;
}

void mc_op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	struct mc_opened *o = NULL;
	struct mc_node *n;
	int64_t r;

	if (mc_kvfs_has(ino)) {
		mc_kvop_lseek(req, ino, off, whence);
		return;
	}
	n = mc_nodes_find(mc_ops_fs(req)->nodes, ino);
	if (n != NULL)
		o = atomic_load_explicit(&n->opened, memory_order_acquire);
	if (o == NULL) {
		fuse_reply_err(req, EBADF);
		return;
	}
	r = off < 0 ? -ENXIO : seek(o, (uint64_t)off, whence);
	if (r < 0)
		fuse_reply_err(req, mc_ops_errno((int)r));
	else
		fuse_reply_lseek(req, (off_t)r);
}
