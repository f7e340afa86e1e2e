/* The FUSE operations, one file for each noun. Decode, delegate, reply; reply last. */
#pragma once

#include "fs/page.h"
#include "fs/state.h"

struct mc_spot;

/* The table for fuse_session_new. */
const struct fuse_lowlevel_ops *mc_ops(void);

/* The errno a client sees for a failure below: what a reader cannot act on is EIO. Positive. */
int mc_ops_errno(int r);
static inline struct mc_fs *mc_ops_fs(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* init.c */
void mc_op_init(void *userdata, struct fuse_conn_info *conn);
/* ops-root.c: offsets of the listing count from 0, without dots. */
void mc_root_lookup(fuse_req_t req, const char *name);
void mc_root_list(struct mc_fs *fs, struct mc_page *p, off_t off);
/* ops-name.c */
void mc_reply_spot(fuse_req_t req, struct mc_fs *fs, const struct mc_spot *s, size_t link_len);
void mc_reply_missing(fuse_req_t req, double timeout);
void mc_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void mc_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup);
void mc_op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void mc_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void mc_op_readlink(fuse_req_t req, fuse_ino_t ino);
/* ops-dir.c */
void mc_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void mc_op_readdir(
	fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void mc_op_readdirplus(
	fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void mc_op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
/* ops-file.c */
void mc_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void mc_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void mc_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void mc_op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
/* ops-space.c */
void mc_op_statfs(fuse_req_t req, fuse_ino_t ino);
void mc_space_refresh(struct mc_fs *fs); /* have the numbers renewed in the background where old */
/* xattr.c */
void mc_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void mc_op_setxattr(
	fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size);
void mc_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
