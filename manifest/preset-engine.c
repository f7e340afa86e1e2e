/* vLLM's sharded state of dense models: fused tensors, scales of attention, tied embeddings. */
#include "manifest/preset-engine.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ENDING "-vllm"

static const char emit_text[] =
	"{\"style\": \"sharded-state\", \"fuse\": ["
	"{\"name\": \"model.layers.{1}.self_attn.qkv_proj.weight\", \"dim\": 0, \"from\": ["
	"\"model.layers.#.self_attn.q_proj.weight\", \"model.layers.#.self_attn.k_proj.weight\", "
	"\"model.layers.#.self_attn.v_proj.weight\"]},"
	"{\"name\": \"model.layers.{1}.self_attn.qkv_proj.bias\", \"dim\": 0, \"optional\": true, "
	"\"from\": [\"model.layers.#.self_attn.q_proj.bias\", "
	"\"model.layers.#.self_attn.k_proj.bias\", \"model.layers.#.self_attn.v_proj.bias\"]},"
	"{\"name\": \"model.layers.{1}.mlp.gate_up_proj.weight\", \"dim\": 0, \"from\": ["
	"\"model.layers.#.mlp.gate_proj.weight\", \"model.layers.#.mlp.up_proj.weight\"]}]}";

static const char rename_text[] =
	"[{\"match\": \"model.embed_tokens.weight\", \"name\": \"lm_head.weight\"}]";

/* Persistent buffers of vLLM's Attention: F32 1.0. */
static const char *const scales[] = {"_k_scale", "_prob_scale", "_q_scale", "_v_scale"};

bool mc_preset_engine_mesh(const char *name, char *out, size_t size)
{
	size_t len = strlen(name), end = strlen(ENDING);

	if (len <= end || strcmp(name + len - end, ENDING) != 0 || len - end >= size)
		return false;
	memcpy(out, name, len - end);
	out[len - end] = '\0';
	return true;
}

static json_t *constants(void)
{
	json_t *list = json_array();

	for (size_t i = 0; i < sizeof(scales) / sizeof(*scales); i++) {
		char name[96];

		snprintf(name, sizeof(name), "model.layers.{1}.self_attn.attn.%s", scales[i]);
		json_array_append_new(list,
			json_pack("{s:s, s:s, s:s, s:[], s:i}", "name", name, "each",
				"model.layers.#.self_attn.o_proj.weight", "dtype", "F32", "shape",
				"value", 1));
	}
	return list;
}

int mc_preset_engine_emit(json_t *root, const char *family, bool tied, struct mc_err *err)
{
	json_t *emit;
	char profile[32];

	if (strcmp(family, "llama") != 0 && strcmp(family, "qwen2") != 0 &&
		strcmp(family, "qwen3") != 0)
		return mc_err_set(err, -EINVAL,
			"%s: sharded state needs a layout document and a profile written from the "
			"engine; only dense Llama, Qwen2 and Qwen3 are built in",
			family);
	emit = json_loads(emit_text, 0, NULL);
	if (emit == NULL)
		return -ENOMEM;
	snprintf(profile, sizeof(profile), "vllm-%s", family);
	json_object_set_new(emit, "profile", json_string(profile));
	if (tied)
		json_object_set_new(emit, "rename", json_loads(rename_text, 0, NULL));
	json_object_set_new(root, "emit", emit);
	json_object_set_new(root, "const", constants());
	return 0;
}
