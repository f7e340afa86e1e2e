/* Every rule of the manifest: a good manifest with one thing changed is refused, and says which. */
#include "tests/sample-manifest.h"
#include "tests/seed.h"
#include "tests/suite.h"

#include <errno.h>
#include <stdio.h>

#define LINK "\"path\":\"sub/link\""
#define SPARSE "\"holes\":[[1048577,3145728]]"
#define MTIME "\"mtime\":[1700000000,5],"

static char *sample_json(size_t *len)
{
	struct mc_writer *w = sample_writer();
	char *json;

	ck_assert_int_eq(mc_writer_finish(w, &json, len, NULL, NULL), 0);
	mc_writer_close(w);
	return json;
}

/* The text with its first from replaced by to; freed by the caller. */
static char *replace(
	const char *text, size_t len, const char *from, const char *to, size_t *ret_len)
{
	const char *at = memmem(text, len, from, strlen(from));
	size_t head, tail;
	char *out;

	ck_assert_msg(at != NULL, "the sample holds no %s", from);
	head = (size_t)(at - text);
	tail = len - head - strlen(from);
	*ret_len = head + strlen(to) + tail;
	out = malloc(*ret_len + 1);
	ck_assert_ptr_nonnull(out);
	memcpy(out, text, head);
	memcpy(out + head, to, strlen(to));
	memcpy(out + head + strlen(to), at + strlen(from), tail);
	out[*ret_len] = '\0';
	return out;
}

