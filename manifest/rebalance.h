/* Puts every object of several remotes where it belongs, after one was added, or is to leave. */
#pragma once

#include "manifest/progress.h"
#include "tier/error.h"

struct mc_remote;

struct mc_rebalance_opts {
	unsigned jobs;                                /* objects worked on at once, > 0 */
	uint64_t bytes_per_second;                    /* copied at most; 0 = as fast as it goes */
	mc_progress_fn *progress;                     /* may be NULL */
	void (*problem)(void *ctx, const char *text); /* an object that could not be moved */
	void *ctx;
};

struct mc_rebalance_result {
	uint64_t objects;
	uint64_t copied, copied_bytes, removed; /* copies */
	uint64_t failed;                        /* objects that are not where they belong */
};

/*
 * May be killed and begun again: what is in its place is only listed. 0 also when objects failed;
 * -ENOTCONN when a remote is away. Of a single remote nothing is to be done.
 */
int mc_rebalance(struct mc_remote *r, const struct mc_rebalance_opts *opts,
	struct mc_rebalance_result *ret, struct mc_err *err);
