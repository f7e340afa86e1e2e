/*
 * N-dimensional half-open boxes, and an index that answers "which boxes overlap this one" in
 * O(log n + answers) for the grids that sharding makes.
 *
 * Everywhere below dimension 0 is the outermost. The planner works in byte space: the innermost
 * dimension counts bytes, so that item sizes (and 4- or 6-bit types) need no special case.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MC_BOX_RANK 8 /* dimensions at most; the manifest's MC_MAX_RANK */

struct mc_box {
	uint8_t rank; /* 1 … MC_BOX_RANK in byte space */
	uint64_t off[MC_BOX_RANK];
	uint64_t len[MC_BOX_RANK];
};

/* Product of the lengths; saturates at UINT64_MAX. */
uint64_t mc_box_volume(const struct mc_box *b);
/* Order: rank, then (off, len) dimension by dimension. */
int mc_box_compare(const struct mc_box *a, const struct mc_box *b);
/* Writes the common part and says whether there is one (empty boxes overlap nothing). */
bool mc_box_overlap(const struct mc_box *a, const struct mc_box *b, struct mc_box *ret);
bool mc_box_inside(const struct mc_box *inner, const struct mc_box *outer);

/*
 * Elements to byte space: the innermost dimension times bits / 8; rank 0 becomes [bits / 8].
 * -EINVAL when an edge of the box is not on a byte, -EOVERFLOW when it does not fit.
 */
int mc_box_to_bytes(const struct mc_box *elements, unsigned bits, struct mc_box *ret);

/* A box in two: both sides as lists of boxes in row-major order. */
struct mc_box_cut {
	struct mc_box first[MC_BOX_RANK], rest[MC_BOX_RANK];
	size_t n_first, n_rest;
};
/*
 * Cuts box so that the first side holds at least want bytes and less than want + grain (grain in
 * bytes of the innermost dimension; where cutting finer would make parts of the size of grain, it
 * stops). Cuts the outermost dimension first, then within the row that is left. Returns the volume
 * of the first side.
 */
uint64_t mc_box_cut(
	const struct mc_box *box, uint64_t want, uint64_t grain, struct mc_box_cut *ret);

/* An index over boxes of one rank; owned by who opened it. */
struct mc_box_index;
/* boxes: borrowed while the index lives, sorted by mc_box_compare, no two equal. -ENOMEM. */
int mc_box_index_open(const struct mc_box *boxes, size_t n, struct mc_box_index **ret);
void mc_box_index_close(struct mc_box_index *x); /* NULL allowed */

/* Called once for each box that overlaps, in ascending order; a negative return stops the walk. */
typedef int mc_box_hit_fn(void *arg, uint32_t box, const struct mc_box *overlap);
int mc_box_index_query(
	const struct mc_box_index *x, const struct mc_box *q, mc_box_hit_fn *fn, void *arg);

/*
 * Refines boxes (any order, any overlap, one rank) into disjoint cells. Where boxes are equal or
 * disjoint, which is the common case, the cells are the distinct boxes; otherwise the boxes that
 * partly overlap are cut at each other's faces. Empty boxes have no cells. Cells are sorted, as are
 * the members of each.
 */
struct mc_cells {
	struct mc_box *box; /* n, owned */
	uint32_t *first; /* n + 1: members of cell i are member[first[i] … first[i + 1]), owned */
	uint32_t *member; /* indexes of the input, owned */
	size_t n;
	bool refined; /* boxes overlapped without being equal */
};
int mc_cells_init(struct mc_cells *c, const struct mc_box *boxes, size_t n); /* -ENOMEM, -E2BIG */
void mc_cells_done(struct mc_cells *c);
