/*
 * Clients of a KV store on the recording disk, and the judgement of what a power failure left of
 * their objects. Each client has keys of its own, so that what it was told decides about them.
 */
#pragma once

#include "tests/disk.h"

#include <stddef.h>

struct crash_kv; /* in memory that children share */

/* What lies below memory; the remote is a directory on the same disk, where each put goes before it
 * is acknowledged. */
enum crash_below { CRASH_NVME, CRASH_REMOTE, CRASH_BOTH, CRASH_BLOCK, CRASH_BELOW };
extern const char *const crash_below_names[CRASH_BELOW];

struct crash_kv *crash_kv_new(enum crash_below below);
void crash_kv_free(struct crash_kv *h);
/* In a child: opens the store in dir/kv, dir/remote, and works on it. dram: where its DRAM tier
 * lies. */
void crash_kv_work(
	struct crash_kv *h, const struct disk *d, const char *dir, const char *dram, uint64_t seed);
/* Positions of the disk at which clients were told that something is durable. Their number. */
size_t crash_kv_acks(const struct crash_kv *h, uint64_t *ret, size_t max);
/* In a child: recovers, and ends with 1 when something is not as it has to be after cut. */
void crash_kv_check(struct crash_kv *h, const char *dir, const char *dram, uint64_t cut);
