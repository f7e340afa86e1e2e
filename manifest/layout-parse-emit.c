/* What a layout document says about its output: constants, fuse, stack, rename, style. */
#include "manifest/layout-build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/dtype.h"
#include "manifest/json.h"

#define MAX_ENTRIES 128

/* A float's bits, rounded to the type's mantissa; numbers that do not fit exactly are refused. */
static int encode_float(double v, uint8_t dtype, uint64_t *ret)
{
	float f = (float)v;
	uint32_t bits;
	uint64_t wide;

	memcpy(&bits, &f, sizeof(bits));
	memcpy(&wide, &v, sizeof(wide));
	switch (dtype) {
	case MC_DTYPE_F64:
		*ret = wide;
		return 0;
	case MC_DTYPE_F32:
		*ret = bits;
		return (double)f == v ? 0 : -EINVAL;
	case MC_DTYPE_BF16:
		*ret = bits >> 16;
		return (double)f == v && (bits & 0xffff) == 0 ? 0 : -EINVAL;
	default:
		*ret = 0;
		return v == 0 ? 0 : -EINVAL;
	}
}

static int value_parse(const json_t *v, struct constant *c, const struct pointer *p)
{
	unsigned bits = mc_dtype_bits(c->dtype);
	uint64_t raw = 0;

	if (v != NULL && !json_is_number(v))
		return mc_ly_bad_at(p, "not a number");
	switch (c->dtype) {
	case MC_DTYPE_BOOL:
	case MC_DTYPE_U8:
	case MC_DTYPE_I8:
	case MC_DTYPE_I16:
	case MC_DTYPE_U16:
	case MC_DTYPE_I32:
	case MC_DTYPE_U32:
	case MC_DTYPE_I64:
	case MC_DTYPE_U64:
		if (v != NULL && !json_is_integer(v))
			return mc_ly_bad_at(p, "not a whole number");
		raw = (uint64_t)json_integer_value(v);
		break;
	default:
		if (bits < 8 || encode_float(json_number_value(v), c->dtype, &raw) < 0)
			return mc_ly_bad_at(
				p, "%s cannot hold this value exactly", mc_dtype_name(c->dtype));
	}
	for (unsigned i = 0; i < bits / 8; i++)
		c->value[i] = (uint8_t)(raw >> (8 * i));
	return 0;
}

static int shape_parse(const json_t *v, struct constant *c, const struct pointer *p)
{
	for (size_t i = 0; i < json_array_size(v); i++)
		if (mc_json_uint(json_array_get(v, i), MC_JSON_INT_MAX, &c->shape[i]) < 0)
			return mc_ly_bad_at(p, "dimension %zu is no whole number", i);
	c->rank = (uint32_t)json_array_size(v);
	return 0;
}

static int constant_parse(const json_t *o, struct constant *c, const struct pointer *p)
{
	static const char *const keys[] = {"name", "each", "dtype", "shape", "value", NULL};
	const char *dtype = "F32";
	const json_t *shape = NULL;
	struct pointer q = mc_ly_deeper(p, "value", 0);
	int r = mc_ly_only_keys(o, keys, p);

	if (r == 0)
		r = mc_ly_get_string(o, "name", &c->name, p);
	if (r == 0)
		r = mc_ly_get_pattern(o, "each", &c->each, p);
	if (r == 0)
		r = mc_ly_get_string(o, "dtype", &dtype, p);
	if (r == 0)
		r = mc_ly_get_array(o, "shape", MC_BOX_RANK, &shape, p);
	if (r == 0 && c->name == NULL)
		r = mc_ly_bad_at(p, "\"name\" is missing");
	if (r == 0 && mc_dtype_parse(dtype, &c->dtype) < 0)
		r = mc_ly_bad_at(p, "\"%.32s\" is no element type", dtype);
	if (r == 0)
		r = shape_parse(shape, c, p);
	return r < 0 ? r : value_parse(json_object_get(o, "value"), c, &q);
}

int mc_ly_constants_parse(const json_t *v, struct mc_layout *l, const struct pointer *p)
{
	size_t n = json_array_size(v);
	int r = 0;

	if (v == NULL)
		return 0;
	if (!json_is_array(v) || n > MAX_ENTRIES)
		return mc_ly_bad_at(p, "not an array of at most %d", MAX_ENTRIES);
	l->constant = calloc(n + 1, sizeof(*l->constant));
	if (l->constant == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < n && r == 0; i++) {
		struct pointer q = mc_ly_deeper(p, NULL, i);

		r = constant_parse(json_array_get(v, i), &l->constant[l->n_constants++], &q);
	}
	return r;
}

static int fuse_parse(const json_t *o, struct fuse *f, const struct pointer *p)
{
	static const char *const keys[] = {"name", "from", "dim", "optional", NULL};
	int r = mc_ly_only_keys(o, keys, p);

	mc_ly_pointer_copy(p, f->where, sizeof(f->where));
	if (r == 0)
		r = mc_ly_get_string(o, "name", &f->name, p);
	if (r == 0)
		r = mc_ly_get_patterns(o, "from", &f->from, p);
	if (r == 0)
		r = mc_ly_get_uint(o, "dim", MC_BOX_RANK - 1, &f->dim, p);
	if (r == 0)
		r = mc_ly_get_bool(o, "optional", &f->optional, p);
	if (r == 0 && (f->name == NULL || f->from.n < 2))
		r = mc_ly_bad_at(p, "\"name\" and at least two patterns in \"from\" are needed");
	return r;
}

