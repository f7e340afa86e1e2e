/* Checksums: CRC32C for blocks (ISA-L), SHA-256 for chunks and identities (OpenSSL EVP). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MC_SHA256_SIZE 32
#define MC_SHA256_HEX 64 /* characters, without the terminating NUL */

/*
 * CRC32C (Castagnoli, RFC 3720 B.4) of len bytes, continuing from crc; start with 0.
 * mc_crc32c(0, "123456789", 9) == 0xe3069283.
 */
uint32_t mc_crc32c(uint32_t crc, const void *buf, size_t len);

/* SHA-256 of one buffer. 0, or -ENOMEM. */
int mc_sha256(const void *buf, size_t len, uint8_t ret_digest[MC_SHA256_SIZE]);

/* Incremental SHA-256; one owner, reusable after final. */
struct mc_sha256;
int mc_sha256_open(struct mc_sha256 **ret);
void mc_sha256_close(struct mc_sha256 *h); /* NULL allowed */
int mc_sha256_update(struct mc_sha256 *h, const void *buf, size_t len);
/* Writes the digest and starts anew. */
int mc_sha256_final(struct mc_sha256 *h, uint8_t ret_digest[MC_SHA256_SIZE]);

/* Lower-case hex; out holds 2 * len + 1 bytes. */
void mc_hex_encode(const uint8_t *in, size_t len, char *out);
/* Strict: exactly 2 * len lower-case hex digits, then NUL. 0 or -EINVAL. */
int mc_hex_decode(const char *in, uint8_t *out, size_t len);
