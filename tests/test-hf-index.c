/* Indexes of sharded checkpoints: model.safetensors.index.json, and DCP's parts of tensors. */
#include "manifest/dcp.h"
#include "manifest/hf-index.h"
#include "tests/suite.h"

#include <errno.h>
#include <string.h>

START_TEST(the_index_lists_files_once_and_tensors_sorted)
{
	const char *text = "{\"metadata\":{\"total_size\":1.5e3},\"weight_map\":{\"b\":\"m-2.st\","
			   "\"a\":\"m-2.st\",\"c\":\"d/m-1.st\"}}";
	struct mc_hf_index *x;
	const char *file;

	ck_assert_int_eq(mc_hf_index_parse(text, strlen(text), &x, NULL), 0);
	ck_assert_uint_eq(mc_hf_index_files(x), 2);
	ck_assert_str_eq(mc_hf_index_file(x, 0), "d/m-1.st");
	ck_assert_str_eq(mc_hf_index_file(x, 1), "m-2.st");
	ck_assert_uint_eq(mc_hf_index_tensors(x), 3);
	ck_assert_str_eq(mc_hf_index_tensor(x, 0, &file), "a");
	ck_assert_str_eq(file, "m-2.st");
	ck_assert_str_eq(mc_hf_index_tensor(x, 2, &file), "c");
	ck_assert_str_eq(file, "d/m-1.st");
	ck_assert_str_eq(mc_hf_index_file_of(x, "b"), "m-2.st");
	ck_assert_ptr_null(mc_hf_index_file_of(x, "d"));
	mc_hf_index_close(x);
}
END_TEST

START_TEST(a_hostile_or_broken_index_names_the_offender)
{
	static const struct {
		const char *text, *want;
	} rows[] = {{"{}", "weight_map must be an object"}, {"[]", "weight_map must be an object"},
		{"{\"weight_map\":[]}", "weight_map must be an object"},
		{"{\"weight_map\":{\"a\":1}}", "file of \"a\" must be a string"},
		{"{\"weight_map\":{\"a\":\"../x\"}}", "\"a\" names \"../x\", which has a '..'"},
		{"{\"weight_map\":{\"a\":\"/x\"}}", "is absolute"},
		{"{\"weight_map\":{\"a\":\"\"}}", "is empty"},
		{"{\"weight_map\":{\"a\":\"x\\ny\"}}", "control character"},
		{"{\"weight_map\":{\"a\":\"x\",\"a\":\"y\"}}", "duplicate"},
		{"{\"weight_map\":", "bad JSON"}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct mc_hf_index *x;
		struct mc_err err = {0};

		ck_assert_int_eq(
			mc_hf_index_parse(rows[i].text, strlen(rows[i].text), &x, &err), -EBADMSG);
		ck_assert_msg(strstr(err.text, rows[i].want) != NULL, "row %zu: %s", i, err.text);
	}
}
END_TEST

START_TEST(sharding_information_gives_boxes)
{
	const char *text = "{\"w\":{\"saved_offsets\":[4,0],\"global_shape\":[8,16]},"
			   "\"v\":{\"saved_offsets\":[2]},\"s\":{\"saved_offsets\":[]}}";
	uint64_t off[MC_MAX_RANK], global[MC_MAX_RANK];
	struct mc_dcp *d;
	bool has;

	ck_assert_int_eq(mc_dcp_parse(text, &d, NULL), 0);
	ck_assert_int_eq(mc_dcp_box(d, "w", 2, off, global, &has), 0);
	ck_assert(has);
	ck_assert_uint_eq(off[0], 4);
	ck_assert_uint_eq(global[1], 16);
	ck_assert_int_eq(mc_dcp_box(d, "v", 1, off, global, &has), 0);
	ck_assert(!has);
	ck_assert_uint_eq(off[0], 2);
	ck_assert_int_eq(mc_dcp_box(d, "s", 0, off, global, &has), 0);
	ck_assert_int_eq(mc_dcp_box(d, "w", 1, off, global, &has), -EBADMSG);
	ck_assert_int_eq(mc_dcp_box(d, "x", 1, off, global, &has), -ENOENT);
	mc_dcp_close(d);
}
END_TEST

