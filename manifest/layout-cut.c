/*
 * Kinds: a rule applied to tensors of one shape at one place of the mesh. Expressions are evaluated
 * once a kind; a cut is then arithmetic.
 */
#include "manifest/layout-build.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *mc_ly_rule_text(const struct mc_sharding *s, uint32_t rule, char *out, size_t size)
{
	if (rule == UINT32_MAX)
		snprintf(out, size, "the default rule");
	else
		snprintf(out, size, "rule %s (%.100s)", s->l->rule[rule].where,
			s->l->rule[rule].match);
	return out;
}

/* err: "tensor T, rule …: " before what is described already. */
static int in_tensor(
	const struct mc_sharding *s, const struct kind *k, int code, struct mc_err *err)
{
	char text[160];

	return mc_err_prefix(err, code, "tensor %s, %s", s->tensor[k->example].name,
		mc_ly_rule_text(s, k->rule, text, sizeof(text)));
}

static int optional_value(const struct mc_sharding *s, const json_t *expr, uint64_t otherwise,
	uint64_t *ret, struct mc_err *err)
{
	*ret = otherwise;
	return expr != NULL ? mc_ly_expr_value(&s->env, expr, ret, err) : 0;
}

/* Units of one part, and whether they can be dealt out. */
static int part_numbers(const struct num_split *n, struct num_part *p, uint64_t units,
	uint64_t granule, const struct axis *a, struct mc_err *err)
{
	if (units > 0 && p->size % units != 0)
		return mc_err_set(err, -EINVAL, "dimension %u: %llu elements are not %llu units",
			n->dim, (unsigned long long)p->size, (unsigned long long)units);
	if (units > 0 && p->size / units % granule != 0)
		return mc_err_set(err, -EINVAL,
			"dimension %u: units of %llu elements are no multiple of granule %llu",
			n->dim, (unsigned long long)(p->size / units), (unsigned long long)granule);
	if (units == 0 && n->kind == SPLIT_EVEN && p->size % granule != 0)
		return mc_err_set(err, -EINVAL,
			"dimension %u: %llu elements are no multiple of granule %llu", n->dim,
			(unsigned long long)p->size, (unsigned long long)granule);
	p->unit = units > 0 ? p->size / units : granule;
	p->units = units > 0 ? units : p->size / granule + (p->size % granule != 0);
	if (n->kind != SPLIT_EVEN || p->units % a->size == 0)
		return 0;
	if (p->replicate && p->units < a->size && a->size % p->units == 0)
		return 0;
	return mc_err_set(err, -EINVAL,
		"dimension %u: %llu units of %llu elements cannot be divided evenly among ranks 0 "
		"to %u of axis %s",
		n->dim, (unsigned long long)p->units, (unsigned long long)p->unit, a->size - 1,
		a->name);
}

static int sizes_numbers(const struct mc_sharding *s, const struct split *sp, struct num_split *n,
	struct mc_err *err)
{
	size_t count = json_array_size(sp->sizes);
	uint64_t sum = 0;

	n->sizes = calloc(count + 1, sizeof(*n->sizes));
	if (n->sizes == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		int r = mc_ly_expr_value(&s->env, json_array_get(sp->sizes, i), &n->sizes[i], err);

		if (r < 0)
			return r;
		if (n->sizes[i] > n->part[0].units - sum)
			return mc_err_set(err, -EINVAL,
				"dimension %u: the sizes add up to more than %llu units", n->dim,
				(unsigned long long)n->part[0].units);
		sum += n->sizes[i];
	}
	if (sum != n->part[0].units)
		return mc_err_set(err, -EINVAL,
			"dimension %u: the sizes add up to %llu of %llu units", n->dim,
			(unsigned long long)sum, (unsigned long long)n->part[0].units);
	return 0;
}

/* The parts of a fused dimension, or the whole dimension with its padding as the only part. */
static int split_parts(const struct mc_sharding *s, const struct split *sp, struct num_split *n,
	uint64_t granule, struct mc_err *err)
{
	const struct axis *a = &s->l->mesh.axis[sp->axis];
	uint64_t units[MAX_PARTS] = {0}, pad, sum = 0;
	int r = 0;

	n->n_parts = sp->n_parts > 0 ? sp->n_parts : 1;
	for (uint32_t i = 0; i < sp->n_parts && r == 0; i++) {
		r = mc_ly_expr_value(&s->env, sp->part[i].size, &n->part[i].size, err);
		if (r == 0)
			r = optional_value(s, sp->part[i].units, 0, &units[i], err);
		n->part[i].replicate =
			sp->part[i].replicate_set ? sp->part[i].replicate : sp->replicate;
		sum += n->part[i].size;
	}
	if (r == 0 && sp->n_parts > 0 && sum != n->size)
		r = mc_err_set(err, -EINVAL,
			"dimension %u: the parts add up to %llu of %llu elements", n->dim,
			(unsigned long long)sum, (unsigned long long)n->size);
	if (r == 0 && sp->n_parts == 0) {
		r = optional_value(s, sp->pad, 0, &pad, err);
		n->part[0].size = n->size;
		n->part[0].replicate = sp->replicate;
		if (r == 0 && pad > 0 && n->size % pad != 0 &&
			__builtin_add_overflow(n->size, pad - n->size % pad, &n->part[0].size))
			r = -EOVERFLOW;
		if (r == 0)
			r = optional_value(s, sp->units, 0, &units[0], err);
	}
	for (uint32_t i = 0; i < n->n_parts && r == 0; i++)
		r = part_numbers(n, &n->part[i], units[i], granule, a, err);
	if (r == 0 && sp->sizes != NULL)
		r = sizes_numbers(s, sp, n, err);
	return r;
}

