/* Generated tensor tables: one function a model family. */
#include "tests/models.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/dtype.h"

static uint64_t get(const struct model *m, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(m->config, key));
}

static void set(struct model *m, const char *key, uint64_t v)
{
	json_object_set_new(m->config, key, json_integer((json_int_t)v));
}

static void *need(void *p)
{
	if (p == NULL)
		abort();
	return p;
}

/* Names are kept as offsets until the table is complete. */
static void add(struct model *m, const char *prefix, const char *name, uint8_t dtype, int rank, ...)
{
	struct mc_layout_tensor *t;
	va_list ap;
	size_t len = strlen(prefix) + strlen(name) + 1;

	if (m->n == m->cap) {
		m->cap = m->cap > 0 ? m->cap * 2 : 1024;
		m->tensor = need(realloc(m->tensor, m->cap * sizeof(*m->tensor)));
	}
	if (m->names_len + len > m->names_cap) {
		m->names_cap = m->names_cap * 2 + len + 65536;
		m->names = need(realloc(m->names, m->names_cap));
	}
	t = &m->tensor[m->n++];
	memset(t, 0, sizeof(*t));
	t->name = (const char *)m->names_len;
	sprintf(m->names + m->names_len, "%s%s", prefix, name);
	m->names_len += len;
	t->dtype = dtype;
	t->rank = (uint8_t)rank;
	va_start(ap, rank);
	for (int i = 0; i < rank; i++)
		t->shape[i] = va_arg(ap, uint64_t);
	va_end(ap);
}

/* A weight, in fp8 with its scales when the model is. */
static void weight(struct model *m, const char *prefix, const char *name, uint64_t out, uint64_t in)
{
	bool fp8 = json_object_get(m->config, "quantization_config") != NULL;
	char text[96];

	add(m, prefix, name, fp8 ? MC_DTYPE_F8_E4M3 : MC_DTYPE_BF16, 2, out, in);
	if (!fp8)
		return;
	snprintf(text, sizeof(text), "%s_scale_inv", name);
	add(m, prefix, text, MC_DTYPE_F32, 2, (out + 127) / 128, (in + 127) / 128);
}

static void mlp(struct model *m, const char *prefix, uint64_t inter)
{
	uint64_t h = get(m, "hidden_size");

	weight(m, prefix, "gate_proj.weight", inter, h);
	weight(m, prefix, "up_proj.weight", inter, h);
	weight(m, prefix, "down_proj.weight", h, inter);
}

static void attention(struct model *m, const char *p, const char *bias, bool qk_norm)
{
	uint64_t h = get(m, "hidden_size"), d = get(m, "head_dim");
	uint64_t q = get(m, "num_attention_heads") * d, kv = get(m, "num_key_value_heads") * d;
	struct {
		char name;
		uint64_t out, in;
	} proj[] = {{'q', q, h}, {'k', kv, h}, {'v', kv, h}, {'o', h, q}};

	for (int i = 0; i < 4; i++) {
		char text[64];

		snprintf(text, sizeof(text), "self_attn.%c_proj.weight", proj[i].name);
		add(m, p, text, MC_DTYPE_BF16, 2, proj[i].out, proj[i].in);
		snprintf(text, sizeof(text), "self_attn.%c_proj.bias", proj[i].name);
		if (strchr(bias, proj[i].name) != NULL)
			add(m, p, text, MC_DTYPE_BF16, 1, proj[i].out);
	}
	if (qk_norm) {
		add(m, p, "self_attn.q_norm.weight", MC_DTYPE_BF16, 1, d);
		add(m, p, "self_attn.k_norm.weight", MC_DTYPE_BF16, 1, d);
	}
}

