/* UTF-8 validation after the table of RFC 3629, section 4. */
#include "manifest/utf8.h"

#include <stdint.h>
#include <string.h>

/* Length of the sequence that b starts, and the range its second byte must lie in; 0 = no start. */
static size_t sequence(uint8_t b, uint8_t *lo, uint8_t *hi)
{
	*lo = 0x80;
	*hi = 0xbf;
	if (b >= 0xc2 && b <= 0xdf)
		return 2;
	if (b >= 0xe0 && b <= 0xef) {
		if (b == 0xe0)
			*lo = 0xa0;
		if (b == 0xed)
			*hi = 0x9f;
		return 3;
	}
	if (b >= 0xf0 && b <= 0xf4) {
		if (b == 0xf0)
			*lo = 0x90;
		if (b == 0xf4)
			*hi = 0x8f;
		return 4;
	}
	return 0;
}

bool mc_utf8_valid(const void *text, size_t len, size_t *ret_at)
{
	const uint8_t *p = text;
	size_t i = 0;

	while (i < len) {
		uint64_t word;
		uint8_t lo, hi;
		size_t n, k;

		if (len - i >= sizeof(word)) {
			memcpy(&word, p + i, sizeof(word));
			if ((word & UINT64_C(0x8080808080808080)) == 0) {
				i += sizeof(word);
				continue;
			}
		}
		if (p[i] < 0x80) {
			i++;
			continue;
		}
		n = sequence(p[i], &lo, &hi);
		k = n > 1 && n <= len - i && p[i + 1] >= lo && p[i + 1] <= hi ? 2 : n + 1;
		while (k < n && (p[i + k] & 0xc0) == 0x80)
			k++;
		if (n == 0 || k != n) {
			if (ret_at != NULL)
				*ret_at = i;
			return false;
		}
		i += n;
	}
	return true;
}
