/* A bitmap of blocks whose bits are set and read by many threads without a lock. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline size_t mc_bitmap_words(uint64_t bits)
{
	return (size_t)((bits + 63) / 64);
}

/* Acquire: what was written before the bit was set is visible. */
static inline bool mc_bitmap_get(const uint64_t *map, uint64_t bit)
{
	return (__atomic_load_n(&map[bit / 64], __ATOMIC_ACQUIRE) >> (bit % 64) & 1) != 0;
}

/* Release; returns the bit as it was. */
static inline bool mc_bitmap_set(uint64_t *map, uint64_t bit)
{
	uint64_t mask = UINT64_C(1) << (bit % 64);

	return (__atomic_fetch_or(&map[bit / 64], mask, __ATOMIC_ACQ_REL) & mask) != 0;
}

static inline bool mc_bitmap_clear(uint64_t *map, uint64_t bit)
{
	uint64_t mask = UINT64_C(1) << (bit % 64);

	return (__atomic_fetch_and(&map[bit / 64], ~mask, __ATOMIC_ACQ_REL) & mask) != 0;
}

static inline uint64_t mc_bitmap_count(const uint64_t *map, uint64_t bits)
{
	uint64_t n = 0;

	for (size_t i = 0; i < mc_bitmap_words(bits); i++)
		n += (uint64_t)__builtin_popcountll(__atomic_load_n(&map[i], __ATOMIC_RELAXED));
	return n;
}
