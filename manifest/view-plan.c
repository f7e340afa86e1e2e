/* Plans for ranges of a view's file: the pieces of the range and nothing else. */
#include "manifest/view-build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tier/cleanup.h"

#define MAX_STRETCH (64 * MC_BLOCK_SIZE) /* bytes of data told at once */

struct out {
	struct mc_plan *plan;
	struct mc_file *const *files;
	uint64_t at, end; /* what is still to be planned, bytes in the view's file */
};

/* Zeros up to off. */
static int skip_to(struct out *o, uint64_t off)
{
	int r = 0;

	if (off > o->at)
		r = mc_plan_add_hole(o->plan, (uint32_t)(off - o->at));
	o->at = off;
	return r;
}

static int put(struct out *o, uint32_t file, uint64_t src, uint64_t dst, const struct mc_strides *s)
{
	int r = skip_to(o, dst);

	if (r == 0)
		r = mc_plan_add_file(o->plan, o->files[file], src, s);
	if (r == 0)
		o->at += o->plan->pieces[o->plan->n - 1].len;
	return r;
}

/* A region, and of its loops d … rank: how far they reach in the view's file, and whether they do
 * so without a gap. */
struct walk {
	struct mc_region r;
	uint32_t file;
	uint64_t span[MC_BOX_RANK + 1]; /* bytes */
	bool dense[MC_BOX_RANK + 1];
};

static unsigned walk_init(struct walk *w, const uint64_t *words)
{
	unsigned used = mc_view_region_get(words, &w->r, &w->file);

	w->span[w->r.rank] = w->r.inner;
	w->dense[w->r.rank] = true;
	for (unsigned d = w->r.rank; d-- > 0;) {
		w->span[d] = (w->r.count[d] - 1) * w->r.dst_stride[d] + w->span[d + 1];
		w->dense[d] = w->dense[d + 1] && w->r.dst_stride[d] == w->span[d + 1];
	}
	return used;
}

/* n whole steps of loop d as one piece; only where the loops from d on are dense. */
static int put_steps(
	struct out *o, const struct walk *w, unsigned d, uint64_t n, uint64_t src, uint64_t dst)
{
	struct mc_strides s = {.inner = w->r.inner, .rank = (uint8_t)(w->r.rank - d)};

	for (unsigned k = 0; k < s.rank; k++) {
		s.count[k] = k == 0 ? n : w->r.count[d + k];
		s.stride[k] = w->r.src_stride[d + k];
	}
	return put(o, w->file, src, dst, &s);
}

/* The loops d … rank that start at src and dst, as far as they lie in the range. */
/* At most MC_BOX_RANK deep. NOLINTNEXTLINE(misc-no-recursion) */
static int put_loops(struct out *o, const struct walk *w, unsigned d, uint64_t src, uint64_t dst)
{
	uint64_t lo = o->at > dst ? o->at - dst : 0, hi, i, last;
	int r = 0;

	if (dst >= o->end || lo >= w->span[d])
		return 0;
	hi = o->end - dst < w->span[d] ? o->end - dst : w->span[d];
	if (d == w->r.rank) {
		struct mc_strides s = {.inner = hi - lo};

		return put(o, w->file, src + lo, dst + lo, &s);
	}
	i = lo / w->r.dst_stride[d];
	last = (hi - 1) / w->r.dst_stride[d];
	while (i <= last && r == 0) {
		uint64_t from = i * w->r.dst_stride[d], to = src + i * w->r.src_stride[d];
		uint64_t n = (hi - from) / w->r.dst_stride[d];

		if (w->dense[d] && from >= lo && n > 0) {
			r = put_steps(o, w, d, n, to, dst + from);
			i += n;
		} else {
			r = put_loops(o, w, d + 1, to, dst + from);
			i++;
		}
	}
	return r;
}

/* One of several regions whose runs interleave. */
struct cursor {
	struct mc_region r;
	uint32_t file;
	uint64_t run, runs; /* the next one, and how many there are */
	uint64_t src, dst;  /* of that run */
};

/* To the first run that ends after at. */
static void cursor_seek(struct cursor *c, uint64_t at)
{
	uint64_t lo = 0, hi = c->runs;

	while (lo < hi) {
		uint64_t mid = lo + (hi - lo) / 2;

		mc_region_run(&c->r, mid, &c->src, &c->dst);
		if (c->dst + c->r.inner <= at)
			lo = mid + 1;
		else
			hi = mid;
	}
	c->run = lo;
	if (lo < c->runs)
		mc_region_run(&c->r, lo, &c->src, &c->dst);
}

static struct cursor *cursor_next(struct cursor *c, uint32_t n)
{
	struct cursor *best = NULL;

