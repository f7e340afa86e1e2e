/*
 * The records of a segment in the order in which they lie there, through large reads: gaps that are
 * worth less than a read are read, too.
 */
#include "tier/kv-log-scan.h"

#include "tier/cleanup.h"

#include <errno.h>
#include <stdlib.h>

#define GAP (UINT64_C(256) << 10) /* bytes: a disk reads that in the time of a request */

struct walk {
	const struct mc_kv_scan *scan;
	uint32_t *slots; /* owned by the caller, by offset */
	size_t n;
	uint64_t base, limit; /* of the file: where the segment begins; its bytes */
	/* What is asked for. */
	size_t ask;             /* the first one that is not asked for whole */
	uint64_t from, run_end; /* the run being asked for; equal: none */
	/* What came. */
	size_t at;
	bool begun;
	struct mc_kv_judge check;
};

static const struct mc_kv_entry *entry(const struct walk *w, size_t i)
{
	return mc_kv_table_get(&w->scan->log->table, w->slots[i]);
}

/* The most that it may take: a record's header says how long its key was. */
static uint64_t end_of(const struct walk *w, size_t i)
{
	const struct mc_kv_entry *e = entry(w, i);
	uint64_t end = e->off + e->size + MC_KV_HEADER + 4 * (uint64_t)e->n_crc + MC_KV_KEY_MAX;

	return end < w->limit ? end : w->limit;
}

/* ---- asking */

static bool next_run(struct walk *w)
{
	if (w->ask == w->n)
		return false;
	w->from = entry(w, w->ask)->off / MC_KV_ALIGN * MC_KV_ALIGN;
	w->run_end = end_of(w, w->ask++);
	while (w->ask < w->n && entry(w, w->ask)->off <= w->run_end + GAP) {
		uint64_t end = end_of(w, w->ask++);

		if (end > w->run_end)
			w->run_end = end;
	}
	w->run_end = mc_kv_up(w->run_end, MC_KV_ALIGN);
	return true;
}

static bool next_piece(void *ctx, uint64_t *ret_off, uint32_t *ret_len)
{
	struct walk *w = ctx;

	while (w->from >= w->run_end)
		if (!next_run(w))
			return false;
	*ret_off = w->base + w->from;
	*ret_len = w->run_end - w->from < MC_AHEAD_PIECE ? (uint32_t)(w->run_end - w->from)
							 : MC_AHEAD_PIECE;
	w->from += *ret_len;
	return true;
}

/* ---- what came */

static void judge(struct walk *w)
{
	const struct mc_kv_entry *e = entry(w, w->at);
	struct mc_kv_bad b = {.slot = w->slots[w->at],
		.wrong = mc_kv_judge_end(&w->check),
		.block = w->check.bad_block,
		.room = w->limit - e->off};

	if (w->at + 1 < w->n)
		b.room = entry(w, w->at + 1)->off - e->off;
	w->scan->judged(w->scan->ctx, &b, mc_kv_space(e->size, e->n_crc, e->segment));
	w->at++;
	w->begun = false;
}

static void begin(struct walk *w)
{
	mc_kv_judge_begin(&w->check, w->scan->log, entry(w, w->at));
	w->begun = true;
}

static bool is_over(const struct walk *w)
{
	return w->check.pos >= mc_kv_judge_length(&w->check);
}

static void take_piece(void *ctx, uint64_t off, const void *buf, uint32_t len, int res)
{
	struct walk *w = ctx;
	uint64_t at = off - w->base, end = at + len;

	(void)res;
	while (w->at < w->n && at < end) {
		uint64_t want = entry(w, w->at)->off + (w->begun ? w->check.pos : 0), took;

		if (want >= end)
			return;
		if (!w->begun)
			begin(w);
		if (want < at) { /* it overlaps the one before, or the file ended */
			judge(w);
			continue;
		}
		took = mc_kv_judge_feed(&w->check,
			buf != NULL ? (const unsigned char *)buf + (want - (off - w->base)) : NULL,
			end - want);
		at = want + took;
		if (is_over(w))
			judge(w);
	}
}

static void read_all(struct walk *w, int fd)
{
	const struct mc_ahead_user user = {.next = next_piece, .take = take_piece, .ctx = w};

	mc_ahead_read(w->scan->ahead, fd, &user);
	while (w->at < w->n) {
		if (!w->begun)
			begin(w);
		judge(w);
	}
}

/* ---- the doors */

static int by_offset(const void *a, const void *b, void *ctx)
{
	const struct mc_kv_table *t = ctx;
	uint64_t x = mc_kv_table_get(t, *(const uint32_t *)a)->off;
	uint64_t y = mc_kv_table_get(t, *(const uint32_t *)b)->off;

	return x < y ? -1 : x > y;
}

int mc_kv_scan_segment(const struct mc_kv_scan *s, const struct mc_kv_segment *seg)
{
	struct mc_kv_table *t = &s->log->table;
	struct walk w = {.scan = s, .base = seg->place.at, .limit = seg->floor->segment_bytes};
	cleanup_free uint32_t *slots = NULL;

	for (uint32_t at = seg->head; at != 0; at = mc_kv_table_get(t, at)->seg_next)
		w.n++;
	slots = calloc(w.n + 1, sizeof(*slots));
	if (slots == NULL)
		return -ENOMEM;
	w.n = 0;
	for (uint32_t at = seg->head; at != 0; at = mc_kv_table_get(t, at)->seg_next)
		slots[w.n++] = at;
	qsort_r(slots, w.n, sizeof(*slots), by_offset, t);
	w.slots = slots;
	read_all(&w, seg->place.fd);
	return 0;
}
