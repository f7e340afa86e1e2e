/* Writing safetensors headers: page-sized tensors first, so that every large matrix is
 * page-aligned. */
#include "manifest/safetensors.h"

#include <endian.h>
#include <string.h>

#include "manifest/dtype.h"
#include "manifest/json-out.h"
#include "manifest/utf8.h"
#include "tier/cleanup.h"

static int check_text(const char *what, const char *text, struct mc_err *err)
{
	if (!mc_utf8_valid(text, strlen(text), NULL))
		return mc_err_set(err, -EINVAL, "%s is not UTF-8", what);
	return 0;
}

static int name_order(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_names(const struct mc_st_new *t, size_t n, struct mc_err *err)
{
	cleanup_free const char **names = calloc(n + 1, sizeof(*names));
	bool sorted = true;

	if (names == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		int r = check_text("a tensor name", t[i].name, err);

		if (r < 0)
			return r;
		names[i] = t[i].name;
		sorted = sorted && (i == 0 || strcmp(names[i - 1], names[i]) < 0);
	}
	if (!sorted)
		qsort(names, n, sizeof(*names), name_order);
	for (size_t i = 0; i < n; i++)
		if (strcmp(names[i], "__metadata__") == 0 ||
			(i > 0 && strcmp(names[i - 1], names[i]) == 0))
			return mc_err_set(err, -EINVAL, "tensor \"%.200s\": %s", names[i],
				i > 0 && strcmp(names[i - 1], names[i]) == 0
					? "given twice"
					: "the name is reserved");
	return 0;
}

/* Sizes, and offsets relative to the data's start; the sum of all sizes. */
static int lay_out(struct mc_st_new *t, size_t n, uint64_t *ret_data, struct mc_err *err)
{
	uint64_t at = 0;

	for (size_t i = 0; i < n; i++)
		if (t[i].dtype >= MC_DTYPE_COUNT || t[i].rank > MC_MAX_RANK ||
			mc_dtype_bytes(t[i].dtype, t[i].shape, t[i].rank, &t[i].len) < 0)
			return mc_err_set(
				err, -EINVAL, "tensor \"%.200s\": bad dtype or shape", t[i].name);
	for (int whole_pages = 1; whole_pages >= 0; whole_pages--) {
		for (size_t i = 0; i < n; i++) {
			if ((t[i].len % MC_SAFETENSORS_ALIGN == 0) != whole_pages)
				continue;
			t[i].off = at;
			if (__builtin_add_overflow(at, t[i].len, &at) || at > INT64_MAX)
				return mc_err_set(err, -EFBIG, "the tensors' sizes overflow");
		}
	}
	*ret_data = at;
	return 0;
}

static void put_tensor(struct mc_json_out *o, const struct mc_st_new *t)
{
	bool first = true;

	mc_json_put_string(o, t->name);
	mc_json_put(o, ":{\"dtype\":");
	mc_json_put_string(o, mc_dtype_name(t->dtype));
	mc_json_put(o, ",\"shape\":[");
	for (unsigned i = 0; i < t->rank; i++) {
		mc_json_put_comma(o, &first);
		mc_json_put_uint(o, t->shape[i]);
	}
	mc_json_put(o, "],\"data_offsets\":[");
	mc_json_put_uint(o, t->off);
	mc_json_put(o, ",");
	mc_json_put_uint(o, t->off + t->len);
	mc_json_put(o, "]}");
}

static void put_metadata(struct mc_json_out *o, const struct mc_st_meta *meta, size_t n)
{
	bool first = true;

	mc_json_put(o, "\"__metadata__\":{");
	for (size_t i = 0; i < n; i++) {
		mc_json_put_comma(o, &first);
		mc_json_put_string(o, meta[i].key);
		mc_json_put(o, ":");
		mc_json_put_string(o, meta[i].value);
	}
	mc_json_put(o, "}");
}

static void put_header(struct mc_json_out *o, const struct mc_st_new *t, size_t n,
	const struct mc_st_meta *meta, size_t n_meta)
{
	bool first = n_meta == 0;

	mc_json_put_mem(o, "\0\0\0\0\0\0\0\0{", 9);
	if (n_meta > 0)
		put_metadata(o, meta, n_meta);
	for (int whole_pages = 1; whole_pages >= 0; whole_pages--) {
		for (size_t i = 0; i < n; i++) {
			if ((t[i].len % MC_SAFETENSORS_ALIGN == 0) != whole_pages)
				continue;
			mc_json_put_comma(o, &first);
			put_tensor(o, &t[i]);
		}
	}
	mc_json_put(o, "}");
	while (!o->failed && o->b.len % MC_SAFETENSORS_ALIGN != 0)
		mc_json_put(o, " ");
}

int mc_safetensors_write(struct mc_st_new *tensors, size_t n, const struct mc_st_meta *meta,
	size_t n_meta, struct mc_st_header *ret, struct mc_err *err)
{
	struct mc_json_out o = {0};
	uint64_t data = 0, le;
	int r = check_names(tensors, n, err);

	for (size_t i = 0; r == 0 && i < n_meta; i++) {
		r = check_text("a metadata key", meta[i].key, err);
		if (r == 0)
			r = check_text("a metadata value", meta[i].value, err);
	}
	if (r == 0)
		r = lay_out(tensors, n, &data, err);
	if (r < 0)
		return r;
	put_header(&o, tensors, n, meta, n_meta);
	if (o.failed || o.b.len - 8 > MC_SAFETENSORS_MAX_HEADER) {
		r = o.failed ? -ENOMEM
			     : mc_err_set(err, -EFBIG, "the header has %zu bytes", o.b.len - 8);
		mc_buffer_done(&o.b);
		return r;
	}
	le = htole64(o.b.len - 8);
	memcpy(o.b.p, &le, sizeof(le));
	for (size_t i = 0; i < n; i++)
		tensors[i].off += o.b.len;
	*ret = (struct mc_st_header){
		.bytes = (char *)o.b.p, .len = o.b.len, .file_size = o.b.len + data};
	return 0;
}
