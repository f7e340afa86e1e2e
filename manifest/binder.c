/*
 * Cutting a plan into pieces. The links of one pair of channels, in plan order, are one stream of
 * bytes; it is cut into ⌈bytes / max⌉ pieces of about equal size, through instances and through
 * boxes.
 */
#include "manifest/binder.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/binder-build.h"
#include "tier/array.h"
#include "tier/cleanup.h"

#define PIECE_MIN (UINT64_C(4) << 10) /* bytes; smaller pieces are all overhead */
#define GRAIN_MIN 64                  /* bytes; a multiple of every item size */

/* A MOVE link and the channels it runs between. */
struct run {
	uint32_t src, dst, link;
};

struct binder {
	struct mc_binding *b;
	const struct mc_reshard *plan;
	uint64_t target; /* bytes of a piece of the present pair */
	uint64_t limit;  /* bytes, never exceeded */
	uint64_t grain;
};

void mc_binding_span_box(const struct mc_binding *b, const struct mc_reshard *p,
	const struct mc_bound_span *s, struct mc_box *ret)
{
	if (s->box > 0)
		*ret = b->box[s->box - 1];
	else
		mc_reshard_link_box(p, &p->link[s->link], ret);
}

static int piece_open(struct binder *w, const struct run *r)
{
	struct mc_binding *b = w->b;
	int e = mc_array_room(&b->piece, &b->cap_pieces, b->n_pieces + 1);

	if (e == 0)
		b->piece[b->n_pieces++] =
			(struct mc_bound_piece){.src = r->src, .dst = r->dst, .first = b->n_spans};
	return e;
}

/* Bytes the present piece still wants; a full one is followed by a new one. */
static int piece_room(struct binder *w, const struct run *r, uint64_t *ret)
{
	struct mc_bound_piece *p = &w->b->piece[w->b->n_pieces - 1];

	if (p->bytes + w->grain > w->target) {
		int e = piece_open(w, r);

		if (e < 0)
			return e;
		p = &w->b->piece[w->b->n_pieces - 1];
	}
	*ret = w->target - p->bytes;
	return 0;
}

static int span_add(
	struct binder *w, const struct mc_bound_span *s, const struct mc_box *box, uint64_t bytes)
{
	struct mc_binding *b = w->b;
	struct mc_bound_span copy = *s;
	int e = mc_array_room(&b->span, &b->cap_spans, b->n_spans + 1);

	if (e == 0 && box != NULL) {
		e = mc_array_room(&b->box, &b->cap_boxes, b->n_boxes + 1);
		if (e == 0) {
			b->box[b->n_boxes++] = *box;
			copy.box = b->n_boxes;
		}
	}
	if (e < 0)
		return e;
	b->span[b->n_spans++] = copy;
	b->piece[b->n_pieces - 1].n++;
	b->piece[b->n_pieces - 1].bytes += bytes;
	assert(b->piece[b->n_pieces - 1].bytes <= w->limit);
	return 0;
}

/* One instance that does not fit the present piece. */
static int cut_instance(struct binder *w, const struct run *r, const struct mc_bound_span *s,
	const struct mc_box *box)
{
	struct mc_box stack[4 * MC_BOX_RANK * MC_BOX_RANK];
	struct mc_box_cut c;
	size_t n = 0;
	int e = 0;

	stack[n++] = *box;
	while (n > 0 && e == 0) {
		struct mc_box b = stack[--n];
		uint64_t room;

		e = piece_room(w, r, &room);
		if (e < 0)
			return e;
		c.n_first = 1;
		c.first[0] = b;
		if (mc_box_volume(&b) > room) {
			mc_box_cut(&b, room, w->grain, &c);
			assert(n + c.n_rest <= sizeof(stack) / sizeof(*stack));
			while (c.n_rest > 0)
				stack[n++] = c.rest[--c.n_rest];
		}
		for (size_t i = 0; i < c.n_first && e == 0; i++)
			e = span_add(w, s, &c.first[i], mc_box_volume(&c.first[i]));
	}
	return e;
}

static int bind_link(struct binder *w, const struct run *r)
{
	const struct mc_link *l = &w->plan->link[r->link];
	struct mc_bound_span s = {.link = r->link};
	struct mc_box box;
	uint64_t bytes, room;
	int e = 0;

	mc_reshard_link_box(w->plan, l, &box);
	bytes = mc_box_volume(&box);
	for (s.from = l->from; s.from < l->to && e == 0; s.from = s.to) {
		uint64_t n;

		e = piece_room(w, r, &room);
		if (e < 0)
			return e;
		n = room / bytes < l->to - s.from ? room / bytes : l->to - s.from;
		s.to = s.from + (uint32_t)(n > 0 ? n : 1);
		e = n > 0 ? span_add(w, &s, NULL, n * bytes) : cut_instance(w, r, &s, &box);
	}
	return e;
}

static int run_compare(const void *a, const void *b)
{
	const struct run *x = a, *y = b;

	if (x->src != y->src)
		return x->src < y->src ? -1 : 1;
	if (x->dst != y->dst)
		return x->dst < y->dst ? -1 : 1;
	return (x->link > y->link) - (x->link < y->link);
}

