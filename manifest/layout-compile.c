/*
 * Compiling a layout against a model: every tensor gets a kind (rule × shape × place), then all
 * kinds are checked at all ranks, so that nothing is left to fail when a view is opened.
 */
#include "manifest/layout-build.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/dtype.h"
#include "tier/cleanup.h"

/* Evaluated once for the document, not once a tensor. */
struct counts {
	uint64_t (*of_rule)[MAX_OWNS]; /* by rule, owned */
	uint8_t *used;                 /* by rule, owned */
};

static int owner_of(
	const struct mc_sharding *s, const struct own *w, uint64_t e, uint64_t count, uint32_t *ret)
{
	uint64_t n = s->l->mesh.axis[w->axis].size, base = count / n, more = count % n;

	if (w->place == PLACE_TABLE)
		*ret = (uint32_t)json_integer_value(json_array_get(w->table, e));
	else if (w->place == PLACE_ROUND_ROBIN)
		*ret = (uint32_t)(e % n);
	else if (e < more * (base + 1))
		*ret = (uint32_t)(e / (base + 1));
	else
		*ret = (uint32_t)(more + (e - more * (base + 1)) / base);
	return 0;
}

static int owners_of(const struct mc_sharding *s, const struct counts *c, uint32_t tensor,
	const struct mc_match *m, struct kind *k, struct mc_err *err)
{
	const struct rule *u = &s->l->rule[k->rule];
	const char *name = s->tensor[tensor].name;

	for (uint32_t i = 0; i < u->n_owns; i++) {
		uint64_t e, count = c->of_rule[k->rule][i];

		if (mc_match_number(m, name, u->own[i].index, &e) < 0)
			return mc_err_set(err, -EINVAL,
				"tensor %s, rule %s: wildcard %u is no plain number", name,
				u->where, u->own[i].index);
		if (e >= count)
			return mc_err_set(err, -EINVAL, "tensor %s, rule %s: number %llu of %llu",
				name, u->where, (unsigned long long)e, (unsigned long long)count);
		owner_of(s, &u->own[i], e, count, &k->owner[i]);
	}
	return 0;
}

static int counts_init(struct mc_sharding *s, struct counts *c, struct mc_err *err)
{
	c->of_rule = calloc(s->l->n_rules + 1, sizeof(*c->of_rule));
	c->used = calloc(s->l->n_rules + 1, 1);
	if (c->of_rule == NULL || c->used == NULL)
		return -ENOMEM;
	return 0;
}

/* The counts of a rule's own entries, at its first use: an unused rule may name absent keys. */
static int count_owned(struct mc_sharding *s, struct counts *c, uint32_t rule, struct mc_err *err)
{
	const struct rule *u = &s->l->rule[rule];

	if (c->used[rule])
		return 0;
	c->used[rule] = 1;
	for (uint32_t i = 0; i < u->n_owns; i++) {
		uint64_t *n = &c->of_rule[rule][i];
		int r = mc_ly_expr_value(&s->env, u->own[i].count, n, err);

		if (r < 0)
			return mc_err_prefix(err, r, "layout %s/own", u->where);
		if (u->own[i].place == PLACE_TABLE && json_array_size(u->own[i].table) != *n)
			return mc_err_set(err, -EINVAL, "layout %s/own: a table of %zu for %llu",
				u->where, json_array_size(u->own[i].table), (unsigned long long)*n);
	}
	return 0;
}

/* Types that only packed or index data has; cutting them needs a word about their units. */
static bool packed_type(uint8_t dtype)
{
	return dtype == MC_DTYPE_I16 || dtype == MC_DTYPE_U16 || dtype == MC_DTYPE_I32 ||
		dtype == MC_DTYPE_U32 || dtype == MC_DTYPE_I64 || dtype == MC_DTYPE_U64;
}

