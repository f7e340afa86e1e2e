/*
 * The tensor table of what was materialised: each piece of a source tensor that lies in one run of
 * a new file, as the box it is. A piece that lies in several runs is several boxes, up to a limit.
 */
#include "manifest/materialise-state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/dtype.h"
#include "manifest/safetensors.h"

#define MAX_RUNS 1024 /* of one piece */

/* Bytes of a file that are a box of a source tensor, row by row. */
struct row {
	uint32_t tensor, file;
	uint64_t off, len; /* bytes */
	struct mc_box box; /* elements */
};

struct table {
	const struct mc_view_layout *l;
	struct row *row; /* owned */
	size_t n, cap;
	bool *seen; /* by tensor: some rank has a piece of it; owned */
};

static int add_row(struct table *t, const struct row *row)
{
	if (t->n == t->cap) {
		size_t cap = t->cap != 0 ? t->cap * 2 : 1024;
		void *p = reallocarray(t->row, cap, sizeof(*t->row));

		if (p == NULL)
			return -ENOMEM;
		t->row = p;
		t->cap = cap;
	}
	t->row[t->n++] = *row;
	return 0;
}

/* The outer dimensions of a piece that have to be gone through one by one, for what is left to lie
 * in one run; the number of runs. */
static uint64_t piece_runs(
	const struct mc_local *local, const struct mc_local_piece *p, unsigned *ret_outer)
{
	unsigned shift = p->stacked ? 1 : 0, d = p->box.rank;
	uint64_t runs = 1;

	while (d > 0 && p->box.len[d - 1] == local->shape[d - 1 + shift])
		d--;
	*ret_outer = d > 0 ? d - 1 : 0;
	for (unsigned i = 0; i < *ret_outer; i++)
		if (__builtin_mul_overflow(runs, p->box.len[i], &runs))
			return UINT64_MAX;
	return runs;
}

/* The rows of one piece of a tensor that begins at base. */
static int add_piece(struct table *t, uint32_t file, uint64_t base, const struct mc_local *local,
	const struct mc_local_piece *p)
{
	unsigned shift = p->stacked ? 1 : 0, bits = mc_dtype_bits(local->dtype), outer;
	uint64_t stride[MC_BOX_RANK], first = 0, runs = piece_runs(local, p, &outer);
	int r = 0;

	if (runs > MAX_RUNS)
		return 0;
	for (unsigned d = local->rank; d-- > 0;)
		stride[d] = d + 1u < local->rank ? stride[d + 1] * local->shape[d + 1] : 1;
	for (unsigned d = 0; d < local->rank; d++)
		first += p->at[d] * stride[d];
	for (uint64_t i = 0; i < runs && r == 0; i++) {
		struct row row = {.tensor = p->tensor, .file = file, .box = p->box};
		uint64_t at = first, rest = i;

		for (unsigned d = outer; d-- > 0;) {
			uint64_t k = rest % p->box.len[d];

			rest /= p->box.len[d];
			row.box.off[d] += k;
			row.box.len[d] = 1;
			at += k * stride[d + shift];
		}
		row.len = mc_box_volume(&row.box) * bits;
		if (at * bits % 8 != 0 || row.len % 8 != 0)
			return 0; /* begins or ends inside a byte */
		row.len /= 8;
		row.off = base + at * bits / 8;
		r = add_row(t, &row);
	}
	return r;
}

static int local_by_name(const void *key, const void *local)
{
	return strcmp(key, ((const struct mc_local *)local)->name);
}

/* The rows of one new file; rank: what the mesh's rank holds. */
static int add_file(struct table *t, const struct mc_mat *m, uint32_t file,
	const struct mc_rank_tensors *rank, struct mc_err *err)
{
	const struct mc_mat_file *f = &m->file[file];
	const struct mc_view_file *x = &f->view->file[f->view->where[f->entry]];
	struct mc_safetensors *st;
	int r = mc_safetensors_parse(x->header, x->header_len, f->size, &st, err);

	if (r < 0)
		return r;
	for (size_t i = 0; r == 0 && i < mc_safetensors_count(st); i++) {
		const struct mc_st_tensor *s = mc_safetensors_tensor(st, i);
		const struct mc_local *local =
			bsearch(s->name, rank->local, rank->n, sizeof(*rank->local), local_by_name);

		if (local == NULL)
			r = -EINVAL;
		for (uint32_t k = 0; r == 0 && k < local->n; k++) {
			const struct mc_local_piece *p = &rank->piece[local->first + k];

			t->seen[p->tensor] = true;
			r = add_piece(t, file, s->off, local, p);
		}
	}
	mc_safetensors_close(st);
	return r;
}

static int row_compare(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	int c = (x->tensor > y->tensor) - (x->tensor < y->tensor);

	if (c == 0)
		c = mc_box_compare(&x->box, &y->box);
	if (c == 0)
		c = (x->file > y->file) - (x->file < y->file);
	return c != 0 ? c : (x->off > y->off) - (x->off < y->off);
}

