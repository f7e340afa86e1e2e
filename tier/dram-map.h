/*
 * The map file beside a DRAM image: which blocks are valid, in memory that outlives the daemon.
 *
 * A bit is set after the block's bytes are in place and cleared before they go, so whoever maps the
 * file later in the same boot may trust it. Another boot (a plain directory on a disk), another
 * identity or a damaged header make the pair worthless.
 */
#pragma once

#include "tier/source.h"

struct mc_dram_map {
	uint64_t *present; /* bitmap.h, one bit a block; inside base */
	void *base;        /* owned mapping */
	size_t len;        /* bytes of it */
};

/* Makes the file anew, nothing valid. 0, -ENOSPC, -errno. */
int mc_dram_map_create(const char *path, const struct mc_file_id *id, struct mc_dram_map *ret);
/* -ENOENT; -EBADMSG: not the map of this file in this boot. */
int mc_dram_map_open(const char *path, const struct mc_file_id *id, struct mc_dram_map *ret);
void mc_dram_map_close(struct mc_dram_map *m);
