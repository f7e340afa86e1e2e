/* The rules of a layout document, read strictly. */
#include "manifest/layout-build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int part_parse(const json_t *o, struct part *ret, const struct pointer *p)
{
	static const char *const keys[] = {"size", "units", "over", NULL};
	static const char *const overs[] = {"error", "replicate", NULL};
	unsigned over = 0;
	int r = mc_ly_only_keys(o, keys, p);

	if (r == 0)
		r = mc_ly_get_expr(o, "size", &ret->size, p);
	if (r == 0)
		r = mc_ly_get_expr(o, "units", &ret->units, p);
	if (r == 0)
		r = mc_ly_get_choice(o, "over", overs, &over, p);
	if (r == 0 && ret->size == NULL)
		r = mc_ly_bad_at(p, "\"size\" is missing");
	ret->replicate_set = json_object_get(o, "over") != NULL;
	ret->replicate = over == 1;
	return r;
}

static int parts_parse(const json_t *o, struct split *s, const struct pointer *p)
{
	struct pointer q = mc_ly_deeper(p, "parts", 0);
	const json_t *v = NULL;
	int r = mc_ly_get_array(o, "parts", MAX_PARTS, &v, p);

	if (r < 0 || v == NULL)
		return r;
	if (json_array_size(v) == 0)
		return mc_ly_bad_at(&q, "no parts");
	for (size_t i = 0; i < json_array_size(v) && r == 0; i++) {
		struct pointer t = mc_ly_deeper(&q, NULL, i);

		r = part_parse(json_array_get(v, i), &s->part[s->n_parts++], &t);
	}
	return r;
}

static int pad_parse(const json_t *o, struct split *s, const struct pointer *p)
{
	const char *text = json_string_value(json_object_get(o, "pad"));

	if (text != NULL && strcmp(text, "none") == 0)
		return 0;
	return mc_ly_get_expr(o, "pad", &s->pad, p);
}

static int split_parse(
	const json_t *o, const struct mesh *m, struct split *s, const struct pointer *p)
{
	static const char *const keys[] = {"axis", "dim", "kind", "units", "granule", "parts",
		"interleave", "over", "pad", "sizes", NULL};
	static const char *const kinds[] = {"even", "ceil", "balanced", "sizes", NULL};
	static const char *const overs[] = {"error", "replicate", NULL};
	unsigned kind = SPLIT_EVEN, over = 0;
	int r = mc_ly_only_keys(o, keys, p);

	if (r == 0)
		r = mc_ly_get_axis(o, "axis", m, &s->axis, p);
	if (r == 0 && json_object_get(o, "dim") == NULL)
		r = mc_ly_bad_at(p, "\"dim\" is missing");
	if (r == 0)
		r = mc_ly_get_uint(o, "dim", MC_BOX_RANK - 1, &s->dim, p);
	if (r == 0)
		r = mc_ly_get_choice(o, "kind", kinds, &kind, p);
	if (r == 0)
		r = mc_ly_get_choice(o, "over", overs, &over, p);
	if (r == 0)
		r = mc_ly_get_expr(o, "units", &s->units, p);
	if (r == 0)
		r = mc_ly_get_expr(o, "granule", &s->granule, p);
	if (r == 0)
		r = mc_ly_get_expr(o, "interleave", &s->interleave, p);
	if (r == 0)
		r = pad_parse(o, s, p);
	if (r == 0)
		r = parts_parse(o, s, p);
	if (r == 0)
		r = mc_ly_get_array(o, "sizes", MC_LAYOUT_MAX_WORLD, &s->sizes, p);
	s->kind = (enum split_kind)kind;
	s->replicate = over == 1;
	if (r == 0 && (s->kind == SPLIT_SIZES) != (s->sizes != NULL))
		r = mc_ly_bad_at(p, "\"sizes\" and \"kind\": \"sizes\" go together");
	if (r == 0 && s->sizes != NULL && json_array_size(s->sizes) != m->axis[s->axis].size)
		r = mc_ly_bad_at(p, "%zu sizes for the %u ranks of axis \"%s\"",
			json_array_size(s->sizes), m->axis[s->axis].size, m->axis[s->axis].name);
	if (r == 0 && s->n_parts > 0 && (s->pad != NULL || s->units != NULL || s->sizes != NULL))
		r = mc_ly_bad_at(
			p, "\"parts\" have their own units and take neither \"pad\" nor \"sizes\"");
	if (r == 0 && s->replicate && s->n_parts == 0 && s->units == NULL)
		r = mc_ly_bad_at(p, "\"over\": \"replicate\" needs \"units\"");
	for (size_t i = 0; r == 0 && i < json_array_size(s->sizes); i++)
		if (!json_is_integer(json_array_get(s->sizes, i)) &&
			!json_is_string(json_array_get(s->sizes, i)))
			r = mc_ly_bad_at(p, "size %zu is neither a number nor an expression", i);
	return r;
}