static const struct {
	const char *from, *to, *want;
} rows[] = {
	/* The top level */
	{"{\"chunks\"", "[],{\"chunks\"", "bad JSON"},
	{"\"version\":1}", "\"version\":1}x", "bad JSON"},
	{"\"version\":1}", "\"version\":1", "bad JSON"},
	{"\"version\":1", "\"version\":2", "version 2 is not supported"},
	{"\"version\":1", "\"version\":1.0", "\"version\" must be an integer"},
	{"\"version\":1", "\"version\":1e0", "\"version\" must be an integer"},
	{"\"version\":1", "\"version\":18446744073709551617", "too big"},
	{"\"version\":1", "\"version\":1,\"version\":1", "duplicate"},
	{"\"version\":1", "\"version\":1,\"extra\":0", "unknown key \"extra\""},
	{"\"format\":\"mooncakefs-manifest\"", "\"format\":\"x\"", "format is \"x\""},
	{"\"format\":\"mooncakefs-manifest\",", "", "\"format\" must be a string"},
	{"\"root\":{", "\"root\":{\"uid\":0,", "root: must hold mode and mtime"},
	{"\"root\":{\"mode\":493,", "\"root\":{", "root: \"mode\" must be an integer"},
	/* Chunks */
	{"{\"len\":[100,", "{\"len\":[", "5 lengths for 6 digests"},
	{"{\"len\":[100,", "{\"len\":[0,", "len of chunk 0"},
	{"{\"len\":[100,", "{\"len\":[8388609,", "len of chunk 0"},
	{"{\"len\":[100,", "{\"len\":[100.0,", "len of chunk 0"},
	{"{\"len\":[100,", "{\"len\":[101,", "config.json: chunk 1"},
	{"{\"len\":[100,", "{\"len\":[99,", "config.json: its chunks end at 149, 1 bytes"},
	{"[\"0101", "[\"010", "sha256 of chunk 0"},
	{"[\"0101", "[\"010A", "sha256 of chunk 0"},
	{"[\"0101", "[\"0102", "config.json: digest is not that"},
	{"\"chunks\":{", "\"chunks\":{\"x\":[],", "must hold the arrays"},
	{"{\"chunks\":2", "{\"chunks\":1", "config.json: its chunks end at 100, 50 bytes"},
	{"{\"chunks\":2", "{\"chunks\":3", "config.json: 1 chunks lie past its end"},
	{"{\"chunks\":2", "{\"chunks\":7", "\"chunks\" must be an integer from 0 to 6"},
	{"{\"chunks\":2", "{\"chunks\":-1", "\"chunks\" must be an integer"},
	/* Paths and the tree */
	{"\"config.json\"", "\"/config.json\"", "path is absolute"},
	{"\"config.json\"", "\"../config.json\"", "path has a '..' component"},
	{"\"config.json\"", "\"./config.json\"", "path has a '.' component"},
	{"\"config.json\"", "\"a//b\"", "path has an empty component"},
	{"\"config.json\"", "\"a/\"", "path has an empty component"},
	{"\"config.json\"", "\"\"", "path is empty"},
	{"\"config.json\"", "\"a\\u0000b\"", "bad JSON"},
	{"\"config.json\"", "\"a\\u001fb\"", "path has a control character"},
	{"\"config.json\"", "\"a\\u007fb\"", "path has a control character"},
	{"\"config.json\"", "\"empty\"", "file empty: listed twice"},
	{"\"config.json\"", "\"zzz\"", "file empty: not in byte order"},
	{"\"path\":\"sub\",", "\"path\":\"suc\",", "file sub.d: not in byte order"},
	{"\"path\":\"sub/empty\"", "\"path\":\"sub.e/e\"", "sub.e/e: its directory is not listed"},
	{"\"path\":\"sub.d\",\"type\":\"dir\"", "\"path\":\"empty/x\",\"type\":\"dir\"",
		"not in byte order"},
	{"\"path\":\"sub\",\"type\":\"dir\"",
		"\"path\":\"sub\",\"target\":\"x\",\"type\":\"symlink\"",
		"which is not a directory"},
	{LINK, LINK ",\"size\":1", "unknown key \"size\" for a symlink"},
	{"\"type\":\"dir\"", "\"type\":\"fifo\"", "type must be dir, file or symlink"},
	{"\"type\":\"dir\"", "\"type\":3", "\"type\" must be a string"},
	{"\"mode\":420", "\"mode\":4096", "\"mode\" must be an integer from 0 to 4095"},
	{MTIME, "", "\"mtime\" must be"},
	{MTIME, "\"mtime\":[1700000000],", "\"mtime\" must be"},
	{MTIME, "\"mtime\":[1700000000,1000000000],", "\"mtime\" must be"},
	{MTIME, "\"mtime\":[1.7e9,5],", "\"mtime\" must be"},
	{MTIME, "\"mtime\":[9007199254740992,5],", "\"mtime\" must be"},
	{"\"target\":\"../config.json\"", "\"target\":\"../../x\"", "target leaves the checkpoint"},
	{"\"target\":\"../config.json\"", "\"target\":\"/etc/passwd\"", "target is absolute"},
	{"\"target\":\"../config.json\"", "\"target\":\"a/../../x\"", "target has a '..'"},
	{"\"target\":\"../config.json\"", "\"target\":\"\"", "target is empty"},
	{"\"target\":\"../config.json\"", "\"target\":7", "\"target\" must be a string"},
	/* Content */
	{"\"size\":150", "\"size\":9007199254740992", "\"size\" must be an integer"},
	{"\"size\":150", "\"size\":-150", "\"size\" must be an integer"},
	{"\"size\":150", "\"size\":151", "its chunks end at 150, 1 bytes are missing"},
	{"\"size\":150", "\"size\":149", "chunk 1 (50 bytes at 100) runs past 149"},
	{"\"digest\":\"c76364", "\"digest\":\"c76365", "digest is not that of its chunks"},
	{"\"digest\":\"c76364", "\"digest\":\"zz6364", "digest is not 64 hex digits"},
	{"\"sha256\":\"ab", "\"sha256\":\"AB", "sha256 is not 64 hex digits"},
	{"\"sha256\":\"ab", "\"sha25\":\"ab", "unknown key \"sha25\""},
	{"\"crc32c\":\"6AMAAA==\"", "\"crc32c\":\"6AMAAA\"", "base64 of 1 block"},
	{"\"crc32c\":\"6AMAAA==\"", "\"crc32c\":\"6AMAAB==\"", "base64 of 1 block"},
	{"\"crc32c\":\"6AMAAA==\"", "\"crc32c\":\"6AM*AA==\"", "base64 of 1 block"},
	{"\"crc32c\":\"6AMAAA==\"", "\"crc32c\":\"6AMAAOgDAAA=\"", "base64 of 1 block"},
	{"\"crc32c\":\"6AMAAA==\",", "", "base64 of 1 block"},
	{"\"crc32c\":\"\"", "\"crc32c\":\"AA==\"", "base64 of 0 block"},
	{"AAASjCk", "AAASjCg", "block 2 is a hole but its crc32c"},
	{SPARSE, "\"holes\":[[1048577,3145727]]", "its chunks end at"},
	{SPARSE, "\"holes\":[[1048577,3145729]]", "runs past"},
	{SPARSE, "\"holes\":[[1048576,3145728]]", "runs past 1048576, where a hole starts"},
	{SPARSE, "\"holes\":[[1048577,9007199254740991]]", "hole 0 must be [offset, length]"},
	{SPARSE, "\"holes\":[[4194313,1]]", "hole 0 must be [offset, length]"},
	{SPARSE, "\"holes\":[[1048577,0]]", "hole 0 must be [offset, length]"},
	{SPARSE, "\"holes\":[[1048577]]", "hole 0 must be [offset, length]"},
	{SPARSE, "\"holes\":[[1048577,1000],[1049577,3144728]]",
		"hole 1 does not come after hole 0"},
	{SPARSE, "\"holes\":[[1048577,3145728],[1048577,3145728]]", "hole 1 does not come after"},
	{SPARSE, "\"holes\":[]", "\"holes\" must be a non-empty array"},
	{SPARSE, "\"holes\":{}", "\"holes\" must be a non-empty array"},
	/* External files */
	{"\"path\":\"hf/blob\"", "\"path\":\"../blob\"", "external path has a '..'"},
	{"\"path\":\"hf/blob\"", "\"path\":\"/blob\"", "external path is absolute"},
	{"\"off\":10", "\"off\":51", "its range ends after the external file"},
	{"\"off\":10", "\"off\":9007199254740991", "its range ends after the external file"},
	{"\"off\":10,", "", "\"off\" must be an integer"},
	{"\"size\":200", "\"size\":159", "its range ends after the external file"},
	{",\"size\":200", "", "\"size\" must be an integer"},
	{"\"ext\":{\"mtime\":[77,8],", "\"ext\":{", "\"mtime\" must be"},
	{"\"ext\":{", "\"ext\":{\"x\":1,", "\"ext\" must hold"},
	/* The model */
	{"\"config\":\"config.json\"", "\"config\":\"nope\"", "config nope is not a file"},
	{"\"config\":\"config.json\"", "\"config\":\"sub\"", "config sub is not a file"},
	{"\"config\":\"config.json\"", "\"config\":\"config.json\",\"x\":1", "model: may hold"},
	{"\"architecture\":\"L", "\"architecture\":5,\"quantisation\":\"L",
		"\"architecture\" must be"},
	/* Tensors */
	{"\"tensors\":{", "\"tensors\":{\"x\":[],", "unknown column \"x\""},
	{"\"dtype\":[1,", "\"dtype\":[", "\"dtype\" has 3 elements"},
	{"\"dtype\":[1,", "\"dtype\":[3,", "tensor part: its dtype is not in the table"},
	{"\"dtype\":[1,", "\"dtype\":[0,", "tensor part: has 6 bytes, dtype and shape need 3"},
	{"\"U8\"", "\"U9\"", "dtypes[0] is not a known dtype"},
	{"\"file\":[0,", "\"file\":[8,", "its file is not in the table"},
	{"\"file\":[0,", "\"file\":[2,", "its file is not a regular file"},
	{"\"file\":[0,", "\"file\":[1,", "ends after its file"},
	{"\"len\":[6,6,", "\"len\":[5,6,", "has 5 bytes, dtype and shape need 6"},
	{"\"off\":[0,130,", "\"off\":[145,130,", "ends after its file"},
	{"\"off\":[0,130,", "\"off\":[9007199254740991,130,", "ends after its file"},
	{"\"shape\":[1,", "\"shape\":[3,", "its shape is not in the table"},
	{"\"shapes\":[[]", "\"shapes\":[[-1]", "shapes[0] holds a bad dimension"},
	{"\"shapes\":[[]", "\"shapes\":[[1,1,1,1,1,1,1,1,1]", "shapes[0] must hold at most 8"},
	{"\"shapes\":[[]", "\"shapes\":[[4503599627370496,4503599627370496]", "overflows"},
	{"\"scalar\"", "\"aaa\"", "tensor aaa: not in byte order"},
	{"\"scalar\"", "\"part\"", "tensor part: listed twice"},
	{"\"name\":[\"part\"", "\"name\":[5", "name[0] must be a string"},
	{"[0,0,0,2,3]", "[0,0,0,2]", "its box must have 4 numbers"},
	{"[0,0,0,2,3]", "[0,0,1,2,3]", "its box leaves the global shape in dimension 1"},
	{"[0,0,0,2,3]", "[0,9007199254740991,0,2,3]", "leaves the global shape in dimension 0"},
	{"[0,0,0,2,3]", "[0,0,0,3,3]", "its parts differ in dtype or global shape"},
	{"[[0,0,0,2,3],", "[", "tensor part: listed twice"},
	{"[0,0,0,2,3]", "[5,0,0,2,3]", "boxes[0] names no tensor"},
	{"[1,1,0,2,3]", "[0,1,0,2,3]", "boxes[1] names no tensor or is out of order"},
	{"\"boxes\":[", "\"boxes\":[[0,0.5,0,2,3],", "its box holds a bad number"},
};

