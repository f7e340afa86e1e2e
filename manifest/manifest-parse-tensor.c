/* Parsing the tensor table of a manifest: columns of equal length, sorted by name. */
#include "manifest/manifest-parse.h"

#include <errno.h>
#include <string.h>

#include "manifest/dtype.h"

struct columns {
	const json_t *dtype, *file, *len, *name, *off, *shape;
	const json_t *dtypes, *shapes, *boxes;
	size_t n;
	uint8_t *types;    /* owned: element of "dtypes" → enum mc_dtype */
	uint32_t *numbers; /* owned: element of "shapes" → first number of the index */
	size_t next_box;   /* first row of "boxes" not used yet */
};

static int column(
	struct mc_parse *p, const json_t *obj, const char *key, size_t n, const json_t **ret)
{
	*ret = json_object_get(obj, key);
	if (!json_is_array(*ret))
		return mc_parse_bad(p, "\"%s\" must be an array", key);
	if (json_array_size(*ret) != n)
		return mc_parse_bad(p, "\"%s\" has %zu elements, \"name\" has %zu", key,
			json_array_size(*ret), n);
	return 0;
}

static int parse_types(struct mc_parse *p, struct columns *c)
{
	size_t n = json_array_size(c->dtypes);

	if (!json_is_array(c->dtypes) || n > MC_DTYPE_COUNT)
		return mc_parse_bad(
			p, "\"dtypes\" must be an array of at most %d names", MC_DTYPE_COUNT);
	c->types = calloc(n + 1, sizeof(*c->types));
	if (c->types == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		const char *name = json_string_value(json_array_get(c->dtypes, i));

		if (name == NULL || mc_dtype_parse(name, &c->types[i]) < 0)
			return mc_parse_bad(p, "dtypes[%zu] is not a known dtype", i);
	}
	return 0;
}

