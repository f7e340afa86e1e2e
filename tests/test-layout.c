/* Layout documents: meshes, rules, output, and every way to be refused. */
#include "tests/layout-compile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "manifest/dtype.h"

START_TEST(bad_documents_are_refused_with_the_place)
{
	static const struct {
		const char *text, *want;
	} t[] = {
		{"{}", "reshard-layout"},
		{"{" HEAD "\"rules\":[]}", "\"mesh\" is missing"},
		{"{" HEAD "\"mesh\":{\"axes\":[]},\"rules\":[]}", "/mesh"},
		{"{" HEAD "\"mesh\":{\"axes\":[[\"tp\",0]]},\"rules\":[]}", "/mesh/axes/0"},
		{"{" HEAD "\"mesh\":{\"axes\":[[\"a\",300],[\"b\",300]]},\"rules\":[]}",
			"participants"},
		{"{" HEAD "\"mesh\":{\"axes\":[[\"tp\",2]],\"derived\":{\"a\":{\"from\":[\"b\"]},"
		 "\"b\":{\"from\":"
		 "[\"a\"]}}},\"rules\":[]}",
			"made from"},
		{"{" HEAD "\"mesh\":{\"axes\":[[\"tp\",2]],\"derived\":{\"a\":{\"from\":[\"a\"]}}},"
		 "\"rules\":[]}",
			"/mesh/derived/a"},
		{"{" HEAD "\"mesh\":{\"axes\":[[\"tp\",2]],\"derived\":{\"tp\":{\"from\":[]}}},"
		 "\"rules\":[]}",
			"base axis"},
		{"{" TP2 "\"rules\":[{\"match\":\"**\",\"split\":[{\"axis\":\"ep\",\"dim\":0}]}]}",
			"no axis \"ep\""},
		{"{" TP2 "\"rules\":[{\"match\":\"**\",\"split\":[{\"axis\":\"tp\",\"dim\":9}]}]}",
			"/rules/0/split/0/dim"},
		{"{" TP2 "\"rules\":[{\"match\":\"**\"}]}", "does nothing"},
		{"{" TP2 "\"rules\":[{\"match\":\"**\",\"replicate\":true,\"drop\":true}]}",
			"exclude"},
		{"{" TP2 "\"rules\":[{\"match\":\"**\",\"transpose\":true}]}", "not possible"},
		{"{" TP2 "\"rules\":[{\"match\":\"**\",\"only\":{\"axis\":\"tp\",\"rank\":2}}]}",
			"/rules/0/only/rank"},
		{"{" TP2 "\"rules\":[{\"match\":\"**\",\"own\":[{\"axis\":\"tp\",\"index\":2,"
		 "\"count\":4}]}]}",
			"wildcard"},
		{"{" TP2 "\"rules\":[{\"match\":\"re:(a{200}){200}\",\"drop\":true}]}",
			"/rules/0/match"},
		{"{" TP2 "\"rules\":[],\"bogus\":1}", "bogus"},
		{"{" TP2 "\"rules\":[],\"x-note\":1,\"bogus\":1}", "bogus"},
		{"{" TP2 "\"rules\":[],\"rules\":[]}", "uplicate"},
		{"{" TP2 "\"rules\":[{\"match\":\"**\",\"split\":[{\"axis\":\"tp\",\"dim\":0},{"
		 "\"axis\":\"tp\",\"dim\":0}]}]}",
			"twice"},
		{"{" TP2 "\"rules\":[{\"match\":\"**\",\"split\":[{\"axis\":\"tp\",\"dim\":0,"
		 "\"kind\":\"sizes\",\"sizes\":"
		 "[1,2,3]}]}]}",
			"3 sizes for the 2 ranks"},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		struct mc_layout *l = NULL;
		struct mc_err err = {{0}};

		ck_assert_msg(mc_layout_parse(t[i].text, strlen(t[i].text), &l, &err) < 0, "%s",
			t[i].text);
		ck_assert_ptr_null(l);
		ck_assert_msg(
			strstr(err.text, t[i].want) != NULL, "%s gives: %s", t[i].text, err.text);
	}
}
END_TEST

