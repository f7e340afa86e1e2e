/* What layouts make of their tensors: subsets, fused and stacked tensors, parts, constants, zeros.
 */
#include "tests/layout-compile.h"

#include <errno.h>
#include <stdio.h>

#include "manifest/dtype.h"

START_TEST(a_subset_lists_whole_tensors_of_the_rank_only)
{
	static const struct mc_layout_tensor t[] = {{"a.weight", MC_DTYPE_BF16, 2, {8, 4}},
		{"e.0", MC_DTYPE_BF16, 1, {4}}, {"e.1", MC_DTYPE_BF16, 1, {4}}};
	struct mc_layout *l;
	struct mc_sharding *s;
	struct mc_rank_tensors v;
	struct mc_err err;
	char text[128];

	ck_assert_msg(compile("{" TP2 "\"rules\":[{\"match\":\"*.weight\",\"split\":[{\"axis\":"
			      "\"tp\",\"dim\":0}]},{\"match\":"
			      "\"e.#\",\"own\":[{\"axis\":\"tp\",\"index\":1,\"count\":2}]}],"
			      "\"emit\":{\"style\":\"subset\"}}",
			      t, 3, &l, &s, &err) == 0,
		"%s", err.text);
	ck_assert_int_eq(mc_layout_style(l), MC_STYLE_SUBSET);
	ck_assert_int_eq(mc_sharding_rank(s, 1, &v, &err), 0);
	ck_assert_uint_eq(v.n, 2);
	ck_assert_str_eq(v.local[0].name, "a.weight");
	ck_assert_uint_eq(v.local[0].shape[0], 8);
	ck_assert_str_eq(v.local[1].name, "e.1");
	ck_assert_str_eq(mc_sharding_explain(s, 1, text, sizeof(text)), "rule /rules/1 (e.#)");
	mc_rank_tensors_done(&v);
	ck_assert_int_eq(mc_sharding_rank(s, 2, &v, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "ranks 0 to 1"));
	mc_sharding_free(s);
	mc_layout_free(l);
}
END_TEST

START_TEST(fuse_and_stack_build_the_engines_expert_tensor)
{
	static const struct mc_layout_tensor t[] = {{"l.0.e.0.g", MC_DTYPE_BF16, 2, {4, 8}},
		{"l.0.e.0.u", MC_DTYPE_BF16, 2, {4, 8}}, {"l.0.e.1.g", MC_DTYPE_BF16, 2, {4, 8}},
		{"l.0.e.1.u", MC_DTYPE_BF16, 2, {4, 8}}};
	struct mc_layout *l;
	struct mc_sharding *s;
	struct mc_rank_tensors v;
	struct mc_side side;
	struct mc_err err;
	const struct mc_local_piece *p;

	ck_assert_msg(compile("{" TP2 "\"rules\":[{\"match\":\"l.#.e.#.*\",\"split\":[{\"axis\":"
			      "\"tp\",\"dim\":0}]}],\"emit\":{\"fuse\":"
			      "[{\"name\":\"l.{1}.e.{2}.gu\",\"from\":[\"l.#.e.#.g\",\"l.#.e.#.u\"]"
			      ",\"dim\":0}],\"stack\":[{\"name\":"
			      "\"l.{1}.w13\",\"from\":\"l.#.e.#.gu\",\"index\":2}],\"rename\":[{"
			      "\"match\":\"l.#.w13\",\"name\":\"w13_{1}\"}]}}",
			      t, 4, &l, &s, &err) == 0,
		"%s", err.text);
	ck_assert_int_eq(mc_sharding_rank(s, 1, &v, &err), 0);
	ck_assert_uint_eq(v.n, 1);
	ck_assert_str_eq(v.local[0].name, "w13_0");
	ck_assert_uint_eq(v.local[0].rank, 3);
	ck_assert_uint_eq(v.local[0].shape[0], 2);
	ck_assert_uint_eq(v.local[0].shape[1], 4);
	ck_assert_uint_eq(v.local[0].n, 4);
	p = &v.piece[3];
	ck_assert_uint_eq(p->tensor, 3);
	ck_assert_uint_eq(p->at[0], 1);
	ck_assert_uint_eq(p->at[1], 2);
	ck_assert_uint_eq(p->box.off[0], 2);
	mc_rank_tensors_done(&v);
	ck_assert_int_eq(mc_sharding_side(s, 0, &side, &err), 0);
	ck_assert_uint_eq(
		side.shard[side.pattern[side.of_tensor[3]].first].place.base, (32 + 16) * 2);
	ck_assert_str_eq(mc_sharding_output_name(s, 3, 0), "w13_0");
	mc_side_done(&side);
	mc_sharding_free(s);
	mc_layout_free(l);
}
END_TEST

