/* A user of an NVMe tier on the recording disk, and the judgement of what a power failure left of
 * its blocks. */
#pragma once

#include "tests/disk.h"

struct crash_nvme; /* in memory that children share */

struct crash_nvme *crash_nvme_new(void);
void crash_nvme_free(struct crash_nvme *h);
/* In a child: opens the tier in dir/tier and works on it. */
void crash_nvme_work(struct crash_nvme *h, const struct disk *d, const char *dir, uint64_t seed);
/* In a child: recovers, and ends with 1 when something is not as it has to be after cut. */
void crash_nvme_check(struct crash_nvme *h, const char *dir, uint64_t cut);
