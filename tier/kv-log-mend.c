/*
 * The tail first: until the header is written the record is as bad as it was. Sealed segments have
 * no other writer, and dead records behind this one are nobody's.
 */
#include "tier/kv-log-mend.h"

#include "tier/cleanup.h"
#include "tier/io.h"

#include <stdlib.h>
#include <string.h>

/* len bytes at off of the segment, through whole pages. */
static int patch(const struct mc_kv_log *log, const struct mc_kv_place *place, uint64_t off,
	const void *bytes, uint64_t len)
{
	uint64_t from = off / MC_KV_ALIGN * MC_KV_ALIGN;
	uint64_t span = mc_kv_up(off + len, MC_KV_ALIGN) - from;
	cleanup_free unsigned char *buf = aligned_alloc(MC_KV_ALIGN, span);
	int r;

	if (buf == NULL)
		return -ENOMEM;
	r = mc_io_read_full(log->io, place->fd, buf, span, place->at + from);
	if (r != 0)
		return r;
	memcpy(buf + (off - from), bytes, len);
	return mc_io_write_full(log->io, place->fd, buf, span, place->at + from);
}

int mc_kv_record_mend(struct mc_kv_log *log, uint32_t slot, uint64_t room)
{
	const struct mc_kv_entry *e = mc_kv_table_get(&log->table, slot);
	const struct mc_kv_segment *seg = mc_kv_segment_get(log, e->segment);
	uint64_t crc_len = 4 * (uint64_t)e->n_crc, least = MC_KV_HEADER + e->size + crc_len;
	size_t key_len = e->key_len;
	struct mc_kv_meta m = mc_kv_entry_meta(e);
	struct mc_kv_loc loc = mc_kv_entry_loc(e);
	cleanup_free unsigned char *tail = malloc(key_len + crc_len + 1);
	unsigned char header[MC_KV_HEADER];
	int r;

	if (tail == NULL)
		return -ENOMEM;
	if (room < least)
		return -ENOSPC;
	if (key_len > room - least)
		key_len = room - least;
	memcpy(tail, m.key, key_len);
	tail[key_len] = '\0';
	m.key = (const char *)tail;
	mc_kv_record_header(log, &m, &loc, header);
	memcpy(tail + key_len, m.crc, crc_len);
	r = patch(log, &seg->place, e->off + MC_KV_HEADER + e->size, tail, key_len + crc_len);
	return r == 0 ? patch(log, &seg->place, e->off, header, sizeof(header)) : r;
}