static int check_packed(
	const struct mc_sharding *s, uint32_t tensor, const struct rule *u, struct mc_err *err)
{
	const struct mc_layout_tensor *t = &s->tensor[tensor];
	size_t len = strlen(t->name);

	if (u->n_splits > 0 && len >= 13 && strcmp(t->name + len - 13, ".weight_shape") == 0)
		return mc_err_set(err, -EINVAL,
			"tensor %s, rule %s: it holds the shape of the whole weight, which is "
			"wrong for a part",
			t->name, u->where);
	for (uint32_t i = 0; packed_type(t->dtype) && i < u->n_splits; i++)
		if (u->split[i].granule == NULL && u->split[i].units == NULL &&
			u->split[i].n_parts == 0)
			return mc_err_set(err, -EINVAL,
				"tensor %s, rule %s: %s is packed or index data; cutting dimension "
				"%u needs a "
				"\"granule\" (pack factor and group)",
				t->name, u->where, mc_dtype_name(t->dtype), u->split[i].dim);
	return 0;
}

static uint32_t find_rule(
	const struct mc_sharding *s, const char *name, size_t len, struct mc_match *m)
{
	for (uint32_t i = 0; i < s->l->n_rules; i++)
		if (mc_name_pattern_match(s->l->rule[i].pattern, name, len, m))
			return i;
	return UINT32_MAX;
}

static void kind_of_tensor(
	const struct mc_sharding *s, uint32_t tensor, uint32_t rule, struct kind *k)
{
	const struct mc_layout_tensor *t = &s->tensor[tensor];

	memset(k, 0, sizeof(*k));
	k->rule = rule;
	k->dtype = t->dtype;
	k->rank = t->rank;
	k->stage = STAGE_ALL;
	k->follows = UINT32_MAX;
	k->example = tensor;
	memcpy(k->shape, t->shape, sizeof(k->shape));
}

#define KIND_LATER (UINT32_MAX - 1) /* a follower, until its weight has a kind */

static int resolve(struct mc_sharding *s, struct counts *c, uint32_t tensor, uint32_t *rule_of,
	struct mc_err *err)
{
	const char *name = s->tensor[tensor].name;
	size_t len = strlen(name);
	struct mc_match m;
	struct kind k;
	uint32_t rule = find_rule(s, name, len, &m);
	bool drop;
	int r;

	rule_of[tensor] = rule;
	s->kind_of[tensor] = UINT32_MAX;
	if (rule == UINT32_MAX && s->l->fallback == FALLBACK_DROP)
		return 0;
	kind_of_tensor(s, tensor, rule, &k);
	r = mc_ly_stage_of(s, name, len, &k.stage, &drop, err);
	if (r < 0 || drop)
		return r;
	if (rule == UINT32_MAX && s->l->fallback == FALLBACK_ERROR)
		return mc_err_set(
			err, -EINVAL, "tensor %s: no rule of the layout matches it", name);
	if (rule == UINT32_MAX)
		return mc_ly_kind_intern(s, &k, &s->kind_of[tensor], err);
	r = count_owned(s, c, rule, err);
	if (r < 0 || s->l->rule[rule].drop)
		return r;
	if (s->l->rule[rule].follow != NULL) {
		s->kind_of[tensor] = KIND_LATER;
		return 0;
	}
	r = check_packed(s, tensor, &s->l->rule[rule], err);
	if (r == 0)
		r = owners_of(s, c, tensor, &m, &k, err);
	return r < 0 ? r : mc_ly_kind_intern(s, &k, &s->kind_of[tensor], err);
}

static int resolve_follower(
	struct mc_sharding *s, uint32_t tensor, uint32_t rule, struct mc_err *err)
{
	const struct rule *u = &s->l->rule[rule];
	const char *name = s->tensor[tensor].name;
	size_t len = strlen(name), cut = strlen(u->follow);
	uint32_t weight = UINT32_MAX;
	struct kind k;

