/*
 * One transfer of a block into its memory in DRAM: NVMe, the device or the remote, the first that
 * has it. For store-fetch.c, whose job it is.
 */
#pragma once

#include "tier/store-impl.h"

#include <stdatomic.h>

struct mc_job {
	struct mc_work work;  /* first member */
	struct mc_file *file; /* owned reference */
	struct mc_pair *pair; /* pinned */
	uint64_t block;
	uint32_t len;
	uint64_t deadline_ns;
	bool prefetch;                                     /* nobody waits yet */
	enum { FROM_REMOTE, FROM_NVME, FROM_DEVICE } from; /* this transfer */
	bool no_nvme, no_device;                           /* failed */
	uint8_t attempts;
	struct mc_plan plan;
	struct mc_remote_read *reqs; /* owned */
	size_t n_reqs;
	atomic_uint pending;
	atomic_int res; /* the first error */
	union {
		struct mc_nvme_op nop;
		struct mc_block_op bop;
	};
	struct mc_run *run; /* pinned while from_nvme; a device has none */
};

/*
 * Starts the transfer; job->work is posted when it has ended, job->res is its outcome then, and the
 * job may be gone when this returns 0. 1: the block is on its way to the device, ask again; -errno:
 * nothing was started. What failed before is left out.
 */
int mc_transfer_start(struct mc_store *s, struct mc_job *job);
/* One from NVMe or the device has ended so: counted and told, nothing of the tier is held. */
void mc_transfer_local_end(struct mc_store *s, struct mc_job *job, int res);
