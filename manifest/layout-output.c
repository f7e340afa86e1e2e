/* The last steps on outputs: rename, constants, order by name, and the index from source tensors.
 */
#include "manifest/layout-build.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tier/array.h"
#include "tier/cleanup.h"

static int rename_all(struct mc_sharding *s, struct mc_err *err)
{
	char name[MC_NAME_MAX], out[MC_NAME_MAX];

	for (uint32_t i = 0; i < s->n_outputs && s->l->n_renames > 0; i++) {
		snprintf(name, sizeof(name), "%s", s->names + s->output[i].name);
		for (uint32_t k = 0; k < s->l->n_renames; k++) {
			const struct rename_rule *n = &s->l->rename[k];
			struct mc_match m;
			int r;

			if (!mc_name_pattern_match(n->match, name, strlen(name), &m))
				continue;
			r = mc_ly_expand(&m, name, n->name, n->where, out, err);
			if (r == 0)
				r = mc_ly_names_add(s, out, &s->output[i].name);
			if (r < 0)
				return r;
			break;
		}
	}
	return 0;
}

static int add_constant(struct mc_sharding *s, uint32_t constant, const char *name, uint32_t like)
{
	int r = mc_array_room(&s->const_output, &s->cap_const_outputs, s->n_const_outputs + 1);
	struct const_output *c;

	if (r < 0)
		return r;
	c = &s->const_output[s->n_const_outputs];
	c->constant = constant;
	c->like = like;
	r = mc_ly_names_add(s, name, &c->name);
	s->n_const_outputs += r == 0;
	return r;
}

static int constants_all(struct mc_sharding *s, struct mc_err *err)
{
	char out[MC_NAME_MAX];
	int r = 0;

	for (uint32_t i = 0; i < s->l->n_constants && r == 0; i++) {
		const struct constant *c = &s->l->constant[i];

		if (c->each == NULL)
			r = add_constant(s, i, c->name, UINT32_MAX);
		for (uint32_t t = 0; c->each != NULL && t < s->n_tensors && r == 0; t++) {
			const char *name = s->tensor[t].name;
			struct mc_match m;

			if (s->kind_of[t] == UINT32_MAX ||
				!mc_name_pattern_match(c->each, name, strlen(name), &m))
				continue;
			r = mc_ly_expand(&m, name, c->name, "/const", out, err);
			if (r == 0)
				r = add_constant(s, i, out, s->kind_of[t]);
		}
	}
	return r;
}

static int text_compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int output_compare(const void *a, const void *b, void *names)
{
	const struct output *x = a, *y = b;

	return strcmp((const char *)names + x->name, (const char *)names + y->name);
}

/* Outputs by name; a name that comes twice is an error. */
static int sort_outputs(struct mc_sharding *s, struct mc_err *err)
{
	uint32_t n = s->n_outputs + s->n_const_outputs;
	cleanup_free const char **v = malloc(((size_t)n + 1) * sizeof(*v));
	bool sorted = true;

	if (v == NULL)
		return -ENOMEM;
	for (uint32_t i = 1; i < s->n_outputs && sorted; i++)
		sorted = strcmp(s->names + s->output[i - 1].name, s->names + s->output[i].name) < 0;
	if (!sorted)
		qsort_r(s->output, s->n_outputs, sizeof(*s->output), output_compare, s->names);
	for (uint32_t i = 0; i < n; i++)
		v[i] = s->names +
			(i < s->n_outputs ? s->output[i].name
					  : s->const_output[i - s->n_outputs].name);
	if (s->n_const_outputs > 0)
		qsort(v, n, sizeof(*v), text_compare);
	for (uint32_t i = 1; i < n; i++)
		if (strcmp(v[i - 1], v[i]) == 0)
			return mc_err_set(
				err, -EINVAL, "the layout makes two tensors called %s", v[i]);
	return 0;
}

/* From source tensors to the outputs they are in, in output order. */
static int index_outputs(struct mc_sharding *s)
{
	uint32_t at = 0;

	s->out_first = calloc((size_t)s->n_tensors + 2, sizeof(*s->out_first));
	s->out_list = calloc((size_t)s->n_members + 1, sizeof(*s->out_list));
	if (s->out_first == NULL || s->out_list == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->n_outputs; i++)
		for (uint32_t k = 0; k < s->output[i].n; k++)
			s->out_first[s->member[s->output[i].first + k].tensor + 2]++;
	for (uint32_t t = 0; t < s->n_tensors; t++)
		s->out_first[t + 2] += s->out_first[t + 1];
	for (; at < s->n_outputs; at++)
		for (uint32_t k = 0; k < s->output[at].n; k++)
			s->out_list[s->out_first[s->member[s->output[at].first + k].tensor + 1]++] =
				at;
	return 0;
}

const char *mc_sharding_output_name(const struct mc_sharding *s, uint32_t tensor, uint32_t output)
{
	if (tensor >= s->n_tensors || output >= s->out_first[tensor + 1] - s->out_first[tensor])
		return NULL;
	return s->names + s->output[s->out_list[s->out_first[tensor] + output]].name;
}

int mc_ly_outputs_finish(struct mc_sharding *s, struct mc_err *err)
{
	int r = rename_all(s, err);

	if (r == 0)
		r = constants_all(s, err);
	if (r == 0)
		r = sort_outputs(s, err);
	return r < 0 ? r : index_outputs(s);
}
