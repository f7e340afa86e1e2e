/* Sizes as people write them: 4GiB, 512MiB, 64K, 1TB or plain bytes. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * Units are binary (KiB, MiB, GiB, TiB, PiB, also K, M, G, T, P) or decimal (kB, MB, GB, TB, PB);
 * case does not matter, a fraction such as 1.5GiB is allowed where a unit follows. 0, -EINVAL for
 * anything else, -ERANGE when the value does not fit 64 bits.
 */
int mc_size_parse(const char *text, uint64_t *ret_bytes);

#define MC_SIZE_TEXT 24
/* "512 B", "1.5 MiB", "4 GiB"; at most three significant decimals before the unit changes. */
void mc_size_format(uint64_t bytes, char out[MC_SIZE_TEXT]);

/* "512", "1536KiB", "4GiB": exact, in the largest unit that says it, to be parsed again. */
void mc_size_exact(uint64_t bytes, char out[MC_SIZE_TEXT]);

/* "DIR" or "DIR,SIZE": what follows the last comma is a size. *ret_dir: length of DIR in bytes;
 * *ret_bytes 0 without a size. -EINVAL: no directory, or no size behind the comma. */
int mc_place_parse(const char *text, size_t *ret_dir, uint64_t *ret_bytes);
