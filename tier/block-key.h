/* The key under which the log has a block of a file (docs/FORMAT.md). Who calls: block-cache.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define MC_BLOCK_KEY 18                   /* bytes of a key, with its NUL */
#define MC_BLOCK_KEYS (UINT64_C(1) << 26) /* blocks of a file that may have one: 64 TiB */

void mc_block_key(const uint8_t digest[16], uint64_t block, char ret[MC_BLOCK_KEY]);
/* False: not the key of a block of this file. */
bool mc_block_key_parse(const char *key, const uint8_t digest[16], uint64_t *ret_block);
