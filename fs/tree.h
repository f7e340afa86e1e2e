/* The tree as it looks: attributes, inode numbers and how long the kernel may remember them. */
#pragma once

#include "fs/node.h"
#include "fs/state.h"

#include <sys/stat.h>

/*
 * Inode number: from the identity, the same on every node and after every restart. Files with the
 * same bytes share it; whatever else is numbered by its path.
 */
uint64_t mc_tree_ino(const struct mc_spot *s);
/* The same for a name that is listed in a directory that is no MC_NODE_ENTRY. */
uint64_t mc_tree_listed_ino(const struct mc_spot *dir, const char *name);

/* link_len: length of the target of a MC_NODE_LATEST, else ignored. */
void mc_tree_attr(
	const struct mc_fs *fs, const struct mc_spot *s, size_t link_len, struct stat *st);

/* Seconds: for the contents of a revision, which never change, and for what may. */
double mc_tree_timeout(const struct mc_spot *s);
/* Seconds a name may be remembered as missing in the directory. */
double mc_tree_negative_timeout(const struct mc_spot *dir);

/* Fills e for the spot and takes a reference of its node, which the kernel gets by the reply. */
int mc_tree_entry_param(struct mc_fs *fs, const struct mc_spot *s, size_t link_len,
	struct fuse_entry_param *e, struct mc_node **ret);
