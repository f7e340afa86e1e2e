/* Every rule of the safetensors format, one row each; what the format accepts; headers we write. */
#include "manifest/dtype.h"
#include "manifest/safetensors.h"
#include "tests/seed.h"
#include "tests/suite.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ANNOUNCE_OWN UINT64_MAX /* the header's own length */

/* A header of 8 bytes of length and text; n is what the length says. Freed by the caller. */
static char *header(const char *text, size_t len, uint64_t n, size_t *ret_len)
{
	char *h = malloc(len + 8);
	uint64_t le = htole64(n == ANNOUNCE_OWN ? len : n);

	ck_assert_ptr_nonnull(h);
	memcpy(h, &le, 8);
	memcpy(h + 8, text, len);
	*ret_len = len + 8;
	return h;
}

static int parse(const char *text, uint64_t data, struct mc_safetensors **ret, struct mc_err *err)
{
	size_t len;
	char *h = header(text, strlen(text), ANNOUNCE_OWN, &len);
	int r = mc_safetensors_parse(h, len, len + data, ret, err);

	free(h);
	return r;
}

#define T(dtype, shape, begin, end)                                                                \
	"{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static const struct {
	const char *text; /* the JSON */
	uint64_t data;    /* bytes after it */
	const char *want; /* part of the message */
} bad[] = {
	/* JSON and types */
	{"", 0, "bad JSON"},
	{"{\"a\":\"\xff\"}", 0, "not UTF-8 at byte 14"},
	{"{\"a\":\"\xed\xa0\x80\"}", 0, "not UTF-8"},
	{"{", 0, "bad JSON"},
	{"[]", 0, "not a JSON object"},
	{"{} x", 0, "bad JSON"},
	{"{\"a\":1}", 0, "tensor \"a\": must be an object"},
	{"{\"a\":{\"shape\":[],\"data_offsets\":[0,1]}}", 1, "dtype is missing"},
	{"{\"a\":{\"dtype\":5,\"shape\":[],\"data_offsets\":[0,1]}}", 1, "dtype must be a string"},
	{"{\"a\":" T("F31", "[1]", 0, 4) "}", 4, "unknown dtype \"F31\""},
	{"{\"a\":" T("f32", "[1]", 0, 4) "}", 4, "unknown dtype"},
	{"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "shape is missing"},
	{"{\"a\":" T("U8", "3", 0, 3) "}", 3, "shape must be an array"},
	{"{\"a\":" T("U8", "[-1]", 0, 1) "}", 1, "shape must hold integers"},
	{"{\"a\":" T("U8", "[1.0]", 0, 1) "}", 1, "shape must hold integers"},
	{"{\"a\":" T("U8", "[1e0]", 0, 1) "}", 1, "shape must hold integers"},
	{"{\"a\":" T("U8", "[18446744073709551616]", 0, 1) "}", 1, "bad JSON"},
	{"{\"a\":" T("U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}", 1, "more than 8 dimensions"},
	{"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "data_offsets is missing"},
	{"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1,
		"must be [begin, end]"},
	{"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, "[begin, end]"},
	{"{\"a\":" T("U8", "[1]", -1, 0) "}", 1, "data_offsets must be integers"},
	{"{\"a\":" T("U8", "[1]", 0, 1.0) "}", 1, "data_offsets must be integers"},
	{"{\"a\":" T("U8", "[1]", 1, 0) "}", 1, "end before they begin"},
	{"{\"__metadata__\":[]}", 0, "__metadata__ must be an object"},
	{"{\"__metadata__\":{\"k\":1}}", 0, "\"k\" must be a string"},
	{"{\"__metadata__\":{\"k\":null}}", 0, "\"k\" must be a string"},
	{"{\"a\":" T("U8", "[1]", 0, 1) ",\"a\":" T("U8", "[1]", 1, 2) "}", 2, "duplicate"},
	/* Layout */
	{"{\"a\":" T("U8", "[1]", 1, 2) "}", 2, "a hole before it: begins at 1"},
	{"{\"a\":" T("U8", "[1]", 0, 1) ",\"b\":" T("U8", "[1]", 2, 3) "}", 3,
		"\"b\": a hole before it: begins at 2, the one before ends at 1"},
	{"{\"a\":" T("U8", "[2]", 0, 2) ",\"b\":" T("U8", "[2]", 1, 3) "}", 3,
		"\"b\": an overlap before it: begins at 1, the one before ends at 2"},
	{"{\"a\":" T("U8", "[2]", 0, 2) ",\"b\":" T("U8", "[2]", 0, 2) "}", 2, "an overlap"},
	{"{\"a\":" T("U8", "[4294967296,4294967296]", 0, 0) "}", 0,
		"product of its shape overflows"},
	{"{\"a\":" T("F64", "[9223372036854775807]", 0, 0) "}", 0,
		"product of its shape overflows"},
	{"{\"a\":" T("F4", "[3]", 0, 2) "}", 2, "do not fill whole bytes"},
	{"{\"a\":" T("F6_E2M3", "[2]", 0, 2) "}", 2, "do not fill whole bytes"},
	{"{\"a\":" T("F32", "[2,2]", 0, 15) "}", 15, "span 15 bytes, dtype and shape need 16"},
	{"{\"a\":" T("F32", "[0]", 0, 4) "}", 4, "span 4 bytes, dtype and shape need 0"},
	{"{\"a\":" T("F32", "[]", 0, 0) "}", 0, "span 0 bytes, dtype and shape need 4"},
	{"{\"a\":" T("U8", "[2]", 0, 2) "}", 1, "truncated: the header expects a file of"},
	{"{\"a\":" T("U8", "[2]", 0, 2) "}", 3, "trailing bytes: the header expects a file of"},
	{"{}", 1, "trailing bytes"},
	/* A broken shape is found before a broken size, a hole before both. */
	{"{\"a\":" T("F4", "[3]", 1, 9) "}", 9, "a hole"},
};

START_TEST(each_broken_rule_is_refused_by_name)
{
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct mc_safetensors *st = NULL;
		struct mc_err err = {0};
		int r = parse(bad[i].text, bad[i].data, &st, &err);

		ck_assert_msg(r == -EBADMSG, "row %zu %s: %d", i, bad[i].text, r);
		ck_assert_msg(strstr(err.text, bad[i].want) != NULL, "row %zu %s: \"%s\"", i,
			bad[i].text, err.text);
		ck_assert_ptr_null(st);
	}
}
END_TEST

START_TEST(the_length_rules_come_before_the_json)
{
	static const struct {
		uint64_t n, file_size;
		size_t have; /* bytes of the file that were read */
		const char *want;
	} rows[] = {
		{0, 0, 0, "at least 8"},
		{0, 7, 7, "has 7 bytes"},
		{100000001, UINT64_MAX, 8, "at most 100000000"},
		{UINT64_MAX - 1, UINT64_MAX, 8, "at most 100000000"},
		{3, 10, 10, "8 + 3 bytes announced but the file has 10"},
		{100000000, 100000007, 8, "8 + 100000000 bytes announced"},
		{100000000, 100000008, 8, "8 of 100000008 bytes could be read"},
		{0, 8, 8, "bad JSON"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct mc_safetensors *st;
		struct mc_err err = {0};
		size_t len;
		char *h = header("{}      ", 8, rows[i].n, &len);
		int r = mc_safetensors_parse(h, rows[i].have, rows[i].file_size, &st, &err);

		free(h);
		ck_assert_msg(r == -EBADMSG, "row %zu: %d", i, r);
		ck_assert_msg(
			strstr(err.text, rows[i].want) != NULL, "row %zu: \"%s\"", i, err.text);
	}
}
END_TEST

START_TEST(what_the_format_allows_is_accepted)
{
	static const struct {
		const char *text;
		uint64_t data;
		size_t n;
	} rows[] = {
		{"{}", 0, 0},
		{"  \n\t{}", 0, 0},
		{"{}      ", 0, 0},
		{"{\"__metadata__\":null}", 0, 0},
		{"{\"__metadata__\":{}}", 0, 0},
		{"{\"__metadata__\":{\"format\":\"pt\"}}", 0, 0},
		{"{\"a\":" T("F32", "[]", 0, 4) "}", 4, 1},
		{"{\"a\":" T("F32", "[0,5]", 0, 0) "}", 0, 1},
		{"{\"a\":" T("U8", "[1]", 0, 1) ",\"z\":" T("U8", "[0]", 0, 0) "}", 1, 2},
		{"{\"z\":" T("U8", "[0]", 1, 1) ",\"a\":" T("U8", "[1]", 0, 1) "}", 1, 2},
		{"{\"a\":" T("F4", "[2,3]", 0, 3) "}", 3, 1},
		{"{\"a\":" T("F6_E3M2", "[4]", 0, 3) "}", 3, 1},
		{"{\"\":" T("U8", "[1]", 0, 1) "}", 1, 1},
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":[1.5,{}]}}",
			1, 1},
		{"{\"\\u00e9\\ud83d\\ude00\":" T("U8", "[1,1,1,1,1,1,1,1]", 0, 1) "}", 1, 1},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct mc_safetensors *st = NULL;
		struct mc_err err = {0};
		int r = parse(rows[i].text, rows[i].data, &st, &err);

		ck_assert_msg(r == 0, "row %zu %s: %s", i, rows[i].text, err.text);
		ck_assert_uint_eq(mc_safetensors_count(st), rows[i].n);
		mc_safetensors_close(st);
	}
}
END_TEST

START_TEST(tensors_come_in_data_order_with_offsets_in_the_file)
{
	const char *text = "{\"b\":" T("BF16", "[2,3]", 4, 16) ",\"__metadata__\":{\"k\":\"v\"},"
							       "\"a\":" T("F32", "[]", 0, 4) "}";
	const struct mc_st_tensor *t;
	struct mc_safetensors *st;

	ck_assert_int_eq(parse(text, 16, &st, NULL), 0);
	ck_assert_uint_eq(mc_safetensors_count(st), 2);
	ck_assert_uint_eq(mc_safetensors_data_start(st), 8 + strlen(text));
	t = mc_safetensors_tensor(st, 0);
	ck_assert_str_eq(t->name, "a");
	ck_assert_uint_eq(t->rank, 0);
	ck_assert_uint_eq(t->off, 8 + strlen(text));
	ck_assert_uint_eq(t->len, 4);
	t = mc_safetensors_tensor(st, 1);
	ck_assert_str_eq(t->name, "b");
	ck_assert_uint_eq(t->dtype, MC_DTYPE_BF16);
	ck_assert_uint_eq(t->rank, 2);
	ck_assert_uint_eq(t->shape[0], 2);
	ck_assert_uint_eq(t->shape[1], 3);
	ck_assert_uint_eq(t->off, 8 + strlen(text) + 4);
	ck_assert_uint_eq(t->len, 12);
	ck_assert_str_eq(mc_safetensors_metadata(st, "k"), "v");
	ck_assert_ptr_null(mc_safetensors_metadata(st, "x"));
	mc_safetensors_close(st);
}
END_TEST

START_TEST(every_dtype_has_the_width_of_the_format)
{
	static const struct {
		const char *name;
		unsigned bits;
	} rows[] = {{"BOOL", 8}, {"F4", 4}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8}, {"I8", 8},
		{"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
		{"F8_E5M2FNUZ", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16}, {"BF16", 16},
		{"I32", 32}, {"U32", 32}, {"F32", 32}, {"C64", 64}, {"F64", 64}, {"I64", 64},
		{"U64", 64}};
	uint8_t d;

	ck_assert_uint_eq(sizeof(rows) / sizeof(*rows), MC_DTYPE_COUNT);
	for (size_t i = 0; i < MC_DTYPE_COUNT; i++) {
		ck_assert_int_eq(mc_dtype_parse(rows[i].name, &d), 0);
		ck_assert_uint_eq(mc_dtype_bits(d), rows[i].bits);
		ck_assert_str_eq(mc_dtype_name(d), rows[i].name);
	}
	ck_assert_int_eq(mc_dtype_parse("", &d), -EINVAL);
}
END_TEST

START_TEST(written_headers_put_whole_pages_first_on_a_page)
{
	const uint64_t page[] = {2, 1024}, odd[] = {3}, none[] = {0};
	struct mc_st_new t[] = {{"odd \"\xc3\xa9\"", MC_DTYPE_F32, 1, odd},
		{"page", MC_DTYPE_BF16, 2, page}, {"none", MC_DTYPE_U8, 1, none},
		{"page2", MC_DTYPE_F32, 2, page}};
	const struct mc_st_meta meta[] = {{"format", "pt"}, {"note", "a\nb"}};
	struct mc_st_header h;
	struct mc_safetensors *st;
	struct mc_err err = {0};

	ck_assert_int_eq(mc_safetensors_write(t, 4, meta, 2, &h, &err), 0);
	ck_assert_uint_eq(h.len, 4096);
	ck_assert_int_eq(h.bytes[8], '{');
	ck_assert_int_eq(h.bytes[h.len - 1], ' ');
	ck_assert_uint_eq(h.file_size, 4096 + 4096 + 8192 + 12);
	ck_assert_uint_eq(t[1].off, 4096);
	ck_assert_uint_eq(t[3].off, 8192);
	ck_assert_uint_eq(t[0].off, 16384);
	ck_assert_uint_eq(t[0].len, 12);
	ck_assert_msg(
		mc_safetensors_parse(h.bytes, h.len, h.file_size, &st, &err) == 0, "%s", err.text);
	ck_assert_uint_eq(mc_safetensors_count(st), 4);
	ck_assert_str_eq(mc_safetensors_tensor(st, 3)->name, t[0].name);
	ck_assert_uint_eq(mc_safetensors_tensor(st, 3)->off, t[0].off);
	ck_assert_str_eq(mc_safetensors_metadata(st, "note"), "a\nb");
	mc_safetensors_close(st);
	free(h.bytes);
}
END_TEST

START_TEST(impossible_headers_are_not_written)
{
	const uint64_t one[] = {1}, huge[] = {UINT64_MAX, 2}, big[] = {UINT64_C(1) << 60};
	const struct {
		struct mc_st_new t[2];
		size_t n;
		int want;
	} rows[] = {{{{"a", MC_DTYPE_U8, 1, one}, {"a", MC_DTYPE_U8, 1, one}}, 2, -EINVAL},
		{{{"__metadata__", MC_DTYPE_U8, 1, one}}, 1, -EINVAL},
		{{{"\xff", MC_DTYPE_U8, 1, one}}, 1, -EINVAL},
		{{{"a", MC_DTYPE_U8, 2, huge}}, 1, -EINVAL},
		{{{"a", MC_DTYPE_F4, 1, one}}, 1, -EINVAL},
		{{{"a", MC_DTYPE_COUNT, 1, one}}, 1, -EINVAL}};
	struct mc_st_new many[8];
	struct mc_st_header h;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct mc_st_new t[2];
		int r;

		memcpy(t, rows[i].t, sizeof(t));
		r = mc_safetensors_write(t, rows[i].n, NULL, 0, &h, NULL);
		ck_assert_msg(r == rows[i].want, "row %zu: %d", i, r);
	}
	for (size_t i = 0; i < 8; i++)
		many[i] = (struct mc_st_new){&"abcdefgh"[i], MC_DTYPE_U8, 1, big};
	ck_assert_int_eq(mc_safetensors_write(many, 8, NULL, 0, &h, NULL), -EFBIG);
}
END_TEST

/* Changes 1 to 4 bytes (or the length) of a good header; whatever comes out must be consistent. */
static void mutate(char *h, size_t len, unsigned *seed)
{
	for (int n = 1 + rand_r(seed) % 4; n > 0; n--) {
		size_t at = (size_t)rand_r(seed) % len;

		switch (rand_r(seed) % 3) {
		case 0:
			h[at] = (char)rand_r(seed);
			break;
		case 1:
			h[at] ^= (char)(1 << rand_r(seed) % 8);
			break;
		default:
			h[at] = "0123456789[]{}\",:-.eE\\"[rand_r(seed) % 22];
		}
	}
}

static void check_consistent(const struct mc_safetensors *st, uint64_t file_size)
{
	uint64_t at = mc_safetensors_data_start(st), bytes;

	for (size_t i = 0; i < mc_safetensors_count(st); i++) {
		const struct mc_st_tensor *t = mc_safetensors_tensor(st, i);

		ck_assert_uint_eq(t->off, at);
		ck_assert_int_eq(mc_dtype_bytes(t->dtype, t->shape, t->rank, &bytes), 0);
		ck_assert_uint_eq(t->len, bytes);
		at += t->len;
	}
	ck_assert_uint_eq(at, file_size);
}

START_TEST(mutated_headers_are_refused_or_consistent)
{
	const char *text = "{\"__metadata__\":{\"format\":\"pt\"},"
			   "\"model.embed\":" T("BF16", "[4,8]", 0, 64) ",\"model.norm\":" T("F32",
				   "[8]", 64, 96) ",\"scale\":" T("F8_E8M0", "[]", 96, 97) "}";
	unsigned seed = seed_choose();
	unsigned accepted = 0;

	for (int i = 0; i < 20000; i++) {
		struct mc_safetensors *st;
		struct mc_err err = {0};
		size_t len;
		char *h = header(text, strlen(text), ANNOUNCE_OWN, &len);
		int r;

		mutate(h, len, &seed);
		r = mc_safetensors_parse(h, len, len + 97, &st, &err);
		free(h);
		if (r == 0) {
			accepted++;
			check_consistent(st, len + 97);
			mc_safetensors_close(st);
		} else {
			ck_assert_int_eq(r, -EBADMSG);
			ck_assert_uint_gt(strlen(err.text), 0);
		}
	}
	ck_assert_uint_gt(accepted, 0);
}
END_TEST

SUITE_MAIN("safetensors", each_broken_rule_is_refused_by_name,
	the_length_rules_come_before_the_json, what_the_format_allows_is_accepted,
	tensors_come_in_data_order_with_offsets_in_the_file,
	every_dtype_has_the_width_of_the_format, written_headers_put_whole_pages_first_on_a_page,
	impossible_headers_are_not_written, mutated_headers_are_refused_or_consistent)
