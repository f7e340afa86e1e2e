/* The parts of a record one after another, however the bytes are cut. */
#include "tier/kv-log-judge.h"

#include "tier/digest.h"

#include <string.h>

#define MIB (UINT64_C(1) << 20)

void mc_kv_judge_begin(
	struct mc_kv_judge *c, const struct mc_kv_log *log, const struct mc_kv_entry *e)
{
	*c = (struct mc_kv_judge){.log = log, .entry = e, .bad_block = UINT32_MAX};
	/* Otherwise the journal contradicts itself, and nothing can be said of the bytes. */
	if (e->n_crc != (e->size + MIB - 1) / MIB)
		c->bad_block = 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t feed_header(struct mc_kv_judge *c, const unsigned char *buf, uint64_t len)
{
	uint64_t n = least(len, MC_KV_HEADER - c->pos);
	struct mc_kv_loc loc = mc_kv_entry_loc(c->entry);

	memcpy(c->header + c->pos, buf, n);
	if (c->pos + n < MC_KV_HEADER)
		return n;
	c->header_bad =
		mc_kv_record_check(c->log, c->header, &loc, c->entry->version, c->entry->size) != 0;
	if (!c->header_bad)
		c->tail = mc_kv_record_tail(c->header, &c->tail_crc);
	if (!c->header_bad && c->tail < 4 * (uint64_t)c->entry->n_crc)
		c->header_bad = true;
	return n;
}

/* at: of the payload. */
static uint64_t feed_payload(
	struct mc_kv_judge *c, const unsigned char *buf, uint64_t len, uint64_t at)
{
	uint64_t end = least((at / MIB + 1) * MIB, c->entry->size), n = least(len, end - at);

	if (at % MIB == 0)
		c->crc = 0;
	c->crc = mc_crc32c(c->crc, buf, n);
	if (at + n == end && c->bad_block == UINT32_MAX && c->crc != c->entry->crc[at / MIB])
		c->bad_block = (uint32_t)(at / MIB);
	return n;
}

static uint64_t feed_tail(
	struct mc_kv_judge *c, const unsigned char *buf, uint64_t len, uint64_t at)
{
	uint64_t n = least(len, c->tail - at);

	if (at == 0)
		c->crc = 0;
	c->crc = mc_crc32c(c->crc, buf, n);
	if (at + n == c->tail)
		c->tail_bad = c->crc != c->tail_crc;
	return n;
}

uint64_t mc_kv_judge_length(const struct mc_kv_judge *c)
{
	return MC_KV_HEADER + c->entry->size + c->tail;
}

uint64_t mc_kv_judge_feed(struct mc_kv_judge *c, const void *buf, uint64_t len)
{
	const uint64_t front = MC_KV_HEADER;
	uint64_t done = 0;

	if (buf == NULL) {
		c->unreadable = true;
		done = least(len, mc_kv_judge_length(c) - c->pos);
		c->pos += done;
	}
	while (buf != NULL && done < len && c->pos < mc_kv_judge_length(c)) {
		const unsigned char *p = (const unsigned char *)buf + done;
		uint64_t n;

		if (c->pos < front)
			n = feed_header(c, p, len - done);
		else if (c->pos - front < c->entry->size)
			n = feed_payload(c, p, len - done, c->pos - front);
		else
			n = feed_tail(c, p, len - done, c->pos - front - c->entry->size);
		c->pos += n;
		done += n;
	}
	return done;
}

enum mc_kv_wrong mc_kv_judge_end(const struct mc_kv_judge *c)
{
	if (c->unreadable)
		return MC_KV_UNREADABLE;
	if (c->bad_block != UINT32_MAX || c->pos < MC_KV_HEADER + c->entry->size)
		return MC_KV_BAD_PAYLOAD;
	if (c->header_bad)
		return MC_KV_BAD_HEADER;
	return c->tail_bad || c->pos < mc_kv_judge_length(c) ? MC_KV_BAD_TAIL : MC_KV_WHOLE;
}
