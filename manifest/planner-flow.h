/*
 * The egress bound and the choice of replicas that meets it. Bytes that several channels hold may
 * come from any of them; E* = max over all sets H of channels of bytes(holders ⊆ H) / |H| is the
 * least largest egress (max-flow, min-cut).
 */
#pragma once

#include <stdint.h>

/* Distinct sets of holders with the bytes that have exactly these holders. */
struct mc_holders {
	uint32_t *member; /* channels, ascending in each set; owned */
	uint64_t *first;  /* n + 1: set i is member[first[i] … first[i + 1]); owned */
	uint64_t *bytes;  /* n; owned */
	uint32_t n;
	/* private */
	uint64_t cap, cap_member;
	uint32_t *hash;
	uint32_t hash_size;
};

void mc_holders_done(struct mc_holders *h);
/* The number of the set with these members (ascending, no duplicate, n ≥ 1), new sets with 0 bytes.
 */
int mc_holders_add(struct mc_holders *h, const uint32_t *member, uint32_t n, uint32_t *ret);

struct mc_egress {
	uint64_t num, den; /* E* = num / den bytes; 0 / 1 when nothing moves */
	uint64_t *share;   /* bytes of set i that member[k] sends, k as in member; owned */
};
/* Exact. Shares add up to the sets' bytes, and no channel sends more than ⌈E*⌉. -ENOMEM,
 * -EOVERFLOW. */
int mc_egress_solve(const struct mc_holders *h, struct mc_egress *ret);
void mc_egress_done(struct mc_egress *e);