static void moe(struct model *m, const char *p, const char *gate, const char *experts, uint64_t n,
	uint64_t inter)
{
	uint64_t h = get(m, "hidden_size");

	add(m, p, gate, MC_DTYPE_BF16, 2, n, h);
	for (uint64_t e = 0; e < n; e++) {
		char prefix[96];

		snprintf(prefix, sizeof(prefix), "%s%s%llu.", p, experts, (unsigned long long)e);
		if (strstr(experts, "sparse") != NULL) {
			weight(m, prefix, "w1.weight", inter, h);
			weight(m, prefix, "w3.weight", inter, h);
			weight(m, prefix, "w2.weight", h, inter);
		} else {
			mlp(m, prefix, inter);
		}
	}
}

static void deepseek_layer(struct model *m, const char *p, uint64_t layer)
{
	uint64_t h = get(m, "hidden_size"), nh = get(m, "num_attention_heads"),
		 nope = get(m, "qk_nope_head_dim");
	uint64_t rope = get(m, "qk_rope_head_dim"), v = get(m, "v_head_dim"),
		 ql = get(m, "q_lora_rank");
	uint64_t kl = get(m, "kv_lora_rank"), inter = get(m, "moe_intermediate_size"),
		 n = get(m, "n_routed_experts");
	char text[96];

	weight(m, p, "self_attn.q_a_proj.weight", ql, h);
	weight(m, p, "self_attn.q_b_proj.weight", nh * (nope + rope), ql);
	weight(m, p, "self_attn.kv_a_proj_with_mqa.weight", kl + rope, h);
	weight(m, p, "self_attn.kv_b_proj.weight", nh * (nope + v), kl);
	weight(m, p, "self_attn.o_proj.weight", h, nh * v);
	add(m, p, "self_attn.q_a_layernorm.weight", MC_DTYPE_BF16, 1, ql);
	add(m, p, "self_attn.kv_a_layernorm.weight", MC_DTYPE_BF16, 1, kl);
	snprintf(text, sizeof(text), "%smlp.", p);
	if (layer < get(m, "first_k_dense_replace")) {
		mlp(m, text, get(m, "intermediate_size"));
		return;
	}
	moe(m, p, "mlp.gate.weight", "mlp.experts.", n, inter);
	add(m, p, "mlp.gate.e_score_correction_bias", MC_DTYPE_F32, 1, n);
	snprintf(text, sizeof(text), "%smlp.shared_experts.", p);
	mlp(m, text, inter);
}

static void gpt_oss_layer(struct model *m, const char *p)
{
	uint64_t h = get(m, "hidden_size"), i = get(m, "intermediate_size"),
		 n = get(m, "num_local_experts");

	attention(m, p, "qkvo", false);
	add(m, p, "self_attn.sinks", MC_DTYPE_BF16, 1, get(m, "num_attention_heads"));
	add(m, p, "mlp.router.weight", MC_DTYPE_BF16, 2, n, h);
	add(m, p, "mlp.router.bias", MC_DTYPE_BF16, 1, n);
	add(m, p, "mlp.experts.gate_up_proj_blocks", MC_DTYPE_U8, 4, n, 2 * i, (h + 31) / 32,
		(uint64_t)16);
	add(m, p, "mlp.experts.gate_up_proj_scales", MC_DTYPE_U8, 3, n, 2 * i, (h + 31) / 32);
	add(m, p, "mlp.experts.gate_up_proj_bias", MC_DTYPE_BF16, 2, n, 2 * i);
	add(m, p, "mlp.experts.down_proj_blocks", MC_DTYPE_U8, 4, n, h, (i + 31) / 32,
		(uint64_t)16);
	add(m, p, "mlp.experts.down_proj_scales", MC_DTYPE_U8, 3, n, h, (i + 31) / 32);
	add(m, p, "mlp.experts.down_proj_bias", MC_DTYPE_BF16, 2, n, h);
}