/* Takes from x what before has already, when that is all of it or its first rows. */
static void trim(struct row *x, const struct row *before)
{
	const struct mc_box *b = &before->box;
	uint64_t common;

	for (unsigned d = 1; d < x->box.rank; d++)
		if (x->box.off[d] != b->off[d] || x->box.len[d] != b->len[d])
			return;
	if (x->box.rank == 0 || x->box.off[0] < b->off[0] || x->box.off[0] >= b->off[0] + b->len[0])
		return;
	common = b->off[0] + b->len[0] - x->box.off[0];
	if (common > x->box.len[0])
		common = x->box.len[0];
	x->off += x->len / x->box.len[0] * common;
	x->len -= x->len / x->box.len[0] * common;
	x->box.off[0] += common;
	x->box.len[0] -= common;
}

/* Keeps of a tensor's rows (sorted, n > 0) what makes it up without overlap; the number kept. */
static size_t make_disjoint(struct row *v, size_t n, bool empty)
{
	size_t kept = 1;

	for (size_t i = 1; i < n && !empty; i++) {
		struct row x = v[i];

		if (mc_box_compare(&x.box, &v[kept - 1].box) == 0)
			continue;
		trim(&x, &v[kept - 1]);
		if (x.len > 0)
			v[kept++] = x;
	}
	return kept;
}

/* Whether the rows are all of the tensor and overlap nowhere. */
static int check_whole(const struct row *v, size_t n, const struct mc_box *whole, bool *ret)
{
	struct mc_box *boxes = calloc(n, sizeof(*boxes));
	uint64_t sum = 0;
	struct mc_cells c;
	int r;

	if (boxes == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		boxes[i] = v[i].box;
		sum += mc_box_volume(&v[i].box);
	}
	*ret = sum == mc_box_volume(whole);
	r = *ret && n > 1 ? mc_cells_init(&c, boxes, n) : 0;
	if (r == 0 && *ret && n > 1) {
		*ret = !c.refined && c.n == n;
		mc_cells_done(&c);
	}
	free(boxes);
	return r == -E2BIG ? 0 : r;
}

/* All rows of one tensor, when they make it up; *ret_listed counts it then. */
static int put_tensor(const struct mc_mat *m, struct mc_writer *w, struct row *v, size_t n,
	uint32_t *ret_listed, struct mc_err *err)
{
	const struct mc_layout_tensor *of = &m->in->layout->tensor[v->tensor];
	struct mc_box whole = {.rank = of->rank};
	bool good;
	int r;

	memcpy(whole.len, of->shape, of->rank * sizeof(*whole.len));
	n = make_disjoint(v, n, mc_box_volume(&whole) == 0);
	r = check_whole(v, n, &whole, &good);
	if (r < 0 || !good)
		return r;
	*ret_listed += 1;
	for (size_t i = 0; i < n && r == 0; i++) {
		struct mc_new_tensor t = {.name = of->name,
			.file = m->file[v[i].file].path,
			.dtype = of->dtype,
			.rank = of->rank,
			.shape = v[i].box.len,
			.off = v[i].off,
			.len = v[i].len,
			.box_off = n > 1 ? v[i].box.off : NULL,
			.global = n > 1 ? of->shape : NULL};

		r = mc_writer_tensor(w, &t, err);
	}
	return r;
}

static int put_all(const struct mc_mat *m, struct mc_writer *w, struct table *t,
	uint32_t *ret_unlisted, struct mc_err *err)
{
	uint32_t there = 0, listed = 0;
	int r = 0;

	if (t->n > 1)
		qsort(t->row, t->n, sizeof(*t->row), row_compare);
	for (size_t i = 0, next; i < t->n && r == 0; i = next) {
		for (next = i + 1; next < t->n && t->row[next].tensor == t->row[i].tensor;)
			next++;
		r = put_tensor(m, w, &t->row[i], next - i, &listed, err);
	}
	for (uint32_t i = 0; i < t->l->n_tensors; i++)
		there += t->seen[i];
	*ret_unlisted = there - listed;
	return r;
}

int mc_mat_tensors(
	struct mc_mat *m, struct mc_writer *w, uint32_t *ret_unlisted, struct mc_err *err)
{
	struct table t = {.l = m->in->layout};
	uint32_t n = mc_layout_world(t.l->layout), at = UINT32_MAX;
	struct mc_rank_tensors rank = {0};
	int r = 0;

	t.seen = calloc((size_t)t.l->n_tensors + 1, sizeof(*t.seen));
	if (t.seen == NULL)
		return -ENOMEM;
	/* Files of a rank follow each other. */
	for (uint32_t i = 0; i < m->n_files && r == 0; i++) {
		const struct mc_mat_file *f = &m->file[i];
		uint32_t where = f->view->where[f->entry];

		if (where >= f->view->n_files || f->view->file[where].words == NULL)
			continue;
		if (f->rank != at) {
			mc_rank_tensors_done(&rank);
			rank = (struct mc_rank_tensors){0};
			at = f->rank < n ? f->rank : 0;
			r = mc_sharding_rank(t.l->sharding, at, &rank, err);
		}
		if (r == 0)
			r = add_file(&t, m, i, &rank, err);
	}
	mc_rank_tensors_done(&rank);
	if (r == 0)
		r = put_all(m, w, &t, ret_unlisted, err);
	free(t.row);
	free(t.seen);
	return r;
}
