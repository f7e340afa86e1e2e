/* Sharded state of dense models is what the built-in profiles of the engine say, on every rank. */
#include "manifest/preset.h"
#include "manifest/profile.h"
#include "tests/models.h"
#include "tests/suite.h"

#include <errno.h>
#include <string.h>

/* Compiles the model's preset for the engine and returns every rank's check against its profile. */
static int check(
	struct model *m, const char *mesh, const char *name, uint32_t tp, struct mc_err *err)
{
	struct mc_layout_in in = {.config = m->config, .tensors = m->tensor, .n_tensors = m->n};
	struct mc_sharding *s;
	struct mc_layout *l;
	struct mc_profile *p;
	int r = mc_preset_layout(m->config, mesh, &l, err);

	ck_assert_msg(r == 0, "%s", err->text);
	ck_assert_str_eq(mc_layout_profile(l), name);
	ck_assert_uint_eq(mc_layout_world(l), tp);
	in.layout = l;
	r = mc_layout_compile(&in, &s, err);
	ck_assert_msg(r == 0, "%s", err->text);
	ck_assert_int_eq(mc_profile_builtin(name, m->config, tp, &p, err), 0);
	for (uint32_t i = 0; i < tp && r == 0; i++) {
		struct mc_rank_tensors t;

		ck_assert_int_eq(mc_sharding_rank(s, i, &t, err), 0);
		ck_assert_uint_eq(t.n, mc_profile_count(p));
		r = mc_profile_check(p, &t, i, err);
		mc_rank_tensors_done(&t);
	}
	mc_profile_free(p);
	mc_sharding_free(s);
	mc_layout_free(l);
	return r;
}

START_TEST(dense_models_match_on_every_rank)
{
	static const struct {
		const char *model, *mesh, *profile;
		uint32_t tp;
	} cases[] = {{"llama-3-8b", "tp1-vllm", "vllm-llama", 1},
		{"llama-3-8b", "tp16-vllm", "vllm-llama", 16},
		{"llama-3-70b", "tp8-vllm", "vllm-llama", 8},
		{"qwen2-0.5b", "tp2-vllm", "vllm-qwen2", 2},
		{"qwen3-8b", "tp4-vllm", "vllm-qwen3", 4}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct mc_err err = {0};
		struct model m;
		int r;

		model_open(&m, cases[i].model, 0, 0, 1);
		r = check(&m, cases[i].mesh, cases[i].profile, cases[i].tp, &err);
		ck_assert_msg(r == 0, "%s %s: %s", cases[i].model, cases[i].mesh, err.text);
		model_close(&m);
	}
}
END_TEST

START_TEST(what_differs_is_named)
{
	struct mc_err err = {0};
	struct model m;

	model_open(&m, "llama-3-8b", 2, 0, 1);
	json_object_set_new(m.config, "torch_dtype", json_string("float16"));
	ck_assert_int_eq(check(&m, "tp2-vllm", "vllm-llama", 2, &err), -EINVAL);
	ck_assert_str_eq(err.text, "rank 0, tensor lm_head.weight: type BF16, in the profile F16");
	model_close(&m);
}
END_TEST

START_TEST(models_with_experts_need_a_written_profile)
{
	struct mc_err err = {0};
	struct mc_layout *l;
	struct model m;

	model_open(&m, "mixtral-8x7b", 1, 0, 1);
	ck_assert_int_eq(mc_preset_layout(m.config, "tp2-vllm", &l, &err), -EINVAL);
	model_close(&m);
}
END_TEST

START_TEST(bad_profiles_are_refused)
{
	static const char *const bad[] = {"{}", "[]",
		"{\"format\":\"engine-profile\",\"version\":2,"
		"\"tensors\":{}}",
		"{\"format\":\"engine-profile\",\"version\":1,\"tensors\":{\"a\":{\"dtype\":\"X\","
		"\"shape\":[]}}}",
		"{\"format\":\"engine-profile\",\"version\":1,\"tensors\":{\"a\":{\"dtype\":"
		"\"F32\","
		"\"shape\":[1.5]}}}",
		"{\"format\":\"engine-profile\",\"version\":1,\"tensors\":{},\"more\":1}"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct mc_err err = {0};
		struct mc_profile *p;

		ck_assert_int_eq(mc_profile_parse(bad[i], strlen(bad[i]), &p, &err), -EBADMSG);
		ck_assert_int_ne(err.text[0], 0);
	}
}
END_TEST

SUITE_MAIN("profile", dense_models_match_on_every_rank, what_differs_is_named,
	models_with_experts_need_a_written_profile, bad_profiles_are_refused)