static void layer(struct model *m, const char *type, uint64_t i)
{
	uint64_t h = get(m, "hidden_size");
	char p[64], text[96];

	snprintf(p, sizeof(p), "model.layers.%llu.", (unsigned long long)i);
	snprintf(text, sizeof(text), "%smlp.", p);
	if (strcmp(type, "deepseek_v3") == 0 || strcmp(type, "kimi_k2") == 0) {
		deepseek_layer(m, p, i);
	} else if (strcmp(type, "gpt_oss") == 0) {
		gpt_oss_layer(m, p);
	} else if (strcmp(type, "mixtral") == 0) {
		attention(m, p, "", false);
		moe(m, p, "block_sparse_moe.gate.weight", "block_sparse_moe.experts.",
			get(m, "num_local_experts"), get(m, "intermediate_size"));
	} else if (strcmp(type, "qwen3_moe") == 0) {
		attention(m, p, "", true);
		moe(m, p, "mlp.gate.weight", "mlp.experts.", get(m, "num_experts"),
			get(m, "moe_intermediate_size"));
	} else {
		attention(
			m, p, strcmp(type, "qwen2") == 0 ? "qkv" : "", strcmp(type, "qwen3") == 0);
		mlp(m, text, get(m, "intermediate_size"));
	}
	add(m, p, "input_layernorm.weight", MC_DTYPE_BF16, 1, h);
	add(m, p, "post_attention_layernorm.weight", MC_DTYPE_BF16, 1, h);
}

static void mtp(struct model *m, const char *type, uint64_t i)
{
	uint64_t h = get(m, "hidden_size"), v = get(m, "vocab_size");
	char p[64];

	snprintf(p, sizeof(p), "model.layers.%llu.", (unsigned long long)i);
	add(m, p, "embed_tokens.weight", MC_DTYPE_BF16, 2, v, h);
	add(m, p, "enorm.weight", MC_DTYPE_BF16, 1, h);
	add(m, p, "hnorm.weight", MC_DTYPE_BF16, 1, h);
	add(m, p, "eh_proj.weight", MC_DTYPE_BF16, 2, h, 2 * h);
	layer(m, type, i);
	add(m, p, "shared_head.norm.weight", MC_DTYPE_BF16, 1, h);
	add(m, p, "shared_head.head.weight", MC_DTYPE_BF16, 2, v, h);
}

/* What a family's config.json says, besides the numbers; a missing number is left out. */
struct published {
	const char *name, *arch, *type;
	uint64_t hidden, inter, layers, heads, kv, head_dim, vocab, experts, moe_inter, dense, mtp;
	bool tied;
};

static const struct published list[] = {
	{"llama-3-8b", "LlamaForCausalLM", "llama", 4096, 14336, 32, 32, 8, 128, 128256, 0, 0, 0, 0,
		false},
	{"llama-3-70b", "LlamaForCausalLM", "llama", 8192, 28672, 80, 64, 8, 128, 128256, 0, 0, 0,
		0, false},
	{"qwen2-0.5b", "Qwen2ForCausalLM", "qwen2", 896, 4864, 24, 14, 2, 64, 151936, 0, 0, 0, 0,
		true},
	{"qwen3-8b", "Qwen3ForCausalLM", "qwen3", 4096, 12288, 36, 32, 8, 128, 151936, 0, 0, 0, 0,
		false},
	{"qwen-moe", "Qwen3MoeForCausalLM", "qwen3_moe", 2048, 6144, 48, 32, 4, 128, 151936, 128,
		768, 0, 0, false},
	{"mixtral-8x7b", "MixtralForCausalLM", "mixtral", 4096, 14336, 32, 32, 8, 128, 32000, 8, 0,
		0, 0, false},
	{"deepseek-v3", "DeepseekV3ForCausalLM", "deepseek_v3", 7168, 18432, 61, 128, 128, 0,
		129280, 256, 2048, 3, 0, false},
	{"deepseek-v3-mtp", "DeepseekV3ForCausalLM", "deepseek_v3", 7168, 18432, 61, 128, 128, 0,
		129280, 256, 2048, 3, 1, false},
	{"kimi-k2", "DeepseekV3ForCausalLM", "kimi_k2", 7168, 18432, 61, 64, 64, 0, 163840, 384,
		2048, 1, 0, false},
	{"gpt-oss-20b", "GptOssForCausalLM", "gpt_oss", 2880, 2880, 24, 64, 8, 64, 201088, 32, 0, 0,
		0, false},
};

