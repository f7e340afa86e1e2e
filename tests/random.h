/* Small random numbers that are the same everywhere for the same seed, which the test prints. */
#pragma once

#include <stdint.h>

static uint32_t seed_state;

/* 0 … n − 1. */
static inline uint32_t rnd(uint32_t n)
{
	seed_state = seed_state * 1664525u + 1013904223u;
	return (uint32_t)(((uint64_t)(seed_state >> 8) * n) >> 24);
}
