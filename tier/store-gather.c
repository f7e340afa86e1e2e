/*
 * Synthesis of a block from strided regions of other files.
 *
 * The runs are walked in the order of the block's bytes. A step is the longest stretch of them that
 * lies in one block of one source file; a few steps are read at once, and each copies its stretch
 * when its block has come. Nothing is held while waiting: the source block is lent only for the
 * copy.
 *
 * Invariants: G1 steps cover the FILE pieces in order, each byte once (walk is the only way
 * forward, and measuring and copying are the same code); G2 one thread at a time hands out steps
 * (pumping), so a read that completes at once does not recurse; G3 done runs when no step is left
 * and none runs.
 */
#include "tier/store-gather.h"

#include "tier/lock.h"
#include "tier/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define AHEAD 4         /* runs */
#define AHEAD_BYTES 512 /* of a run; the hardware follows longer ones by itself */
#define LINE 64
#define STEPS 4 /* source blocks asked for at once, by one block that is synthesised */

struct cursor {
	size_t piece;
	uint64_t index[MC_PLAN_DIMS]; /* of the loops */
	uint64_t run;                 /* bytes, where the current run begins in the source */
	uint64_t in_run;              /* bytes of it done */
	uint64_t at;                  /* bytes of the plan that lie behind it */
};

struct gather;

struct step {
	struct mc_file_read read;
	struct gather *g;
	struct cursor at;
	bool busy;
};

struct gather {
	const struct mc_plan *plan;
	uint8_t *dst;
	void (*done)(void *ctx, int res);
	void *ctx;
	struct mc_mutex lock;
	/* Guarded by lock. */
	struct cursor next;
	unsigned running;
	bool pumping;
	int res;
	struct step step[STEPS];
};

/* Makes the cursor stand on a FILE piece, or past the end. */
static void settle(const struct mc_plan *plan, struct cursor *c)
{
	while (c->piece < plan->n && plan->pieces[c->piece].kind != MC_PIECE_FILE)
		c->at += plan->pieces[c->piece++].len;
	memset(c->index, 0, sizeof(c->index));
	c->in_run = 0;
	c->run = c->piece < plan->n ? plan->pieces[c->piece].off : 0;
}

/* To the next run of the piece; false when it was the last. */
static bool next_run(const struct mc_strides *s, struct cursor *c)
{
	c->in_run = 0;
	for (int d = s->rank - 1; d >= 0; d--) {
		c->run += s->stride[d];
		if (++c->index[d] < s->count[d])
			return true;
		c->run -= s->stride[d] * s->count[d];
		c->index[d] = 0;
	}
	return false;
}

/* How many of the next runs of the innermost loop lie wholly before end, a run beginning now. */
static uint64_t whole_runs(const struct mc_strides *s, const struct cursor *c, uint64_t end)
{
	uint64_t left, fit;

	if (s->rank == 0 || c->in_run > 0 || end - c->run < s->inner)
		return 0;
	left = s->count[s->rank - 1] - c->index[s->rank - 1];
	fit = (end - c->run - s->inner) / s->stride[s->rank - 1] + 1;
	return left < fit ? left : fit;
}

/* Short runs are read faster when the memory is told a few of them ahead. */
static void copy_runs(uint8_t *dst, const uint8_t *src, const struct mc_strides *s, uint64_t n)
{
	uint64_t stride = s->stride[s->rank - 1];

	for (uint64_t i = 0; i < n; i++) {
		if (i + AHEAD < n)
			for (uint64_t k = 0; k < s->inner && k < AHEAD_BYTES; k += LINE)
				__builtin_prefetch(src + AHEAD * stride + k);
		memcpy(dst, src, s->inner);
		dst += s->inner;
		src += stride;
	}
}

/*
 * Goes over all bytes from the cursor on that lie in the block the cursor is in; copies them to dst
 * from base, that block's bytes, unless base is NULL.
 */
