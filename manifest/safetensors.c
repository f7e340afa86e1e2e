/* Parsing safetensors headers: every rule of the format, in the order the format checks them. */
#include "manifest/safetensors.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/dtype.h"
#include "manifest/json.h"
#include "manifest/utf8.h"

#define MAX_DEPTH 64 /* unknown keys of an entry may hold anything */
#define METADATA "__metadata__"

struct mc_safetensors {
	json_t *root;           /* owned; names and metadata live in it */
	struct mc_st_tensor *t; /* owned */
	size_t n;
	uint64_t data_start;
};

int mc_safetensors_header_size(
	const void *first, size_t got, uint64_t file_size, uint64_t *ret, struct mc_err *err)
{
	uint64_t n;

	if (got < sizeof(n) || file_size < sizeof(n))
		return mc_err_set(err, -EBADMSG,
			"header: the file has %llu bytes, a safetensors file at least 8",
			(unsigned long long)(file_size < got ? file_size : got));
	memcpy(&n, first, sizeof(n));
	n = le64toh(n);
	if (n > MC_SAFETENSORS_MAX_HEADER)
		return mc_err_set(err, -EBADMSG,
			"header: %llu bytes announced, at most %llu allowed", (unsigned long long)n,
			(unsigned long long)MC_SAFETENSORS_MAX_HEADER);
	if (n > file_size - sizeof(n))
		return mc_err_set(err, -EBADMSG,
			"header: 8 + %llu bytes announced but the file has %llu",
			(unsigned long long)n, (unsigned long long)file_size);
	*ret = n + sizeof(n);
	return 0;
}

static int bad(struct mc_err *err, const char *name, const char *rule)
{
	return mc_err_set(err, -EBADMSG, "tensor \"%.200s\": %s", name, rule);
}

static int parse_shape(const json_t *shape, struct mc_st_tensor *t, struct mc_err *err)
{
	size_t rank = json_array_size(shape);

	if (shape == NULL)
		return bad(err, t->name, "shape is missing");
	if (!json_is_array(shape))
		return bad(err, t->name, "shape must be an array");
	for (size_t i = 0; i < rank; i++) {
		uint64_t dim;

		if (mc_json_uint(json_array_get(shape, i), INT64_MAX, &dim) < 0)
			return bad(err, t->name, "shape must hold integers from 0");
		if (i < MC_MAX_RANK)
			t->shape[i] = dim;
	}
	if (rank > MC_MAX_RANK)
		return bad(err, t->name, "more than 8 dimensions are not supported");
	t->rank = (uint8_t)rank;
	return 0;
}

/* Leaves off relative to the data's start and len = end - begin, which may wrap: checked later. */
static int parse_offsets(const json_t *pair, struct mc_st_tensor *t, struct mc_err *err)
{
	uint64_t begin, end;

	if (pair == NULL)
		return bad(err, t->name, "data_offsets is missing");
	if (json_array_size(pair) != 2)
		return bad(err, t->name, "data_offsets must be [begin, end]");
	if (mc_json_uint(json_array_get(pair, 0), INT64_MAX, &begin) < 0 ||
		mc_json_uint(json_array_get(pair, 1), INT64_MAX, &end) < 0)
		return bad(err, t->name, "data_offsets must be integers from 0");
	if (end < begin)
		return bad(err, t->name, "data_offsets end before they begin");
	t->off = begin;
	t->len = end - begin;
	return 0;
}

static int parse_tensor(
	const char *name, const json_t *v, struct mc_st_tensor *t, struct mc_err *err)
{
	const json_t *dtype = json_object_get(v, "dtype");
	int r;

	*t = (struct mc_st_tensor){.name = name};
	if (!json_is_object(v))
		return bad(err, name, "must be an object");
	if (dtype == NULL)
		return bad(err, name, "dtype is missing");
	if (!json_is_string(dtype))
		return bad(err, name, "dtype must be a string");
	if (mc_dtype_parse(json_string_value(dtype), &t->dtype) < 0)
		return mc_err_set(err, -EBADMSG, "tensor \"%.200s\": unknown dtype \"%.40s\"", name,
			json_string_value(dtype));
	r = parse_shape(json_object_get(v, "shape"), t, err);
	return r < 0 ? r : parse_offsets(json_object_get(v, "data_offsets"), t, err);
}

static int check_metadata(const json_t *meta, struct mc_err *err)
{
	void *it = json_object_iter((json_t *)meta);

	if (meta == NULL || json_is_null(meta))
		return 0;
	if (!json_is_object(meta))
		return mc_err_set(err, -EBADMSG, METADATA " must be an object");
	for (; it != NULL; it = json_object_iter_next((json_t *)meta, it))
		if (!json_is_string(json_object_iter_value(it)))
			return mc_err_set(err, -EBADMSG, METADATA ": \"%.200s\" must be a string",
				json_object_iter_key(it));
	return 0;
}