START_TEST(fused_qkv_in_parts_and_constants_and_zero_bias)
{
	static const struct mc_layout_tensor t[] = {
		{"l.0.qkv", MC_DTYPE_BF16, 2, {16, 4}}, {"l.0.bias", MC_DTYPE_BF16, 1, {4}}};
	struct mc_layout *l;
	struct mc_sharding *s;
	struct mc_rank_tensors v;
	struct mc_err err;
	const float one = 1;

	ck_assert_msg(compile("{" HEAD "\"mesh\":{\"axes\":[[\"tp\",4]]},\"rules\":[{\"match\":\"l."
			      "#.qkv\",\"split\":[{\"axis\":\"tp\",\"dim\":0,"
			      "\"parts\":[{\"size\":8,\"units\":4},{\"size\":4,\"units\":2,"
			      "\"over\":\"replicate\"},{\"size\":4,\"units\":2,\"over\":"
			      "\"replicate\"}]}]},{\"match\":\"l.#.bias\",\"only\":{\"axis\":"
			      "\"tp\",\"rank\":0,\"else\":\"zero\"}}],\"const\":[{\"name\":"
			      "\"l.{1}.scale\",\"each\":\"l.#.qkv\",\"dtype\":\"F32\",\"shape\":[],"
			      "\"value\":1.0}]}",
			      t, 2, &l, &s, &err) == 0,
		"%s", err.text);
	ck_assert_int_eq(mc_sharding_rank(s, 3, &v, &err), 0);
	ck_assert_uint_eq(v.n, 3);
	ck_assert_str_eq(v.local[0].name, "l.0.bias");
	ck_assert_uint_eq(v.local[0].n, 0);
	ck_assert_str_eq(v.local[1].name, "l.0.qkv");
	ck_assert_uint_eq(v.local[1].shape[0], 6);
	ck_assert_uint_eq(v.local[1].n, 3);
	ck_assert_uint_eq(v.piece[v.local[1].first].box.off[0], 6);
	ck_assert_uint_eq(v.piece[v.local[1].first + 1].box.off[0], 10);
	ck_assert_uint_eq(v.piece[v.local[1].first + 1].at[0], 2);
	ck_assert_uint_eq(v.piece[v.local[1].first + 2].box.off[0], 14);
	ck_assert_str_eq(v.local[2].name, "l.0.scale");
	ck_assert(v.local[2].constant);
	ck_assert_mem_eq(v.local[2].value, &one, 4);
	mc_rank_tensors_done(&v);
	mc_sharding_free(s);
	mc_layout_free(l);
}
END_TEST

START_TEST(a_subset_shows_a_tied_embedding_on_both_ends_under_its_own_name)
{
	static const struct mc_layout_tensor t[] = {{"embed", MC_DTYPE_BF16, 2, {8, 4}},
		{"model.layers.0.w", MC_DTYPE_BF16, 1, {4}},
		{"model.layers.1.w", MC_DTYPE_BF16, 1, {4}},
		{"model.layers.2.w", MC_DTYPE_BF16, 1, {4}}};
	static const uint32_t want[] = {2, 1, 2};
	struct mc_layout *l;
	struct mc_sharding *s;
	struct mc_err err;

	ck_assert_msg(compile("{" HEAD "\"mesh\":{\"axes\":[[\"pp\",3]]},\"layers\":{\"count\":3,"
			      "\"first\":[\"embed\"],\"tied\":"
			      "[{\"name\":\"head\",\"of\":\"embed\"}]},\"rules\":[{\"match\":\"**"
			      "\",\"replicate\":true}],\"emit\":{\"style\":"
			      "\"subset\"}}",
			      t, 4, &l, &s, &err) == 0,
		"%s", err.text);
	for (uint32_t r = 0; r < 3; r++) {
		struct mc_rank_tensors v;

		ck_assert_int_eq(mc_sharding_rank(s, r, &v, &err), 0);
		ck_assert_uint_eq(v.n, want[r]);
		ck_assert_uint_eq(find(&v, "embed") != NULL, r != 1);
		ck_assert_ptr_null(find(&v, "head"));
		mc_rank_tensors_done(&v);
	}
	mc_sharding_free(s);
	mc_layout_free(l);
}
END_TEST

START_TEST(what_cannot_be_fused_or_stacked_is_refused_before_any_rank_is_opened)
{
	static const struct mc_layout_tensor t[] = {{"a.0", MC_DTYPE_BF16, 2, {4, 8}},
		{"a.1", MC_DTYPE_BF16, 2, {4, 6}}, {"b.0", MC_DTYPE_BF16, 2, {4, 8}}};
	static const struct {
		const char *emit, *want;
	} bad[] = {
		{"\"stack\":[{\"name\":\"s\",\"from\":\"a.#\",\"index\":1}]", "differ in shape"},
		{"\"fuse\":[{\"name\":\"f\",\"from\":[\"a.0\",\"a.1\"],\"dim\":0}]", "not fused"},
		{"\"fuse\":[{\"name\":\"f{1}\",\"from\":[\"a.#\",\"b.#\"],\"dim\":0}]",
			"1 of its 2 parts"},
		{"\"fuse\":[{\"name\":\"f\",\"from\":[\"a.0\",\"b.0\"],\"dim\":2}]", "not there"},
		{"\"rename\":[{\"match\":\"*.0\",\"name\":\"same\"}]", "two tensors called same"},
		{"\"fuse\":[{\"name\":\"f\",\"from\":[\"x\",\"y\"],\"dim\":0}]",
			"no tensor matches"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		char text[512];
		struct mc_layout *l;
		struct mc_sharding *s;
		struct mc_err err;

		snprintf(text, sizeof(text),
			"{" TP2 "\"rules\":[{\"match\":\"**\",\"replicate\":true}],\"emit\":{%s}}",
			bad[i].emit);
		ck_assert_int_eq(compile(text, t, 3, &l, &s, &err), -EINVAL);
		ck_assert_msg(
			strstr(err.text, bad[i].want) != NULL, "%s: %s", bad[i].emit, err.text);
		mc_layout_free(l);
	}
}
END_TEST

SUITE_MAIN("layout-emit", a_subset_lists_whole_tensors_of_the_rank_only,
	fuse_and_stack_build_the_engines_expert_tensor,
	fused_qkv_in_parts_and_constants_and_zero_bias,
	a_subset_shows_a_tied_embedding_on_both_ends_under_its_own_name,
	what_cannot_be_fused_or_stacked_is_refused_before_any_rank_is_opened)
