/*
 * The superblock of a block tier: what a device or file holds, and that it is ours. Two copies; the
 * rest of the first MiB is for probing and left alone. Formats: docs/FORMAT.md. Who calls:
 * kv-store-device.c, the commands.
 */
#pragma once

#include "tier/error.h"

#include <stdbool.h>
#include <stdint.h>

struct mc_io;

#define MC_BLOCK_PROBE_AT (UINT64_C(256) << 10) /* bytes: the page that a probe writes */

struct mc_block_super {
	uint8_t uuid[16]; /* of the store */
	uint64_t bytes;   /* of the device that are used */
	uint64_t segment_bytes,
		n_segments; /* segment n lies at segments_at + (n - 1) × its bytes */
	uint64_t segments_at;
	uint64_t journal_at, journal_bytes;
	uint8_t above[16]; /* uuid of the KV log whose lower floor it is; zeros: none */
};

struct mc_block_dev {
	const struct mc_io *io; /* borrowed */
	int fd;                 /* owned */
	bool direct;            /* O_DIRECT */
	bool is_device;         /* else a file */
	uint64_t bytes;
};

/* Opened for us alone: -EBUSY when it is mounted, or in use by another daemon. bytes > 0: a file is
 * made at least so large. */
int mc_block_dev_open(const char *path, const struct mc_io *io, uint64_t bytes,
	struct mc_block_dev *ret, struct mc_err *err);
void mc_block_dev_close(struct mc_block_dev *d);
/* [at, at + bytes) is of no use any more. Failures do not matter. */
void mc_block_dev_discard(const struct mc_block_dev *d, uint64_t at, uint64_t bytes);

/* Makes the damaged one of two copies anew, or, with ret_bad, only counts it. -EMEDIUMTYPE nothing
 * of ours, -EPROTONOSUPPORT a newer format, -ENOSPC the device is smaller than it was, -EIO. */
int mc_block_super_read(const struct mc_block_dev *d, const char *path, unsigned *ret_bad,
	struct mc_block_super *ret, struct mc_err *err);

/* It belongs below that log from now on. *s is what was read. */
int mc_block_super_bind(
	const struct mc_block_dev *d, struct mc_block_super *s, const uint8_t above[16]);
/* Whether anything was written to the area of its journal since it was formatted. 0, 1, -errno. */
int mc_block_super_used(const struct mc_block_dev *d, const struct mc_block_super *s);

struct mc_block_format {
	const char *path;
	const struct mc_io *io; /* NULL = the real one */
	uint64_t bytes;         /* to use; 0 = all. A file is made at least so large */
	uint64_t segment_bytes; /* 0 = by size */
	bool force;             /* whatever lies there */
};
/*
 * Makes path an empty block tier. -EBUSY it is in use; -EEXIST something lies there that has a
 * signature, ours included; -ENOSPC it is too small.
 */
int mc_block_format(const struct mc_block_format *f, struct mc_err *err);
