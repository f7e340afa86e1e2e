/*
 * Reading through the log. Segments go by number, records by their offset: those of a stretch of
 * the segment are noted under the lock, and read a piece at a time. What has left its place
 * meanwhile was verified when it was moved, or is needed no more.
 *
 * Invariants: 1. a segment is read with a reader counted in it, so that it is not reused; 2. what
 * does not verify though the table has it at that place is damaged.
 */
#include "tier/kv-log-check.h"

#include "tier/kv-log-judge.h"

#include "tier/cleanup.h"

#include <stdlib.h>
#include <string.h>

#define STRETCH (UINT64_C(16) << 20) /* bytes of a segment whose records are noted at once */
#define PIECE (UINT64_C(1) << 20)    /* bytes of small records read at once */
/* A record, and what alignment adds at both ends. */
#define BUFFER (MC_KV_RECORD_MAX + 4 * (uint64_t)MC_KV_ALIGN)

struct place {
	uint64_t off, end; /* bytes of the segment, without key and checksums */
	uint32_t slot;
};

struct mc_kv_log_check {
	struct mc_kv_log *log;
	struct mc_kv_log_mark at;
	void (*bad)(void *ctx, const struct mc_kv_meta *meta, const struct mc_kv_loc *loc);
	void *ctx;
	unsigned char *buf;      /* owned, BUFFER bytes; NULL: a read that hangs has it */
	struct place *places;    /* owned, sorted: of the stretch before at.off */
	size_t n, cap, i;        /* i: the next one */
	uint32_t id, generation; /* of the segment when they were noted */
};

/* An object as the table has it, the caller's to free. NULL: no memory. */
static struct mc_kv_entry *copy_locked(const struct mc_kv_entry *e)
{
	size_t len = sizeof(*e) + 4 * (size_t)e->n_crc + e->key_len + 1u;
	struct mc_kv_entry *copy = malloc(len);

	if (copy != NULL)
		memcpy(copy, e, len);
	return copy;
}

/* ---- segments */

static int by_offset(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return x->off < y->off ? -1 : x->off > y->off;
}

static int note_locked(struct mc_kv_log_check *c, const struct mc_kv_entry *e, uint32_t slot)
{
	if (c->n == c->cap) {
		size_t cap = c->cap != 0 ? 2 * c->cap : 256;
		struct place *grown = reallocarray(c->places, cap, sizeof(*grown));

		if (grown == NULL)
			return -ENOMEM;
		c->places = grown;
		c->cap = cap;
	}
	c->places[c->n++] =
		(struct place){.off = e->off, .end = e->off + MC_KV_HEADER + e->size, .slot = slot};
	return 0;
}

/* The records of the next stretch that has any; -ENOENT: the segment has no more. */
static int note_stretch(struct mc_kv_log_check *c)
{
	struct mc_kv_log *log = c->log;
	struct mc_kv_segment *seg;
	uint64_t next = UINT64_MAX;
	int r = 0;

	c->n = c->i = 0;
	mc_mutex_lock(&log->lock);
	seg = c->at.segment < log->n_segs ? log->segs[c->at.segment] : NULL;
	if (seg != NULL) {
		c->id = seg->id;
		c->generation = seg->generation;
	}
	for (uint32_t at = seg != NULL ? seg->head : 0; at != 0;) {
		const struct mc_kv_entry *e = mc_kv_table_get(&log->table, at);

		if (e->off >= c->at.off && e->off < next)
			next = e->off;
		at = e->seg_next;
	}
	for (uint32_t at = next != UINT64_MAX ? seg->head : 0; at != 0 && r == 0;) {
		const struct mc_kv_entry *e = mc_kv_table_get(&log->table, at);

		if (e->off >= next && e->off - next < STRETCH)
			r = note_locked(c, e, at);
		at = e->seg_next;
	}
	mc_mutex_unlock(&log->lock);
	if (r == 0 && next == UINT64_MAX)
		return -ENOENT;
	if (c->n > 0)
		qsort(c->places, c->n, sizeof(*c->places), by_offset);
	return r;
}

