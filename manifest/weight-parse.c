/* Fields, tensors and fragments that both kinds of Mooncake's manifests share. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/weight-build.h"
#include "tier/array.h"
#include "tier/cleanup.h"

#define MAX_VALUE ((json_int_t)1 << 62)

int mc_weight_fields(
	struct mc_weight_manifest *m, const json_t *o, const char *const *keys, const char *what)
{
	const char *const *optional = keys;
	size_t n = 0, more = 0;

	if (!json_is_object(o))
		return mc_weight_bad(m, "a %s is no object", what);
	for (; *optional != NULL; optional++, n++)
		if (json_object_get(o, *optional) == NULL)
			return mc_weight_bad(m, "a %s has no \"%s\"", what, *optional);
	for (optional++; *optional != NULL; optional++)
		more += json_object_get(o, *optional) != NULL;
	if (json_object_size(o) != n + more)
		return mc_weight_bad(m, "a %s has fields that are not known", what);
	return 0;
}

int mc_weight_uint(
	struct mc_weight_manifest *m, const json_t *o, const char *key, uint64_t min, uint64_t *ret)
{
	const json_t *v = json_object_get(o, key);

	if (!json_is_integer(v) || json_integer_value(v) < (json_int_t)min ||
		json_integer_value(v) >= MAX_VALUE)
		return mc_weight_bad(
			m, "\"%s\" is no whole number from %llu on", key, (unsigned long long)min);
	*ret = (uint64_t)json_integer_value(v);
	return 0;
}

int mc_weight_string(
	struct mc_weight_manifest *m, const json_t *o, const char *key, const char **ret)
{
	const json_t *v = json_object_get(o, key);

	if (!json_is_string(v) || json_string_length(v) == 0 ||
		strlen(json_string_value(v)) != json_string_length(v))
		return mc_weight_bad(m, "\"%s\" is no text", key);
	*ret = json_string_value(v);
	return 0;
}

struct keyed {
	const char *key;
	json_t *value;
};

static int keyed_compare(const void *a, const void *b)
{
	return strcmp(((const struct keyed *)a)->key, ((const struct keyed *)b)->key);
}

int mc_weight_sort(struct mc_weight_manifest *m, json_t *array, const char *key, const char *what)
{
	size_t n = json_array_size(array);
	cleanup_free struct keyed *v = malloc((n + 1) * sizeof(*v));
	int r = 0;

	if (v == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		v[i].value = json_array_get(array, i);
		v[i].key = json_string_value(
			key != NULL ? json_object_get(v[i].value, key) : v[i].value);
		if (v[i].key == NULL)
			return mc_weight_bad(
				m, "a %s has no \"%s\"", what, key != NULL ? key : "text");
	}
	qsort(v, n, sizeof(*v), keyed_compare);
	for (size_t i = 1; i < n; i++)
		if (strcmp(v[i - 1].key, v[i].key) == 0)
			return mc_weight_bad(m, "%s %s is there twice", what, v[i].key);
	for (size_t i = 0; i < n; i++)
		json_incref(v[i].value);
	for (size_t i = 0; i < n && r == 0; i++)
		r = json_array_set_new(array, i, v[i].value) < 0 ? -ENOMEM : 0;
	return r;
}

static int shape_parse(struct mc_weight_manifest *m, const json_t *o, const char *key,
	json_int_t min, uint64_t *ret, size_t *ret_n)
{
	const json_t *v = json_object_get(o, key);
	size_t n = json_array_size(v);

	if (!json_is_array(v) || n == 0 || n > MC_BOX_RANK)
		return mc_weight_bad(m, "\"%s\" has not 1 to %d dimensions", key, MC_BOX_RANK);
	for (size_t i = 0; i < n; i++) {
		const json_t *x = json_array_get(v, i);

		if (!json_is_integer(x) || json_integer_value(x) < min ||
			json_integer_value(x) >= MAX_VALUE)
			return mc_weight_bad(m, "\"%s\" has a dimension below %d", key, (int)min);
		ret[i] = (uint64_t)json_integer_value(x);
	}
	*ret_n = n;
	return 0;
}

/* dp, pp, ep, tp: the order in which Mooncake keeps axes. */
static int axis_order(const char *kind)
{
	static const char *const order[] = {"dp", "pp", "ep", "tp"};

	for (int i = 0; i < 4; i++)
		if (strcmp(order[i], kind) == 0)
			return i;
	return -1;
}

static int axis_parse(
	struct mc_weight_manifest *m, const json_t *o, uint32_t *seen, json_t **sorted)
{
	static const char *const split[] = {"semantics", "kind", "dim", NULL, NULL};
	const char *semantics = NULL, *kind = NULL;
	uint64_t dim;
	bool is_split;
	int r = mc_weight_string(m, o, "semantics", &semantics), at;

