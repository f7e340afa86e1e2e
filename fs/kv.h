/*
 * kv/ in the mount: KV objects as files. The operations on nodes of kv/, which ops.c and the files
 * beside it hand over; their node ids have the top bit set.
 */
#pragma once

#include "fs/fuse.h"
#include "tier/kv.h"

#include <stdbool.h>

struct mc_fs;
struct mc_kvfs;

#define MC_KVFS_ROOT_ID (UINT64_C(1) << 63 | 1)

static inline bool mc_kvfs_has(fuse_ino_t ino)
{
	return ino >> 63 != 0;
}

/* kv is borrowed until close. */
int mc_kvfs_open(struct mc_fs *fs, struct mc_kv *kv, struct mc_kvfs **ret);
/* The loop threads have ended and the mount is gone: ends open files, publishes what was closed
 * properly. 0, or -ETIMEDOUT when a call still blocks at deadline_ns: close must not follow. */
int mc_kvfs_stop(struct mc_kvfs *k, uint64_t deadline_ns);
void mc_kvfs_close(struct mc_kvfs *k); /* NULL allowed */

/* Taking over, k may be NULL: (1) names the texts of records that are in use, (2) puts nodes and
 * open files back, as they were; -ENOMEM. */
void mc_kvfs_claim(struct mc_kvfs *k);
int mc_kvfs_restore(struct mc_kvfs *k);

/* What the root shows of kv/. */
void mc_kvop_lookup_root(fuse_req_t req); /* the name "kv" in the mount's root */

/* kv-name.c, kv-rename.c */
void mc_kvop_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void mc_kvop_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void mc_kvop_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void mc_kvop_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void mc_kvop_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
	const char *newname, unsigned flags);
void mc_kvop_forget(struct mc_kvfs *k, fuse_ino_t ino, uint64_t nlookup);
/* kv-attr.c */
void mc_kvop_getattr(fuse_req_t req, fuse_ino_t ino);
void mc_kvop_setattr(fuse_req_t req, fuse_ino_t ino, const struct stat *attr, int to_set);
void mc_kvop_statfs(fuse_req_t req);
/* kv-dir.c */
void mc_kvop_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus);
/* kv-open.c */
void mc_kvop_open(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi);
void mc_kvop_create(
	fuse_req_t req, fuse_ino_t parent, const char *name, const struct fuse_file_info *fi);
/* kv-file.c */
void mc_kvop_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off);
void mc_kvop_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off);
void mc_kvop_flush(fuse_req_t req, fuse_ino_t ino);
void mc_kvop_release(fuse_req_t req, fuse_ino_t ino);
void mc_kvop_fsync(fuse_req_t req, fuse_ino_t ino);
void mc_kvop_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len);
void mc_kvop_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence);
/* kv-xattr.c */
void mc_kvop_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void mc_kvop_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void mc_kvop_setxattr(
	fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size);