static int parse_shapes(struct mc_parse *p, struct columns *c)
{
	size_t n = json_array_size(c->shapes);

	if (!json_is_array(c->shapes))
		return mc_parse_bad(p, "\"shapes\" must be an array");
	c->numbers = calloc(n + 1, sizeof(*c->numbers));
	if (c->numbers == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		const json_t *row = json_array_get(c->shapes, i);
		size_t rank = json_array_size(row);
		uint64_t shape[MC_MAX_RANK];
		int r;

		if (!json_is_array(row) || rank > MC_MAX_RANK)
			return mc_parse_bad(
				p, "shapes[%zu] must hold at most %d dimensions", i, MC_MAX_RANK);
		for (size_t k = 0; k < rank; k++)
			if (mc_json_uint(json_array_get(row, k), MC_JSON_INT_MAX, &shape[k]) < 0)
				return mc_parse_bad(p, "shapes[%zu] holds a bad dimension", i);
		r = mc_index_add(
			&p->b, MC_INDEX_NUMBERS, shape, rank * sizeof(*shape), &c->numbers[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Row [tensor, offset × rank, global × rank] if the next one is for tensor i. */
static int parse_box(struct mc_parse *p, struct columns *c, size_t i, struct mc_index_tensor *t)
{
	const json_t *row = json_array_get(c->boxes, c->next_box);
	const uint64_t *shape = (const uint64_t *)p->b.section[MC_INDEX_NUMBERS].p + t->shape;
	uint64_t box[2 * MC_MAX_RANK], index;

	t->box = MC_INDEX_NONE;
	if (row == NULL)
		return 0;
	if (mc_json_uint(json_array_get(row, 0), MC_JSON_INT_MAX, &index) < 0 || index < i ||
		index >= c->n)
		return mc_parse_bad(
			p, "boxes[%zu] names no tensor or is out of order", c->next_box);
	if (index != i)
		return 0;
	if (json_array_size(row) != 1 + 2 * (size_t)t->rank)
		return mc_parse_bad(p, "its box must have %d numbers", 2 * t->rank);
	for (size_t k = 0; k < 2 * (size_t)t->rank; k++)
		if (mc_json_uint(json_array_get(row, 1 + k), MC_JSON_INT_MAX, &box[k]) < 0)
			return mc_parse_bad(p, "its box holds a bad number");
	for (size_t k = 0; k < t->rank; k++)
		if (box[k] > box[t->rank + k] || shape[k] > box[t->rank + k] - box[k])
			return mc_parse_bad(
				p, "its box leaves the global shape in dimension %zu", k);
	c->next_box++;
	return mc_index_add(
		&p->b, MC_INDEX_NUMBERS, box, 2 * (size_t)t->rank * sizeof(*box), &t->box);
}

/* The bytes: inside a regular file, and as many as dtype and shape say. */
static int check_bytes(struct mc_parse *p, const struct mc_index_tensor *t)
{
	const struct mc_index_entry *e =
		(const struct mc_index_entry *)p->b.section[MC_INDEX_ENTRIES].p + t->entry;
	const uint64_t *shape = (const uint64_t *)p->b.section[MC_INDEX_NUMBERS].p + t->shape;
	uint64_t want;

	if (e->type != MC_ENTRY_FILE)
		return mc_parse_bad(p, "its file is not a regular file");
	if (mc_dtype_bytes(t->dtype, shape, t->rank, &want) < 0)
		return mc_parse_bad(p, "its size overflows or is not whole bytes");
	if (t->len != want)
		return mc_parse_bad(p, "has %llu bytes, dtype and shape need %llu",
			(unsigned long long)t->len, (unsigned long long)want);
	if (t->off > e->size || t->len > e->size - t->off)
		return mc_parse_bad(p, "ends after its file");
	return 0;
}

static int parse_tensor(struct mc_parse *p, struct columns *c, size_t i)
{
	uint64_t type, shape, file;
	struct mc_index_tensor t = {0};
	int r;

	if (mc_json_uint(json_array_get(c->dtype, i), MC_JSON_INT_MAX, &type) < 0 ||
		type >= json_array_size(c->dtypes))
		return mc_parse_bad(p, "its dtype is not in the table");
	if (mc_json_uint(json_array_get(c->shape, i), MC_JSON_INT_MAX, &shape) < 0 ||
		shape >= json_array_size(c->shapes))
		return mc_parse_bad(p, "its shape is not in the table");
	if (mc_json_uint(json_array_get(c->file, i), MC_JSON_INT_MAX, &file) < 0 ||
		file >= p->n_raw)
		return mc_parse_bad(p, "its file is not in the table");
	if (mc_json_uint(json_array_get(c->off, i), MC_JSON_INT_MAX, &t.off) < 0 ||
		mc_json_uint(json_array_get(c->len, i), MC_JSON_INT_MAX, &t.len) < 0)
		return mc_parse_bad(p, "\"off\" and \"len\" must be integers");
	t.dtype = c->types[type];
	t.rank = (uint8_t)json_array_size(json_array_get(c->shapes, shape));
	t.shape = c->numbers[shape];
	t.entry = p->entry_of[file];
	r = check_bytes(p, &t);
	if (r == 0)
		r = parse_box(p, c, i, &t);
	if (r == 0)
		r = mc_index_add_string(&p->b, p->name, &t.name);
	return r < 0 ? r : mc_index_add(&p->b, MC_INDEX_TENSORS, &t, sizeof(t), NULL);
}

/* Equal names are parts of one tensor: both boxed, same dtype, same global shape. */
static int check_parts(struct mc_parse *p)
{
	const struct mc_index_tensor *b =
		(const struct mc_index_tensor *)p->b.section[MC_INDEX_TENSORS].p +
		p->b.section[MC_INDEX_TENSORS].len / sizeof(*b) - 1;
	const struct mc_index_tensor *a = b - 1;
	const uint64_t *n = (const uint64_t *)p->b.section[MC_INDEX_NUMBERS].p;

	if (a->box == MC_INDEX_NONE || b->box == MC_INDEX_NONE)
		return mc_parse_bad(p, "listed twice");
	if (a->dtype != b->dtype || a->rank != b->rank ||
		memcmp(n + a->box + a->rank, n + b->box + b->rank, a->rank * sizeof(*n)) != 0)
		return mc_parse_bad(p, "its parts differ in dtype or global shape");
	return 0;
}

static int parse_rows(struct mc_parse *p, struct columns *c)
{
	const char *before = NULL;

	for (size_t i = 0; i < c->n; i++) {
		int r, order = before == NULL ? -1 : 0;

		p->kind = "tensors";
		p->name = json_string_value(json_array_get(c->name, i));
		if (p->name == NULL)
			return mc_parse_bad(p, "name[%zu] must be a string", i);
		p->kind = "tensor";
		if (before != NULL)
			order = strcmp(before, p->name);
		if (order > 0)
			return mc_parse_bad(p, "not in byte order of the names");
		r = parse_tensor(p, c, i);
		if (r == 0 && order == 0)
			r = check_parts(p);
		if (r < 0)
			return r;
		before = p->name;
	}
	p->kind = "tensors";
	p->name = NULL;
	if (c->next_box != json_array_size(c->boxes))
		return mc_parse_bad(p, "boxes[%zu] is out of order", c->next_box);
	return 0;
}

static int parse_columns(struct mc_parse *p, const json_t *obj, struct columns *c)
{
	static const char *const known[] = {
		"boxes", "dtype", "dtypes", "file", "len", "name", "off", "shape", "shapes", NULL};
	const char *key;
	int r;

	if (!json_is_object(obj))
		return mc_parse_bad(p, "must be an object of columns");
	key = mc_json_unknown_key(obj, known);
	if (key != NULL)
		return mc_parse_bad(p, "unknown column \"%.80s\"", key);
	c->n = json_array_size(json_object_get(obj, "name"));
	r = column(p, obj, "name", c->n, &c->name);
	if (r == 0)
		r = column(p, obj, "dtype", c->n, &c->dtype);
	if (r == 0)
		r = column(p, obj, "file", c->n, &c->file);
	if (r == 0)
		r = column(p, obj, "len", c->n, &c->len);
	if (r == 0)
		r = column(p, obj, "off", c->n, &c->off);
	if (r == 0)
		r = column(p, obj, "shape", c->n, &c->shape);
	c->dtypes = json_object_get(obj, "dtypes");
	c->shapes = json_object_get(obj, "shapes");
	c->boxes = json_object_get(obj, "boxes");
	if (r == 0 && c->boxes != NULL && !json_is_array(c->boxes))
		r = mc_parse_bad(p, "\"boxes\" must be an array");
	return r;
}

int mc_parse_tensors(struct mc_parse *p, const json_t *obj)
{
	struct columns c = {0};
	int r;

	p->kind = "tensors";
	p->name = NULL;
	if (obj == NULL)
		return 0;
	r = parse_columns(p, obj, &c);
	if (r == 0)
		r = parse_types(p, &c);
	if (r == 0)
		r = parse_shapes(p, &c);
	if (r == 0)
		r = parse_rows(p, &c);
	free(c.types);
	free(c.numbers);
	return r;
}
