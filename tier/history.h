/*
 * What a cache remembers of entries it evicted: when and how often they were used. A fixed number
 * of 8-byte slots in sets of 8; the oldest of a set gives way. Keys are 32-bit tags, so about one
 * lookup in 2^29 / sets finds a stranger: the answers are hints. Not thread-safe.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define MC_HISTORY_SLOT_SIZE 8 /* bytes */

struct mc_history {
	struct mc_history_slot *slots;
	uint32_t sets; /* a power of two */
};

/* 0, or -ENOMEM. */
int mc_history_init(struct mc_history *h, uint32_t min_slots);
void mc_history_done(struct mc_history *h);
/* Doubles the room and keeps what is there; without memory nothing changes. */
void mc_history_grow(struct mc_history *h);
uint64_t mc_history_slots(const struct mc_history *h);

/* uses > 0. stamp: 24 bits are kept. now: the caller's clock, in the same unit, to find the oldest.
 */
void mc_history_put(
	struct mc_history *h, uint64_t key_hash, uint32_t stamp, uint8_t uses, uint32_t now);
/* Takes the key out: true and age = now - stamp (modulo 2^24) when it was there. */
bool mc_history_take(struct mc_history *h, uint64_t key_hash, uint32_t now, uint32_t *ret_age,
	uint8_t *ret_uses);
