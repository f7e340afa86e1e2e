/* The digest that identifies a file's content. */
#include "manifest/file-digest.h"

#include <endian.h>
#include <string.h>

int mc_file_digest_init(struct mc_file_digest *d)
{
	return mc_sha256_open(&d->sha);
}

void mc_file_digest_done(struct mc_file_digest *d)
{
	mc_sha256_close(d->sha);
	d->sha = NULL;
}

int mc_file_digest_chunk(
	struct mc_file_digest *d, uint64_t len, const uint8_t sha256[MC_SHA256_SIZE])
{
	uint8_t row[sizeof(uint64_t) + MC_SHA256_SIZE];
	uint64_t le = htole64(len);

	memcpy(row, &le, sizeof(le));
	memcpy(row + sizeof(le), sha256, MC_SHA256_SIZE);
	return mc_sha256_update(d->sha, row, sizeof(row));
}

int mc_file_digest_hole(struct mc_file_digest *d, uint64_t len)
{
	static const uint8_t zeros[MC_SHA256_SIZE];

	return mc_file_digest_chunk(d, len, zeros);
}

int mc_file_digest_final(struct mc_file_digest *d, uint8_t ret[MC_SHA256_SIZE])
{
	return mc_sha256_final(d->sha, ret);
}

uint32_t mc_crc_of_zeros(uint32_t len)
{
	static const uint8_t zeros[4096];
	uint32_t crc = 0;

	while (len > 0) {
		uint32_t n = len < sizeof(zeros) ? len : (uint32_t)sizeof(zeros);

		crc = mc_crc32c(crc, zeros, n);
		len -= n;
	}
	return crc;
}
