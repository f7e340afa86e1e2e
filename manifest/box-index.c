/*
 * The index over boxes: a trie laid over their sorted order. At depth d the boxes that agree on
 * dimensions 0 … d are a group, consecutive in the order.
 *
 * Invariants, for depth d and position i:
 *  1. end[d][i] is the end of the group that i belongs to.
 *  2. reach[d][i] is the largest far edge on d among the groups of the same parent up to i's own;
 * so within a parent it never falls, and a binary search finds the first group that can overlap.
 */
#include "manifest/box.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tier/cleanup.h"

struct mc_box_index {
	const struct mc_box *boxes; /* borrowed */
	size_t n;
	unsigned rank;
	uint32_t *end;   /* rank × n */
	uint64_t *reach; /* rank × n */
};

struct walk {
	const struct mc_box_index *x;
	const struct mc_box *q;
	mc_box_hit_fn *fn;
	void *arg;
	struct mc_box overlap;
};

static bool same_on(const struct mc_box *a, const struct mc_box *b, unsigned d)
{
	return a->off[d] == b->off[d] && a->len[d] == b->len[d];
}

static void fill_depth(struct mc_box_index *x, unsigned d)
{
	const uint32_t *parent = d > 0 ? x->end + (d - 1u) * x->n : NULL;
	uint32_t *end = x->end + d * x->n;
	uint64_t *reach = x->reach + d * x->n;
	size_t stop = 0;
	uint64_t far = 0;

	for (size_t i = 0; i < x->n;) {
		const struct mc_box *b = &x->boxes[i];
		size_t j = i + 1;

		if (i >= stop) {
			stop = parent != NULL ? parent[i] : x->n;
			far = 0;
		}
		while (j < stop && same_on(b, &x->boxes[j], d))
			j++;
		if (b->off[d] + b->len[d] > far)
			far = b->off[d] + b->len[d];
		for (; i < j; i++) {
			end[i] = (uint32_t)j;
			reach[i] = far;
		}
	}
}

int mc_box_index_open(const struct mc_box *boxes, size_t n, struct mc_box_index **ret)
{
	struct mc_box_index *x = calloc(1, sizeof(*x));
	size_t cells;

	if (x == NULL)
		return -ENOMEM;
	x->boxes = boxes;
	x->n = n;
	x->rank = n > 0 ? boxes[0].rank : 0;
	cells = n * x->rank;
	x->end = calloc(cells + 1, sizeof(*x->end));
	x->reach = calloc(cells + 1, sizeof(*x->reach));
	if (x->end == NULL || x->reach == NULL) {
		mc_box_index_close(x);
		return -ENOMEM;
	}
	for (unsigned d = 0; d < x->rank; d++)
		fill_depth(x, d);
	*ret = x;
	return 0;
}

void mc_box_index_close(struct mc_box_index *x)
{
	if (x == NULL)
		return;
	free(x->end);
	free(x->reach);
	free(x);
}

/* The first position in [lo, hi) whose reach at depth d goes beyond edge. */
static size_t first_reaching(
	const struct mc_box_index *x, unsigned d, size_t lo, size_t hi, uint64_t edge)
{
	const uint64_t *reach = x->reach + d * x->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (reach[mid] > edge)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

static int descend(struct walk *w, unsigned d, size_t lo, size_t hi)
{
	const struct mc_box_index *x = w->x;
	const uint32_t *end = x->end + d * x->n;
	uint64_t q_lo = w->q->off[d], q_hi = q_lo + w->q->len[d];

	for (size_t i = first_reaching(x, d, lo, hi, q_lo); i < hi; i = end[i]) {
		const struct mc_box *b = &x->boxes[i];
		uint64_t b_hi = b->off[d] + b->len[d];
		int r;

		if (b->off[d] >= q_hi)
			break;
		if (b_hi <= q_lo || b->len[d] == 0)
			continue;
		w->overlap.off[d] = b->off[d] > q_lo ? b->off[d] : q_lo;
		w->overlap.len[d] = (b_hi < q_hi ? b_hi : q_hi) - w->overlap.off[d];
		r = d + 1u == x->rank ? w->fn(w->arg, (uint32_t)i, &w->overlap)
				      : descend(w, d + 1u, i, end[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

int mc_box_index_query(
	const struct mc_box_index *x, const struct mc_box *q, mc_box_hit_fn *fn, void *arg)
{
	struct walk w = {.x = x, .q = q, .fn = fn, .arg = arg, .overlap = {.rank = q->rank}};

	if (x->n == 0 || q->rank != x->rank || mc_box_volume(q) == 0)
		return 0;
	return descend(&w, 0, 0, x->n);
}