static int split_numbers(const struct mc_sharding *s, const struct kind *k, const struct split *sp,
	struct num_split *n, struct mc_err *err)
{
	uint64_t granule, interleave;
	int r;

	*n = (struct num_split){.axis = sp->axis, .dim = sp->dim, .kind = sp->kind};
	if (sp->dim >= k->rank)
		return mc_err_set(
			err, -EINVAL, "dimension %u of a tensor with %u", sp->dim, k->rank);
	n->size = k->shape[sp->dim];
	r = optional_value(s, sp->granule, 1, &granule, err);
	if (r == 0)
		r = optional_value(s, sp->interleave, 1, &interleave, err);
	if (r == 0 &&
		(granule == 0 || interleave == 0 ||
			__builtin_mul_overflow(granule, interleave, &granule)))
		r = mc_err_set(err, -EINVAL, "dimension %u: a granule of 0", sp->dim);
	return r < 0 ? r : split_parts(s, sp, n, granule, err);
}

static int follow_numbers(const struct mc_sharding *s, struct kind *k, struct mc_err *err)
{
	const struct rule *u = &s->l->rule[k->rule];
	const struct kind *w = &s->kind[k->follows];

	if (k->rank > w->rank || json_array_size(u->block) < k->rank)
		return mc_err_set(err, -EINVAL,
			"%u dimensions follow a tensor of %u in blocks of %zu", k->rank, w->rank,
			json_array_size(u->block));
	for (uint32_t d = 0; d < k->rank; d++) {
		int r = mc_ly_expr_value(&s->env, json_array_get(u->block, d), &k->block[d], err);

		if (r < 0)
			return r;
		if (k->block[d] == 0 ||
			k->shape[d] != (w->shape[d] + k->block[d] - 1) / k->block[d])
			return mc_err_set(err, -EINVAL,
				"dimension %u: %llu entries for %llu elements in blocks of %llu", d,
				(unsigned long long)k->shape[d], (unsigned long long)w->shape[d],
				(unsigned long long)k->block[d]);
	}
	return 0;
}

int mc_ly_kind_numbers(struct mc_sharding *s, struct kind *k, struct mc_err *err)
{
	const struct rule *u = k->rule != UINT32_MAX ? &s->l->rule[k->rule] : NULL;
	int r = 0;

	if (u == NULL || s->l->style == MC_STYLE_SUBSET)
		return 0;
	if (k->follows != UINT32_MAX)
		r = follow_numbers(s, k, err);
	for (uint32_t i = 0; i < u->n_splits && r == 0; i++)
		r = split_numbers(s, k, &u->split[i], &k->split[k->n_splits++], err);
	return r < 0 ? in_tensor(s, k, r, err) : 0;
}

void mc_ly_kind_done(struct kind *k)
{
	for (uint32_t i = 0; i < k->n_splits; i++)
		free(k->split[i].sizes);
}

bool mc_ly_kind_present(const struct mc_sharding *s, uint32_t kind, uint32_t rank)
{
	const struct kind *k = &s->kind[kind];
	const struct mesh *m = &s->l->mesh;
	const struct rule *u = k->rule != UINT32_MAX ? &s->l->rule[k->rule] : NULL;

	if (k->stage != STAGE_ALL) {
		uint32_t at = mc_ly_mesh_at(m, s->l->pp, rank);

		if (k->stage == STAGE_ENDS ? at != 0 && at + 1 != s->n_stages : at != k->stage)
			return false;
	}
	for (uint32_t i = 0; u != NULL && i < u->n_owns; i++)
		if (mc_ly_mesh_at(m, u->own[i].axis, rank) != k->owner[i])
			return false;
	if (u != NULL && u->only && !u->only_zero &&
		mc_ly_mesh_at(m, u->only_axis, rank) != u->only_rank)
		return false;
	return k->follows == UINT32_MAX || mc_ly_kind_present(s, k->follows, rank);
}