static int data_order(const void *va, const void *vb)
{
	const struct mc_st_tensor *a = va, *b = vb;

	if (a->off != b->off)
		return a->off < b->off ? -1 : 1;
	if (a->len != b->len)
		return a->len < b->len ? -1 : 1;
	return strcmp(a->name, b->name);
}

static int parse_entries(struct mc_safetensors *st, struct mc_err *err)
{
	void *it = json_object_iter(st->root);
	int r = check_metadata(json_object_get(st->root, METADATA), err);

	if (r < 0)
		return r;
	st->t = calloc(json_object_size(st->root) + 1, sizeof(*st->t));
	if (st->t == NULL)
		return -ENOMEM;
	for (; it != NULL; it = json_object_iter_next(st->root, it)) {
		const char *name = json_object_iter_key(it);

		if (strcmp(name, METADATA) == 0)
			continue;
		r = parse_tensor(name, json_object_iter_value(it), &st->t[st->n], err);
		if (r < 0)
			return r;
		st->n++;
	}
	qsort(st->t, st->n, sizeof(*st->t), data_order);
	return 0;
}

/* One tensor against its own shape and the end of the one before it. */
static int check_tensor(const struct mc_st_tensor *t, uint64_t at, struct mc_err *err)
{
	uint64_t want;
	int r;

	if (t->off != at)
		return mc_err_set(err, -EBADMSG,
			"tensor \"%.200s\": %s before it: begins at %llu, the one before ends at "
			"%llu",
			t->name, t->off > at ? "a hole" : "an overlap", (unsigned long long)t->off,
			(unsigned long long)at);
	r = mc_dtype_bytes(t->dtype, t->shape, t->rank, &want);
	if (r == -EOVERFLOW)
		return bad(err, t->name, "the product of its shape overflows");
	if (r < 0)
		return bad(err, t->name, "its elements do not fill whole bytes");
	if (t->len != want)
		return mc_err_set(err, -EBADMSG,
			"tensor \"%.200s\": data_offsets span %llu bytes, dtype and shape need "
			"%llu",
			t->name, (unsigned long long)t->len, (unsigned long long)want);
	return 0;
}

static int check_layout(struct mc_safetensors *st, uint64_t file_size, struct mc_err *err)
{
	uint64_t at = 0, have = file_size - st->data_start, want;

	for (size_t i = 0; i < st->n; i++) {
		int r = check_tensor(&st->t[i], at, err);

		if (r < 0)
			return r;
		at += st->t[i].len;
	}
	want = st->data_start + at;
	if (at != have)
		return mc_err_set(err, -EBADMSG,
			"%s: the header expects a file of %llu bytes, it has %llu",
			at > have ? "truncated" : "trailing bytes", (unsigned long long)want,
			(unsigned long long)file_size);
	for (size_t i = 0; i < st->n; i++)
		st->t[i].off += st->data_start;
	return 0;
}

static int parse_json(const char *text, size_t len, struct mc_safetensors *st, struct mc_err *err)
{
	size_t at;
	int r;

	if (!mc_utf8_valid(text, len, &at))
		return mc_err_set(err, -EBADMSG, "header: not UTF-8 at byte %zu", at + 8);
	r = mc_json_load(text, len, MAX_DEPTH, &st->root, err);
	if (r < 0)
		return mc_err_prefix(err, r, "header");
	if (!json_is_object(st->root))
		return mc_err_set(err, -EBADMSG, "header: not a JSON object");
	return 0;
}

int mc_safetensors_parse(const void *header, size_t len, uint64_t file_size,
	struct mc_safetensors **ret, struct mc_err *err)
{
	struct mc_safetensors *st;
	uint64_t size;
	int r = mc_safetensors_header_size(header, len, file_size, &size, err);

	if (r < 0)
		return r;
	if (size > len)
		return mc_err_set(err, -EBADMSG, "header: %zu of %llu bytes could be read", len,
			(unsigned long long)size);
	st = calloc(1, sizeof(*st));
	if (st == NULL)
		return -ENOMEM;
	st->data_start = size;
	r = parse_json((const char *)header + 8, (size_t)size - 8, st, err);
	if (r == 0)
		r = parse_entries(st, err);
	if (r == 0)
		r = check_layout(st, file_size, err);
	if (r < 0) {
		mc_safetensors_close(st);
		return r;
	}
	*ret = st;
	return 0;
}

void mc_safetensors_close(struct mc_safetensors *st)
{
	if (st == NULL)
		return;
	json_decref(st->root);
	free(st->t);
	free(st);
}

size_t mc_safetensors_count(const struct mc_safetensors *st)
{
	return st->n;
}

const struct mc_st_tensor *mc_safetensors_tensor(const struct mc_safetensors *st, size_t i)
{
	return &st->t[i];
}

const char *mc_safetensors_metadata(const struct mc_safetensors *st, const char *key)
{
	return json_string_value(json_object_get(json_object_get(st->root, METADATA), key));
}

uint64_t mc_safetensors_data_start(const struct mc_safetensors *st)
{
	return st->data_start;
}
