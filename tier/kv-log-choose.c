/* Which segment is reclaimed next: the one that promises most room by what is dead in it and by
 * what the owner says of some of its records; of equals the oldest. */
#include "tier/kv-log-choose.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ASKED 64u   /* segments of which the owner is asked before one is chosen */
#define SAMPLES 32u     /* records asked about in each */
#define SAMPLE_STEP 16u /* of the list, from one to the next */

struct mc_kv_op *mc_kv_copy_op(
	const struct mc_kv_entry *e, uint32_t slot, struct mc_kv_segment *seg)
{
	struct mc_kv_op *op = calloc(1, sizeof(*op));
	size_t crc_len = 4 * (size_t)e->n_crc;
	char *mem = malloc(crc_len + e->key_len + 1u);

	if (op == NULL || mem == NULL) {
		free(op);
		free(mem);
		return NULL;
	}
	memcpy(mem, e->crc, crc_len + e->key_len + 1u);
	op->kind = MC_KV_OP_COPY;
	op->of_part = e->kind == MC_KV_PART;
	op->mem = mem;
	op->meta = mc_kv_entry_meta(e);
	op->meta.crc = (const uint32_t *)(const void *)mem;
	op->meta.key = mem + crc_len;
	op->slot = slot;
	op->from = mc_kv_entry_loc(e);
	op->from_seg = seg;
	return op;
}

struct mc_kv_log_owner mc_kv_owner(struct mc_kv_log *log)
{
	struct mc_kv_log_owner owner;

	mc_mutex_lock(&log->lock);
	owner = log->owner;
	mc_mutex_unlock(&log->lock);
	return owner;
}

static int by_age(const struct mc_kv_candidate *x, const struct mc_kv_candidate *y)
{
	return x->seg->taken < y->seg->taken ? -1 : x->seg->taken > y->seg->taken;
}

/* Of equals the older one: what lies in it is less likely to be wanted soon. */
static int by_dead(const void *a, const void *b)
{
	const struct mc_kv_candidate *x = a, *y = b;

	return x->dead != y->dead ? (x->dead > y->dead ? -1 : 1) : by_age(x, y);
}

static int by_gain(const void *a, const void *b)
{
	const struct mc_kv_candidate *x = a, *y = b;

	return x->gain != y->gain ? (x->gain > y->gain ? -1 : 1) : by_age(x, y);
}

/* All of the floor that could be reclaimed, in *ret, owned by the caller. Their number, or -ENOMEM.
 */
int64_t mc_kv_candidates(
	struct mc_kv_log *log, const struct mc_kv_floor *f, struct mc_kv_candidate **ret)
{
	struct mc_kv_candidate *c;
	size_t n = 0;

	mc_mutex_lock(&log->lock);
	c = calloc(log->n_segs + 1u, sizeof(*c));
	for (uint32_t i = 1; c != NULL && i < log->n_segs; i++) {
		struct mc_kv_segment *seg = log->segs[i];

		if (seg == NULL || seg->floor != f || seg->state != MC_KV_SEG_SEALED ||
			seg->head == 0 || seg->writers != 0 || seg->aside != 0)
			continue;
		c[n].seg = seg;
		c[n].dead = seg->filled > seg->live ? seg->filled - seg->live : 0;
		c[n].gain = c[n].dead;
		n++;
	}
	mc_mutex_unlock(&log->lock);
	*ret = c;
	return c == NULL ? -ENOMEM : (int64_t)n;
}

/* What the owner says of a few records stands for the segment. */
static void estimate(
	struct mc_kv_log *log, struct mc_kv_candidate *c, const struct mc_kv_log_owner *o)
{
	struct mc_kv_op *ops[SAMPLES];
	uint64_t live, asked = 0, unwanted = 0;
	uint32_t at, n = 0;

	mc_mutex_lock(&log->lock);
	live = c->seg->live;
	at = c->seg->head;
	for (unsigned i = 0; i < SAMPLES * SAMPLE_STEP && at != 0; i++) {
		const struct mc_kv_entry *e = mc_kv_table_get(&log->table, at);

		if (i % SAMPLE_STEP == 0 && (ops[n] = mc_kv_copy_op(e, at, c->seg)) != NULL)
			n++;
		at = e->seg_next;
	}
	mc_mutex_unlock(&log->lock);
	for (uint32_t i = 0; i < n; i++) {
		asked += ops[i]->meta.size + 1;
		if (!ops[i]->of_part && !o->keep(o->ctx, ops[i]->meta.key, ops[i]->meta.version))
			unwanted += ops[i]->meta.size + 1;
		mc_kv_op_free(ops[i]);
	}
	if (asked > 0)
		c->gain += (uint64_t)((double)live * ((double)unwanted / (double)asked));
}

/* The best first. Of many, those with the most dead bytes and some of the others, in turn. */
void mc_kv_rank(struct mc_kv_log *log, struct mc_kv_floor *f, struct mc_kv_candidate *c, size_t n)
{
	struct mc_kv_log_owner o = mc_kv_owner(log);
	size_t half = MAX_ASKED / 2;

	qsort(c, n, sizeof(*c), by_dead);
	if (o.keep == NULL)
		return;
	for (size_t i = 0; i < n && i < half; i++)
		estimate(log, &c[i], &o);
	if (n > half)
		for (size_t i = 0; i < half && i < n - half; i++)
			estimate(log, &c[half + (f->asked_from + i) % (n - half)], &o);
	f->asked_from += half;
	qsort(c, n, sizeof(*c), by_gain);
}

/* Whether the lower floor takes what lives in the segment without its spare one, as far as can be
 * told. */
bool mc_kv_fits_below(struct mc_kv_log *log, const struct mc_kv_segment *seg)
{
	const struct mc_kv_floor *f = mc_kv_bottom(log);
	uint64_t room = f->puts.seg != NULL ? f->segment_bytes - f->puts.off : 0;
	uint64_t live;
	uint32_t left;

	mc_mutex_lock(&log->lock);
	live = seg->live;
	left = mc_kv_segments_left_locked(log, f);
	mc_mutex_unlock(&log->lock);
	return room + (left > 1 ? left - 1 : 0) * f->segment_bytes >= live;
}

bool mc_kv_any_fits_below(struct mc_kv_log *log, const struct mc_kv_candidate *c, size_t n)
{
	size_t i = 0;

	while (i < n && !mc_kv_fits_below(log, c[i].seg))
		i++;
	return i < n;
}
