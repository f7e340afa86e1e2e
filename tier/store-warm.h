/* Bringing whole files into a local tier on order. Only for those who may wait. */
#pragma once

#include "tier/store.h"

struct mc_warm_opts {
	enum mc_tier tier;         /* DRAM or NVME */
	uint64_t bytes_per_second; /* 0 = as fast as it goes */
	uint64_t *next_ns;         /* when the rate allows the next read; carried from one file to
				      the next, from 0 on. NULL: this file is alone */
	bool unsettled;            /* do not wait for NVMe: a second call for the file does, and by
				      then most of it is durable */
	/* At least ten times a second, with the bytes that have arrived; false: stop. */
	bool (*keep_on)(void *ctx, uint64_t bytes_done);
	void *ctx;
};

/*
 * [blocks] Reads what the tier lacks of the file, and for NVMe waits until it is durable there. 0
 * when the tier held all of it at one moment (unsettled: when all was read); -ENOSPC it does not
 * fit, or did not stay; -ENODEV no such tier; -ECANCELED by keep_on; -EIO, -ETIMEDOUT … the first
 * read that failed.
 */
int mc_store_warm(struct mc_file *f, const struct mc_warm_opts *opts);
