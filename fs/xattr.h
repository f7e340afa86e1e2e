/*
 * What the extended attributes of all parts of the tree have in common. Names are what follows
 * MC_XATTR_PREFIX. Directories of checkpoints and of kv/ have sums over the files below them.
 */
#pragma once

#include "fs/fuse.h"
#include "fs/node.h"

#include <stdbool.h>
#include <stddef.h>

#define MC_XATTR_PREFIX "user.mooncake."

/* Answers getxattr and listxattr; size 0 asks for the length. */
void mc_xattr_reply(fuse_req_t req, size_t size, const char *value, size_t len);
/* Appends a name to a list that has room for it; the new length. Nothing where they are hidden. */
size_t mc_xattr_list(fuse_req_t req, char *names, size_t len, size_t room, const char *name);

/* xattr-sum.c: the i-th name of a directory's sums, or NULL. */
const char *mc_xattr_sum_name(size_t i);
bool mc_xattr_is_sum(const char *name);
/* Answers with the sum of that name over what lies below dir. */
void mc_xattr_sum(fuse_req_t req, const struct mc_spot *dir, const char *name, size_t size);

/* xattr-set.c: pin, pinned, evict and warm of a file, or of all files below a directory. */
void mc_xattr_set(
	fuse_req_t req, const struct mc_spot *s, const char *name, const char *value, size_t size);

/* kv-xattr.c: of a KV object by its key, below tiers/. */
void mc_kv_xattr_get(fuse_req_t req, const char *key, const char *name, size_t size);
void mc_kv_xattr_list(fuse_req_t req, const char *key, size_t size);
