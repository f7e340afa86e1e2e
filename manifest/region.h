/*
 * A strided region: the bytes of one box as they lie in two places. Never expanded: three lines of
 * integers stand for any number of runs.
 */
#pragma once

#include "manifest/box.h"

/* How a box's bytes are addressed: box origin → base, one step on dimension d → stride[d] bytes. */
struct mc_address {
	uint64_t base;                /* bytes, of the box's first byte */
	uint64_t stride[MC_BOX_RANK]; /* bytes; innermost 1 */
};

struct mc_region {
	uint64_t src, dst;                /* bytes, where the first run begins */
	uint64_t inner;                   /* bytes of a run, contiguous on both sides */
	uint8_t rank;                     /* loops around the run, outermost first */
	uint64_t count[MC_BOX_RANK];      /* ≥ 2 */
	uint64_t src_stride[MC_BOX_RANK]; /* bytes */
	uint64_t dst_stride[MC_BOX_RANK]; /* bytes */
};

/* A dense row-major array that is exactly box, starting at base. */
void mc_address_dense(const struct mc_box *box, uint64_t base, struct mc_address *ret);

/*
 * The region of part, which lies inside src_box and inside dst_box. Dimensions that are contiguous
 * on both sides are merged, lengths of 1 dropped. part must not be empty.
 */
void mc_region_make(const struct mc_box *part, const struct mc_box *src_box,
	const struct mc_address *src, const struct mc_box *dst_box, const struct mc_address *dst,
	struct mc_region *ret);

uint64_t mc_region_runs(const struct mc_region *r);
uint64_t mc_region_bytes(const struct mc_region *r);

/* Where run number i (in order, < mc_region_runs) begins on both sides. */
void mc_region_run(const struct mc_region *r, uint64_t i, uint64_t *ret_src, uint64_t *ret_dst);
