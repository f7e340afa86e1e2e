/* Joining CRC32C values of neighbouring ranges, so that ranges can be checksummed in any order. */
#pragma once

#include <stdint.h>

/* CRC32C of A ‖ B from those of A and of B, which is len_b bytes long. */
uint32_t mc_crc32c_join(uint32_t crc_a, uint32_t crc_b, uint64_t len_b);
/* CRC32C of A ‖ len zero bytes; crc_a 0 = only zeros. */
uint32_t mc_crc32c_zeros(uint32_t crc_a, uint64_t len);
