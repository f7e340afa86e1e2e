/* Pipeline stages: which layers each stage holds, and the stage of a tensor by its name. */
#include "manifest/layout-build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tier/cleanup.h"

#define MAX_LAYERS 65536

/* Layers of each stage as the engines deal them out. */
static int deal_layers(const struct mc_sharding *s, uint32_t *per, struct mc_err *err)
{
	const struct layers *y = &s->l->layers;
	uint32_t n = s->n_stages, rest = s->n_layers % n;
	uint64_t sum = 0;

	if (y->split == STAGES_LIST) {
		if (json_array_size(y->list) != n)
			return mc_err_set(err, -EINVAL,
				"layout /layers/split: %zu stages are listed for the %u of axis %s",
				json_array_size(y->list), n, s->l->mesh.axis[s->l->pp].name);
		for (uint32_t i = 0; i < n; i++) {
			uint64_t v;
			int r = mc_ly_expr_value(&s->env, json_array_get(y->list, i), &v, err);

			if (r < 0)
				return r;
			per[i] = v < MAX_LAYERS ? (uint32_t)v : MAX_LAYERS;
			sum += per[i];
		}
		return sum == s->n_layers
			? 0
			: mc_err_set(err, -EINVAL,
				  "layout /layers/split: the stages add up to %llu of %u layers",
				  (unsigned long long)sum, s->n_layers);
	}
	if (n > s->n_layers || (y->split == STAGES_EVEN && rest != 0))
		return mc_err_set(
			err, -EINVAL, "%u layers cannot be dealt out to %u stages", s->n_layers, n);
	for (uint32_t i = 0; i < n; i++)
		per[i] = s->n_layers / n;
	/* vLLM gives the rest to the stages before the last, from the back; SGLang to the last
	 * ones. */
	for (uint32_t i = 0; i < rest; i++)
		per[n - 1 - i - (y->split == STAGES_VLLM)]++;
	return 0;
}

int mc_ly_stages_make(struct mc_sharding *s, struct mc_err *err)
{
	const struct layers *y = &s->l->layers;
	cleanup_free uint32_t *per = NULL;
	uint32_t layer = 0;
	uint64_t count = 0;
	int r = 0;

	s->n_stages = s->l->pp != UINT32_MAX ? s->l->mesh.axis[s->l->pp].size : 1;
	if (!y->given)
		return s->n_stages == 1
			? 0
			: mc_err_set(err, -EINVAL,
				  "the mesh has axis pp, but the layout says nothing about layers");
	r = mc_ly_expr_value(&s->env, y->count, &count, err);
	if (r < 0)
		return mc_err_prefix(err, r, "layout /layers/count");
	if (count == 0 || count > MAX_LAYERS)
		return mc_err_set(err, -EINVAL, "layout /layers/count: %llu layers, not 1 to %d",
			(unsigned long long)count, MAX_LAYERS);
	s->n_layers = (uint32_t)count;
	per = calloc(s->n_stages, sizeof(*per));
	s->stage_of_layer = calloc(s->n_layers, sizeof(*s->stage_of_layer));
	if (per == NULL || s->stage_of_layer == NULL)
		return -ENOMEM;
	if (s->n_stages == 1)
		return 0;
	r = deal_layers(s, per, err);
	for (uint32_t i = 0; i < s->n_stages && r == 0; i++)
		for (uint32_t k = 0; k < per[i] && layer < s->n_layers; k++)
			s->stage_of_layer[layer++] = i;
	return r;
}

static bool any_match(const struct patterns *p, const char *name, size_t len)
{
	struct mc_match m;

	for (uint32_t i = 0; i < p->n; i++)
		if (mc_name_pattern_match(p->v[i], name, len, &m))
			return true;
	return false;
}

/* The layer number in a name: -ENOENT when it has none. */
static int layer_of(const struct layers *y, const char *name, size_t len, uint64_t *ret)
{
	struct mc_match m = {.n = 1};
	size_t at = strlen(y->prefix), end;

	if (y->regex != NULL)
		return mc_name_pattern_match(y->regex, name, len, &m)
			? mc_match_number(&m, name, 1, ret)
			: -ENOENT;
	if (strncmp(name, y->prefix, at) != 0)
		return -ENOENT;
	for (end = at; name[end] >= '0' && name[end] <= '9'; end++)
		;
	if (end == at || (name[end] != '.' && name[end] != 0))
		return -ENOENT;
	m.from[0] = (uint32_t)at;
	m.to[0] = (uint32_t)end;
	return mc_match_number(&m, name, 1, ret);
}

int mc_ly_stage_of(const struct mc_sharding *s, const char *name, size_t len, uint32_t *ret,
	bool *ret_drop, struct mc_err *err)
{
	const struct layers *y = &s->l->layers;
	bool first, last;
	uint64_t layer;
	int r;

	*ret = STAGE_ALL;
	*ret_drop = false;
	if (!y->given)
		return 0;
	r = layer_of(y, name, len, &layer);
	if (r == -EINVAL)
		return mc_err_set(err, r, "tensor %s: its layer is no plain number", name);
	if (r == 0 && layer >= s->n_layers && y->extra == EXTRA_ERROR)
		return mc_err_set(err, -EINVAL, "tensor %s: the model has layers 0 to %u", name,
			s->n_layers - 1);
	*ret_drop = r == 0 && layer >= s->n_layers && y->extra == EXTRA_DROP;
	if (s->n_stages == 1 || *ret_drop)
		return 0;
	if (r == 0) {
		*ret = layer < s->n_layers ? s->stage_of_layer[layer] : s->n_stages - 1;
		return 0;
	}
	first = any_match(&y->first, name, len);
	last = any_match(&y->last, name, len);
	if (!first && !last && !any_match(&y->every, name, len))
		return mc_err_set(err, -EINVAL,
			"tensor %s is in no layer, and /layers/first, last and every do not name "
			"it",
			name);
	if (first && last)
		*ret = STAGE_ENDS;
	else if (first || last)
		*ret = first ? 0 : s->n_stages - 1;
	return 0;
}
