/* Preset layouts on real tensor tables. */
#include "manifest/binder.h"
#include "manifest/preset.h"
#include "tests/models.h"
#include "tests/suite.h"

#include "manifest/dtype.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void open_preset(
	const struct model *m, const char *mesh, struct mc_layout **l, struct mc_sharding **s)
{
	struct mc_err err = {{0}};
	struct mc_layout_in in = {.config = m->config, .tensors = m->tensor, .n_tensors = m->n};
	int r = mc_preset_layout(m->config, mesh, l, &err);

	ck_assert_msg(r == 0, "%s %s: %s", m->name, mesh, err.text);
	in.layout = *l;
	r = mc_layout_compile(&in, s, &err);
	ck_assert_msg(r == 0, "%s %s: %s", m->name, mesh, err.text);
}

static const struct mc_local *find(const struct mc_rank_tensors *v, const char *name)
{
	for (uint32_t i = 0; i < v->n; i++)
		if (strcmp(v->local[i].name, name) == 0)
			return &v->local[i];
	return NULL;
}

START_TEST(key_value_heads_are_replicated_beyond_their_number)
{
	struct model m;
	struct mc_layout *l;
	struct mc_sharding *s;
	struct mc_err err;

	model_open(&m, "llama-3-8b", 1, 0, 1);
	open_preset(&m, "tp16", &l, &s);
	for (uint32_t r = 0; r < 16; r++) {
		struct mc_rank_tensors v;
		const struct mc_local *k;

		ck_assert_int_eq(mc_sharding_rank(s, r, &v, &err), 0);
		k = find(&v, "model.layers.0.self_attn.k_proj.weight");
		ck_assert_ptr_nonnull(k);
		ck_assert_uint_eq(k->shape[0], 128);
		ck_assert_uint_eq(v.piece[k->first].box.off[0], r / 2 * 128);
		k = find(&v, "model.layers.0.self_attn.q_proj.weight");
		ck_assert_uint_eq(v.piece[k->first].box.off[0], r * 256);
		mc_rank_tensors_done(&v);
	}
	mc_sharding_free(s);
	mc_layout_free(l);
	model_close(&m);
}
END_TEST

START_TEST(a_tied_head_is_on_the_last_stage_and_moves_the_embedding_once)
{
	struct model m;
	struct mc_layout *l;
	struct mc_sharding *s;
	struct mc_rank_tensors v;
	struct mc_err err;

	model_open(&m, "qwen2-0.5b", 4, 0, 1);
	open_preset(&m, "tp2-pp2", &l, &s);
	ck_assert_int_eq(mc_sharding_rank(s, 2, &v, &err), 0);
	ck_assert_ptr_nonnull(find(&v, "lm_head.weight"));
	ck_assert_ptr_null(find(&v, "model.embed_tokens.weight"));
	ck_assert_uint_eq(find(&v, "lm_head.weight")->shape[0], 151936 / 2);
	mc_rank_tensors_done(&v);
	ck_assert_int_eq(mc_sharding_rank(s, 1, &v, &err), 0);
	ck_assert_ptr_null(find(&v, "lm_head.weight"));
	ck_assert_ptr_nonnull(find(&v, "model.embed_tokens.weight"));
	mc_rank_tensors_done(&v);
	mc_sharding_free(s);
	mc_layout_free(l);
	open_preset(&m, "tp2", &l, &s);
	ck_assert_int_eq(mc_sharding_rank(s, 1, &v, &err), 0);
	ck_assert_ptr_null(find(&v, "lm_head.weight"));
	mc_rank_tensors_done(&v);
	mc_sharding_free(s);
	mc_layout_free(l);
	model_close(&m);
}
END_TEST

START_TEST(every_preset_compiles_on_its_usual_meshes)
{
	static const struct {
		const char *model, *mesh;
		uint32_t world;
	} t[] = {{"llama-3-8b", "tp8", 8}, {"llama-3-70b", "tp4-pp2", 8},
		{"llama-3-8b", "dp2-tp4", 8}, {"qwen2-0.5b", "tp2", 2}, {"qwen3-8b", "pp4", 4},
		{"mixtral-8x7b", "tp2-ep2", 2}, {"mixtral-8x7b", "ep8", 8},
		{"qwen-moe", "tp4-ep16", 16}, {"qwen-moe", "dp2-tp2-ep4", 4},
		{"deepseek-v3", "tp8", 8}, {"deepseek-v3", "ep16", 16},
		{"deepseek-v3", "tp8-pp2-ep8", 16}, {"deepseek-v3-mtp", "tp16", 16},
		{"kimi-k2", "tp16", 16}, {"gpt-oss-20b", "tp8", 8}, {"gpt-oss-20b", "ep4", 4},
		{"gpt-oss-20b", "tp4-ep2", 4}};

	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		struct model m;
		struct mc_layout *l;
		struct mc_sharding *s;

		model_open(&m, t[i].model, 4, 16, 1);
		open_preset(&m, t[i].mesh, &l, &s);
		ck_assert_uint_eq(mc_layout_world(l), t[i].world);
		mc_sharding_free(s);
		mc_layout_free(l);
		model_close(&m);
	}
}
END_TEST

