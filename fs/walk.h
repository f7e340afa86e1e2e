/* The files below a spot of a checkpoint or of kv/. */
#pragma once

#include "fs/node.h"
#include "fs/state.h"

/*
 * Calls each for every file below a directory (MC_NODE_ENTRY, MC_NODE_KV_DIR), or for the file
 * itself (MC_NODE_ENTRY, MC_NODE_KV_FILE), until it returns non-zero, which is then returned. Links
 * are left out. The spot is lent to each for the call. From memory; takes as long as there are
 * files. -EOPNOTSUPP: another kind of spot.
 */
int mc_walk_files(struct mc_fs *fs, const struct mc_spot *s,
	int (*each)(void *ctx, const struct mc_spot *file), void *ctx);