static int stack_parse(const json_t *o, struct stack *s, const struct pointer *p)
{
	static const char *const keys[] = {"name", "from", "index", "optional", NULL};
	int r = mc_ly_only_keys(o, keys, p);

	mc_ly_pointer_copy(p, s->where, sizeof(s->where));
	if (r == 0)
		r = mc_ly_get_string(o, "name", &s->name, p);
	if (r == 0)
		r = mc_ly_get_pattern(o, "from", &s->from, p);
	if (r == 0)
		r = mc_ly_get_uint(o, "index", MC_CAPTURES, &s->index, p);
	if (r == 0)
		r = mc_ly_get_bool(o, "optional", &s->optional, p);
	if (r == 0 &&
		(s->name == NULL || s->from == NULL || s->index == 0 ||
			s->index > mc_name_pattern_captures(s->from)))
		r = mc_ly_bad_at(
			p, "\"name\", \"from\" and \"index\" (a wildcard's number) are needed");
	return r;
}

static int rename_parse(const json_t *o, struct rename_rule *n, const struct pointer *p)
{
	static const char *const keys[] = {"match", "name", NULL};
	int r = mc_ly_only_keys(o, keys, p);

	mc_ly_pointer_copy(p, n->where, sizeof(n->where));
	if (r == 0)
		r = mc_ly_get_pattern(o, "match", &n->match, p);
	if (r == 0)
		r = mc_ly_get_string(o, "name", &n->name, p);
	if (r == 0 && (n->match == NULL || n->name == NULL))
		r = mc_ly_bad_at(p, "\"match\" and \"name\" are needed");
	return r;
}

static int lists_parse(const json_t *emit, struct mc_layout *l, const struct pointer *p)
{
	const json_t *fuse = NULL, *stack = NULL, *rename = NULL;
	struct pointer q;
	int r = mc_ly_get_array(emit, "fuse", MAX_ENTRIES, &fuse, p);

	if (r == 0)
		r = mc_ly_get_array(emit, "stack", MAX_ENTRIES, &stack, p);
	if (r == 0)
		r = mc_ly_get_array(emit, "rename", MAX_ENTRIES, &rename, p);
	if (r < 0)
		return r;
	l->fuse = calloc(json_array_size(fuse) + 1, sizeof(*l->fuse));
	l->stack = calloc(json_array_size(stack) + 1, sizeof(*l->stack));
	l->rename = calloc(json_array_size(rename) + 1, sizeof(*l->rename));
	if (l->fuse == NULL || l->stack == NULL || l->rename == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < json_array_size(fuse) && r == 0; i++) {
		q = mc_ly_deeper(p, "fuse", 0);
		q = mc_ly_deeper(&q, NULL, i);
		r = fuse_parse(json_array_get(fuse, i), &l->fuse[l->n_fuses++], &q);
	}
	for (size_t i = 0; i < json_array_size(stack) && r == 0; i++) {
		q = mc_ly_deeper(p, "stack", 0);
		q = mc_ly_deeper(&q, NULL, i);
		r = stack_parse(json_array_get(stack, i), &l->stack[l->n_stacks++], &q);
	}
	for (size_t i = 0; i < json_array_size(rename) && r == 0; i++) {
		q = mc_ly_deeper(p, "rename", 0);
		q = mc_ly_deeper(&q, NULL, i);
		r = rename_parse(json_array_get(rename, i), &l->rename[l->n_renames++], &q);
	}
	return r;
}

int mc_ly_emit_parse(const json_t *emit, struct mc_layout *l, const struct pointer *p)
{
	static const char *const keys[] = {"style", "profile", "fuse", "stack", "rename", NULL};
	static const char *const styles[] = {"hf", "subset", "sharded-state", NULL};
	unsigned style = MC_STYLE_HF;
	int r;

	if (emit == NULL)
		return 0;
	r = mc_ly_only_keys(emit, keys, p);
	if (r == 0)
		r = mc_ly_get_choice(emit, "style", styles, &style, p);
	if (r == 0)
		r = mc_ly_get_string(emit, "profile", &l->profile, p);
	l->style = (enum mc_layout_style)style;
	if (r == 0)
		r = lists_parse(emit, l, p);
	if (r == 0 && l->style == MC_STYLE_SUBSET && l->n_fuses + l->n_stacks + l->n_renames > 0)
		r = mc_ly_bad_at(
			p, "style \"subset\" shows unmodified tensors: no fuse, stack or rename");
	return r;
}

void mc_ly_emit_done(struct mc_layout *l)
{
	for (uint32_t i = 0; i < l->n_constants; i++)
		mc_name_pattern_close(l->constant[i].each);
	for (uint32_t i = 0; i < l->n_fuses; i++)
		mc_ly_patterns_done(&l->fuse[i].from);
	for (uint32_t i = 0; i < l->n_stacks; i++)
		mc_name_pattern_close(l->stack[i].from);
	for (uint32_t i = 0; i < l->n_renames; i++)
		mc_name_pattern_close(l->rename[i].match);
	free(l->constant);
	free(l->fuse);
	free(l->stack);
	free(l->rename);
}
