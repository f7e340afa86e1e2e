/* libFuzzer entry: a layout document, then compiled against a small model; what compiles gives
 * every rank tensors whose pieces lie inside them and inside the source. */
#include "manifest/dtype.h"
#include "manifest/layout.h"

#include <assert.h>
#include <string.h>

#define MAX_RANKS 64 /* of what is compiled: larger meshes only take time */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct mc_layout_tensor model[] = {
	{"lm_head.weight", MC_DTYPE_BF16, 2, {200, 32}},
	{"model.embed_tokens.weight", MC_DTYPE_BF16, 2, {200, 32}},
	{"model.layers.0.mlp.experts.0.w", MC_DTYPE_F8_E4M3, 2, {256, 128}},
	{"model.layers.0.mlp.experts.0.w_scale_inv", MC_DTYPE_F32, 2, {2, 1}},
	{"model.layers.0.mlp.experts.1.w", MC_DTYPE_F8_E4M3, 2, {256, 128}},
	{"model.layers.0.mlp.experts.1.w_scale_inv", MC_DTYPE_F32, 2, {2, 1}},
	{"model.layers.0.q", MC_DTYPE_BF16, 2, {64, 32}},
	{"model.layers.1.blocks", MC_DTYPE_U8, 4, {4, 64, 3, 16}},
	{"model.layers.1.q", MC_DTYPE_BF16, 2, {64, 32}},
	{"model.layers.1.scalar", MC_DTYPE_I64, 0, {0}},
};
#define N_MODEL (sizeof(model) / sizeof(*model))

static void check_local(const struct mc_rank_tensors *t, const struct mc_local *l)
{
	for (uint32_t i = l->first; i < l->first + l->n; i++) {
		const struct mc_local_piece *p = &t->piece[i];
		unsigned shift = p->stacked;

		assert(p->tensor < N_MODEL && p->box.rank == model[p->tensor].rank);
		assert(l->rank == p->box.rank + shift);
		assert(!p->stacked || p->at[0] < l->shape[0]);
		for (unsigned d = 0; d < p->box.rank; d++) {
			assert(p->box.off[d] + p->box.len[d] <= model[p->tensor].shape[d]);
			assert(p->at[d + shift] + p->box.len[d] <= l->shape[d + shift]);
		}
	}
}

static void check_ranks(const struct mc_layout *l, const struct mc_sharding *s)
{
	for (uint32_t k = 0; k < mc_layout_world(l); k++) {
		struct mc_rank_tensors t;
		struct mc_err err = {0};

		if (mc_sharding_rank(s, k, &t, &err) < 0) {
			assert(err.text[0] != '\0');
			return;
		}
		for (uint32_t i = 0; i < t.n; i++)
			check_local(&t, &t.local[i]);
		mc_rank_tensors_done(&t);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mc_layout *l;
	struct mc_sharding *s;
	struct mc_err err = {0};
	struct mc_layout_in in = {.tensors = model, .n_tensors = N_MODEL};
	json_t *config;

	if (mc_layout_parse(data, size, &l, &err) < 0) {
		assert(err.text[0] != '\0');
		return 0;
	}
	config = json_pack("{s:i, s:i, s:i}", "num_hidden_layers", 2, "num_attention_heads", 8,
		"num_key_value_heads", 2);
	in.layout = l;
	in.config = config;
	if (mc_layout_world(l) <= MAX_RANKS) {
		if (mc_layout_compile(&in, &s, &err) == 0) {
			check_ranks(l, s);
			mc_sharding_free(s);
		} else {
			assert(err.text[0] != '\0');
		}
	}
	json_decref(config);
	mc_layout_free(l);
	return 0;
}
