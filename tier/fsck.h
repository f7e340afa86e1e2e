/*
 * Checking what the local tiers left in their directory, without a daemon: the checkpoint cache
 * (STORE, journal/, images/, held/) and the KV log. Sizes and capacities never change.
 */
#pragma once

#include "tier/error.h"

#include <stdbool.h>
#include <stdint.h>

struct mc_io;

enum mc_fsck_kind {
	MC_FSCK_DAMAGE,   /* bytes are missing or wrong; there is another copy, or can be */
	MC_FSCK_LOST,     /* an object whose last copy is damaged */
	MC_FSCK_LEFTOVER, /* a file that nobody owns, as an interrupted daemon leaves them */
};

struct mc_fsck_opts {
	const char *dir;   /* borrowed; or the device or file of a block tier */
	const char *below; /* borrowed: the block tier below dir; NULL: what lies there stays */
	const struct mc_io *io; /* borrowed; NULL = the real one */
	bool repair; /* what is damaged and what nobody owns goes; else nothing changes */
	/* From the caller's thread; both may be NULL. text names file, place and damage. */
	void (*progress)(void *ctx, uint64_t bytes_done, uint64_t bytes_total);
	void (*find)(void *ctx, enum mc_fsck_kind kind, const char *text);
	void *ctx;
};

struct mc_fsck_result {
	uint64_t images, blocks; /* of the checkpoint cache, looked at */
	uint64_t objects;        /* of the KV log, looked at */
	uint64_t bytes;          /* of both */
	uint64_t damaged;        /* places, told to find */
	uint64_t bad_blocks, bad_objects;
	uint64_t lost; /* of bad_objects: without a copy on remotes */
	uint64_t leftovers, leftover_bytes;
	bool unseen;     /* data of the directory lies on a block tier that was not given */
	bool unfinished; /* something could not be looked at, or not be repaired; told to find */
};

/*
 * 0 when it came to an end, whatever it found. -EBUSY a process uses the directory, -ENOENT it
 * holds no tier, -errno; err has the text. The locks are held meanwhile.
 */
int mc_fsck(const struct mc_fsck_opts *opts, struct mc_fsck_result *ret, struct mc_err *err);
