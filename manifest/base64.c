/* Base64 (RFC 4648, section 4) with padding, strict. */
#include "manifest/base64.h"

#include <errno.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void mc_base64_encode(const uint8_t *in, size_t len, char *out)
{
	while (len > 0) {
		size_t n = len < 3 ? len : 3;
		uint32_t v = (uint32_t)in[0] << 16;

		v |= n > 1 ? (uint32_t)in[1] << 8 : 0;
		v |= n > 2 ? in[2] : 0;
		out[0] = digits[v >> 18];
		out[1] = digits[v >> 12 & 63];
		out[2] = n > 1 ? digits[v >> 6 & 63] : '=';
		out[3] = n > 2 ? digits[v & 63] : '=';
		in += n;
		len -= n;
		out += 4;
	}
}

/* 0 .. 63, or -1. */
static int value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+')
		return 62;
	return c == '/' ? 63 : -1;
}

int mc_base64_decode(const char *in, size_t in_len, uint8_t *out, size_t len)
{
	if (len > SIZE_MAX / 2 || in_len != mc_base64_len(len))
		return -EINVAL;
	while (len > 0) {
		size_t n = len < 3 ? len : 3; /* bytes in this group: n + 1 digits */
		uint32_t v = 0;

		for (size_t i = 0; i < 4; i++) {
			int d = i <= n ? value(in[i]) : in[i] == '=' ? 0 : -1;

			if (d < 0)
				return -EINVAL;
			v = v << 6 | (uint32_t)d;
		}
		if ((v & ((1u << (8 * (3 - n))) - 1)) != 0)
			return -EINVAL;
		for (size_t i = 0; i < n; i++)
			out[i] = (uint8_t)(v >> (16 - 8 * i));
		in += 4;
		out += n;
		len -= n;
	}
	return 0;
}
