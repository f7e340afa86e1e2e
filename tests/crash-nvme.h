/* A user of an NVMe tier on the recording disk, and the judgement of what a power failure left of
 * its blocks. */
#pragma once

#include "tests/disk.h"

#include <stddef.h>

struct crash_nvme; /* in memory that children share */

struct crash_nvme *crash_nvme_new(void);
void crash_nvme_free(struct crash_nvme *h);
/* In a child: opens the tier in dir/tier and works on it. */
void crash_nvme_work(struct crash_nvme *h, const struct disk *d, const char *dir, uint64_t seed);
/* Positions of the disk at which the user was told that something is durable. Their number. */
size_t crash_nvme_acks(const struct crash_nvme *h, uint64_t *ret, size_t max);
/* In a child: recovers, and ends with 1 when something is not as it has to be after cut. */
void crash_nvme_check(struct crash_nvme *h, const char *dir, uint64_t cut);