	if (r == 0)
		r = mc_weight_string(m, o, "kind", &kind);
	if (r < 0)
		return r;
	is_split = strcmp(semantics, "split") == 0;
	if (!is_split && strcmp(semantics, "replicated") != 0 &&
		strcmp(semantics, "ownership") != 0)
		return mc_weight_bad(m, "axis semantics \"%.32s\"", semantics);
	r = mc_weight_fields(m, o,
		is_split ? split : (const char *const[]){"semantics", "kind", NULL, NULL}, "axis");
	if (r == 0 && is_split)
		r = mc_weight_uint(m, o, "dim", 0, &dim);
	at = axis_order(kind);
	if (r == 0 && (at < 0 || (*seen >> at & 1) != 0 || (is_split && at < 2)))
		r = mc_weight_bad(m, "axis kind \"%.32s\"", kind);
	if (r == 0) {
		*seen |= 1u << at;
		sorted[at] = (json_t *)(uintptr_t)o;
	}
	return r;
}

static int axes_parse(struct mc_weight_manifest *m, json_t *tensor)
{
	json_t *axes = json_object_get(tensor, "parallel_axes"), *sorted[4] = {NULL}, *to;
	uint32_t seen = 0;
	int r = json_is_array(axes) ? 0 : mc_weight_bad(m, "parallel_axes is no array");

	for (size_t i = 0; i < json_array_size(axes) && r == 0; i++)
		r = axis_parse(m, json_array_get(axes, i), &seen, sorted);
	if (r < 0)
		return r;
	to = json_array();
	for (int i = 0; i < 4; i++)
		if (sorted[i] != NULL)
			json_array_append(to, sorted[i]);
	return json_object_set_new(tensor, "parallel_axes", to) < 0 ? -ENOMEM : 0;
}

static int tensor_parse(struct mc_weight_manifest *m, json_t *o, struct weight_tensor *t)
{
	static const char *const keys[] = {"tensor_id", "global_shape", "dtype", "itemsize",
		"layer_id", "expert_id", "layout_fingerprint", "shard_dims", "parallel_axes", NULL,
		NULL};
	const char *fingerprint;
	struct mc_box box;
	uint64_t itemsize = 0;
	size_t n = 0;
	int r = mc_weight_fields(m, o, keys, "tensor");

	if (r == 0)
		r = mc_weight_string(m, o, "tensor_id", &t->t.id);
	if (r == 0)
		r = mc_weight_string(m, o, "dtype", &t->t.dtype);
	if (r == 0)
		r = mc_weight_string(m, o, "layout_fingerprint", &fingerprint);
	if (r == 0)
		r = mc_weight_uint(m, o, "itemsize", 1, &itemsize);
	if (r == 0)
		r = shape_parse(m, o, "global_shape", 1, t->t.shape, &n);
	if (r == 0 && !json_is_array(json_object_get(o, "shard_dims")))
		r = mc_weight_bad(m, "shard_dims is no array");
	if (r == 0)
		r = axes_parse(m, o);
	if (r < 0)
		return r;
	t->t.rank = (uint8_t)n;
	t->t.itemsize = (uint32_t)itemsize;
	box = (struct mc_box){.rank = t->t.rank};
	memcpy(box.len, t->t.shape, sizeof(box.len));
	if (itemsize > 16 || __builtin_mul_overflow(mc_box_volume(&box), itemsize, &t->bytes) ||
		t->bytes >= (uint64_t)MAX_VALUE)
		return mc_weight_bad(m, "tensor %s: its shape overflows", t->t.id);
	return 0;
}

static int tensor_compare(const void *a, const void *b)
{
	return strcmp(
		((const struct weight_tensor *)a)->t.id, ((const struct weight_tensor *)b)->t.id);
}

int mc_weight_tensors_parse(struct mc_weight_manifest *m)
{
	const json_t *list = json_object_get(m->root, "tensors");
	size_t n = json_array_size(list);
	int r = json_is_array(list) && n > 0 && n < UINT32_MAX
		? 0
		: mc_weight_bad(m, "tensors is no array");

	if (r < 0)
		return r;
	m->tensor = calloc(n + 1, sizeof(*m->tensor));
	if (m->tensor == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < n && r == 0; i++)
		r = tensor_parse(m, json_array_get(list, i), &m->tensor[m->n_tensors++]);
	if (r < 0)
		return r;
	qsort(m->tensor, n, sizeof(*m->tensor), tensor_compare);
	for (size_t i = 1; i < n; i++)
		if (tensor_compare(&m->tensor[i - 1], &m->tensor[i]) == 0)
			return mc_weight_bad(m, "tensor %s is there twice", m->tensor[i].t.id);
	return 0;
}

