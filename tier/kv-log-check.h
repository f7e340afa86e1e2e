/*
 * Reading through what the KV log holds: every live record, in the order in which they
 * lie, compared with the checksums that the journal has. Who calls: the scrub of a mounted store
 * (kv-scrub.c), and fsck. One thread for each check; beside everything else that the log does.
 */
#pragma once

#include "tier/kv-log.h"

/* Where a check goes on: zeros = at the beginning. Survives restarts. */
struct mc_kv_log_mark {
	uint32_t segment;
	uint64_t off; /* bytes of it */
};

/* What came of it so far; the caller's, added to. */
struct mc_kv_log_checked {
	uint64_t bytes;   /* read */
	uint64_t records; /* objects; of large ones each part counts */
	uint64_t bad;     /* objects that bad was told of */
	uint64_t failed;  /* that could not be read */
};

struct mc_kv_log_check;

/* bad is told each object of which a record does not verify, no lock held; what it does to the
 * log is its business. The key is borrowed. The log outlives the check. 0 or -ENOMEM. */
int mc_kv_log_check_open(struct mc_kv_log *log, const struct mc_kv_log_mark *from,
	void (*bad)(void *ctx, const struct mc_kv_meta *meta, const struct mc_kv_loc *loc),
	void *ctx, struct mc_kv_log_check **ret);
void mc_kv_log_check_close(struct mc_kv_log_check *c); /* NULL allowed */
/* [blocks] The next piece: about 1 MiB, or one record of up to 8 MiB. 0; -ENOENT: that
 * was all; -EAGAIN: recovery is not through; -ENOMEM. */
int mc_kv_log_check_next(struct mc_kv_log_check *c, struct mc_kv_log_checked *sum);
/* What comes next. */
void mc_kv_log_check_mark(const struct mc_kv_log_check *c, struct mc_kv_log_mark *ret);