	if (s->name_hash == NULL && mc_ly_names_index(s) < 0)
		return -ENOMEM;
	if (len > cut && strcmp(name + len - cut, u->follow) == 0)
		weight = mc_ly_tensor_find(s, name, len - cut);
	if (weight == UINT32_MAX || s->kind_of[weight] == KIND_LATER)
		return mc_err_set(err, -EINVAL,
			"tensor %s, rule %s: there is no tensor of that name without \"%s\"", name,
			u->where, u->follow);
	s->kind_of[tensor] = UINT32_MAX;
	if (s->kind_of[weight] == UINT32_MAX)
		return 0;
	kind_of_tensor(s, tensor, rule, &k);
	k.follows = s->kind_of[weight];
	return mc_ly_kind_intern(s, &k, &s->kind_of[tensor], err);
}

static int resolve_all(struct mc_sharding *s, struct counts *c, struct mc_err *err)
{
	cleanup_free uint32_t *rule_of = malloc(((size_t)s->n_tensors + 1) * sizeof(*rule_of));
	int r = rule_of != NULL ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < s->n_tensors && r == 0; i++)
		r = resolve(s, c, i, rule_of, err);
	for (uint32_t i = 0; i < s->n_tensors && r == 0; i++)
		if (s->kind_of[i] == KIND_LATER)
			r = resolve_follower(s, i, rule_of[i], err);
	for (uint32_t i = 0; i < s->l->n_rules && r == 0; i++)
		if (!c->used[i] && !s->l->rule[i].optional && !s->l->unused_allowed)
			r = mc_err_set(err, -EINVAL,
				"layout %s: no tensor matches %s (\"optional\": true allows that)",
				s->l->rule[i].where, s->l->rule[i].match);
	return r;
}

static int check_quantisation(const struct mc_sharding *s, const json_t *config, struct mc_err *err)
{
	const char *method = json_string_value(
		json_object_get(json_object_get(config, "quantization_config"), "quant_method"));

	if (s->l->quant == NULL)
		return 0;
	if (method == NULL)
		method = "";
	for (size_t i = 0; i < json_array_size(s->l->quant); i++) {
		const char *v = json_string_value(json_array_get(s->l->quant, i));

		if (v != NULL && strcmp(v, method) == 0)
			return 0;
	}
	return mc_err_set(err, -EINVAL,
		"the model's quantisation \"%.64s\" is none that this layout cuts: packed weights "
		"would be cut wrongly",
		method);
}

static int check_sources(const struct mc_layout_in *in, struct mc_err *err)
{
	for (uint32_t i = 0; i < in->n_tensors; i++) {
		const struct mc_layout_tensor *t = &in->tensors[i];
		uint64_t bytes;

		if (t->rank > MC_BOX_RANK || t->dtype >= MC_DTYPE_COUNT ||
			strlen(t->name) > MC_NAME_MAX)
			return mc_err_set(err, -EINVAL,
				"tensor %.200s: rank, type or name out of range", t->name);
		if (mc_dtype_bytes(t->dtype, t->shape, t->rank, &bytes) < 0 ||
			bytes > MC_SIDE_MAX_BYTES)
			return mc_err_set(
				err, -EOVERFLOW, "tensor %s: its shape overflows", t->name);
	}
	return 0;
}

/* A rank's tensor must be addressable, whatever padding was asked for. */
static int check_size(const struct mc_sharding *s, uint32_t kind, uint32_t rank,
	const struct cut *c, struct mc_err *err)
{
	uint64_t shape[MC_BOX_RANK], bytes;

	for (uint32_t d = 0; d < c->rank; d++)
		shape[d] = c->dim[d].len;
	if (mc_dtype_bytes(s->kind[kind].dtype, shape, c->rank, &bytes) == 0 &&
		bytes < MC_SIDE_MAX_BYTES)
		return 0;
	return mc_err_set(err, -EOVERFLOW,
		"tensor %s, rank %u: the shard overflows or ends inside a byte",
		s->tensor[s->kind[kind].example].name, rank);
}