START_TEST(each_broken_rule_is_refused_and_named)
{
	size_t len, n;
	char *json = sample_json(&len);

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char *text = replace(json, len, rows[i].from, rows[i].to, &n);
		struct mc_manifest *m = NULL;
		struct mc_err err = {0};
		int r = mc_manifest_parse(text, n, &m, &err);

		ck_assert_msg(
			r == -EBADMSG, "row %zu (%s → %s): %d", i, rows[i].from, rows[i].to, r);
		ck_assert_msg(strstr(err.text, rows[i].want) != NULL, "row %zu (%s → %s): %s", i,
			rows[i].from, rows[i].to, err.text);
		ck_assert_ptr_null(m);
		free(text);
	}
	free(json);
}
END_TEST

START_TEST(keys_that_start_with_x_are_for_others)
{
	static const char *const to[] = {
		"\"version\":1,\"x-note\":{\"a\":[1.5,null]}", "\"version\":1,\"x-\":0"};
	size_t len, n;
	char *json = sample_json(&len);

	for (size_t i = 0; i < sizeof(to) / sizeof(*to); i++) {
		char *text = replace(json, len, "\"version\":1", to[i], &n);
		struct mc_manifest *m;

		ck_assert_int_eq(mc_manifest_parse(text, n, &m, NULL), 0);
		mc_manifest_unref(m);
		free(text);
	}
	free(json);
}
END_TEST