static int own_parse(const json_t *o, const struct mesh *m, struct own *w, const struct pointer *p)
{
	static const char *const keys[] = {"axis", "index", "count", "place", NULL};
	static const char *const places[] = {"linear", "round_robin", NULL};
	const json_t *place = json_object_get(o, "place");
	struct pointer q = mc_ly_deeper(p, "place", 0);
	unsigned which = PLACE_LINEAR;
	int r = mc_ly_only_keys(o, keys, p);

	if (r == 0)
		r = mc_ly_get_axis(o, "axis", m, &w->axis, p);
	if (r == 0)
		r = mc_ly_get_uint(o, "index", MC_CAPTURES, &w->index, p);
	if (r == 0)
		r = mc_ly_get_expr(o, "count", &w->count, p);
	if (r == 0 && json_is_array(place)) {
		w->table = place;
		w->place = PLACE_TABLE;
		for (size_t i = 0; i < json_array_size(place) && r == 0; i++) {
			const json_t *v = json_array_get(place, i);

			if (!json_is_integer(v) || json_integer_value(v) < 0 ||
				json_integer_value(v) >= m->axis[w->axis].size)
				r = mc_ly_bad_at(&q,
					"entry %zu is no rank of axis \"%s\" (size %u)", i,
					m->axis[w->axis].name, m->axis[w->axis].size);
		}
	} else if (r == 0) {
		r = mc_ly_get_choice(o, "place", places, &which, p);
		w->place = (enum place)which;
	}
	if (r == 0 && (w->index == 0 || w->count == NULL))
		r = mc_ly_bad_at(p, "\"index\" (from 1) and \"count\" are needed");
	return r;
}

static int follow_parse(const json_t *o, struct rule *u, const struct pointer *p)
{
	static const char *const keys[] = {"strip", "block", "edge", NULL};
	static const char *const edges[] = {"error", "cover", "pad", NULL};
	unsigned edge = EDGE_ERROR;
	int r = mc_ly_only_keys(o, keys, p);

	if (r == 0)
		r = mc_ly_get_string(o, "strip", &u->follow, p);
	if (r == 0)
		r = mc_ly_get_array(o, "block", MC_BOX_RANK, &u->block, p);
	if (r == 0)
		r = mc_ly_get_choice(o, "edge", edges, &edge, p);
	u->edge = (enum edge)edge;
	if (r == 0 && (u->follow == NULL || u->follow[0] == 0 || u->block == NULL))
		r = mc_ly_bad_at(p, "\"strip\" and \"block\" are needed");
	for (size_t i = 0; r == 0 && i < json_array_size(u->block); i++)
		if (!json_is_integer(json_array_get(u->block, i)) &&
			!json_is_string(json_array_get(u->block, i)))
			r = mc_ly_bad_at(p, "block %zu is neither a number nor an expression", i);
	return r;
}

static int only_parse(
	const json_t *o, const struct mesh *m, struct rule *u, const struct pointer *p)
{
	static const char *const keys[] = {"axis", "rank", "else", NULL};
	static const char *const elses[] = {"zero", "drop", NULL};
	unsigned other = 0;
	int r = mc_ly_only_keys(o, keys, p);

	if (r == 0)
		r = mc_ly_get_axis(o, "axis", m, &u->only_axis, p);
	if (r == 0)
		r = mc_ly_get_uint(o, "rank", m->axis[u->only_axis].size - 1, &u->only_rank, p);
	if (r == 0)
		r = mc_ly_get_choice(o, "else", elses, &other, p);
	u->only = true;
	u->only_zero = other == 0;
	return r;
}

static int splits_parse(
	const json_t *o, const struct mesh *m, struct rule *u, const struct pointer *p)
{
	struct pointer q = mc_ly_deeper(p, "split", 0);
	const json_t *v = NULL;
	int r = mc_ly_get_array(o, "split", MAX_SPLITS, &v, p);

	for (size_t i = 0; r == 0 && i < json_array_size(v); i++) {
		struct pointer s = mc_ly_deeper(&q, NULL, i);

		r = split_parse(json_array_get(v, i), m, &u->split[u->n_splits++], &s);
		for (uint32_t k = 0; k + 1 < u->n_splits && r == 0; k++)
			if (u->split[k].dim == u->split[i].dim)
				r = mc_ly_bad_at(&s,
					"dimension %u is split twice; use a derived axis",
					u->split[i].dim);
	}
	return r;
}

