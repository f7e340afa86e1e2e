/*
 * What a tier holds of the tree: of a file by its identity, of a directory by what lies below it.
 * Answered from memory. The remote holds every checkpoint that is listed, whole.
 */
#pragma once

#include "fs/node.h"
#include "fs/state.h"
#include "tier/tier.h"

static inline enum mc_tier mc_at_tier(enum mc_at at)
{
	return (enum mc_tier)(at - MC_AT_DRAM);
}

/* Bytes of a manifest's FILE entry that the tier holds. */
uint64_t mc_holds_bytes(struct mc_fs *fs, enum mc_at at, const struct mc_entry *e);
/* Whether the entry, a file or a directory, is there. Of a directory at most max entries are looked
 * at; it counts as there when that does not suffice. Links never are. */
bool mc_holds_entry(struct mc_fs *fs, enum mc_at at, const struct mc_place *place, uint32_t entry,
	unsigned max);
