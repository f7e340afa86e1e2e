/*
 * Reads of objects in parts: one read for each part that the range touches. And where they lie. A
 * part that moves between the look at its place and the read is looked for again.
 */
#include "tier/kv-log-impl.h"

#include <errno.h>
#include <stdlib.h>

#define TRIES 8u /* a part that moved so often meanwhile does not exist */

struct sub {
	struct mc_kv_log_read read; /* first */
	struct split *split;
	uint64_t part;
	unsigned tries;
};

struct split {
	struct mc_kv_log *log;
	struct mc_kv_log_read *whole;
	unsigned left; /* atomic */
	int res;       /* atomic: first error */
	struct sub subs[];
};

static int find_part(struct split *s, struct sub *sub)
{
	struct mc_kv_log *log = s->log;
	const struct mc_kv_entry *e;
	char key[MC_KV_PART_KEY];
	int r = -ESTALE;

	mc_kv_part_key(s->whole->version, s->whole->loc.generation, sub->part, key);
	mc_mutex_lock(&log->lock);
	e = mc_kv_table_get(&log->table, mc_kv_table_find(&log->table, MC_KV_PART, key));
	if (e != NULL) {
		sub->read.loc = mc_kv_entry_loc(e);
		sub->read.size = e->size;
		r = sub->read.off + sub->read.len <= e->size ? 0 : -EBADMSG;
	}
	mc_mutex_unlock(&log->lock);
	return r;
}

static void end_sub(struct sub *sub, int res)
{
	struct split *s = sub->split;
	struct mc_kv_log_read *whole = s->whole;
	int expected = 0;

	if (res < 0)
		__atomic_compare_exchange_n(
			&s->res, &expected, res, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	if (__atomic_sub_fetch(&s->left, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	res = __atomic_load_n(&s->res, __ATOMIC_ACQUIRE);
	free(s);
	whole->done(whole, res);
}

static void start_sub(struct sub *sub);

static void sub_done(struct mc_kv_log_read *read, int res)
{
	struct sub *sub = (struct sub *)read;

	if (res == -ESTALE && ++sub->tries < TRIES)
		start_sub(sub);
	else
		end_sub(sub, res);
}

static void start_sub(struct sub *sub)
{
	int r = find_part(sub->split, sub);

	if (r == 0)
		mc_kv_log_read(sub->split->log, &sub->read);
	else
		end_sub(sub, r);
}

void mc_kv_split_read(struct mc_kv_log *log, struct mc_kv_log_read *r)
{
	uint64_t bytes = r->loc.off, first, n;
	struct split *s;

	if (bytes == 0) {
		r->done(r, -ESTALE);
		return;
	}
	first = r->off / bytes;
	n = (r->off + r->len - 1) / bytes - first + 1;
	s = calloc(1, sizeof(*s) + n * sizeof(s->subs[0]));
	if (s == NULL) {
		r->done(r, -ENOMEM);
		return;
	}
	s->log = log;
	s->whole = r;
	s->left = (unsigned)n;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t start = (first + i) * bytes;
		uint64_t from = start > r->off ? start : r->off;
		uint64_t end = r->off + r->len, to = end < start + bytes ? end : start + bytes;
		struct sub *sub = &s->subs[i];

		sub->split = s;
		sub->part = first + i;
		sub->read = (struct mc_kv_log_read){.off = from - start,
			.len = (uint32_t)(to - from),
			.buf = (char *)r->buf + (from - r->off),
			.done = sub_done};
		__builtin_memcpy(sub->read.version, r->version, sizeof(r->version));
	}
	for (uint64_t i = 0; i < n; i++) /* the last one may free s */
		start_sub(&s->subs[i]);
}

uint64_t mc_kv_log_below(struct mc_kv_log *log, const uint8_t version[16],
	const struct mc_kv_loc *loc, uint64_t size, bool *ret_any)
{
	char key[MC_KV_PART_KEY];
	uint64_t bytes = 0;

	*ret_any = loc->segment != MC_KV_SPLIT && (loc->segment & MC_KV_BELOW) != 0;
	if (loc->segment != MC_KV_SPLIT)
		return *ret_any ? size : 0;
	mc_mutex_lock(&log->lock);
	for (uint64_t i = 0; loc->off > 0 && i * loc->off < size; i++) {
		const struct mc_kv_entry *e;

		mc_kv_part_key(version, loc->generation, i, key);
		e = mc_kv_table_get(&log->table, mc_kv_table_find(&log->table, MC_KV_PART, key));
		if (e != NULL && (e->segment & MC_KV_BELOW) != 0)
			bytes += e->size;
	}
	mc_mutex_unlock(&log->lock);
	*ret_any = bytes > 0;
	return bytes;
}
