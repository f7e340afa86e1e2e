/*
 * The digest that identifies a file's content: SHA-256 over its spans in file order, each as the
 * span's length (u64 little endian) followed by 32 bytes, the SHA-256 of a chunk or zeros for a
 * hole. A file without bytes has the SHA-256 of nothing. The same content on the same chunk grid
 * gives the same digest whether it is stored as chunks or referenced.
 */
#pragma once

#include "tier/digest.h"

#include <stdint.h>

struct mc_file_digest {
	struct mc_sha256 *sha; /* owned */
};

/* 0 or -ENOMEM. A digest is reusable after final. */
int mc_file_digest_init(struct mc_file_digest *d);
void mc_file_digest_done(struct mc_file_digest *d);
int mc_file_digest_chunk(
	struct mc_file_digest *d, uint64_t len, const uint8_t sha256[MC_SHA256_SIZE]);
/* Adjacent holes must have been merged. */
int mc_file_digest_hole(struct mc_file_digest *d, uint64_t len);
int mc_file_digest_final(struct mc_file_digest *d, uint8_t ret[MC_SHA256_SIZE]);

/* CRC32C of len zero bytes, len ≤ MC_BLOCK_SIZE: the checksum of a block that is a hole. */
uint32_t mc_crc_of_zeros(uint32_t len);
