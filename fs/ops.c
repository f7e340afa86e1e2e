/*
 * The table of operations, and those that a tree refuses that is read-only but for kv/ and
 * layouts/.
 *
 * The kernel takes ENOSYS as "never ask again" for many operations, so it is never sent by a
 * handler. Left out on purpose, so that libfuse answers ENOSYS: poll (a file is always ready),
 * locks (the kernel keeps them itself), bmap, copy_file_range (the kernel copies through read).
 */
#include "fs/ops.h"

#include <errno.h>

#include "fs/generated.h"
#include "fs/kv.h"
#include "fs/ops-draft.h"
#include "fs/tiers.h"

int mc_ops_errno(int r)
{
	switch (-r) {
	case ENOENT:
	case ENOTDIR:
	case EISDIR:
	case EINVAL:
	case ENAMETOOLONG:
	case ENODATA:
	case ENXIO:
	case ERANGE:
	case ESTALE:
	case ENFILE:
		return -r;
	default:
		return EIO;
	}
}

static void op_setattr(
	fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi)
{
	if (mc_kvfs_has(ino)) {
		mc_kvop_setattr(req, ino, attr, to_set);
		return;
	}
	if (!mc_dop_setattr(req, ino, attr, to_set))
		fuse_reply_err(req, EROFS);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	if (mc_kvfs_has(parent)) {
		fuse_reply_err(req, EPERM);
		return;
	}
	fuse_reply_err(req, mc_dop_is_parent(req, parent) ? EPERM : EROFS);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	if (mc_kvfs_has(parent)) {
		mc_kvop_mkdir(req, parent, name);
		return;
	}
	fuse_reply_err(req, mc_dop_is_parent(req, parent) ? EPERM : EROFS);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	if (mc_kvfs_has(parent)) {
		mc_kvop_unlink(req, parent, name);
		return;
	}
	if (mc_tiers_has(parent)) {
		mc_tierop_remove(req, parent, name, false);
		return;
	}
	if (!mc_dop_unlink(req, parent, name))
		fuse_reply_err(req, EROFS);
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	if (mc_kvfs_has(parent)) {
		mc_kvop_rmdir(req, parent, name);
		return;
	}
	if (mc_tiers_has(parent)) {
		mc_tierop_remove(req, parent, name, true);
		return;
	}
	fuse_reply_err(req, EROFS);
}

static void op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name)
{
	if (mc_kvfs_has(parent)) {
		fuse_reply_err(req, EPERM);
		return;
	}
	fuse_reply_err(req, mc_dop_is_parent(req, parent) ? EPERM : EROFS);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
	const char *newname, unsigned int flags)
{
	if (mc_kvfs_has(parent) && mc_kvfs_has(newparent)) {
		mc_kvop_rename(req, parent, name, newparent, newname, flags);
		return;
	}
	if (!mc_dop_rename(req, parent, name, newparent, newname, flags))
		fuse_reply_err(req, EROFS);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname)
{
	if (mc_kvfs_has(newparent)) {
		fuse_reply_err(req, EPERM);
		return;
	}
	fuse_reply_err(req, mc_dop_is_parent(req, newparent) ? EPERM : EROFS);
}

static void op_create(
	fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	if (mc_kvfs_has(parent)) {
		mc_kvop_create(req, parent, name, fi);
		return;
	}
	if (!mc_dop_create(req, parent, name, fi))
		fuse_reply_err(req, EROFS);
}

/* False of a draft that another process held in its memory. */
static bool is_known(fuse_req_t req, fuse_ino_t ino)
{
	return mc_generated_has(ino) || mc_nodes_find(mc_ops_fs(req)->nodes, ino) != NULL;
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	struct fuse_file_info *fi)
{
	if (mc_kvfs_has(ino)) {
		mc_kvop_write(req, ino, buf, size, off);
		return;
	}
	if (!mc_dop_write(req, ino, buf, size, off))
		fuse_reply_err(req, is_known(req, ino) ? EROFS : ESTALE);
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
	struct fuse_file_info *fi)
{
	if (mc_kvfs_has(ino)) {
		mc_kvop_fallocate(req, ino, mode, offset, length);
		return;
	}
	fuse_reply_err(req, mc_dop_is_draft(req, ino) ? ENOTSUP : EROFS);
}

static void op_setxattr(
	fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
	mc_op_setxattr(req, ino, name, value, size);
}

static void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	if (mc_kvfs_has(ino)) {
		fuse_reply_err(req, ENODATA);
		return;
	}
	fuse_reply_err(req, mc_dop_is_draft(req, ino) ? ENODATA : EROFS);
}

/* Outside kv/ and drafts nothing is ever dirty. */
static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (mc_kvfs_has(ino)) {
		mc_kvop_flush(req, ino);
		return;
	}
	if (!mc_dop_flush(req, ino))
		fuse_reply_err(req, is_known(req, ino) ? 0 : ESTALE);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	if (mc_kvfs_has(ino)) {
		mc_kvop_fsync(req, ino);
		return;
	}
	fuse_reply_err(req, 0);
}

/* Not sent with default_permissions; without it everyone may do what the modes say. */
static void op_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
	fuse_reply_err(req, 0);
}

/* libfuse sets the parameters. NOLINTNEXTLINE(readability-function-size) */
static void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
	struct fuse_file_info *fi, unsigned flags, const void *in_buf, size_t in_bufsz,
	size_t out_bufsz)
{
	fuse_reply_err(req, ENOTTY);
}

const struct fuse_lowlevel_ops *mc_ops(void)
{
	static const struct fuse_lowlevel_ops ops = {
		.init = mc_op_init,
		.lookup = mc_op_lookup,
		.forget = mc_op_forget,
		.forget_multi = mc_op_forget_multi,
		.getattr = mc_op_getattr,
		.readlink = mc_op_readlink,
		.opendir = mc_op_opendir,
		.readdir = mc_op_readdir,
		.readdirplus = mc_op_readdirplus,
		.releasedir = mc_op_releasedir,
		.open = mc_op_open,
		.read = mc_op_read,
		.release = mc_op_release,
		.lseek = mc_op_lseek,
		.statfs = mc_op_statfs,
		.getxattr = mc_op_getxattr,
		.listxattr = mc_op_listxattr,
		.access = op_access,
		.flush = op_flush,
		.fsync = op_fsync,
		.fsyncdir = op_fsync,
		.ioctl = op_ioctl,
		.setattr = op_setattr,
		.mknod = op_mknod,
		.mkdir = op_mkdir,
		.unlink = op_unlink,
		.rmdir = op_rmdir,
		.symlink = op_symlink,
		.rename = op_rename,
		.link = op_link,
		.create = op_create,
		.write = op_write,
		.fallocate = op_fallocate,
		.setxattr = op_setxattr,
		.removexattr = op_removexattr,
	};

	return &ops;
}