START_TEST(a_million_rules_are_refused)
{
	static const char rule[] = "{\"match\":\"a\",\"drop\":true},";
	size_t one = strlen(rule), n = 5000, at;
	char *text = malloc(n * one + 200);
	struct mc_layout *l = NULL;
	struct mc_err err = {{0}};

	at = (size_t)sprintf(text, "{" TP2 "\"rules\":[");
	for (size_t i = 0; i < n; i++, at += one)
		memcpy(text + at, rule, one);
	strcpy(text + at - 1, "]}");
	ck_assert_int_eq(mc_layout_parse(text, strlen(text), &l, &err), -EBADMSG);
	ck_assert_ptr_nonnull(strstr(err.text, "5000"));
	memset(&err, 0, sizeof(err));
	at = (size_t)sprintf(text, "{" TP2 "\"rules\":[");
	for (int i = 0; i < 100; i++)
		at += (size_t)sprintf(
			text + at, "{\"match\":\"{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}\",\"drop\":true},");
	strcpy(text + at - 1, "]}");
	ck_assert_int_eq(mc_layout_parse(text, strlen(text), &l, &err), -EBADMSG);
	ck_assert_ptr_nonnull(strstr(err.text, "/rules/64"));
	free(text);
	ck_assert_int_eq(mc_layout_parse("x", MC_LAYOUT_MAX_BYTES + 1, &l, &err), -E2BIG);
}
END_TEST

