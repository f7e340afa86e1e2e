/*
 * How fast background reading may go: at most so many bytes a second, and a part of that while the
 * tier has other things to do. Pure: the caller has the clock.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define MC_PACE_YIELD 8 /* times slower while the tier is busy */

struct mc_pace {
	uint64_t next_ns; /* nothing is read before */
	uint64_t best_ns; /* how long a MiB takes on an idle tier, as far as seen; 0 = not seen */
};

/*
 * bytes were read, which took took_ns and ended at now_ns. rate: bytes a second, 0 = no limit.
 * busy: others are known to wait for the tier; a read that takes much longer than the best ones
 * says the same. Returns next_ns.
 */
uint64_t mc_pace_read(struct mc_pace *p, uint64_t now_ns, uint64_t rate, uint64_t bytes,
	uint64_t took_ns, bool busy);