START_TEST(deep_nesting_is_refused_before_parsing)
{
	static char text[2000000];
	struct mc_err err = {0};
	struct mc_manifest *m;

	memset(text, '[', sizeof(text));
	ck_assert_int_eq(mc_manifest_parse(text, sizeof(text), &m, &err), -EBADMSG);
	ck_assert_str_eq(err.text, "manifest: JSON nested deeper than 16");
}
END_TEST

START_TEST(an_oversized_manifest_is_not_read)
{
	struct mc_err err = {0};
	struct mc_manifest *m;

	ck_assert_int_eq(
		mc_manifest_parse("", (size_t)MC_MANIFEST_MAX_BYTES + 1, &m, &err), -EBADMSG);
	ck_assert_ptr_nonnull(strstr(err.text, "more than 1073741824"));
}
END_TEST

START_TEST(every_truncation_is_refused)
{
	size_t len;
	char *json = sample_json(&len);
	struct mc_manifest *m;

	for (size_t n = 0; n < len; n++) {
		char *exact = malloc(n + 1); /* so that a read past the end is seen */

		ck_assert_ptr_nonnull(exact);
		memcpy(exact, json, n);
		ck_assert_int_eq(mc_manifest_parse(exact, n, &m, NULL), -EBADMSG);
		free(exact);
	}
	free(json);
}
END_TEST

/* Whatever a mutation leaves acceptable must still answer every question inside its bounds. */
static void walk(struct mc_manifest *m)
{
	for (uint32_t i = 0; i < mc_manifest_entries(m); i++) {
		struct mc_source *s;
		struct mc_entry e;
		struct mc_plan p;

		mc_manifest_entry(m, i, &e);
		if (e.type != MC_ENTRY_FILE || e.size == 0)
			continue;
		ck_assert_int_eq(mc_manifest_source(m, i, &s), 0);
		for (uint64_t off = 0; off < e.size; off += MC_BLOCK_SIZE) {
			uint32_t len = mc_block_len(e.size, off >> MC_BLOCK_SHIFT);

			mc_plan_init(&p);
			ck_assert_int_eq(s->ops->plan(s, off, len, &p), 0);
			ck_assert_uint_eq(mc_plan_len(&p), len);
			mc_plan_done(&p);
			s->ops->block_crc(s, off >> MC_BLOCK_SHIFT);
		}
		s->ops->release(s);
	}
	for (uint32_t i = 0; i < mc_manifest_tensors(m); i++) {
		struct mc_tensor t;
		struct mc_entry e;

		mc_manifest_tensor(m, i, &t);
		mc_manifest_entry(m, t.entry, &e);
		ck_assert_uint_le(t.off + t.len, e.size);
	}
}

START_TEST(mutated_manifests_are_refused_or_consistent)
{
	unsigned seed = seed_choose();
	size_t len, accepted = 0;
	char *json = sample_json(&len);
	char *text = malloc(len);

	for (int i = 0; i < 5000; i++) {
		struct mc_manifest *m;

		memcpy(text, json, len);
		for (int n = rand_r(&seed) % 3; n >= 0; n--) {
			size_t at = (size_t)rand_r(&seed) % len;

			text[at] = rand_r(&seed) % 2 == 0
				? (char)rand_r(&seed)
				: "0123456789[]{}\",:-.e\\"[rand_r(&seed) % 21];
		}
		if (mc_manifest_parse(text, len, &m, NULL) < 0)
			continue;
		accepted++;
		walk(m);
		mc_manifest_unref(m);
	}
	ck_assert_uint_gt(accepted, 0);
	free(text);
	free(json);
}
END_TEST

SUITE_MAIN("manifest-bad", each_broken_rule_is_refused_and_named,
	keys_that_start_with_x_are_for_others, deep_nesting_is_refused_before_parsing,
	an_oversized_manifest_is_not_read, every_truncation_is_refused,
	mutated_manifests_are_refused_or_consistent)