/* Counts a reader. False: the segment is not what it was. */
static bool hold_segment(struct mc_kv_log_check *c, struct mc_kv_segment **ret)
{
	struct mc_kv_log *log = c->log;
	bool ok;

	mc_mutex_lock(&log->lock);
	*ret = mc_kv_segment_get(log, c->id);
	ok = *ret != NULL && mc_kv_segment_holds_locked(*ret, c->generation);
	if (ok)
		(*ret)->readers++;
	mc_mutex_unlock(&log->lock);
	return ok;
}

static bool is_aside(struct mc_kv_log_check *c)
{
	struct mc_kv_log *log = c->log;
	const struct mc_kv_segment *seg;
	bool aside;

	mc_mutex_lock(&log->lock);
	seg = mc_kv_segment_get(log, c->id);
	aside = seg != NULL && seg->aside != 0;
	mc_mutex_unlock(&log->lock);
	return aside;
}

static void release_segment(struct mc_kv_log_check *c, struct mc_kv_segment *seg)
{
	struct mc_kv_log *log = c->log;

	mc_mutex_lock(&log->lock);
	if (--seg->readers == 0 && seg->head == 0)
		mc_kv_poke_locked(log);
	mc_mutex_unlock(&log->lock);
}

/* The object of the place, if it still lies there, the caller's to free. 0, -ENOENT, -ENOMEM. */
static int copy_placed(struct mc_kv_log_check *c, const struct place *p, struct mc_kv_entry **ret)
{
	struct mc_kv_log *log = c->log;
	const struct mc_kv_entry *e;
	int r = -ENOENT;

	mc_mutex_lock(&log->lock);
	e = mc_kv_table_get(&log->table, p->slot);
	if (e != NULL && (e->kind == MC_KV_OBJECT || e->kind == MC_KV_PART) &&
		e->segment == c->id && e->generation == c->generation && e->off == p->off &&
		e->off + MC_KV_HEADER + e->size == p->end) {
		*ret = copy_locked(e);
		r = *ret != NULL ? 0 : -ENOMEM;
	}
	mc_mutex_unlock(&log->lock);
	return r;
}

static void found(
	struct mc_kv_log_check *c, const struct mc_kv_entry *e, struct mc_kv_log_checked *sum)
{
	struct mc_kv_log *log = c->log;
	cleanup_free struct mc_kv_entry *whole = NULL;
	struct mc_kv_meta meta;
	struct mc_kv_loc loc;

	mc_mutex_lock(&log->lock);
	log->stats.bad++;
	if (e->kind == MC_KV_PART) {
		const struct mc_kv_entry *of = mc_kv_table_get(
			&log->table, mc_kv_split_find_locked(log, e->version, mc_kv_entry_key(e)));

		whole = of != NULL ? copy_locked(of) : NULL;
	}
	mc_mutex_unlock(&log->lock);
	if (e->kind == MC_KV_PART && whole == NULL)
		return; /* it is gone, or no memory to say so: the next time */
	meta = mc_kv_entry_meta(whole != NULL ? whole : e);
	loc = mc_kv_entry_loc(whole != NULL ? whole : e);
	sum->bad++;
	c->bad(c->ctx, &meta, &loc);
}

/* So much of a segment from off on, into buf. */
static int read_piece(
	struct mc_kv_log_check *c, struct mc_kv_segment *seg, uint64_t off, uint64_t len)
{
	int64_t n;

	if (c->buf == NULL) /* given up with the last piece */
		c->buf = aligned_alloc(MC_KV_ALIGN, BUFFER);
	if (c->buf == NULL)
		return -ENOMEM;
	n = mc_kv_piece_read(c->log, seg, off, (uint32_t)len, &c->buf);
	if (n >= 0 && (uint64_t)n < len)
		memset(c->buf + n, 0, len - (uint64_t)n); /* the file was cut: nothing verifies */
	return n < 0 ? (int)n : 0;
}

