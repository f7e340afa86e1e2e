/* Keys of the records of blocks: "/", the index, some of the digest, the numbers in base 64. */
#include "tier/block-key.h"

#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static void put_digits(char *to, unsigned n, uint64_t v)
{
	for (unsigned i = 0; i < n; i++)
		to[i] = digits[v >> 6 * (n - 1 - i) & 63];
}

void mc_block_key(const uint8_t digest[16], uint64_t block, char ret[MC_BLOCK_KEY])
{
	uint64_t v;

	memcpy(&v, digest, sizeof(v));
	ret[0] = '/';
	put_digits(ret + 1, 6, block);
	put_digits(ret + 7, 10, v >> 4);
	ret[17] = '\0';
}

bool mc_block_key_parse(const char *key, const uint8_t digest[16], uint64_t *ret_block)
{
	char again[MC_BLOCK_KEY];
	uint64_t block = 0;

	if (strlen(key) != MC_BLOCK_KEY - 1)
		return false;
	for (unsigned i = 1; i < 7; i++) {
		const char *at = strchr(digits, key[i]);

		if (at == NULL)
			return false;
		block = block << 6 | (uint64_t)(at - digits);
	}
	mc_block_key(digest, block, again);
	*ret_block = block;
	return block < MC_BLOCK_KEYS && strcmp(key, again) == 0;
}