static void walk(const struct mc_plan *plan, struct cursor *c, uint8_t *dst, const uint8_t *base)
{
	const struct mc_file *file = plan->pieces[c->piece].file;
	uint64_t start = (c->run + c->in_run) & ~(MC_BLOCK_SIZE - 1);
	uint64_t end = start + MC_BLOCK_SIZE;

	while (c->piece < plan->n && plan->pieces[c->piece].file == file) {
		const struct mc_strides *s = &plan->pieces[c->piece].strides;
		uint64_t from = c->run + c->in_run;
		uint64_t n = s->inner - c->in_run, runs;

		if (from < start || from >= end)
			return;
		runs = whole_runs(s, c, end);
		if (runs > 1) { /* all but the last, which ends like a run alone */
			if (base != NULL)
				copy_runs(dst + c->at, base + (from - start), s, runs - 1);
			c->at += (runs - 1) * s->inner;
			c->run += (runs - 1) * s->stride[s->rank - 1];
			c->index[s->rank - 1] += runs - 1;
			from = c->run;
		}
		if (n > end - from)
			n = end - from;
		if (base != NULL)
			memcpy(dst + c->at, base + (from - start), n);
		c->at += n;
		c->in_run += n;
		if (c->in_run < s->inner)
			return;
		if (!next_run(s, c)) {
			c->piece++;
			settle(plan, c);
		}
	}
}

static void pump(struct gather *g);

static void step_done(struct mc_file_read *r, int res)
{
	struct step *st = r->ctx;
	struct gather *g = st->g;
	bool mine;

	if (res == 0) {
		walk(g->plan, &st->at, g->dst, r->iov[0].iov_base);
		mc_file_read_end(r);
	}
	mc_mutex_lock(&g->lock);
	if (res < 0 && g->res == 0)
		g->res = res;
	st->busy = false;
	g->running--;
	mine = !g->pumping;
	g->pumping = true;
	mc_mutex_unlock(&g->lock);
	if (mine)
		pump(g);
}

/* Takes the next step, if there is one and a place for it. */
static struct step *take_step_locked(struct gather *g) MC_REQUIRES(g->lock)
{
	const struct mc_piece *p;
	struct step *st = NULL;
	uint64_t block;

	if (g->res < 0 || g->next.piece >= g->plan->n)
		return NULL;
	for (unsigned i = 0; i < STEPS && st == NULL; i++)
		if (!g->step[i].busy)
			st = &g->step[i];
	if (st == NULL)
		return NULL;
	p = &g->plan->pieces[g->next.piece];
	block = (g->next.run + g->next.in_run) >> MC_BLOCK_SHIFT;
	st->busy = true;
	st->g = g;
	st->at = g->next;
	st->read = (struct mc_file_read){.file = p->file,
		.off = block << MC_BLOCK_SHIFT,
		.len = mc_block_len(mc_file_id(p->file)->size, block),
		.planned = true,
		.done = step_done,
		.ctx = st};
	walk(g->plan, &g->next, NULL, NULL);
	g->running++;
	return st;
}

/* Hands out steps while there are any; the caller has set pumping. */
static void pump(struct gather *g)
{
	struct step *st;
	bool over;

	mc_mutex_lock(&g->lock);
	while ((st = take_step_locked(g)) != NULL) {
		mc_mutex_unlock(&g->lock);
		mc_file_read(&st->read);
		mc_mutex_lock(&g->lock);
	}
	g->pumping = false;
	over = g->running == 0;
	mc_mutex_unlock(&g->lock);
	if (!over)
		return;
	g->done(g->ctx, g->res);
	mc_mutex_done(&g->lock);
	free(g);
}

bool mc_gather_wanted(const struct mc_plan *plan)
{
	for (size_t i = 0; i < plan->n; i++)
		if (plan->pieces[i].kind == MC_PIECE_FILE)
			return true;
	return false;
}

bool mc_gather_blocks(const struct mc_plan *plan,
	bool (*each)(void *ctx, struct mc_file *src, uint64_t block), void *ctx)
{
	struct cursor c = {0};

	settle(plan, &c);
	while (c.piece < plan->n) {
		struct mc_file *src = plan->pieces[c.piece].file;
		uint64_t block = (c.run + c.in_run) >> MC_BLOCK_SHIFT;

		if (!each(ctx, src, block))
			return false;
		walk(plan, &c, NULL, NULL);
	}
	return true;
}

int mc_gather_start(
	const struct mc_plan *plan, uint8_t *dst, void (*done)(void *ctx, int res), void *ctx)
{
	struct gather *g = calloc(1, sizeof(*g));

	if (g == NULL)
		return -ENOMEM;
	mc_mutex_init(&g->lock);
	g->plan = plan;
	g->done = done;
	g->ctx = ctx;
	g->dst = dst;
	settle(plan, &g->next);
	g->pumping = true;
	pump(g);
	return 0;
}
