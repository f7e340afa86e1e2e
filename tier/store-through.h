/*
 * Reads of derived files that leave no image behind: the bytes are lent out of the blocks of the
 * files they are made of, or gathered from there into a buffer that is used again and again.
 *
 * So a view costs the DRAM tier nothing on top of its sources, and reading it once costs about what
 * reading a plain file does. A file that is read a second time is hot: then its blocks are
 * synthesised into an image (store-fetch.c), which in the end the kernel reads alone.
 */
#pragma once

#include "tier/store-impl.h"

/* Whether r should be served so; notes its bytes. */
bool mc_through_wanted_locked(struct mc_store *s, const struct mc_file_read *r)
	MC_REQUIRES(s->lock);
/* Ends in r->done, from any thread, perhaps before it returns. */
void mc_through_start(struct mc_file_read *r) MC_EXCLUDES(r->file->store->lock);
/* As mc_file_read_end, where r->through is set. */
void mc_through_end(struct mc_file_read *r) MC_EXCLUDES(r->file->store->lock);
/* Has the sources of n blocks of f from first on fetched ahead, in the order of f. */
void mc_through_ahead(struct mc_file *f, uint64_t first, uint32_t n) MC_EXCLUDES(f->store->lock);
/* At close. */
void mc_through_free_all(struct mc_store *s);
