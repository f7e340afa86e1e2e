/* Refines boxes that may overlap into disjoint cells, each with the boxes that contain it. */
#include "manifest/box.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "tier/array.h"
#include "tier/cleanup.h"

/* One tensor cut into more cells than this is refused: 4 Mi × 144 B is 600 MB already. */
#define MAX_CELLS ((size_t)4 << 20)

struct entry {
	struct mc_box box;
	uint32_t member;
};

struct entries {
	struct entry *v; /* owned */
	size_t n, cap;
};

static int entry_compare(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	int c = mc_box_compare(&x->box, &y->box);

	return c != 0 ? c : (x->member > y->member) - (x->member < y->member);
}

static int entry_add(struct entries *e, const struct mc_box *box, uint32_t member)
{
	int r = e->n < MAX_CELLS ? mc_array_room(&e->v, &e->cap, e->n + 1) : -E2BIG;

	if (r < 0)
		return r;
	e->v[e->n].box = *box;
	e->v[e->n++].member = member;
	return 0;
}

/* Sorted entries to cells. */
static int group(struct mc_cells *c, const struct entries *e)
{
	c->box = malloc((e->n + 1) * sizeof(*c->box));
	c->first = malloc((e->n + 1) * sizeof(*c->first));
	c->member = malloc((e->n + 1) * sizeof(*c->member));
	if (c->box == NULL || c->first == NULL || c->member == NULL)
		return -ENOMEM;
	c->n = 0;
	for (size_t i = 0; i < e->n; i++) {
		if (i == 0 || mc_box_compare(&e->v[i].box, &e->v[i - 1].box) != 0) {
			c->box[c->n] = e->v[i].box;
			c->first[c->n++] = (uint32_t)i;
		}
		c->member[i] = e->v[i].member;
	}
	c->first[c->n] = (uint32_t)e->n;
	return 0;
}

static void ungroup(struct mc_cells *c)
{
	free(c->box);
	free(c->first);
	free(c->member);
	c->box = NULL;
	c->first = NULL;
	c->member = NULL;
	c->n = 0;
}

static int count_hit(void *arg, uint32_t box, const struct mc_box *overlap)
{
	size_t *hits = arg;

	(void)box;
	(void)overlap;
	return ++*hits > 1 ? -EEXIST : 0;
}

/* 1 when two distinct boxes overlap, 0 when none do. */
static int overlaps(const struct mc_cells *c)
{
	struct mc_box_index *x;
	int r = mc_box_index_open(c->box, c->n, &x);

	if (r < 0)
		return r;
	for (size_t i = 0; i < c->n && r == 0; i++) {
		size_t hits = 0;

		r = mc_box_index_query(x, &c->box[i], count_hit, &hits);
	}
	mc_box_index_close(x);
	return r == -EEXIST ? 1 : r;
}

static int u64_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The faces of all boxes on each dimension, sorted, each once. */
struct faces {
	uint64_t *at[MC_BOX_RANK]; /* owned */
	size_t n[MC_BOX_RANK];
};

static int faces_init(struct faces *f, const struct mc_cells *c)
{
	for (unsigned d = 0; d < c->box[0].rank; d++) {
		uint64_t *v = malloc(2 * c->n * sizeof(*v));
		size_t n = 0;

		if (v == NULL)
			return -ENOMEM;
		f->at[d] = v;
		for (size_t i = 0; i < c->n; i++) {
			v[2 * i] = c->box[i].off[d];
			v[2 * i + 1] = c->box[i].off[d] + c->box[i].len[d];
		}
		qsort(v, 2 * c->n, sizeof(*v), u64_compare);
		for (size_t i = 0; i < 2 * c->n; i++)
			if (n == 0 || v[n - 1] != v[i])
				v[n++] = v[i];
		f->n[d] = n;
	}
	return 0;
}

static void faces_done(struct faces *f)
{
	for (unsigned d = 0; d < MC_BOX_RANK; d++)
		free(f->at[d]);
}

static int split_box(
	struct entries *e, const struct faces *f, const struct mc_box *box, uint32_t member)
{
	struct mc_box cell = *box;
	size_t at[MC_BOX_RANK];
	unsigned d;

	for (d = 0; d < box->rank; d++) {
		const uint64_t *p =
			bsearch(&box->off[d], f->at[d], f->n[d], sizeof(*p), u64_compare);

		assert(p != NULL);
		at[d] = (size_t)(p - f->at[d]);
		cell.len[d] = p[1] - p[0];
	}
	for (;;) {
		int r = entry_add(e, &cell, member);

		if (r < 0)
			return r;
		for (d = box->rank; d-- > 0;) {
			const uint64_t *v = f->at[d];

			if (v[++at[d]] >= box->off[d] + box->len[d])
				at[d] = (size_t)((uint64_t *)bsearch(&box->off[d], v, f->n[d],
							 sizeof(*v), u64_compare) -
					v);
			cell.off[d] = v[at[d]];
			cell.len[d] = v[at[d] + 1] - v[at[d]];
			if (cell.off[d] != box->off[d])
				break;
		}
		if (d == UINT_MAX)
			return 0;
	}
}

static int refine(struct mc_cells *c)
{
	struct entries e = {0};
	struct faces f = {0};
	int r = faces_init(&f, c);

	for (size_t i = 0; i < c->n && r == 0; i++)
		for (uint32_t m = c->first[i]; m < c->first[i + 1] && r == 0; m++)
			r = split_box(&e, &f, &c->box[i], c->member[m]);
	faces_done(&f);
	if (r == 0) {
		qsort(e.v, e.n, sizeof(*e.v), entry_compare);
		ungroup(c);
		r = group(c, &e);
	}
	free(e.v);
	return r;
}

int mc_cells_init(struct mc_cells *c, const struct mc_box *boxes, size_t n)
{
	struct entries e = {0};
	int r = 0;

	*c = (struct mc_cells){0};
	for (size_t i = 0; i < n && r == 0; i++)
		if (mc_box_volume(&boxes[i]) > 0)
			r = entry_add(&e, &boxes[i], (uint32_t)i);
	if (r == 0 && e.n > 1)
		qsort(e.v, e.n, sizeof(*e.v), entry_compare);
	if (r == 0)
		r = group(c, &e);
	free(e.v);
	if (r == 0 && c->n > 1)
		r = overlaps(c);
	if (r == 1) {
		c->refined = true;
		r = refine(c);
	}
	if (r < 0)
		mc_cells_done(c);
	return r;
}

void mc_cells_done(struct mc_cells *c)
{
	ungroup(c);
}
