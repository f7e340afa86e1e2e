/*
 * tiers/ in the mount: tiers/<tier>/… is the tree restricted to what that tier holds now, to be
 * listed, measured and cleared. st_blocks is what lies there; open is EACCES; unlink evicts from
 * that tier, never the last good copy. The operations on nodes below tiers/, which ops.c and the
 * files beside it hand over.
 *
 * What waits (the catalogue, a disk, the remote) runs on fs->admin, a pool of its own.
 */
#pragma once

#include "fs/node.h"
#include "fs/ops.h"
#include "fs/spot-job.h"
#include "tier/kv.h"

static inline bool mc_tiers_has(fuse_ino_t ino)
{
	return ino >> 62 == 1;
}

/* tiers.c */
void mc_tierop_lookup_root(fuse_req_t req); /* the name "tiers" in the mount's root */
void mc_tierop_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void mc_tierop_getattr(fuse_req_t req, fuse_ino_t ino);
/* The entry of a spot with these attributes and its node, whose reference the reply hands over. */
int mc_tier_entry(struct mc_fs *fs, const struct mc_spot *s, const struct stat *st,
	struct fuse_entry_param *e, struct mc_node **ret);
/* Attributes of a KV spot whose object or directory is a. */
void mc_tier_kv_attr(
	struct mc_fs *fs, const struct mc_spot *s, const struct mc_kv_attr *a, struct stat *st);
/* The i-th name in tiers/ or tiers/<tier>, which are always the same, and its spot; NULL: no more.
 */
const char *mc_tier_fixed(
	const struct mc_fs *fs, const struct mc_spot *dir, unsigned i, struct mc_spot *ret);
/* The key of name in the KV directory key, malloced: 0, -ENAMETOOLONG, -ENOMEM. */
int mc_tier_key(const char *key, const char *name, char **ret);
/* tiers-names.c: for the pool. */
/* Whether the tier holds something of an organisation, or of the revision "<model>@<rev>" of it;
 * *ret_place: its place, a reference, or NULL when there is no such thing (or no memory). */
bool mc_tier_holds_org(
	struct mc_fs *fs, enum mc_at at, const char *org, struct mc_place **ret_place);
bool mc_tier_holds_rev(struct mc_fs *fs, enum mc_at at, const char *org, const char *name,
	struct mc_place **ret_place);

/* tiers-dir.c */
void mc_tierop_opendir(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi);
void mc_tierop_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
	const struct fuse_file_info *fi, bool plus);

/* tiers-drop.c */
void mc_tierop_remove(fuse_req_t req, fuse_ino_t parent, const char *name, bool is_rmdir);