	for (uint32_t i = 0; i < n; i++)
		if (c[i].run < c[i].runs && (best == NULL || c[i].dst < best->dst))
			best = &c[i];
	return best;
}

static int put_interleaved(struct out *o, const struct mc_view_segment *s, const uint64_t *words)
{
	cleanup_free struct cursor *c = calloc(s->n, sizeof(*c));
	struct cursor *x;
	int r = 0;

	if (c == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->n; i++) {
		words += mc_view_region_get(words, &c[i].r, &c[i].file);
		c[i].runs = mc_region_runs(&c[i].r);
		cursor_seek(&c[i], o->at);
	}
	while (r == 0 && (x = cursor_next(c, s->n)) != NULL && x->dst < o->end) {
		uint64_t lo = o->at > x->dst ? o->at - x->dst : 0, left = o->end - x->dst;
		struct mc_strides one = {.inner = (left < x->r.inner ? left : x->r.inner) - lo};

		r = put(o, x->file, x->src + lo, x->dst + lo, &one);
		if (++x->run < x->runs)
			mc_region_run(&x->r, x->run, &x->src, &x->dst);
	}
	return r;
}

static int put_constant(struct out *o, const struct mc_view_segment *s, const uint64_t *words)
{
	uint64_t from = (o->at > s->off ? o->at : s->off) - s->off, to = o->end - s->off;
	const uint8_t *value = (const uint8_t *)&words[0];
	cleanup_free uint8_t *bytes = NULL;
	int r = skip_to(o, s->off + from);

	if (to > s->len)
		to = s->len;
	bytes = malloc(to - from);
	if (bytes == NULL)
		return -ENOMEM;
	for (uint64_t i = from; i < to; i++)
		bytes[i - from] = value[i % words[1]];
	if (r == 0)
		r = mc_plan_add_inline(o->plan, bytes, (uint32_t)(to - from));
	o->at = s->off + to;
	return r;
}

static int put_header(struct out *o, const struct mc_view_file *f)
{
	uint64_t end = o->end < f->header_len ? o->end : f->header_len;
	int r;

	if (o->at >= end)
		return 0;
	r = mc_plan_add_inline(o->plan, f->header + o->at, (uint32_t)(end - o->at));
	o->at = end;
	return r;
}

int mc_view_file_plan(const struct mc_view_file *f, struct mc_file *const *files, uint64_t off,
	uint32_t len, struct mc_plan *plan)
{
	struct out o = {.plan = plan, .files = files, .at = off, .end = off + len};
	int r = put_header(&o, f);

	for (uint32_t i = mc_view_segment_find(f, o.at);
		i < f->n_segments && f->segment[i].off < o.end && r == 0; i++) {
		const struct mc_view_segment *s = &f->segment[i];
		const uint64_t *words = f->words + s->words;
		struct walk w;

		if (s->n == 0) {
			r = put_constant(&o, s, words);
		} else if (s->n == 1) {
			walk_init(&w, words);
			r = put_loops(&o, &w, 0, w.r.src, w.r.dst);
		} else {
			r = put_interleaved(&o, s, words);
		}
	}
	return r < 0 ? r : skip_to(&o, o.end);
}

/* Gaps of less than a block are not worth telling from data. */
static uint64_t data_from(const struct mc_view_file *f, uint32_t segment)
{
	return segment < f->n_segments ? f->segment[segment].off : f->size;
}

static uint64_t data_to(const struct mc_view_file *f, uint32_t segment)
{
	return segment > 0 ? f->segment[segment - 1].off + f->segment[segment - 1].len
			   : f->header_len;
}

int mc_view_file_next_data(
	const struct mc_view_file *f, uint64_t off, uint64_t *ret_start, uint64_t *ret_end)
{
	uint32_t i = mc_view_segment_find(f, off);

	/* Now segments below i end at or before off. */
	if (off >= data_to(f, i) && off < data_from(f, i) &&
		data_from(f, i) - data_to(f, i) >= MC_BLOCK_SIZE) {
		if (i == f->n_segments)
			return -ENXIO;
		off = f->segment[i].off;
	}
	/* Asked for each block that is read, so what follows is not looked at to its end. */
	while (i < f->n_segments && f->segment[i].off < off + MAX_STRETCH &&
		(f->segment[i].off <= off || data_from(f, i) - data_to(f, i) < MC_BLOCK_SIZE))
		i++;
	*ret_start = off;
	*ret_end =
		data_from(f, i) - data_to(f, i) < MC_BLOCK_SIZE ? data_from(f, i) : data_to(f, i);
	return 0;
}
