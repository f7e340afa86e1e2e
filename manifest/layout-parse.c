/*
 * Layout documents: the frame of the parser, and the readers of single values that all its parts
 * use. Every error says where in the document it is.
 */
#include "manifest/layout-build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/json.h"
#include "tier/digest.h"

#define JSON_DEPTH 16

static int params_parse(json_t *params, struct mc_layout *l, const struct pointer *p)
{
	const char *name;
	json_t *v;

	if (params == NULL)
		return 0;
	if (!json_is_object(params))
		return mc_ly_bad_at(p, "not an object");
	json_object_foreach(params, name, v)
	{
		struct pointer q = mc_ly_deeper(p, name, 0);
		int r = mc_ly_check_expr(v, &q);

		if (r < 0)
			return r;
	}
	l->params = params;
	return 0;
}

static int tied_parse(const json_t *v, struct layers *y, const struct pointer *p)
{
	static const char *const keys[] = {"name", "of", NULL};
	size_t n = json_array_size(v);
	int r = 0;

	y->tied = calloc(n + 1, sizeof(*y->tied));
	if (y->tied == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < n && r == 0; i++) {
		const json_t *o = json_array_get(v, i);
		struct pointer q = mc_ly_deeper(p, NULL, i);
		struct tied *t = &y->tied[y->n_tied++];

		r = mc_ly_only_keys(o, keys, &q);
		if (r == 0)
			r = mc_ly_get_string(o, "name", &t->name, &q);
		if (r == 0)
			r = mc_ly_get_string(o, "of", &t->of, &q);
		if (r == 0 && (t->name == NULL || t->of == NULL))
			r = mc_ly_bad_at(&q, "needs \"name\" and \"of\"");
	}
	return r;
}

static int stage_split(const json_t *o, struct layers *y, const struct pointer *p)
{
	static const char *const splits[] = {"vllm", "sglang", "even", NULL};
	struct pointer q = mc_ly_deeper(p, "split", 0);
	const json_t *v = json_object_get(o, "split");
	unsigned split = STAGES_VLLM;
	int r = 0;

	if (!json_is_array(v)) {
		r = mc_ly_get_choice(o, "split", splits, &split, p);
		y->split = (enum stage_split)split;
		return r;
	}
	y->split = STAGES_LIST;
	y->list = v;
	for (size_t i = 0; i < json_array_size(v) && r == 0; i++) {
		struct pointer s = mc_ly_deeper(&q, NULL, i);

		r = mc_ly_check_expr(json_array_get(v, i), &s);
	}
	return r;
}

static int layers_parse(const json_t *o, struct mc_layout *l, const struct pointer *p)
{
	static const char *const keys[] = {"axis", "prefix", "regex", "count", "split", "first",
		"last", "every", "tied", "extra", NULL};
	static const char *const extras[] = {"error", "drop", "last", NULL};
	struct layers *y = &l->layers;
	struct pointer q = mc_ly_deeper(p, "tied", 0);
	const json_t *tied = NULL;
	unsigned extra = EXTRA_ERROR;
	int r;

	l->pp = UINT32_MAX;
	if (o == NULL)
		return 0;
	y->given = true;
	y->prefix = "model.layers.";
	r = mc_ly_only_keys(o, keys, p);
	if (r == 0)
		r = mc_ly_get_string(o, "prefix", &y->prefix, p);
	if (r == 0)
		r = mc_ly_get_pattern(o, "regex", &y->regex, p);
	if (r == 0 && y->regex != NULL && mc_name_pattern_captures(y->regex) == 0)
		r = mc_ly_bad_at(p, "\"regex\" needs a capture: the layer's number");
	if (r == 0)
		r = mc_ly_get_expr(o, "count", &y->count, p);
	if (r == 0)
		r = stage_split(o, y, p);
	if (r == 0)
		r = mc_ly_get_patterns(o, "first", &y->first, p);
	if (r == 0)
		r = mc_ly_get_patterns(o, "last", &y->last, p);
	if (r == 0)
		r = mc_ly_get_patterns(o, "every", &y->every, p);
	if (r == 0)
		r = mc_ly_get_array(o, "tied", 16, &tied, p);
	if (r == 0 && tied != NULL)
		r = tied_parse(tied, y, &q);
	if (r == 0)
		r = mc_ly_get_choice(o, "extra", extras, &extra, p);
	y->extra = (enum extra_layers)extra;
	if (r == 0 && y->count == NULL)
		r = mc_ly_bad_at(p, "\"count\" is missing");
	if (r == 0 && json_object_get(o, "axis") != NULL)
		r = mc_ly_get_axis(o, "axis", &l->mesh, &l->pp, p);
	else if (r == 0)
		mc_ly_mesh_find(&l->mesh, "pp", &l->pp);
	return r;
}

