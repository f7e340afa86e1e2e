/* Choosing the segment that kv-log-reclaim.c empties. The packer only. */
#pragma once

#include "tier/kv-log-impl.h"

struct mc_kv_candidate {
	struct mc_kv_segment *seg;
	uint64_t dead; /* bytes; what a full segment could not hold at its end is not dead: copying
			  its records would not gain it */
	uint64_t gain; /* bytes, estimated: what the owner does not keep counted in */
};

/* All of the floor that could be reclaimed, in *ret, owned by the caller. Their number, or -ENOMEM.
 */
int64_t mc_kv_candidates(
	struct mc_kv_log *log, const struct mc_kv_floor *f, struct mc_kv_candidate **ret);
/* The best first. */
void mc_kv_rank(struct mc_kv_log *log, struct mc_kv_floor *f, struct mc_kv_candidate *c, size_t n);
/* Whether the lower floor takes what lives in the segment without its spare one, as far as can be
 * told; whether it takes that of any of n. */
bool mc_kv_fits_below(struct mc_kv_log *log, const struct mc_kv_segment *seg);
bool mc_kv_any_fits_below(struct mc_kv_log *log, const struct mc_kv_candidate *c, size_t n);

struct mc_kv_log_owner mc_kv_owner(struct mc_kv_log *log);
/* The copy of a record out of seg, the caller's, freed by mc_kv_op_free. NULL: no memory. */
struct mc_kv_op *mc_kv_copy_op(
	const struct mc_kv_entry *e, uint32_t slot, struct mc_kv_segment *seg);
