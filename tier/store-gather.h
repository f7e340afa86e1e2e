/*
 * Synthesis of a block from strided regions of other files (FILE pieces of a plan): each source
 * block is read once through the store, as any reader would, and its runs are copied to where they
 * belong.
 */
#pragma once

#include "tier/plan.h"

/* Whether the plan has FILE pieces. */
bool mc_gather_wanted(const struct mc_plan *plan);
/* Calls each for every block of a source that the plan needs, in its order, a block perhaps more
 * than once; false from it stops and is returned. */
bool mc_gather_blocks(const struct mc_plan *plan,
	bool (*each)(void *ctx, struct mc_file *src, uint64_t block), void *ctx);
/*
 * Fills the FILE pieces' places in dst, which is laid out as the whole plan. plan and dst are
 * borrowed until done ran: exactly once, from any thread, perhaps before the call returns; res 0 or
 * -errno of the first source read that failed. -ENOMEM, and no done, when it could not start.
 */
int mc_gather_start(
	const struct mc_plan *plan, uint8_t *dst, void (*done)(void *ctx, int res), void *ctx);
