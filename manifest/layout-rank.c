/* From outputs to the tensors of one rank, and to the shards of all ranks. */
#include "manifest/layout-build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/dtype.h"
#include "tier/array.h"
#include "tier/cleanup.h"

/* An output being put together at one rank. */
struct assembly {
	const struct mc_sharding *s;
	const struct output *o;
	uint32_t rank;
	struct local_shape *shape; /* of one stack entry while it grows */
	uint64_t fused, stacked;   /* elements before this part; entries before this one */
	const struct piece_sink *sink;
	struct mc_err *err;
};

static int mismatch(const struct assembly *a, const char *what)
{
	return mc_err_set(
		a->err, -EINVAL, "tensor %s, rank %u: %s", a->s->names + a->o->name, a->rank, what);
}

/* All combinations of the segments of a cut. */
static int cut_pieces(const struct assembly *a, const struct member *m, const struct cut *c)
{
	uint32_t at[MC_BOX_RANK] = {0}, shift = a->o->stacked ? 1 : 0;
	struct mc_local_piece p = {.tensor = m->tensor, .stacked = a->o->stacked};

	for (uint32_t d = 0; d < c->rank; d++)
		if (c->dim[d].n == 0)
			return 0;
	p.box.rank = (uint8_t)c->rank;
	for (;;) {
		uint32_t d;
		int r;

		if (a->o->stacked)
			p.at[0] = a->stacked;
		for (d = 0; d < c->rank; d++) {
			const struct segment *g = &c->dim[d].seg[at[d]];

			p.box.off[d] = g->src;
			p.box.len[d] = g->len;
			p.at[d + shift] =
				g->dst + (a->o->n_parts > 1 && d == a->o->fuse_dim ? a->fused : 0);
		}
		r = a->sink->fn(a->sink->arg, &p);
		if (r < 0)
			return r;
		for (d = c->rank; d > 0 && ++at[d - 1] == c->dim[d - 1].n; d--)
			at[d - 1] = 0;
		if (d == 0)
			return 0;
	}
}

/* Scales can be joined only where their blocks end with the part. */
static int check_scales(const struct assembly *a, const struct member *m)
{
	const struct kind *k = &a->s->kind[m->kind];
	struct cut w;
	int r;

	if (k->follows == UINT32_MAX || m->part + 1 == a->o->n_parts)
		return 0;
	r = mc_ly_kind_cut(a->s, k->follows, a->rank, &w, a->err);
	if (r == 0 && w.dim[a->o->fuse_dim].len % k->block[a->o->fuse_dim] != 0)
		r = mismatch(a, "a part that is not the last ends inside a block of scales");
	return r;
}

static int add_part(struct assembly *a, const struct member *m, const struct cut *c)
{
	const struct kind *k = &a->s->kind[m->kind];
	struct local_shape *l = a->shape;
	uint32_t f = a->o->fuse_dim;

	if (a->o->n_parts > 1 && f >= c->rank)
		return mismatch(a, "the dimension to fuse is not there");
	if (m->part == 0) {
		l->dtype = k->dtype;
		l->rank = c->rank;
		for (uint32_t d = 0; d < c->rank; d++)
			l->shape[d] = c->dim[d].len;
		return 0;
	}
	if (l->dtype != k->dtype || l->rank != c->rank)
		return mismatch(a, "the parts to fuse differ in type or rank");
	for (uint32_t d = 0; d < c->rank; d++)
		if (d != f && l->shape[d] != c->dim[d].len)
			return mismatch(
				a, "the parts to fuse differ in a dimension that is not fused");
	return __builtin_add_overflow(l->shape[f], c->dim[f].len, &l->shape[f]) ? -EOVERFLOW : 0;
}

/* The parts of one stack entry, members first … first + n_parts. */
static int assemble_entry(struct assembly *a, uint32_t first, bool *ret_present)
{
	uint32_t present = 0;
	int r = 0;

	a->fused = 0;
	for (uint32_t i = 0; i < a->o->n_parts && r == 0; i++) {
		const struct member *m = &a->s->member[first + i];
		struct cut c;

		r = mc_ly_kind_cut(a->s, m->kind, a->rank, &c, a->err);
		if (r < 0 || !c.present)
			continue;
		if (present++ != i)
			break;
		r = add_part(a, m, &c);
		if (r == 0 && a->o->n_parts > 1)
			r = check_scales(a, m);
		if (r == 0 && a->sink != NULL && !c.zero)
			r = cut_pieces(a, m, &c);
		if (a->o->n_parts > 1)
			a->fused += c.dim[a->o->fuse_dim].len;
	}
	if (r == 0 && present > 0 && present < a->o->n_parts)
		r = mismatch(a, "only some of its parts are here");
	*ret_present = present > 0;
	return r;
}