/* All links of one pair of channels. */
static int bind_pair(struct binder *w, const struct run *r, size_t n)
{
	uint64_t total = 0, pieces;
	int e;

	for (size_t i = 0; i < n; i++) {
		const struct mc_link *l = &w->plan->link[r[i].link];
		struct mc_box box;

		mc_reshard_link_box(w->plan, l, &box);
		total += mc_box_volume(&box) * (l->to - l->from);
	}
	w->grain =
		w->limit / 1024 > GRAIN_MIN ? w->limit / 1024 / GRAIN_MIN * GRAIN_MIN : GRAIN_MIN;
	pieces = (total + w->limit - 2 * w->grain - 1) / (w->limit - 2 * w->grain);
	/* A cut may overshoot by less than a grain, and a piece is closed a grain early. */
	w->target = (total + pieces - 1) / pieces + w->grain;
	e = piece_open(w, r);
	for (size_t i = 0; i < n && e == 0; i++)
		e = bind_link(w, &r[i]);
	return e;
}

static int collect(
	const struct mc_binder_in *in, struct run **ret, size_t *ret_n, uint32_t *ret_channels)
{
	const struct mc_reshard *p = in->plan;
	struct run *v = malloc(((size_t)p->n_links + 1) * sizeof(*v));
	uint32_t channels = 0;
	size_t n = 0;

	if (v == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->n_links; i++) {
		const struct mc_link *l = &p->link[i];
		uint32_t s, d;

		if (l->kind != MC_LINK_MOVE)
			continue;
		s = p->held->shard[l->src].participant;
		d = p->wanted->shard[l->dst].participant;
		if (in->channel != NULL) {
			s = in->channel[s];
			d = in->channel[d];
		}
		v[n++] = (struct run){.src = s, .dst = d, .link = i};
		if (s >= channels)
			channels = s + 1;
		if (d >= channels)
			channels = d + 1;
	}
	qsort(v, n, sizeof(*v), run_compare);
	*ret = v;
	*ret_n = n;
	*ret_channels = channels;
	return 0;
}

static int piece_compare(const void *a, const void *b)
{
	const struct mc_bound_piece *x = a, *y = b;

	if (x->round != y->round)
		return x->round < y->round ? -1 : 1;
	return (x->src > y->src) - (x->src < y->src);
}

/* A piece and its place among those of its pair of channels: number k of n. */
struct ranked {
	struct mc_bound_piece piece;
	uint32_t k, n;
};

static int ranked_compare(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;
	uint64_t p = (2 * (uint64_t)x->k + 1) * y->n, q = (2 * (uint64_t)y->k + 1) * x->n;

	if (p != q)
		return p < q ? -1 : 1;
	if (x->piece.src != y->piece.src)
		return x->piece.src < y->piece.src ? -1 : 1;
	return (x->piece.dst > y->piece.dst) - (x->piece.dst < y->piece.dst);
}

/* Interleaves the pairs, so that all of them advance together and none is left alone at the end. */
static int interleave(struct mc_binding *b)
{
	cleanup_free struct ranked *v = malloc(((size_t)b->n_pieces + 1) * sizeof(*v));

	if (v == NULL)
		return -ENOMEM;
	for (uint32_t i = 0, j; i < b->n_pieces; i = j) {
		for (j = i + 1; j < b->n_pieces && b->piece[j].src == b->piece[i].src &&
			b->piece[j].dst == b->piece[i].dst;
			j++)
			;
		for (uint32_t k = i; k < j; k++)
			v[k] = (struct ranked){.piece = b->piece[k], .k = k - i, .n = j - i};
	}
	if (b->n_pieces > 1)
		qsort(v, b->n_pieces, sizeof(*v), ranked_compare);
	for (uint32_t i = 0; i < b->n_pieces; i++)
		b->piece[i] = v[i].piece;
	return 0;
}

int mc_binding_make(const struct mc_binder_in *in, struct mc_binding **ret)
{
	struct mc_binding *b = calloc(1, sizeof(*b));
	struct binder w = {.b = b, .plan = in->plan};
	cleanup_free struct run *v = NULL;
	uint32_t channels = 0;
	size_t n = 0;
	int e;

	if (b == NULL)
		return -ENOMEM;
	w.limit = in->max_piece > 0 ? in->max_piece : MC_PIECE_MAX;
	e = w.limit < PIECE_MIN || w.limit > MC_PIECE_MAX ? -EINVAL
							  : collect(in, &v, &n, &channels);
	for (size_t i = 0, j; i < n && e == 0; i = j) {
		for (j = i + 1; j < n && v[j].src == v[i].src && v[j].dst == v[i].dst; j++)
			;
		e = bind_pair(&w, v + i, j - i);
	}
	if (e == 0)
		e = interleave(b);
	if (e == 0)
		e = mc_binder_colour(b, channels);
	if (e == 0) {
		if (b->n_pieces > 1)
			qsort(b->piece, b->n_pieces, sizeof(*b->piece), piece_compare);
		e = mc_binder_simulate(b, channels);
	}
	if (e < 0)
		mc_binding_free(b);
	else
		*ret = b;
	return e;
}

void mc_binding_free(struct mc_binding *b)
{
	if (b == NULL)
		return;
	free(b->piece);
	free(b->span);
	free(b->box);
	free(b);
}