static void expect_refusal(const char *text, const char *config, const struct mc_layout_tensor *t,
	uint32_t n, const char *const *words)
{
	struct mc_layout *l;
	struct mc_sharding *s;
	struct mc_err err;
	int r;

	test_config = config;
	r = compile(text, t, n, &l, &s, &err);
	test_config = NULL;

	ck_assert_msg(r < 0, "%s compiles", text);
	for (; *words != NULL; words++)
		ck_assert_msg(
			strstr(err.text, *words) != NULL, "\"%s\" is not in: %s", *words, err.text);
	mc_layout_free(l);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

START_TEST(what_does_not_fit_names_tensor_dimension_ranks_and_rule)
{
	static const struct mc_layout_tensor t[] = {{"model.a.weight", MC_DTYPE_BF16, 2, {6, 8}},
		{"model.b.qweight", MC_DTYPE_I32, 2, {8, 8}}};
	const char *ok = "{\"n\":2,\"a\":{\"b\":[3]}}";

	expect_refusal("{" HEAD "\"mesh\":{\"axes\":[[\"tp\",4]]},\"rules\":[{\"match\":\"**."
		       "weight\",\"split\":[{\"axis\":"
		       "\"tp\",\"dim\":0}]}]}",
		ok, t, 1,
		WORDS("model.a.weight", "dimension 0", "ranks 0 to 3 of axis tp", "/rules/0"));
	expect_refusal("{" TP2 "\"rules\":[{\"match\":\"model.b.*\",\"replicate\":true}]}", ok, t,
		2, WORDS("model.a.weight", "no rule"));
	expect_refusal("{" TP2 "\"rules\":[{\"match\":\"**\",\"replicate\":true},{\"match\":\"c\","
		       "\"drop\":true}]}",
		ok, t, 2, WORDS("/rules/1", "no tensor matches"));
	expect_refusal("{" TP2
		       "\"rules\":[{\"match\":\"**\",\"split\":[{\"axis\":\"tp\",\"dim\":2}]}]}",
		ok, t, 1, WORDS("model.a.weight", "dimension 2 of a tensor with 2"));
	expect_refusal("{" TP2
		       "\"rules\":[{\"match\":\"**\",\"split\":[{\"axis\":\"tp\",\"dim\":0}]}]}",
		ok, t, 2, WORDS("model.b.qweight", "packed", "granule"));
	expect_refusal("{" TP2 "\"params\":{\"u\":\"config:heads\"},\"rules\":[{\"match\":\"**\","
		       "\"split\":[{\"axis\":\"tp\","
		       "\"dim\":0,\"units\":\"u\"}]}]}",
		ok, t, 1, WORDS("model.a.weight", "config.json has no heads"));
	expect_refusal("{" TP2 "\"params\":{\"u\":\"v\",\"v\":\"u\"},\"rules\":[{\"match\":\"**\","
		       "\"split\":[{\"axis\":\"tp\","
		       "\"dim\":0,\"units\":\"u\"}]}]}",
		ok, t, 1, WORDS("circle"));
	expect_refusal("{" TP2 "\"rules\":[{\"match\":\"**\",\"split\":[{\"axis\":\"tp\",\"dim\":0,"
		       "\"units\":\"config:n*2\"}]}]}",
		ok, t, 1, WORDS("6 elements are not 4 units"));
	expect_refusal(
		"{" TP2
		"\"quant\":[\"\",\"fp8\"],\"rules\":[{\"match\":\"**\",\"replicate\":true}]}",
		"{\"quantization_config\":{\"quant_method\":\"gptq\"}}", t, 2, WORDS("gptq"));
	expect_refusal("{" HEAD "\"mesh\":{\"axes\":[[\"pp\",2]]},\"layers\":{\"count\":4},"
		       "\"rules\":[{\"match\":\"**\",\"replicate\":"
		       "true}]}",
		ok, t, 2, WORDS("model.a.weight", "in no layer"));
}
END_TEST

START_TEST(sizes_that_do_not_add_up_are_refused)
{
	static const struct mc_layout_tensor t[] = {{"a", MC_DTYPE_BF16, 1, {4}}};
	static const char *const sizes[] = {"4,1", "1,2", "9007199254740991,9007199254740991"};

	for (size_t i = 0; i < 3; i++) {
		char text[256];

		snprintf(text, sizeof(text),
			"{" TP2 "\"rules\":[{\"match\":\"a\",\"split\":[{\"axis\":\"tp\",\"dim\":0,"
			"\"kind\":\"sizes\",\"sizes\":[%s]}]}]}",
			sizes[i]);
		expect_refusal(text, NULL, t, 1, WORDS("tensor a", "dimension 0", "add up"));
	}
	expect_refusal("{" TP2
		       "\"rules\":[{\"match\":\"a\",\"split\":[{\"axis\":\"tp\",\"dim\":0,\"pad\":"
		       "9007199254740990}]}]}",
		NULL, (const struct mc_layout_tensor[]){{"a", MC_DTYPE_BF16, 2, {4, 4096}}}, 1,
		WORDS("tensor a", "overflows"));
}
END_TEST

START_TEST(shapes_that_overflow_are_refused)
{
	static const struct mc_layout_tensor t[] = {
		{"a", MC_DTYPE_BF16, 2, {UINT64_C(1) << 40, UINT64_C(1) << 40}}};

	expect_refusal("{" TP2 "\"rules\":[{\"match\":\"**\",\"replicate\":true}]}", NULL, t, 1,
		WORDS("tensor a", "overflows"));
}
END_TEST

START_TEST(fp8_shards_off_the_block_grid_are_an_error_and_cover_takes_whole_blocks)
{
	static const struct mc_layout_tensor t[] = {{"w.weight", MC_DTYPE_F8_E4M3, 2, {384, 128}},
		{"w.weight_scale_inv", MC_DTYPE_F32, 2, {3, 1}}};
	char text[512];
	struct mc_layout *l;
	struct mc_sharding *s;
	struct mc_rank_tensors v;
	struct mc_err err;

	for (int cover = 0; cover < 2; cover++) {
		snprintf(text, sizeof(text),
			"{" TP2 "\"rules\":[{\"match\":\"w.weight\",\"split\":[{\"axis\":\"tp\","
			"\"dim\":0}]},"
			"{\"match\":\"**_scale_inv\",\"follow\":{\"strip\":\"_scale_inv\","
			"\"block\":[128,128],\"edge\":\"%s\"}}]}",
			cover ? "cover" : "error");
		if (!cover) {
			expect_refusal(text, NULL, t, 2,
				WORDS("w.weight_scale_inv", "dimension 0", "rank 0", "192",
					"block of 128", "/rules/1"));
			continue;
		}
		ck_assert_int_eq(compile(text, t, 2, &l, &s, &err), 0);
		ck_assert_int_eq(mc_sharding_rank(s, 1, &v, &err), 0);
		ck_assert_uint_eq(v.n, 2);
		ck_assert_uint_eq(v.local[1].shape[0], 2);
		ck_assert_uint_eq(v.piece[v.local[1].first].box.off[0], 1);
		mc_rank_tensors_done(&v);
		mc_sharding_free(s);
		mc_layout_free(l);
	}
}
END_TEST

/* Layers per stage of a preset model with so many layers. */
static void stage_counts(unsigned layers, const char *split, uint32_t pp, uint32_t *ret)
{
	char text[512], name[64][40];
	struct mc_layout_tensor t[64];
	struct mc_layout *l;
	struct mc_sharding *s;
	struct mc_err err;

	memset(t, 0, sizeof(t));
	for (unsigned i = 0; i < layers; i++) {
		snprintf(name[i], sizeof(name[i]), "model.layers.%u.w", i);
		t[i] = (struct mc_layout_tensor){
			.name = name[i], .dtype = MC_DTYPE_BF16, .rank = 1, .shape = {4}};
	}
	snprintf(text, sizeof(text),
		"{" HEAD "\"mesh\":{\"axes\":[[\"pp\",%u]]},\"layers\":{\"count\":%u,\"split\":%s},"
		"\"rules\":[{\"match\":\"**\",\"replicate\":true}]}",
		pp, layers, split);
	ck_assert_msg(compile(text, t, layers, &l, &s, &err) == 0, "%s", err.text);
	for (uint32_t i = 0; i < pp; i++) {
		struct mc_rank_tensors v;

		ck_assert_int_eq(mc_sharding_rank(s, i, &v, &err), 0);
		ret[i] = v.n;
		mc_rank_tensors_done(&v);
	}
	mc_sharding_free(s);
	mc_layout_free(l);
}

START_TEST(sixty_one_layers_on_four_stages_as_the_engines_deal_them)
{
	static const uint32_t vllm[] = {15, 15, 16, 15}, sglang[] = {15, 15, 15, 16},
			      list[] = {10, 20, 30, 1};
	uint32_t got[4];

	stage_counts(61, "\"vllm\"", 4, got);
	ck_assert_mem_eq(got, vllm, sizeof(got));
	stage_counts(61, "\"sglang\"", 4, got);
	ck_assert_mem_eq(got, sglang, sizeof(got));
	stage_counts(61, "[10,20,30,1]", 4, got);
	ck_assert_mem_eq(got, list, sizeof(got));
	stage_counts(60, "\"even\"", 4, got);
	ck_assert_uint_eq(got[3], 15);
}
END_TEST

START_TEST(vocabulary_is_padded_to_64_and_the_tail_has_no_source)
{
	static const struct mc_layout_tensor t[] = {{"e", MC_DTYPE_BF16, 2, {100, 4}}};
	struct mc_layout *l;
	struct mc_sharding *s;
	struct mc_rank_tensors v;
	struct mc_err err;

	ck_assert_int_eq(compile("{" TP2 "\"rules\":[{\"match\":\"e\",\"split\":[{\"axis\":\"tp\","
				 "\"dim\":0,\"pad\":64}]}]}",
				 t, 1, &l, &s, &err),
		0);
	ck_assert_int_eq(mc_sharding_rank(s, 1, &v, &err), 0);
	ck_assert_uint_eq(v.local[0].shape[0], 64);
	ck_assert_uint_eq(v.n_pieces, 1);
	ck_assert_uint_eq(v.piece[0].box.off[0], 64);
	ck_assert_uint_eq(v.piece[0].box.len[0], 36);
	mc_rank_tensors_done(&v);
	mc_sharding_free(s);
	mc_layout_free(l);
}
END_TEST

START_TEST(experts_are_dealt_linearly_round_robin_or_by_a_table)
{
	static const char *const place[] = {"\"linear\"", "\"round_robin\"", "[1,1,0,2,0]"};
	static const uint32_t want[3][5] = {{0, 0, 1, 1, 2}, {0, 1, 2, 0, 1}, {1, 1, 0, 2, 0}};
	static const struct mc_layout_tensor t[] = {{"e.0", MC_DTYPE_BF16, 1, {4}},
		{"e.1", MC_DTYPE_BF16, 1, {4}}, {"e.2", MC_DTYPE_BF16, 1, {4}},
		{"e.3", MC_DTYPE_BF16, 1, {4}}, {"e.4", MC_DTYPE_BF16, 1, {4}}};

	for (int i = 0; i < 3; i++) {
		char text[512];
		struct mc_layout *l;
		struct mc_sharding *s;
		struct mc_err err;

		snprintf(text, sizeof(text),
			"{" HEAD "\"mesh\":{\"axes\":[[\"ep\",3]]},\"rules\":[{\"match\":\"e.#\","
			"\"own\":[{\"axis\":"
			"\"ep\",\"index\":1,\"count\":5,\"place\":%s}]}]}",
			place[i]);
		ck_assert_msg(compile(text, t, 5, &l, &s, &err) == 0, "%s", err.text);
		for (uint32_t r = 0; r < 3; r++) {
			struct mc_rank_tensors v;

			ck_assert_int_eq(mc_sharding_rank(s, r, &v, &err), 0);
			for (uint32_t e = 0; e < 5; e++)
				ck_assert_uint_eq(find(&v, t[e].name) != NULL, want[i][e] == r);
			mc_rank_tensors_done(&v);
		}
		mc_sharding_free(s);
		mc_layout_free(l);
	}
}
END_TEST

SUITE_MAIN("layout", bad_documents_are_refused_with_the_place, a_million_rules_are_refused,
	what_does_not_fit_names_tensor_dimension_ranks_and_rule,
	sizes_that_do_not_add_up_are_refused, shapes_that_overflow_are_refused,
	fp8_shards_off_the_block_grid_are_an_error_and_cover_takes_whole_blocks,
	sixty_one_layers_on_four_stages_as_the_engines_deal_them,
	vocabulary_is_padded_to_64_and_the_tail_has_no_source,
	experts_are_dealt_linearly_round_robin_or_by_a_table)