/* Units [lo, hi) of coordinate c. */
static void deal(const struct num_split *n, const struct num_part *p, uint32_t c, uint32_t size,
	uint64_t *ret_lo, uint64_t *ret_hi)
{
	uint64_t each = p->units / size, rest = p->units % size, lo = c * each, hi = lo + each;

	if (n->kind == SPLIT_EVEN && rest != 0) { /* fewer units than ranks: replicated */
		lo = c / (size / p->units);
		hi = lo + 1;
	} else if (n->kind == SPLIT_CEIL) {
		each += rest != 0;
		lo = c * each < p->units ? c * each : p->units;
		hi = lo + each < p->units ? lo + each : p->units;
	} else if (n->kind == SPLIT_BALANCED) {
		lo += c < rest ? c : rest;
		hi = lo + each + (c < rest);
	} else if (n->kind == SPLIT_SIZES) {
		lo = 0;
		for (uint32_t i = 0; i < c; i++)
			lo += n->sizes[i];
		hi = lo + n->sizes[c];
	}
	*ret_lo = lo;
	*ret_hi = hi;
}

static void split_cut(
	const struct mc_sharding *s, const struct num_split *n, uint32_t rank, struct dim_cut *ret)
{
	uint32_t c = mc_ly_mesh_at(&s->l->mesh, n->axis, rank),
		 size = s->l->mesh.axis[n->axis].size;
	uint64_t base = 0;

	ret->n = 0;
	ret->len = 0;
	for (uint32_t i = 0; i < n->n_parts; i++) {
		const struct num_part *p = &n->part[i];
		uint64_t lo, hi, len;

		deal(n, p, c, size, &lo, &hi);
		lo = lo * p->unit < p->size ? lo * p->unit : p->size;
		hi = hi * p->unit < p->size ? hi * p->unit : p->size;
		len = base + hi <= n->size    ? hi - lo
			: base + lo < n->size ? n->size - base - lo
					      : 0;
		if (len > 0)
			ret->seg[ret->n++] =
				(struct segment){.src = base + lo, .len = len, .dst = ret->len};
		ret->len += hi - lo;
		base += p->size;
	}
}

static int off_grid(const struct mc_sharding *s, const struct kind *k, uint32_t d, uint64_t at,
	struct mc_err *err)
{
	mc_err_set(err, -EINVAL,
		"dimension %u: the shard of %s ends at %llu, not on a block of %llu "
		"(\"edge\": \"cover\" takes the whole block)",
		d, s->tensor[s->kind[k->follows].example].name, (unsigned long long)at,
		(unsigned long long)k->block[d]);
	return in_tensor(s, k, -EINVAL, err);
}

/* One dimension of scales from the same dimension of the weight. */
static int follow_dim(const struct mc_sharding *s, const struct kind *k, uint32_t d,
	const struct dim_cut *w, struct dim_cut *ret, struct mc_err *err)
{
	const struct rule *u = &s->l->rule[k->rule];
	uint64_t b = k->block[d], whole = s->kind[k->follows].shape[d];

	ret->n = w->n;
	ret->len = 0;
	for (uint32_t i = 0; i < w->n; i++) {
		const struct segment *g = &w->seg[i];
		uint64_t end = g->src + g->len, lo = g->src / b, hi = (end + b - 1) / b;

		if (u->edge != EDGE_COVER) {
			if (g->src % b != 0)
				return off_grid(s, k, d, g->src, err);
			if (end % b != 0 && end != whole)
				return off_grid(s, k, d, end, err);
			if (g->dst % b != 0)
				return off_grid(s, k, d, g->dst, err);
		}
		ret->seg[i] = (struct segment){.src = lo, .len = hi - lo, .dst = ret->len};
		ret->len += hi - lo;
	}
	if (u->edge == EDGE_PAD && ret->len < (w->len + b - 1) / b)
		ret->len = (w->len + b - 1) / b;
	return 0;
}

int mc_ly_kind_cut(const struct mc_sharding *s, uint32_t kind, uint32_t rank, struct cut *ret,
	struct mc_err *err)
{
	const struct kind *k = &s->kind[kind];
	const struct rule *u = k->rule != UINT32_MAX ? &s->l->rule[k->rule] : NULL;
	int r = 0;

	ret->present = mc_ly_kind_present(s, kind, rank);
	ret->zero = false;
	ret->rank = k->rank;
	if (!ret->present)
		return 0;
	for (uint32_t d = 0; d < k->rank; d++) {
		ret->dim[d].seg[0] = (struct segment){.len = k->shape[d]};
		ret->dim[d].n = k->shape[d] > 0;
		ret->dim[d].len = k->shape[d];
	}
	if (u == NULL || s->l->style == MC_STYLE_SUBSET)
		return 0;
	ret->zero = u->only && mc_ly_mesh_at(&s->l->mesh, u->only_axis, rank) != u->only_rank;
	for (uint32_t i = 0; i < k->n_splits; i++)
		split_cut(s, &k->split[i], rank, &ret->dim[k->split[i].dim]);
	if (k->follows != UINT32_MAX) {
		struct cut w;

		r = mc_ly_kind_cut(s, k->follows, rank, &w, err);
		for (uint32_t d = 0; d < k->rank && r == 0; d++)
			r = follow_dim(s, k, d, &w.dim[d], &ret->dim[d], err);
		if (r < 0)
			r = mc_err_prefix(err, r, "rank %u", rank);
	}
	return r;
}
