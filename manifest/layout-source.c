/* A manifest's tensor table, grouped by name, as whole tensors and as one side of a plan. */
#include "manifest/layout-source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/dtype.h"
#include "tier/cleanup.h"

struct named {
	const char *name;
	uint32_t number; /* in the manifest */
};

static int named_compare(const void *a, const void *b)
{
	const struct named *x = a, *y = b;
	int c = strcmp(x->name, y->name);

	return c != 0 ? c : (x->number > y->number) - (x->number < y->number);
}

static int sorted_names(const struct mc_manifest *m, struct named **ret)
{
	uint32_t n = mc_manifest_tensors(m);
	struct named *v = malloc(((size_t)n + 1) * sizeof(*v));
	bool sorted = true;

	if (v == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		struct mc_tensor t;

		mc_manifest_tensor(m, i, &t);
		v[i] = (struct named){.name = t.name, .number = i};
		sorted = sorted && (i == 0 || named_compare(&v[i - 1], &v[i]) < 0);
	}
	if (!sorted)
		qsort(v, n, sizeof(*v), named_compare);
	*ret = v;
	return 0;
}

static void whole_of(const struct mc_tensor *t, struct mc_layout_tensor *ret)
{
	*ret = (struct mc_layout_tensor){.name = t->name, .dtype = t->dtype, .rank = t->rank};
	memcpy(ret->shape, t->boxed ? t->global : t->shape, t->rank * sizeof(*ret->shape));
}

static int shard_of(const struct mc_tensor *t, uint32_t participant, struct mc_shard *ret)
{
	struct mc_box box = {.rank = t->rank};
	int r;

	memset(ret, 0, sizeof(*ret));
	ret->participant = participant;
	memcpy(box.len, t->shape, t->rank * sizeof(*box.len));
	if (t->boxed)
		memcpy(box.off, t->box_off, t->rank * sizeof(*box.off));
	r = mc_box_to_bytes(&box, mc_dtype_bits(t->dtype), &ret->box);
	mc_address_dense(&ret->box, 0, &ret->place);
	return r;
}

static bool overlap_partly(const struct mc_shard *shards, uint32_t n, int *ret_error)
{
	struct mc_box *boxes = malloc(n * sizeof(*boxes));
	bool bad = false;
	struct mc_cells c;

	*ret_error = boxes != NULL ? 0 : -ENOMEM;
	for (uint32_t i = 0; i < n && boxes != NULL; i++)
		boxes[i] = shards[i].box;
	if (*ret_error == 0)
		*ret_error = mc_cells_init(&c, boxes, n);
	if (*ret_error == 0) {
		bad = c.refined;
		mc_cells_done(&c);
	}
	free(boxes);
	return bad;
}

/* All entries v[0 … n) of one name. */
static int add_tensor(struct mc_layout_source *s, const struct mc_manifest *m,
	const struct named *v, uint32_t n, uint32_t participant, struct mc_err *err)
{
	cleanup_free struct mc_shard *shards = malloc(n * sizeof(*shards));
	cleanup_free uint64_t *tags = malloc(n * sizeof(*tags));
	struct mc_layout_tensor *whole = &s->tensor[s->n];
	int r = 0;

	if (shards == NULL || tags == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < n && r == 0; i++) {
		struct mc_layout_tensor other;
		struct mc_tensor t;

		mc_manifest_tensor(m, v[i].number, &t);
		whole_of(&t, i == 0 ? whole : &other);
		if (n > 1 && !t.boxed)
			return mc_err_set(err, -EINVAL,
				"tensor %s is there %u times, and not as parts of one", t.name, n);
		if (i > 0 &&
			(other.dtype != whole->dtype || other.rank != whole->rank ||
				memcmp(other.shape, whole->shape, sizeof(other.shape)) != 0))
			return mc_err_set(err, -EINVAL,
				"tensor %s: its parts do not agree on type or shape", t.name);
		r = shard_of(&t, participant, &shards[i]);
		tags[i] = v[i].number;
	}
	if (r == 0 && n > 1 && overlap_partly(shards, n, &r))
		return mc_err_set(
			err, -EINVAL, "tensor %s: parts overlap without being equal", whole->name);
	if (r == 0)
		r = mc_side_set(&s->side, s->n, shards, n, tags);
	s->name[s->n] = whole->name;
	s->n += r == 0;
	return r;
}

int mc_layout_source_init(struct mc_layout_source *s, const struct mc_manifest *m,
	uint32_t participant, struct mc_err *err)
{
	uint32_t n = mc_manifest_tensors(m);
	cleanup_free struct named *v = NULL;
	int r;

	*s = (struct mc_layout_source){0};
	s->tensor = malloc(((size_t)n + 1) * sizeof(*s->tensor));
	s->name = malloc(((size_t)n + 1) * sizeof(*s->name));
	r = s->tensor != NULL && s->name != NULL ? sorted_names(m, &v) : -ENOMEM;
	if (r == 0)
		r = mc_side_init(&s->side, n);
	for (uint32_t i = 0, j; i < n && r == 0; i = j) {
		for (j = i + 1; j < n && strcmp(v[j].name, v[i].name) == 0; j++)
			;
		r = add_tensor(s, m, v + i, j - i, participant, err);
	}
	if (r < 0) {
		mc_layout_source_done(s);
		return mc_err_set(err, r, "the tensor table cannot be used: %s", strerror(-r));
	}
	s->side.n_tensors = s->n; /* names that come several times are one */
	return 0;
}

void mc_layout_source_done(struct mc_layout_source *s)
{
	free(s->tensor);
	free(s->name);
	mc_side_done(&s->side);
	*s = (struct mc_layout_source){0};
}
