/* CRC32C through ISA-L, SHA-256 through OpenSSL's EVP, strict hex. */
#include "tier/digest.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>

#include <isa-l/crc.h>

struct mc_sha256 {
	EVP_MD_CTX *ctx; /* owned */
};

/*
 * ISA-L leaves the upper halves of the vector registers in use, after which the SSE code of the
 * SHA-256 that follows runs a fifth slower.
 */
static void end_vectors(void)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx"))
		__asm__ volatile("vzeroupper" ::
					 : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
				 "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13",
				 "xmm14", "xmm15");
#endif
}

/* ISA-L's crc32_iscsi takes an int length and neither inverts on entry nor on exit. */
uint32_t mc_crc32c(uint32_t crc, const void *buf, size_t len)
{
	const unsigned char *p = buf;
	uint32_t c = ~crc;

	while (len > 0) {
		size_t n = len < (1u << 30) ? len : (1u << 30);

		c = crc32_iscsi((unsigned char *)p, (int)n, c);
		p += n;
		len -= n;
	}
	end_vectors();
	return ~c;
}

int mc_sha256(const void *buf, size_t len, uint8_t ret_digest[MC_SHA256_SIZE])
{
	unsigned int n = MC_SHA256_SIZE;

	if (EVP_Digest(buf, len, ret_digest, &n, EVP_sha256(), NULL) != 1)
		return -ENOMEM;
	return 0;
}

int mc_sha256_open(struct mc_sha256 **ret)
{
	struct mc_sha256 *h = calloc(1, sizeof(*h));

	if (h == NULL)
		return -ENOMEM;
	h->ctx = EVP_MD_CTX_new();
	if (h->ctx == NULL || EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL) != 1) {
		mc_sha256_close(h);
		return -ENOMEM;
	}
	*ret = h;
	return 0;
}

void mc_sha256_close(struct mc_sha256 *h)
{
	if (h == NULL)
		return;
	EVP_MD_CTX_free(h->ctx);
	free(h);
}

int mc_sha256_update(struct mc_sha256 *h, const void *buf, size_t len)
{
	return EVP_DigestUpdate(h->ctx, buf, len) == 1 ? 0 : -EIO;
}

int mc_sha256_final(struct mc_sha256 *h, uint8_t ret_digest[MC_SHA256_SIZE])
{
	if (EVP_DigestFinal_ex(h->ctx, ret_digest, NULL) != 1)
		return -EIO;
	return EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL) == 1 ? 0 : -ENOMEM;
}

void mc_hex_encode(const uint8_t *in, size_t len, char *out)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < len; i++) {
		out[2 * i] = digits[in[i] >> 4];
		out[2 * i + 1] = digits[in[i] & 15];
	}
	out[2 * len] = '\0';
}

static int nibble(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

int mc_hex_decode(const char *in, uint8_t *out, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		int hi = nibble(in[2 * i]);
		int lo = hi < 0 ? -1 : nibble(in[2 * i + 1]);

		if (lo < 0)
			return -EINVAL;
		out[i] = (uint8_t)(hi << 4 | lo);
	}
	return in[2 * len] == '\0' ? 0 : -EINVAL;
}