int mc_weight_fragment_parse(struct mc_weight_manifest *m, json_t *o, struct mc_weight_fragment *f)
{
	struct weight_tensor key = {{0}}, *t;
	json_t *aliases = json_object_get(o, "aliases");
	size_t a = 0, b = 0;
	uint64_t want;
	int r = mc_weight_string(m, o, "tensor_id", &key.t.id);

	if (r == 0)
		r = shape_parse(m, o, "global_offset", 0, f->box.off, &a);
	if (r == 0)
		r = shape_parse(m, o, "local_shape", 1, f->box.len, &b);
	if (r == 0)
		r = mc_weight_uint(m, o, "nbytes", 1, &f->bytes);
	if (r == 0 && !json_is_array(aliases))
		r = mc_weight_bad(m, "aliases is no array");
	if (r == 0)
		r = mc_weight_sort(m, aliases, NULL, "alias");
	if (r < 0)
		return r;
	t = bsearch(&key, m->tensor, m->n_tensors, sizeof(*t), tensor_compare);
	if (t == NULL)
		return mc_weight_bad(m, "fragment of tensor %s, which is not listed", key.t.id);
	if (a != t->t.rank || b != t->t.rank)
		return mc_weight_bad(
			m, "a fragment of tensor %s has another number of dimensions", key.t.id);
	f->tensor = (uint32_t)(t - m->tensor);
	f->box.rank = t->t.rank;
	for (size_t d = 0; d < a; d++)
		if (f->box.len[d] > t->t.shape[d] || f->box.off[d] > t->t.shape[d] - f->box.len[d])
			return mc_weight_bad(m,
				"a fragment of tensor %s is out of bounds in dimension %zu",
				key.t.id, d);
	want = mc_box_volume(&f->box) * t->t.itemsize;
	if (f->bytes != want)
		return mc_weight_bad(m, "a fragment of tensor %s has %llu bytes, its shape %llu",
			key.t.id, (unsigned long long)f->bytes, (unsigned long long)want);
	return 0;
}

int mc_weight_fragment_add(struct mc_weight_manifest *m, const struct mc_weight_fragment *f)
{
	int r = mc_array_room(&m->fragment, &m->cap_fragments, m->n_fragments + 1);

	if (r == 0)
		m->fragment[m->n_fragments++] = *f;
	return r;
}

struct number {
	const char *name;
	uint32_t number;
};

static int number_compare(const void *a, const void *b)
{
	return strcmp(((const struct number *)a)->name, ((const struct number *)b)->name);
}

static int fragment_order(const void *a, const void *b, void *fragments)
{
	const struct mc_weight_fragment *v = fragments;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	if (v[x].tensor != v[y].tensor)
		return v[x].tensor < v[y].tensor ? -1 : 1;
	return (x > y) - (x < y);
}

/* The shards of one tensor: fragments order[0 … n). */
static int side_tensor(const struct mc_weight_manifest *m, const uint32_t *order, uint32_t n,
	const uint32_t *as, uint32_t number, struct mc_side *side)
{
	cleanup_free struct mc_shard *shards = calloc(n, sizeof(*shards));
	cleanup_free uint64_t *tags = calloc(n, sizeof(*tags));

	if (shards == NULL || tags == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		const struct mc_weight_fragment *f = &m->fragment[order[i]];
		int r = mc_box_to_bytes(
			&f->box, m->tensor[f->tensor].t.itemsize * 8, &shards[i].box);

		if (r < 0)
			return r;
		shards[i].participant = as[f->participant];
		mc_address_dense(&shards[i].box, 0, &shards[i].place);
		tags[i] = order[i];
	}
	return mc_side_set(side, number, shards, n, tags);
}

static int fill_side(const struct mc_weight_manifest *m, const struct number *names, uint32_t n,
	const uint32_t *as, struct mc_side *side, struct mc_err *err)
{
	cleanup_free uint32_t *order = malloc(((size_t)m->n_fragments + 1) * sizeof(*order));
	int r = order != NULL ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < m->n_fragments && r == 0; i++)
		order[i] = i;
	if (r == 0)
		qsort_r(order, m->n_fragments, sizeof(*order), fragment_order, m->fragment);
	for (uint32_t i = 0, j; i < m->n_fragments && r == 0; i = j) {
		struct number key = {.name = m->tensor[m->fragment[order[i]].tensor].t.id}, *at;

		for (j = i + 1; j < m->n_fragments &&
			m->fragment[order[j]].tensor == m->fragment[order[i]].tensor;
			j++)
			;
		at = bsearch(&key, names, n, sizeof(*at), number_compare);
		if (at == NULL)
			return mc_err_set(
				err, -ENOENT, "tensor %s is not in the other manifest", key.name);
		r = side_tensor(m, order + i, j - i, as, at->number, side);
	}
	return r;
}

int mc_weight_manifest_side(const struct mc_weight_manifest *m, const char *const *names,
	uint32_t n, const uint32_t *as, struct mc_side *ret, struct mc_err *err)
{
	cleanup_free struct number *v = malloc(((size_t)n + 1) * sizeof(*v));
	int r = v != NULL ? mc_side_init(ret, n) : -ENOMEM;

	if (r < 0)
		return r;
	for (uint32_t i = 0; i < n; i++)
		v[i] = (struct number){.name = names[i], .number = i};
	qsort(v, n, sizeof(*v), number_compare);
	r = fill_side(m, v, n, as, ret, err);
	if (r < 0)
		mc_side_done(ret);
	return r;
}
