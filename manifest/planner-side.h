/*
 * One side of a reshard: which participant holds (or wants) which boxes of which tensors.
 *
 * A checkpoint of 139,583 tensors has a few dozen distinct ways to lie on its ranks. The list of
 * shards of a tensor is therefore interned as a pattern, and a side is one pattern number per
 * tensor.
 */
#pragma once

#include "manifest/region.h"

/* One box of one tensor at one participant. */
struct mc_shard {
	uint32_t participant;
	uint32_t output;   /* wanted side: which of the tensor's outputs (a tied tensor has two) */
	struct mc_box box; /* byte space, in the global tensor */
	struct mc_address
		place; /* where the box lies, from the start of the fragment or output tensor */
};

#define MC_PATTERN_NONE UINT32_MAX
#define MC_SIDE_MAX_BYTES (UINT64_C(1) << 62) /* volumes and far edges are below this */

struct mc_pattern {
	uint32_t first; /* in side->shard */
	uint32_t n;
};

/*
 * Invariants: 1. the shards of a pattern are sorted by participant, box, place, output; 2. no two
 * patterns are equal, the set-up order decides only their numbers; 3. every volume and far edge
 * fits in 62 bits.
 */
struct mc_side {
	struct mc_shard *shard; /* all patterns' shards, owned */
	uint32_t n_shards, cap_shards;
	struct mc_pattern *pattern; /* owned */
	uint32_t n_patterns, cap_patterns;
	uint32_t *of_tensor; /* pattern number or MC_PATTERN_NONE, n_tensors, owned */
	uint32_t n_tensors;
	uint32_t *hash; /* pattern number + 1 by content, owned */
	uint32_t hash_size;
	uint64_t *tag;       /* caller's own reference for each shard of each tensor, owned */
	uint64_t *tag_first; /* n_tensors, UINT64_MAX = none, owned */
	uint64_t n_tags, cap_tags;
};

int mc_side_init(struct mc_side *s, uint32_t n_tensors);
void mc_side_done(struct mc_side *s);

/*
 * Says where all of one tensor lies, in any order. tags: n references that come back through
 * mc_side_tag, or NULL. 0, -EINVAL (ranks differ or are 0), -EOVERFLOW, -EEXIST (said before),
 * -ENOMEM.
 */
int mc_side_set(struct mc_side *s, uint32_t tensor, const struct mc_shard *shards, uint32_t n,
	const uint64_t *tags);
/* The same for a tensor that lies exactly as another one, by its pattern number. */
int mc_side_set_pattern(struct mc_side *s, uint32_t tensor, uint32_t pattern);

/* The tag of the shard with this absolute number in this tensor; UINT64_MAX when it has none. */
uint64_t mc_side_tag(const struct mc_side *s, uint32_t tensor, uint32_t shard);
