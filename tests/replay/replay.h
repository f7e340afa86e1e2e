/*
 * Replaying a block trace against replacement policies. Blocks are numbered densely 0 … n_ids - 1,
 * all of one size; a capacity is a number of blocks. Policies are told the accesses in order; a
 * miss inserts.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct replay_trace {
	uint32_t *ids; /* owned; block of access i */
	size_t n;
	uint32_t n_ids;
};

/* Reads the Mooncake format: one JSON object a line, blocks in "hash_ids". 0, -errno, -EBADMSG. */
int replay_trace_read(const char *path, struct replay_trace *ret);
/* Made-up conversations: each request repeats its whole prefix; half of them never come back. 0,
 * -ENOMEM. */
int replay_trace_generate(uint64_t seed, size_t requests, struct replay_trace *ret);
/* A working set used for some rounds, a one-time scan, and one round more. 0 or -ENOMEM. */
struct replay_scan {
	uint32_t working_set, rounds, length; /* blocks; rounds before the scan; blocks */
	bool in_order;                        /* else in random order */
};
int replay_trace_with_scan(uint64_t seed, const struct replay_scan *scan, struct replay_trace *ret);
void replay_trace_done(struct replay_trace *t);

struct replay_policy {
	const char *name;
	/* t is borrowed until close. NULL: no memory. */
	void *(*open)(const struct replay_trace *t, uint32_t capacity);
	/* Access number i of the trace, in order; true = hit. */
	bool (*access)(void *p, size_t i);
	void (*close)(void *p);
};

extern const struct replay_policy replay_lru, replay_arc, replay_s3fifo, replay_sieve;
extern const struct replay_policy replay_opt;  /* offline: Belady, may decline to insert */
extern const struct replay_policy replay_ours; /* tier/policy.c */

struct replay_tier_hits {
	uint64_t dram, nvme;
	uint64_t flushed, written; /* bytes to NVMe: of objects, and in all; the store's alone */
};
/* DRAM over NVMe. 0 or -ENOMEM. */
int replay_two_tiers(const struct replay_trace *t, uint32_t dram_blocks, uint32_t nvme_blocks,
	struct replay_tier_hits *ret);

/* The same through the real store library, in the directory dir (which exists, empty); nvme_blocks
 * 0 = DRAM above the remote. 0 or -errno, said on stderr. */
int replay_store(const struct replay_trace *t, const char *dir, uint32_t dram_blocks,
	uint32_t nvme_blocks, struct replay_tier_hits *ret);