START_TEST(models_have_their_published_tensor_counts)
{
	static const struct {
		const char *name;
		uint32_t n;
	} t[] = {{"llama-3-8b", 291}, {"llama-3-70b", 723}, {"deepseek-v3", 90427},
		{"deepseek-v3-mtp", 91991}, {"kimi-k2", 139583}, {"mixtral-8x7b", 995},
		{"qwen-moe", 18867}};

	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		struct model m;

		model_open(&m, t[i].name, 0, 0, 1);
		ck_assert_uint_eq(m.n, t[i].n);
		model_close(&m);
	}
}
END_TEST

START_TEST(mesh_names_that_make_no_sense_are_refused)
{
	static const struct {
		const char *model, *mesh;
		int want;
	} t[] = {{"llama-3-8b", "tp0", -ENOENT}, {"llama-3-8b", "tp", -ENOENT},
		{"llama-3-8b", "tp8-tp2", -ENOENT}, {"llama-3-8b", "xp8", -ENOENT},
		{"llama-3-8b", "tp8-", -ENOENT}, {"llama-3-8b", "", -ENOENT},
		{"llama-3-8b", "ep4", -EINVAL}, {"mixtral-8x7b", "dp3-tp2-ep4", -EINVAL},
		{"llama-3-8b", "tp99999999999", -ENOENT}};

	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		struct model m;
		struct mc_layout *l = NULL;
		struct mc_err err = {{0}};

		model_open(&m, t[i].model, 1, 0, 1);
		ck_assert_msg(mc_preset_layout(m.config, t[i].mesh, &l, &err) == t[i].want, "%s",
			t[i].mesh);
		ck_assert_ptr_null(l);
		ck_assert_str_ne(err.text, "");
		model_close(&m);
	}
}
END_TEST

/* A plan between two meshes of a model; from NULL = the files, at participant 0. */
struct planned {
	struct mc_layout *from, *to;
	struct mc_sharding *source, *target;
	struct mc_side held, wanted;
	struct mc_reshard *plan;
};

static void plan_open(struct planned *p, const struct model *m, const char *from, const char *to)
{
	const char **names = malloc(m->n * sizeof(*names));
	struct mc_reshard_in in = {
		.names = names, .n_tensors = m->n, .held = &p->held, .wanted = &p->wanted};
	struct mc_err err = {{0}};
	uint32_t base = 1;

	memset(p, 0, sizeof(*p));
	for (uint32_t i = 0; i < m->n; i++)
		names[i] = m->tensor[i].name;
	if (from != NULL) {
		open_preset(m, from, &p->from, &p->source);
		base = mc_layout_world(p->from);
		ck_assert_int_eq(mc_sharding_side(p->source, 0, &p->held, &err), 0);
	} else {
		ck_assert_int_eq(mc_side_of_files(m->tensor, m->n, 0, &p->held), 0);
	}
	open_preset(m, to, &p->to, &p->target);
	ck_assert_int_eq(mc_sharding_side(p->target, base, &p->wanted, &err), 0);
	in.n_participants = base + mc_layout_world(p->to);
	ck_assert_msg(mc_reshard_plan(&in, &p->plan, &err) == 0, "%s", err.text);
	free(names);
}

static void plan_close(struct planned *p)
{
	mc_reshard_free(p->plan);
	mc_side_done(&p->held);
	mc_side_done(&p->wanted);
	mc_sharding_free(p->source);
	mc_sharding_free(p->target);
	mc_layout_free(p->from);
	mc_layout_free(p->to);
}

static uint64_t model_bytes(const struct model *m)
{
	uint64_t sum = 0, n;

	for (uint32_t i = 0; i < m->n; i++) {
		ck_assert_int_eq(mc_dtype_bytes(m->tensor[i].dtype, m->tensor[i].shape,
					 m->tensor[i].rank, &n),
			0);
		sum += n;
	}
	return sum;
}