static int head_parse(json_t *root, struct mc_layout *l, const struct pointer *p)
{
	static const char *const keys[] = {"format", "version", "name", "mesh", "params", "layers",
		"rules", "const", "default", "unused", "quant", "emit", NULL};
	static const char *const fallbacks[] = {"error", "replicate", "drop", NULL};
	static const char *const unused[] = {"error", "ignore", NULL};
	const char *format = "";
	unsigned fallback = 0, ignore = 0;
	uint32_t version = 0;
	int r = mc_ly_only_keys(root, keys, p);

	if (r == 0)
		r = mc_ly_get_string(root, "format", &format, p);
	if (r == 0)
		r = mc_ly_get_uint(root, "version", UINT32_MAX, &version, p);
	if (r == 0 && (strcmp(format, "reshard-layout") != 0 || version != 1))
		r = mc_ly_bad_at(p, "not \"format\": \"reshard-layout\", \"version\": 1");
	l->name = "";
	if (r == 0)
		r = mc_ly_get_string(root, "name", &l->name, p);
	if (r == 0)
		r = mc_ly_get_choice(root, "default", fallbacks, &fallback, p);
	if (r == 0)
		r = mc_ly_get_choice(root, "unused", unused, &ignore, p);
	if (r == 0)
		r = mc_ly_get_array(root, "quant", 32, &l->quant, p);
	l->fallback = (enum fallback)fallback;
	l->unused_allowed = ignore == 1;
	return r;
}

static int document(json_t *root, struct mc_layout *l, struct mc_err *err)
{
	struct pointer p = {.err = err}, q = mc_ly_deeper(&p, "mesh", 0);
	int r = head_parse(root, l, &p);

	if (r == 0 && json_object_get(root, "mesh") == NULL)
		r = mc_ly_bad_at(&p, "\"mesh\" is missing");
	if (r == 0)
		r = mc_ly_mesh_parse(json_object_get(root, "mesh"), &l->mesh, &q);
	q = mc_ly_deeper(&p, "params", 0);
	if (r == 0)
		r = params_parse(json_object_get(root, "params"), l, &q);
	q = mc_ly_deeper(&p, "layers", 0);
	if (r == 0)
		r = layers_parse(json_object_get(root, "layers"), l, &q);
	q = mc_ly_deeper(&p, "rules", 0);
	if (r == 0)
		r = mc_ly_rules_parse(json_object_get(root, "rules"), l, &q);
	q = mc_ly_deeper(&p, "const", 0);
	if (r == 0)
		r = mc_ly_constants_parse(json_object_get(root, "const"), l, &q);
	q = mc_ly_deeper(&p, "emit", 0);
	if (r == 0)
		r = mc_ly_emit_parse(json_object_get(root, "emit"), l, &q);
	return r;
}

int mc_layout_parse(const void *text, size_t len, struct mc_layout **ret, struct mc_err *err)
{
	struct mc_layout *l;
	int r;

	if (len > MC_LAYOUT_MAX_BYTES)
		return mc_err_set(err, -E2BIG, "layout of %zu bytes, more than %zu", len,
			MC_LAYOUT_MAX_BYTES);
	l = calloc(1, sizeof(*l));
	if (l == NULL)
		return mc_err_set(err, -ENOMEM, "no memory for the layout");
	l->profile = "";
	r = mc_json_load(text, len, JSON_DEPTH, &l->root, err);
	if (r == 0)
		r = document(l->root, l, err);
	if (r < 0) {
		mc_layout_free(l);
		return mc_err_set(err, r, "layout: %s", strerror(-r));
	}
	*ret = l;
	return 0;
}

void mc_layout_free(struct mc_layout *l)
{
	if (l == NULL)
		return;
	for (uint32_t i = 0; i < l->n_rules; i++)
		mc_ly_rule_done(&l->rule[i]);
	free(l->rule);
	mc_name_pattern_close(l->layers.regex);
	mc_ly_patterns_done(&l->layers.first);
	mc_ly_patterns_done(&l->layers.last);
	mc_ly_patterns_done(&l->layers.every);
	free(l->layers.tied);
	mc_ly_emit_done(l);
	mc_ly_mesh_done(&l->mesh);
	json_decref(l->root);
	free(l);
}

const char *mc_layout_name(const struct mc_layout *l)
{
	return l->name;
}

uint32_t mc_layout_world(const struct mc_layout *l)
{
	return l->mesh.world;
}

enum mc_layout_style mc_layout_style(const struct mc_layout *l)
{
	return l->style;
}

const char *mc_layout_profile(const struct mc_layout *l)
{
	return l->profile;
}

int mc_layout_digest(const struct mc_layout *l, uint8_t ret_digest[32])
{
	char *text = json_dumps(l->root, JSON_SORT_KEYS | JSON_COMPACT);
	int r;

	if (text == NULL)
		return -ENOMEM;
	r = mc_sha256(text, strlen(text), ret_digest);
	free(text);
	return r;
}

int mc_layout_coordinate(const struct mc_layout *l, const char *axis, uint32_t rank,
	uint32_t *ret_at, uint32_t *ret_size)
{
	uint32_t a;
	int r = mc_ly_mesh_find(&l->mesh, axis, &a);

	if (r < 0)
		return r;
	if (rank >= l->mesh.world)
		return -EINVAL;
	*ret_at = mc_ly_mesh_at(&l->mesh, a, rank);
	*ret_size = l->mesh.axis[a].size;
	return 0;
}
