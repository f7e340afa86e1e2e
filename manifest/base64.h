/* Base64 (RFC 4648, section 4) with padding, strict. */
#pragma once

#include <stddef.h>
#include <stdint.h>

static inline size_t mc_base64_len(size_t bytes)
{
	return (bytes + 2) / 3 * 4;
}

/* Writes mc_base64_len(len) characters and no NUL. */
void mc_base64_encode(const uint8_t *in, size_t len, char *out);
/* Exactly len bytes from exactly mc_base64_len(len) characters; unused bits zero. 0 or -EINVAL. */
int mc_base64_decode(const char *in, size_t in_len, uint8_t *out, size_t len);
