/* What the environment chooses for a test, first of all its seed: MC_SEED, or the clock's, and
 * printed, so that what failed can be played again. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline unsigned env_number(const char *name, unsigned fallback)
{
	const char *text = getenv(name);

	return text != NULL ? (unsigned)strtoul(text, NULL, 0) : fallback;
}

static inline unsigned seed_choose(void)
{
	unsigned seed = env_number("MC_SEED", (unsigned)time(NULL));

	printf("MC_SEED=%u\n", seed);
	fflush(stdout);
	return seed;
}