START_TEST(llama_70b_tp8_to_tp4_is_5140_regions_within_its_bounds)
{
	struct model m;
	struct planned p;
	struct mc_binding *b;

	model_open(&m, "llama-3-70b", 0, 0, 1);
	plan_open(&p, &m, "tp8", "tp4");
	ck_assert_uint_eq(p.plan->overlaps, 5140);
	ck_assert_uint_eq(p.plan->n_classes, 7);
	ck_assert_int_eq(mc_binding_make(&(struct mc_binder_in){.plan = p.plan}, &b), 0);
	ck_assert_uint_le(b->makespan * 10,
		(b->max_egress > b->max_ingress ? b->max_egress : b->max_ingress) * 11);
	mc_binding_free(b);
	plan_close(&p);
	model_close(&m);
}
END_TEST

START_TEST(makespan_on_the_presets_is_within_a_tenth_of_its_bound)
{
	static const char *const t[][3] = {{"deepseek-v3", "tp16", "tp8-pp2"},
		{"deepseek-v3", "ep16", "tp8"}, {"kimi-k2", "tp16", "tp8-pp2"},
		{"mixtral-8x7b", "tp8", "ep8"}, {"qwen-moe", "ep8", "tp4-pp2"},
		{"llama-3-8b", "dp2-tp4", "tp16"}, {"gpt-oss-20b", "ep4", "tp8"},
		{"qwen3-8b", "pp4", "tp4"}};

	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		struct model m;
		struct planned p;
		struct mc_binding *b;
		uint64_t bound, most = 0;

		model_open(&m, t[i][0], 0, 0, 1);
		plan_open(&p, &m, t[i][1], t[i][2]);
		ck_assert_int_eq(mc_binding_make(&(struct mc_binder_in){.plan = p.plan}, &b), 0);
		bound = b->max_egress > b->max_ingress ? b->max_egress : b->max_ingress;
		ck_assert_msg(b->makespan * 10 <= bound * 11, "%s %s -> %s: %lu of %lu", t[i][0],
			t[i][1], t[i][2], (unsigned long)b->makespan, (unsigned long)bound);
		for (uint32_t k = 0; k < p.plan->n_participants; k++)
			most = p.plan->egress[k] > most ? p.plan->egress[k] : most;
		ck_assert_uint_le(most, p.plan->bound_num / p.plan->bound_den + 1 + (1 << 20));
		mc_binding_free(b);
		plan_close(&p);
		model_close(&m);
	}
}
END_TEST

START_TEST(tied_and_padded_bytes_move_once_and_not_at_all)
{
	struct model m;
	struct planned p;
	uint64_t embedding;

	/* One rank: everything once; the vocabulary's padding has no source. */
	model_open(&m, "qwen2-0.5b", 2, 0, 1);
	plan_open(&p, &m, NULL, "tp1");
	ck_assert_uint_eq(p.plan->moved_bytes, model_bytes(&m));
	plan_close(&p);
	/* Two stages: the head of the last one is the embedding again. */
	embedding = (uint64_t)151936 * 896 * 2;
	plan_open(&p, &m, NULL, "pp2");
	ck_assert_uint_eq(p.plan->moved_bytes, model_bytes(&m) + embedding);
	ck_assert_uint_eq(p.plan->wanted_bytes, p.plan->moved_bytes);
	plan_close(&p);
	model_close(&m);
}
END_TEST

START_TEST(a_deepseek_rank_is_a_hundred_million_runs_in_a_few_links)
{
	struct model m;
	struct planned p;
	uint64_t runs = 0;

	model_open(&m, "deepseek-v3", 0, 0, 1);
	plan_open(&p, &m, NULL, "tp8");
	for (uint32_t i = 0; i < p.plan->n_links; i++) {
		const struct mc_link *l = &p.plan->link[i];
		struct mc_region g;

		mc_reshard_link_region(p.plan, l, &g);
		if (p.wanted.shard[l->dst].participant == 1)
			runs += mc_region_runs(&g) * (l->to - l->from);
	}
	ck_assert_uint_gt(runs, 100000000);
	ck_assert_uint_lt(p.plan->n_links, 1000);
	plan_close(&p);
	model_close(&m);
}
END_TEST

SUITE_MAIN("preset", key_value_heads_are_replicated_beyond_their_number,
	a_tied_head_is_on_the_last_stage_and_moves_the_embedding_once,
	every_preset_compiles_on_its_usual_meshes, models_have_their_published_tensor_counts,
	mesh_names_that_make_no_sense_are_refused,
	llama_70b_tp8_to_tp4_is_5140_regions_within_its_bounds,
	makespan_on_the_presets_is_within_a_tenth_of_its_bound,
	tied_and_padded_bytes_move_once_and_not_at_all,
	a_deepseek_rank_is_a_hundred_million_runs_in_a_few_links)
