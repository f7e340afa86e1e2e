/*
 * The binder: a plan's MOVE links → pieces of at most 64 MiB between channels, in rounds. A round
 * uses each sending and each receiving channel at most once; there are as many rounds as the
 * busiest channel has pieces (bipartite edge colouring). Rounds are an order, not barriers: whoever
 * executes keeps no two channels idle that have a piece between them, takes the partner with most
 * bytes left first, and the pieces of a pair in the order of their rounds.
 *
 * LOCAL and COPY links are not scheduled.
 */
#pragma once

#include "manifest/planner.h"

#define MC_PIECE_MAX (UINT64_C(64) << 20) /* bytes */

/* One link's box in a range of instances; box as in mc_link, but in the binding's list. */
struct mc_bound_span {
	uint32_t link;
	uint32_t from, to; /* instances */
	uint32_t box;      /* 0: the link's whole box; else number + 1 in binding->box */
};

struct mc_bound_piece {
	uint32_t src, dst; /* channels */
	uint32_t round;
	uint32_t first, n; /* spans */
	uint64_t bytes;    /* ≤ max_piece */
};

struct mc_binding {
	struct mc_bound_piece *piece; /* by round, then src, owned */
	uint32_t n_pieces, cap_pieces;
	struct mc_bound_span *span; /* owned */
	uint32_t n_spans, cap_spans;
	struct mc_box *box; /* owned */
	uint32_t n_boxes, cap_boxes;
	uint32_t n_rounds;
	uint64_t max_egress, max_ingress; /* bytes of the busiest channels */
	uint64_t makespan; /* bytes at the rate of one channel: simulated, all channels equal, full
			      duplex */
};

struct mc_binder_in {
	const struct mc_reshard *plan; /* borrowed during the call */
	const uint32_t *channel; /* by participant, NULL = each its own; borrowed during the call */
	uint64_t max_piece;      /* bytes, 0 = MC_PIECE_MAX */
};

/* 0, -EINVAL (max_piece below 4 KiB or above MC_PIECE_MAX), -E2BIG (more than 2^32 pieces),
 * -ENOMEM. */
int mc_binding_make(const struct mc_binder_in *in, struct mc_binding **ret);
void mc_binding_free(struct mc_binding *b); /* NULL allowed */

/* The box a span stands for, in the held tensor. */
void mc_binding_span_box(const struct mc_binding *b, const struct mc_reshard *p,
	const struct mc_bound_span *s, struct mc_box *ret);
