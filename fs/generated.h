/*
 * .mooncake/ in the mount's root: files whose text is made when they are opened (status.h), from
 * memory alone. Their node ids are fixed and have the top bits 001.
 */
#pragma once

#include "fs/fuse.h"

#include <stdbool.h>

#define MC_GENERATED_NAME ".mooncake"
#define MC_GENERATED_ROOT_ID (UINT64_C(1) << 61)

static inline bool mc_generated_has(fuse_ino_t ino)
{
	return ino >> 61 == 1;
}

void mc_genop_lookup_root(fuse_req_t req); /* the name ".mooncake" in the mount's root */
void mc_genop_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void mc_genop_getattr(fuse_req_t req, fuse_ino_t ino);
void mc_genop_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus);
void mc_genop_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void mc_genop_read(fuse_req_t req, const struct fuse_file_info *fi, size_t size, off_t off);
