/*
 * A source is what the store asks where a file's bytes come from and what they must look like.
 * manifest/ implements it (checkpoint files, later views); tier/ only calls it.
 */
#pragma once

#include "tier/digest.h"
#include "tier/plan.h"

/* Identity of a file: the same everywhere, shared by revisions that hold the same bytes. */
struct mc_file_id {
	uint8_t digest[MC_SHA256_SIZE];
	uint64_t size; /* bytes */
};

struct mc_source;

struct mc_source_ops {
	/*
	 * Appends the pieces of [off, off + len), which lies inside the file, to an initialised
	 * empty plan. No I/O; callable from any thread at once. 0 or -errno (-ENOMEM, -EBADMSG).
	 */
	int (*plan)(const struct mc_source *s, uint64_t off, uint32_t len, struct mc_plan *plan);
	/*
	 * CRC32C of the block's bytes as they must be. Pure; any thread. NULL: the file is derived
	 * from other files of the store (its plans have FILE pieces, whose bytes are verified in
	 * their own files); the block's CRC is then what its synthesis gives.
	 */
	uint32_t (*block_crc)(const struct mc_source *s, uint64_t block);
	/*
	 * First data at or after off: [*ret_start, *ret_end), *ret_end > *ret_start, both ≤ size.
	 * -ENXIO when only hole follows. Granularity is the byte; a hole is what the plan calls
	 * one.
	 */
	int (*next_data)(
		const struct mc_source *s, uint64_t off, uint64_t *ret_start, uint64_t *ret_end);
	/* Drops the reference that the holder owns. */
	void (*release)(struct mc_source *s);
	/*
	 * Nobody recorded checksums, though the bytes lie in objects of the remote: the objects'
	 * guards are all that tells a change. block_crc is NULL, the block's CRC that of what came.
	 */
	bool unchecked;
};

struct mc_source {
	const struct mc_source_ops *ops;
	struct mc_file_id id;
};
