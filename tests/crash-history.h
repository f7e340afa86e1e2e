/* What the crash tests on the recording disk share: histories whose operations know where on the
 * disk's record they began and were acknowledged, and how a test process ends. */
#pragma once

#include "tests/disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Of one operation. Positions: 0 = not yet. */
struct crash_span {
	uint64_t begun;        /* position of the disk before it, plus one */
	uint64_t acknowledged; /* position after it, plus one */
};

/* Whether it had begun, or was acknowledged, when the power went after cut operations. */
static inline int crash_begun(const struct crash_span *s, uint64_t cut)
{
	return s->begun != 0 && s->begun - 1 <= cut;
}

static inline int crash_acknowledged(const struct crash_span *s, uint64_t cut)
{
	return s->acknowledged != 0 && s->acknowledged - 1 <= cut;
}

/* Ends a process that works on the disk or checks it: nothing it has open is closed in order. */
#define crash_die(...)                                                                             \
	do {                                                                                       \
		printf(__VA_ARGS__);                                                               \
		printf("\n");                                                                      \
		fflush(stdout);                                                                    \
		_exit(1);                                                                          \
	} while (0)

static inline uint64_t crash_random(uint64_t *rng)
{
	*rng ^= *rng << 13;
	*rng ^= *rng >> 7;
	*rng ^= *rng << 17;
	return *rng >> 11;
}

static inline uint64_t crash_rng(uint64_t seed)
{
	return (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
}
