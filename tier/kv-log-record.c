/*
 * A record in a segment: header, payload, then key and checksums.
 *
 * The header says everything needed to recognise the record; the payload follows it at once, so
 * that a place and a size are enough to read it. Small records start at multiples of 64 bytes; from
 * 64 KiB on the payload starts at a multiple of 4096, where it can be read without a copy.
 */
#include "tier/kv-log-impl.h"

#include "tier/digest.h"

#include <errno.h>
#include <string.h>

#define RECORD_MAGIC UINT32_C(0x524b434d) /* "MCKR" */

struct mc_kv_header {
	uint32_t magic;
	uint32_t crc; /* CRC32C of the header with this field zero */
	uint8_t store[16];
	uint8_t version[16];
	uint64_t key_hash;
	uint32_t segment, generation;
	uint64_t off; /* of this header in the segment */
	uint64_t size;
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint32_t n_crc;
	uint32_t key_len;
	uint32_t tail_crc; /* CRC32C of key and checksums */
	uint8_t zero[32];
};
_Static_assert(sizeof(struct mc_kv_header) == MC_KV_HEADER, "a header has a fixed size");

static uint32_t header_crc(const struct mc_kv_header *h)
{
	struct mc_kv_header copy = *h;

	copy.crc = 0;
	return mc_crc32c(0, &copy, sizeof(copy));
}

uint64_t mc_kv_record_start(uint64_t at, uint64_t size)
{
	if (size >= MC_KV_ALIGNED_FROM)
		return mc_kv_up(at + MC_KV_HEADER, MC_KV_ALIGN) - MC_KV_HEADER;
	return mc_kv_up(at, 64);
}

uint64_t mc_kv_record_bytes(const struct mc_kv_meta *m)
{
	return MC_KV_HEADER + m->size + strlen(m->key) + 4 * (uint64_t)m->n_crc;
}

void mc_kv_record_header(const struct mc_kv_log *log, const struct mc_kv_meta *m,
	const struct mc_kv_loc *loc, unsigned char out[MC_KV_HEADER])
{
	struct mc_kv_header h = {.magic = RECORD_MAGIC,
		.key_hash = mc_kv_key_hash(m->key),
		.segment = loc->segment,
		.generation = loc->generation,
		.off = loc->off,
		.size = m->size,
		.mtime_s = m->mtime_s,
		.mtime_ns = m->mtime_ns,
		.n_crc = m->n_crc,
		.key_len = (uint32_t)strlen(m->key)};

	memcpy(h.store, log->floors[0].store->uuid, sizeof(h.store));
	memcpy(h.version, m->version, sizeof(h.version));
	h.tail_crc = mc_crc32c(0, m->key, h.key_len);
	h.tail_crc = mc_crc32c(h.tail_crc, m->crc, 4 * (size_t)m->n_crc);
	h.crc = header_crc(&h);
	memcpy(out, &h, sizeof(h));
}

uint64_t mc_kv_record_tail(const void *header, uint32_t *ret_crc)
{
	struct mc_kv_header h;

	memcpy(&h, header, sizeof(h));
	*ret_crc = h.tail_crc;
	return h.key_len + 4 * (uint64_t)h.n_crc;
}

int mc_kv_record_check(const struct mc_kv_log *log, const void *header, const struct mc_kv_loc *loc,
	const uint8_t version[16], uint64_t size)
{
	struct mc_kv_header h;

	memcpy(&h, header, sizeof(h));
	if (h.magic != RECORD_MAGIC || h.crc != header_crc(&h))
		return -EBADMSG;
	if (memcmp(h.store, log->floors[0].store->uuid, sizeof(h.store)) != 0 ||
		h.segment != loc->segment || h.off != loc->off)
		return -EBADMSG;
	if (h.generation != loc->generation || memcmp(h.version, version, 16) != 0 ||
		h.size != size)
		return -ESTALE;
	return 0;
}
