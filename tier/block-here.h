/*
 * Which blocks are on a device, by the first 16 bytes of their file's digest and their number. For
 * block-cache.c, whose lock is held in every call.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define MC_BLOCK_BUCKETS 4096u

struct mc_block_slot {
	uint32_t len : 31; /* bytes of the block; 0 = not here */
	uint32_t warm : 1; /* read since it came or moved */
};

/* Zeroed: nothing is here. */
struct mc_block_here {
	uint64_t used, warm; /* bytes of records; of those whose slot is warm */
	uint64_t blocks;
	struct mc_block_kept *buckets[MC_BLOCK_BUCKETS]; /* owned */
};
void mc_block_here_done(struct mc_block_here *h);

/* NULL: it is not here. Valid until the file's blocks change. */
struct mc_block_slot *mc_block_here_find(
	struct mc_block_here *h, const uint8_t digest[16], uint64_t block);
/* Not warm. Without memory the block stays unknown. */
void mc_block_here_set(
	struct mc_block_here *h, const uint8_t digest[16], uint64_t block, uint32_t len);
void mc_block_here_clear(struct mc_block_here *h, const uint8_t digest[16], uint64_t block);
/* s NULL: nothing. */
void mc_block_here_heat(struct mc_block_here *h, struct mc_block_slot *s, bool warm);
/* Of the file. */
uint64_t mc_block_here_bytes(struct mc_block_here *h, const uint8_t digest[16]);