/* Every kind at every rank. */
static int check_cuts(const struct mc_sharding *s, struct mc_err *err)
{
	if ((uint64_t)s->n_kinds * s->l->mesh.world > MC_LAYOUT_MAX_CUTS)
		return mc_err_set(err, -E2BIG, "%u kinds of tensors on %u ranks are too many",
			s->n_kinds, s->l->mesh.world);
	for (uint32_t k = 0; k < s->n_kinds; k++)
		for (uint32_t rank = 0; rank < s->l->mesh.world; rank++) {
			struct cut c;
			int r = mc_ly_kind_cut(s, k, rank, &c, err);

			if (r == 0 && c.present)
				r = check_size(s, k, rank, &c, err);
			if (r < 0)
				return r;
		}
	return 0;
}

/* Everything that is fused or stacked, at every rank. */
static int check_outputs(const struct mc_sharding *s, struct mc_err *err)
{
	uint64_t cuts = 0;

	for (uint32_t i = 0; i < s->n_outputs; i++) {
		const struct output *o = &s->output[i];

		if (o->n == 1 && !o->stacked)
			continue;
		cuts += (uint64_t)o->n * s->l->mesh.world;
		if (cuts > MC_LAYOUT_MAX_CUTS)
			return mc_err_set(err, -E2BIG,
				"fused and stacked tensors on %u ranks are too many",
				s->l->mesh.world);
		for (uint32_t rank = 0; rank < s->l->mesh.world; rank++) {
			struct local_shape shape;
			int r = mc_ly_output_at(s, o, rank, &shape, NULL, err);

			if (r < 0)
				return r;
		}
	}
	return 0;
}

int mc_layout_compile(const struct mc_layout_in *in, struct mc_sharding **ret, struct mc_err *err)
{
	struct mc_sharding *s = calloc(1, sizeof(*s));
	struct counts c = {0};
	int r;

	if (s == NULL)
		return mc_err_set(err, -ENOMEM, "no memory for the layout");
	s->l = in->layout;
	s->tensor = in->tensors;
	s->n_tensors = in->n_tensors;
	s->env = (struct expr_env){.params = in->layout->params, .config = in->config};
	s->kind_of = malloc(((size_t)in->n_tensors + 1) * sizeof(*s->kind_of));
	r = s->kind_of != NULL ? check_sources(in, err) : -ENOMEM;
	if (r == 0)
		r = check_quantisation(s, in->config, err);
	if (r == 0)
		r = counts_init(s, &c, err);
	if (r == 0)
		r = mc_ly_stages_make(s, err);
	if (r == 0)
		r = resolve_all(s, &c, err);
	if (r == 0)
		r = check_cuts(s, err);
	if (r == 0)
		r = mc_ly_outputs_make(s, err);
	if (r == 0)
		r = check_outputs(s, err);
	free(c.of_rule);
	free(c.used);
	s->env = (struct expr_env){0};
	if (r < 0) {
		mc_sharding_free(s);
		return mc_err_set(err, r, "the layout does not fit the model: %s", strerror(-r));
	}
	*ret = s;
	return 0;
}

const char *mc_sharding_explain(
	const struct mc_sharding *s, uint32_t tensor, char *out, size_t size)
{
	if (s->kind_of[tensor] == UINT32_MAX)
		snprintf(out, size, "dropped");
	else
		mc_ly_rule_text(s, s->kind[s->kind_of[tensor]].rule, out, size);
	return out;
}

void mc_sharding_free(struct mc_sharding *s)
{
	if (s == NULL)
		return;
	for (uint32_t i = 0; i < s->n_kinds; i++)
		mc_ly_kind_done(&s->kind[i]);
	free(s->kind);
	free(s->kind_hash);
	free(s->kind_of);
	free(s->name_hash);
	free(s->stage_of_layer);
	free(s->output);
	free(s->member);
	free(s->names);
	free(s->out_first);
	free(s->out_list);
	free(s->const_output);
	free(s);
}
