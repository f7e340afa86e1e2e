/* How much of some background work is done. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

/* Of one unit, whichever. Written by the thread that works, read by any: a figure for people. */
struct mc_share {
	_Atomic uint64_t seen, total;
};

/* 0 … 99: what is not over is never 100. Nothing to do yet known: 0. */
static inline uint64_t mc_share_percent(uint64_t seen, uint64_t total)
{
	uint64_t percent = total == 0 ? 0 : (uint64_t)((__uint128_t)seen * 100 / total);

	return percent < 99 ? percent : 99;
}

static inline uint64_t mc_share_done(const struct mc_share *s)
{
	return mc_share_percent(atomic_load(&s->seen), atomic_load(&s->total));
}