static int stack_shape(
	const struct assembly *a, struct local_shape *whole, const struct local_shape *one)
{
	if (a->stacked > 0 &&
		(whole->dtype != one->dtype || whole->rank != one->rank + 1 ||
			memcmp(whole->shape + 1, one->shape, one->rank * sizeof(*one->shape)) != 0))
		return mismatch(a, "the tensors to stack differ in shape");
	if (one->rank + 1 > MC_BOX_RANK)
		return mismatch(a, "too many dimensions");
	whole->dtype = one->dtype;
	whole->rank = one->rank + 1;
	memcpy(whole->shape + 1, one->shape, one->rank * sizeof(*one->shape));
	return 0;
}

static int check_size(const struct assembly *a, const struct local_shape *l)
{
	uint64_t bytes;

	if (!l->present ||
		(mc_dtype_bytes(l->dtype, l->shape, l->rank, &bytes) == 0 &&
			bytes < MC_SIDE_MAX_BYTES))
		return 0;
	return mismatch(a, "it overflows or ends inside a byte");
}

int mc_ly_output_at(const struct mc_sharding *s, const struct output *o, uint32_t rank,
	struct local_shape *ret, const struct piece_sink *sink, struct mc_err *err)
{
	struct local_shape one = {0};
	struct assembly a = {.s = s, .o = o, .rank = rank, .shape = &one, .sink = sink, .err = err};

	memset(ret, 0, sizeof(*ret));
	for (uint32_t i = 0; i < o->n; i += o->n_parts) {
		bool present;
		int r = assemble_entry(&a, o->first + i, &present);

		if (r < 0)
			return r;
		if (!present)
			continue;
		if (!o->stacked) {
			*ret = one;
			ret->present = true;
			return o->n_parts > 1 ? check_size(&a, ret) : 0;
		}
		r = stack_shape(&a, ret, &one);
		if (r < 0)
			return r;
		ret->shape[0] = ++a.stacked;
		ret->present = true;
	}
	return check_size(&a, ret);
}

struct rank_list {
	struct mc_rank_tensors *t;
	uint32_t cap_pieces;
};

static int keep_piece(void *arg, const struct mc_local_piece *p)
{
	struct rank_list *l = arg;
	int r = mc_array_room(&l->t->piece, &l->cap_pieces, l->t->n_pieces + 1);

	if (r == 0)
		l->t->piece[l->t->n_pieces++] = *p;
	return r;
}

static int local_compare(const void *a, const void *b)
{
	return strcmp(((const struct mc_local *)a)->name, ((const struct mc_local *)b)->name);
}

static void add_constants(const struct mc_sharding *s, uint32_t rank, struct mc_rank_tensors *t)
{
	for (uint32_t i = 0; i < s->n_const_outputs; i++) {
		const struct const_output *c = &s->const_output[i];
		const struct constant *k = &s->l->constant[c->constant];
		struct mc_local *l = &t->local[t->n];

		if (c->like != UINT32_MAX && !mc_ly_kind_present(s, c->like, rank))
			continue;
		*l = (struct mc_local){.name = s->names + c->name,
			.dtype = k->dtype,
			.rank = (uint8_t)k->rank,
			.constant = true};
		memcpy(l->shape, k->shape, sizeof(l->shape));
		memcpy(l->value, k->value, sizeof(l->value));
		t->n++;
	}
	if (s->n_const_outputs > 0)
		qsort(t->local, t->n, sizeof(*t->local), local_compare);
}

int mc_sharding_rank(
	const struct mc_sharding *s, uint32_t rank, struct mc_rank_tensors *ret, struct mc_err *err)
{
	struct mc_rank_tensors t = {0};
	struct rank_list l = {.t = &t};
	const struct piece_sink sink = {.fn = keep_piece, .arg = &l};
	int r = 0;

	if (rank >= s->l->mesh.world)
		return mc_err_set(err, -EINVAL, "rank %u: the layout has ranks 0 to %u", rank,
			s->l->mesh.world - 1);
	t.local = malloc(((size_t)s->n_outputs + s->n_const_outputs + 1) * sizeof(*t.local));
	if (t.local == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->n_outputs && r == 0; i++) {
		const struct output *o = &s->output[i];
		struct mc_local *x = &t.local[t.n];
		struct local_shape shape;

		x->first = t.n_pieces;
		r = mc_ly_output_at(s, o, rank, &shape, &sink, err);
		if (r < 0 || !shape.present)
			continue;
		*x = (struct mc_local){.name = s->names + o->name,
			.dtype = shape.dtype,
			.rank = (uint8_t)shape.rank,
			.first = x->first,
			.n = t.n_pieces - x->first};
		memcpy(x->shape, shape.shape, sizeof(x->shape));
		t.n++;
	}
	if (r < 0) {
		mc_rank_tensors_done(&t);
		return r;
	}
	add_constants(s, rank, &t);
	*ret = t;
	return 0;
}

void mc_rank_tensors_done(struct mc_rank_tensors *t)
{
	free(t->local);
	free(t->piece);
	*t = (struct mc_rank_tensors){0};
}