START_TEST(broken_sharding_information_names_the_tensor)
{
	static const struct {
		const char *text, *want;
	} rows[] = {{"x", "bad JSON"}, {"[]", "not an object"},
		{"{\"w\":{}}", "\"w\": saved_offsets"}, {"{\"w\":[]}", "\"w\": saved_offsets"},
		{"{\"w\":{\"saved_offsets\":[-1]}}", "\"w\": saved_offsets must hold integers"},
		{"{\"w\":{\"saved_offsets\":[1.0]}}", "must hold integers"},
		{"{\"w\":{\"saved_offsets\":[0,0,0,0,0,0,0,0,0]}}", "at most 8"},
		{"{\"w\":{\"saved_offsets\":[0],\"global_shape\":5}}", "\"w\": global_shape"}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct mc_err err = {0};
		struct mc_dcp *d;

		ck_assert_int_eq(mc_dcp_parse(rows[i].text, &d, &err), -EBADMSG);
		ck_assert_msg(strstr(err.text, rows[i].want) != NULL, "row %zu: %s", i, err.text);
	}
}
END_TEST

/* [r0, r0 + h) × [c0, c0 + w) of tensor name. */
static struct mc_dcp_part part(
	const char *name, const char *file, uint64_t r0, uint64_t c0, uint64_t h, uint64_t w)
{
	return (struct mc_dcp_part){.name = name,
		.file = file,
		.rank = 2,
		.boxed = true,
		.shape = {h, w},
		.off = {r0, c0}};
}

START_TEST(parts_and_replicas_make_a_whole)
{
	struct mc_dcp_part p[] = {part("w", "f3", 2, 2, 2, 2), part("w", "f0", 0, 0, 2, 4),
		part("w", "f2", 2, 0, 2, 2), part("w", "f4", 2, 2, 2, 2),
		part("w", "f5", 1, 1, 0, 2), {.name = "a", .file = "f0", .rank = 1, .shape = {3}}};

	ck_assert_int_eq(mc_dcp_resolve(p, 6, NULL), 0);
	ck_assert_str_eq(p[0].name, "a");
	ck_assert(!p[0].has_global);
	ck_assert_str_eq(p[1].file, "f0");
	for (size_t i = 1; i < 6; i++) {
		ck_assert(p[i].has_global);
		ck_assert_uint_eq(p[i].global[0], 4);
		ck_assert_uint_eq(p[i].global[1], 4);
		ck_assert_int_eq(p[i].replica, strcmp(p[i].file, "f4") == 0);
	}
}
END_TEST

START_TEST(parts_that_make_no_whole_are_refused)
{
	struct mc_dcp_part plain = {.name = "w", .file = "f1", .rank = 2, .shape = {2, 2}};
	struct mc_dcp_part said = part("w", "f1", 0, 0, 2, 2), other = part("w", "f2", 2, 0, 2, 2);
	struct mc_dcp_part wide = part("w", "f1", 2, 0, 2, 2);
	struct {
		struct mc_dcp_part p[3];
		size_t n;
		const char *want;
	} rows[] = {{{plain, plain}, 2, "stands in two places without DCP_SHARDING_INFO (f1, f1)"},
		{{part("w", "f1", 0, 0, 2, 2), plain}, 2, "stands in two places"},
		{{part("w", "f1", 0, 0, 2, 2), part("w", "f2", 1, 0, 2, 2)}, 2,
			"two parts overlap (f1, f2)"},
		{{part("w", "f1", 0, 0, 2, 4), part("w", "f2", 0, 1, 2, 2)}, 2,
			"two parts overlap"},
		{{part("w", "f1", 0, 0, 1, 2), part("w", "f2", 2, 0, 2, 2)}, 2, "hold 6 of 8"},
		{{part("w", "f1", 1, 0, 1, 2)}, 1, "hold 2 of 4"},
		{{said, other}, 2, "two files give different global shapes (f1, f2)"},
		{{said, part("w", "f3", 4, 0, 1, 1)}, 2, "a part leaves the global shape"},
		{{part("w", "f1", 0, 0, 2, 2), wide}, 2, "differ in dtype or rank"},
		{{part("w", "f1", UINT64_MAX, 0, 2, 2), wide}, 1, "its box overflows"}};

	rows[6].p[0].has_global = rows[7].p[0].has_global = rows[6].p[1].has_global = true;
	rows[6].p[0].global[0] = rows[7].p[0].global[0] = 4;
	rows[6].p[0].global[1] = rows[7].p[0].global[1] = 2;
	rows[6].p[1].global[0] = rows[6].p[1].global[1] = 4;
	rows[8].p[1].dtype = 3;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct mc_err err = {0};

		ck_assert_int_eq(mc_dcp_resolve(rows[i].p, rows[i].n, &err), -EBADMSG);
		ck_assert_msg(strstr(err.text, rows[i].want) != NULL, "row %zu: %s", i, err.text);
	}
}
END_TEST

SUITE_MAIN("hf-index", the_index_lists_files_once_and_tensors_sorted,
	a_hostile_or_broken_index_names_the_offender, sharding_information_gives_boxes,
	broken_sharding_information_names_the_tensor, parts_and_replicas_make_a_whole,
	parts_that_make_no_whole_are_refused)
