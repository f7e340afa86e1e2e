/*
 * The operations of layouts/ that change something: handed over by ops.c and the files beside it.
 * Each answers the request when ino (or a parent) is its own and returns true; else it leaves it
 * alone and returns false.
 */
#pragma once

#include "fs/state.h"

struct mc_spot;

bool mc_dop_create(fuse_req_t req, fuse_ino_t parent, const char *name, struct fuse_file_info *fi);
/* Only what a draft has the name of; a layout is looked up as everything else is. */
bool mc_dop_lookup(fuse_req_t req, const struct mc_node *dir, const char *name);
/* Of a layout too: owner, mode and times are accepted without effect, as cp and install set them.
 */
bool mc_dop_setattr(fuse_req_t req, fuse_ino_t ino, const struct stat *attr, int to_set);
/* Opening a layout for writing is refused here, too. */
bool mc_dop_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
bool mc_dop_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off);
bool mc_dop_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off);
bool mc_dop_flush(fuse_req_t req, fuse_ino_t ino);
bool mc_dop_release(fuse_req_t req, fuse_ino_t ino);
bool mc_dop_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
bool mc_dop_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
	const char *newname, unsigned flags);
bool mc_dop_is_draft(fuse_req_t req, fuse_ino_t ino);
/* Whether ino is layouts/, where what makes no plain file is EPERM. */
bool mc_dop_is_parent(fuse_req_t req, fuse_ino_t ino);
