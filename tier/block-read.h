/*
 * Reads of a log that nobody has to wait for: what they read into is theirs until the device
 * answers, so that they can be given up while it still has them, and end whenever it does.
 */
#pragma once

#include "tier/kv-log.h"
#include "tier/lock.h"

#define MC_BLOCK_READS_KEPT 16 /* buffers kept for the next read */

struct mc_block_read;

struct mc_block_reads {
	struct mc_mutex lock; /* the log's is taken inside it */
	struct mc_block_read *oldest MC_GUARDED_BY(lock), *newest MC_GUARDED_BY(lock);
	unsigned lost MC_GUARDED_BY(lock);                   /* given up, and not ended yet */
	void *kept[MC_BLOCK_READS_KEPT] MC_GUARDED_BY(lock); /* owned */
	unsigned n_kept MC_GUARDED_BY(lock);
	bool below;               /* of the lower floor's disk, if there is one */
	void (*ended)(void *ctx); /* NULL, or: once for each read, when the device has answered */
	void *ctx;
};

void mc_block_reads_init(
	struct mc_block_reads *rs, bool below, void (*ended)(void *ctx), void *ctx);
/* Every read has ended. */
void mc_block_reads_done(struct mc_block_reads *rs);
/*
 * what: place, version, size, off and len; the rest is ours but for buf: NULL for memory of ours,
 * len at most MC_BLOCK_SIZE, else it is lent. done runs once, any thread, no lock held. bytes: len
 * of them when res is 0, borrowed for the call; res -ETIMEDOUT: given up, and never anything else;
 * then release runs when the read has ended, perhaps before done, and until then what was
 * lent is not to be touched. No release otherwise.
 */
struct mc_block_order {
	struct mc_kv_log_read what;
	uint64_t grace_ns; /* it may take so much longer than others */
	void (*done)(void *ctx, const void *bytes, int res);
	void *ctx;
	void (*release)(void *ctx, void *memory); /* ctx of the reads; NULL: nothing was lent */
	void *memory;
};
/* -ENOMEM: nothing was begun, none of the calls is made. */
int mc_block_reads_begin(
	struct mc_block_reads *rs, struct mc_kv_log *log, const struct mc_block_order *order);
/* Gives up what began before that moment (mc_now_ns), its grace granted; the log is told. How many.
 */
unsigned mc_block_reads_give_up(struct mc_block_reads *rs, uint64_t before_ns);
/* How many were given up and have not ended: the device hangs. */
unsigned mc_block_reads_lost(struct mc_block_reads *rs);