static int owns_parse(
	const json_t *o, const struct mesh *m, struct rule *u, const struct pointer *p)
{
	struct pointer q = mc_ly_deeper(p, "own", 0);
	const json_t *v = NULL;
	int r = mc_ly_get_array(o, "own", MAX_OWNS, &v, p);

	for (size_t i = 0; r == 0 && i < json_array_size(v); i++) {
		struct pointer s = mc_ly_deeper(&q, NULL, i);

		r = own_parse(json_array_get(v, i), m, &u->own[u->n_owns++], &s);
		if (r == 0 && u->own[i].index > mc_name_pattern_captures(u->pattern))
			r = mc_ly_bad_at(
				&s, "the pattern has no wildcard number %u", u->own[i].index);
	}
	return r;
}

static int rule_flags(const json_t *o, struct rule *u, const struct pointer *p)
{
	int r = mc_ly_get_bool(o, "replicate", &u->replicate, p);

	if (r == 0)
		r = mc_ly_get_bool(o, "drop", &u->drop, p);
	if (r == 0)
		r = mc_ly_get_bool(o, "optional", &u->optional, p);
	if (r == 0 && (u->n_splits > 0) + u->replicate + u->drop + (u->follow != NULL) > 1)
		r = mc_ly_bad_at(p, "split, replicate, follow and drop exclude each other");
	if (r == 0 && u->drop && (u->n_owns > 0 || u->only))
		r = mc_ly_bad_at(p, "drop goes with nothing else");
	if (r == 0 && !u->n_splits && !u->replicate && !u->drop && u->follow == NULL &&
		!u->n_owns && !u->only)
		r = mc_ly_bad_at(p, "the rule does nothing; say \"replicate\": true");
	return r;
}

/* What people ask for and a view cannot do. */
static int refuse_impossible(const json_t *o, const struct pointer *p)
{
	static const char *const impossible[] = {"transpose", "cast", "repack", "dequantize", NULL};

	for (size_t i = 0; impossible[i] != NULL; i++)
		if (json_object_get(o, impossible[i]) != NULL)
			return mc_ly_bad_at(p,
				"\"%s\" is not possible: a layout moves whole elements and changes "
				"none",
				impossible[i]);
	return 0;
}

static int rule_parse(const json_t *o, struct mc_layout *l, struct rule *u, const struct pointer *p)
{
	static const char *const keys[] = {
		"match", "split", "own", "follow", "only", "replicate", "drop", "optional", NULL};
	const json_t *follow = json_object_get(o, "follow"), *only = json_object_get(o, "only");
	struct pointer q = mc_ly_deeper(p, "follow", 0);
	int r = refuse_impossible(o, p);

	if (r == 0)
		r = mc_ly_only_keys(o, keys, p);
	mc_ly_pointer_copy(p, u->where, sizeof(u->where));
	if (r == 0)
		r = mc_ly_get_string(o, "match", &u->match, p);
	if (r == 0)
		r = mc_ly_get_pattern(o, "match", &u->pattern, p);
	if (r == 0 && u->pattern == NULL)
		r = mc_ly_bad_at(p, "\"match\" is missing");
	if (r == 0)
		r = splits_parse(o, &l->mesh, u, p);
	if (r == 0)
		r = owns_parse(o, &l->mesh, u, p);
	if (r == 0 && follow != NULL)
		r = follow_parse(follow, u, &q);
	q = mc_ly_deeper(p, "only", 0);
	if (r == 0 && only != NULL)
		r = only_parse(only, &l->mesh, u, &q);
	return r < 0 ? r : rule_flags(o, u, p);
}

int mc_ly_rules_parse(const json_t *rules, struct mc_layout *l, const struct pointer *p)
{
	size_t n = json_array_size(rules), cost = 0;
	int r = 0;

	if (!json_is_array(rules))
		return mc_ly_bad_at(p, "missing, or not an array");
	if (n > MC_LAYOUT_MAX_RULES)
		return mc_ly_bad_at(p, "%zu rules, more than %d", n, MC_LAYOUT_MAX_RULES);
	l->rule = calloc(n + 1, sizeof(*l->rule));
	if (l->rule == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < n && r == 0; i++) {
		struct pointer q = mc_ly_deeper(p, NULL, i);

		r = rule_parse(json_array_get(rules, i), l, &l->rule[l->n_rules++], &q);
		if (r == 0)
			cost += mc_name_pattern_cost(l->rule[i].pattern);
		if (r == 0 && cost > MC_LAYOUT_MAX_PATTERNS)
			r = mc_ly_bad_at(&q, "the patterns up to here cost %zu, more than %d", cost,
				MC_LAYOUT_MAX_PATTERNS);
	}
	return r;
}

void mc_ly_rule_done(struct rule *r)
{
	mc_name_pattern_close(r->pattern);
}
