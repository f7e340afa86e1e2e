/*
 * The reshard planner: held boxes × wanted boxes → links, each a box that one held shard gives to
 * one wanted shard. Pure computation; every number is an integer and exact.
 *
 * Guaranteed (docs/LAYOUT.md): every wanted byte is covered exactly once, or the plan fails; bytes
 * moved are Σ over receivers of wanted ∖ held; the largest egress is at most E* + 1 MiB; the result
 * does not depend on the order of the input; the cost is that of the output.
 *
 * Tensors that lie alike on both sides are one class. A link stands for the same box in a range of
 * the class's tensors (instances), so a plan of a trillion parameters is some hundred links.
 */
#pragma once

#include "manifest/planner-side.h"
#include "tier/error.h"

struct mc_reshard_in {
	const char *const *names; /* of tensors, unique, borrowed during the call */
	uint32_t n_tensors;
	const struct mc_side *held, *wanted; /* borrowed while the plan lives */
	const uint32_t *node;    /* by participant, NULL = each its own; borrowed during the call */
	uint32_t n_participants; /* on both sides together: the same number is the same participant
				  */
	bool node_local;         /* each byte enters a node once, and is copied inside it */
};

enum mc_link_kind {
	MC_LINK_MOVE,  /* held shard → wanted shard of another participant */
	MC_LINK_LOCAL, /* held shard → wanted shard, same participant (node_local: same node) */
	MC_LINK_COPY, /* wanted shard → wanted shard, after the MOVE or LOCAL that fills the first
		       */
};

struct mc_link {
	uint32_t cls;      /* class number */
	uint32_t src, dst; /* shard numbers in held (COPY: wanted) and wanted */
	uint32_t from, to; /* instances [from, to) of the class */
	uint32_t box;      /* 0: the whole overlap of the two shards; else box number + 1 */
	uint32_t kind;     /* enum mc_link_kind */
};

struct mc_class {
	uint32_t held, wanted; /* pattern numbers */
	uint32_t first, n; /* instances: plan->instance[first … first + n) are tensor numbers */
};

struct mc_reshard {
	const struct mc_side *held, *wanted; /* borrowed */
	struct mc_class *cls;                /* by their first tensor's name, owned */
	uint32_t n_classes;
	uint32_t *instance;   /* tensor numbers, in a class by name, owned */
	struct mc_link *link; /* by class, then wanted shard, then box, owned */
	uint32_t n_links, cap_links;
	struct mc_box *box; /* boxes of links that are not whole overlaps, owned */
	uint32_t n_boxes, cap_boxes;
	uint32_t n_participants;
	uint64_t *egress;      /* bytes of MOVE links, by participant, owned */
	uint64_t *ingress;     /* the same, owned */
	uint64_t wanted_bytes; /* Σ distinct source bytes each receiver wants */
	uint64_t moved_bytes;  /* of MOVE links */
	uint64_t local_bytes;  /* wanted and already held by the receiver, each byte once */
	uint64_t overlaps;     /* held box × wanted box pairs, before locality and coalescing */
	uint64_t bound_num, bound_den; /* E* = num / den */
};

/*
 * -EINVAL with a text: a wanted byte that nobody holds, ranks that differ, bad participant. -E2BIG:
 * held boxes that overlap in too many ways. -ENOMEM.
 */
int mc_reshard_plan(const struct mc_reshard_in *in, struct mc_reshard **ret, struct mc_err *err);
void mc_reshard_free(struct mc_reshard *p); /* NULL allowed */

/* The box of a link, and its geometry from fragment start to fragment start. */
void mc_reshard_link_box(const struct mc_reshard *p, const struct mc_link *l, struct mc_box *ret);
void mc_reshard_link_region(
	const struct mc_reshard *p, const struct mc_link *l, struct mc_region *ret);