/* Looks at places [c->i, end), which lie in buf from start on. */
static int look_at_records(
	struct mc_kv_log_check *c, size_t end, uint64_t start, struct mc_kv_log_checked *sum)
{
	for (; c->i < end; c->i++) {
		const struct place *p = &c->places[c->i];
		cleanup_free struct mc_kv_entry *e = NULL;
		struct mc_kv_judge judge;
		enum mc_kv_wrong wrong;
		int r = copy_placed(c, p, &e);

		c->at.off = p->off + 1;
		if (r == -ENOMEM)
			return r;
		if (r != 0)
			continue;
		sum->records++;
		mc_kv_judge_begin(&judge, c->log, e);
		mc_kv_judge_feed(&judge, c->buf + (p->off - start), p->end - p->off);
		wrong = mc_kv_judge_end(&judge);
		/* Key and checksums behind the payload are not read: the journal has them. */
		if (wrong != MC_KV_WHOLE && wrong != MC_KV_BAD_TAIL)
			found(c, e, sum);
	}
	return 0;
}

/* The next records of the stretch, as many as a piece holds. */
static int check_records(struct mc_kv_log_check *c, struct mc_kv_log_checked *sum)
{
	uint64_t start = c->places[c->i].off / MC_KV_ALIGN * MC_KV_ALIGN, last;
	struct mc_kv_segment *seg;
	size_t end = c->i + 1;
	int r;

	last = c->places[c->i].end;
	while (end < c->n && c->places[end].end - start <= PIECE)
		last = c->places[end++].end;
	if (last - start > BUFFER || !hold_segment(c, &seg)) {
		sum->failed += is_aside(c) ? c->n - c->i : 0;
		c->at.off = c->places[c->n - 1].off + 1;
		c->i = c->n;
		return 0;
	}
	r = read_piece(c, seg, start, last - start);
	if (r == 0) {
		sum->bytes += last - start;
		r = look_at_records(c, end, start, sum);
	} else {
		sum->failed += end - c->i;
		c->at.off = c->places[end - 1].off + 1;
		c->i = end;
		r = 0;
	}
	release_segment(c, seg);
	return r;
}

/* ---- all */

int mc_kv_log_check_open(struct mc_kv_log *log, const struct mc_kv_log_mark *from,
	void (*bad)(void *ctx, const struct mc_kv_meta *meta, const struct mc_kv_loc *loc),
	void *ctx, struct mc_kv_log_check **ret)
{
	struct mc_kv_log_check *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return -ENOMEM;
	*c = (struct mc_kv_log_check){
		.log = log, .bad = bad, .ctx = ctx, .buf = aligned_alloc(MC_KV_ALIGN, BUFFER)};
	if (from != NULL)
		c->at = *from;
	if (c->buf == NULL) {
		free(c);
		return -ENOMEM;
	}
	*ret = c;
	return 0;
}

void mc_kv_log_check_close(struct mc_kv_log_check *c)
{
	if (c == NULL)
		return;
	free(c->places);
	free(c->buf);
	free(c);
}

void mc_kv_log_check_mark(const struct mc_kv_log_check *c, struct mc_kv_log_mark *ret)
{
	*ret = c->at;
}

int mc_kv_log_check_next(struct mc_kv_log_check *c, struct mc_kv_log_checked *sum)
{
	struct mc_kv_log *log = c->log;
	uint32_t n_segs;
	bool ready;
	int r;

	mc_mutex_lock(&log->lock);
	ready = log->replayed && !log->recovering;
	n_segs = log->n_segs;
	r = log->dead != 0 ? -ENOENT : ready ? 0 : -EAGAIN;
	mc_mutex_unlock(&log->lock);
	if (r != 0)
		return r;
	while (c->at.segment < n_segs) {
		if (c->i < c->n)
			return check_records(c, sum);
		r = note_stretch(c);
		if (r == -ENOMEM)
			return r;
		if (r == 0)
			continue;
		c->at.off = 0;
		c->at.segment++;
	}
	return -ENOENT;
}
