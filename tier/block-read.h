/*
 * Reads of whole records that nobody has to wait for: each has memory of its own, so that it can be
 * given up while the device still has it, and end whenever the device answers.
 */
#pragma once

#include "tier/kv-log.h"
#include "tier/lock.h"

#define MC_BLOCK_READS_KEPT 16 /* buffers kept for the next read */

struct mc_block_read;

struct mc_block_reads {
	struct mc_mutex lock; /* leaf */
	struct mc_block_read *oldest MC_GUARDED_BY(lock), *newest MC_GUARDED_BY(lock);
	unsigned lost MC_GUARDED_BY(lock);                   /* given up, and not ended yet */
	void *kept[MC_BLOCK_READS_KEPT] MC_GUARDED_BY(lock); /* owned */
	unsigned n_kept MC_GUARDED_BY(lock);
	void (*ended)(void *ctx); /* once for each read, when the device has answered */
	void *ctx;
};

void mc_block_reads_init(struct mc_block_reads *rs, void (*ended)(void *ctx), void *ctx);
/* Every read has ended. */
void mc_block_reads_done(struct mc_block_reads *rs);
/*
 * what: place, version, size and len, the same and at most MC_BLOCK_SIZE; the rest is ours. done
 * runs once, any thread, no lock held; bytes: len of them when res is 0, borrowed for the call;
 * -ETIMEDOUT: given up. -ENOMEM: nothing was begun, neither done nor ended is called.
 */
int mc_block_reads_begin(struct mc_block_reads *rs, struct mc_kv_log *log,
	const struct mc_kv_log_read *what, void (*done)(void *ctx, const void *bytes, int res),
	void *ctx);
/* Gives up what began before that moment (mc_now_ns). How many. */
unsigned mc_block_reads_give_up(struct mc_block_reads *rs, uint64_t before_ns);
/* How many were given up and have not ended: the device hangs. */
unsigned mc_block_reads_lost(struct mc_block_reads *rs);
