/*
 * Clients of a KV store on the recording disk, and the judgement of what a power failure left of
 * their objects. Each client has keys of its own, so that what it was told decides about them.
 */
#pragma once

#include "tests/disk.h"

struct crash_kv; /* in memory that children share */

struct crash_kv *crash_kv_new(void);
void crash_kv_free(struct crash_kv *h);
/* In a child: opens the store in dir/kv and works on it. dram: where its DRAM tier lies. */
void crash_kv_work(
	struct crash_kv *h, const struct disk *d, const char *dir, const char *dram, uint64_t seed);
/* In a child: recovers, and ends with 1 when something is not as it has to be after cut. */
void crash_kv_check(struct crash_kv *h, const char *dir, const char *dram, uint64_t cut);
