/* Numbered pieces of work done by a few threads, until all are done or one fails. */
#pragma once

#include "tier/error.h"

#include <stdint.h>

/* Does item; worker (0 ..) tells the threads apart. 0 or -errno with a text; -ECANCELED = failed
 * only because an item that failed was waited for. */
typedef int mc_crew_fn(void *ctx, unsigned worker, uint64_t item, struct mc_err *err);

struct mc_crew {
	uint64_t items;
	unsigned workers; /* > 0 */
	mc_crew_fn *run;
	void (*tick)(void *ctx); /* in the calling thread about five times a second; may be NULL */
	void *ctx;
};

/* Items are begun in order. After the first failure none is begun; its code and text are returned
 * once those in progress have ended. */
int mc_crew_run(const struct mc_crew *w, struct mc_err *err);