static void fill_config(struct model *m, const struct published *p, uint64_t layers,
	uint64_t experts, uint64_t scale)
{
	bool deepseek = p->dense > 0;

	m->config = need(json_pack("{s:[s],s:s,s:b}", "architectures", p->arch, "model_type",
		p->type, "tie_word_embeddings", p->tied));
	set(m, "hidden_size", p->hidden / scale);
	set(m, "intermediate_size", p->inter / scale);
	set(m, "num_hidden_layers", layers > 0 ? layers : p->layers);
	set(m, "num_attention_heads", p->heads);
	set(m, "num_key_value_heads", p->kv);
	set(m, "vocab_size", p->vocab / scale);
	if (p->head_dim > 0)
		set(m, "head_dim", p->head_dim / scale > 0 ? p->head_dim / scale : 1);
	if (experts == 0)
		experts = p->experts;
	if (p->moe_inter > 0)
		set(m, "moe_intermediate_size", p->moe_inter / (deepseek && scale > 2 ? 2 : scale));
	if (strcmp(p->type, "qwen3_moe") == 0)
		set(m, "num_experts", experts);
	else if (deepseek)
		set(m, "n_routed_experts", experts);
	else if (p->experts > 0)
		set(m, "num_local_experts", experts);
	if (strcmp(p->type, "gpt_oss") == 0)
		json_object_set_new(m->config, "quantization_config",
			json_pack("{s:s}", "quant_method", "mxfp4"));
	if (!deepseek)
		return;
	set(m, "q_lora_rank", 1536 / scale);
	set(m, "kv_lora_rank", 512 / scale);
	set(m, "qk_nope_head_dim", 128);
	set(m, "qk_rope_head_dim", 64);
	set(m, "v_head_dim", 128);
	set(m, "first_k_dense_replace", p->dense);
	set(m, "num_nextn_predict_layers", p->mtp);
	json_object_set_new(m->config, "quantization_config",
		json_pack("{s:s,s:[i,i]}", "quant_method", "fp8", "weight_block_size", 128, 128));
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct mc_layout_tensor *)a)->name,
		((const struct mc_layout_tensor *)b)->name);
}

void model_open(
	struct model *m, const char *name, unsigned layers, unsigned experts, unsigned scale)
{
	const struct published *p = list;

	while (strcmp(p->name, name) != 0)
		if (++p == list + sizeof(list) / sizeof(*list))
			abort();
	*m = (struct model){.name = p->name};
	fill_config(m, p, layers, experts, scale > 0 ? scale : 1);
	add(m, "model.", "embed_tokens.weight", MC_DTYPE_BF16, 2, get(m, "vocab_size"),
		get(m, "hidden_size"));
	for (uint64_t i = 0; i < get(m, "num_hidden_layers"); i++)
		layer(m, p->type, i);
	add(m, "model.", "norm.weight", MC_DTYPE_BF16, 1, get(m, "hidden_size"));
	if (!p->tied)
		add(m, "", "lm_head.weight", MC_DTYPE_BF16, 2, get(m, "vocab_size"),
			get(m, "hidden_size"));
	for (uint64_t i = 0; i < p->mtp; i++)
		mtp(m, p->type, get(m, "num_hidden_layers") + i);
	for (uint32_t i = 0; i < m->n; i++)
		m->tensor[i].name = m->names + (size_t)m->tensor[i].name;
	qsort(m->tensor, m->n, sizeof(*m->tensor), by_name);
}

void model_close(struct model *m)
{
	json_decref(m->config);
	free(m->tensor);
	free(m->names);
}
