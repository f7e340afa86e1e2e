/* Choosing a preset by config.json, and meshes from names. */
#include "manifest/preset.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/json.h"
#include "manifest/preset-engine.h"

static const struct {
	const char *architecture, *model_type, *family;
} families[] = {
	/* The first line that fits; NULL fits everything. */
	{"DeepseekV3ForCausalLM", "kimi_k2", "kimi-k2"},
	{"DeepseekV3ForCausalLM", NULL, "deepseek-v3"},
	{"LlamaForCausalLM", NULL, "llama"},
	{"MistralForCausalLM", NULL, "llama"},
	{"Qwen2ForCausalLM", NULL, "qwen2"},
	{"Qwen3ForCausalLM", NULL, "qwen3"},
	{"MixtralForCausalLM", NULL, "mixtral"},
	{"Qwen2MoeForCausalLM", NULL, "qwen-moe"},
	{"Qwen3MoeForCausalLM", NULL, "qwen-moe"},
	{"GptOssForCausalLM", NULL, "gpt-oss"},
};

enum { DP, PP, TP, EP, N_AXES };
static const char *const axis_names[N_AXES] = {"dp", "pp", "tp", "ep"};

/* NULL with a text: unknown architecture. */
static const char *family_of(const json_t *config, struct mc_err *err)
{
	const char *arch =
		json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
	const char *type = json_string_value(json_object_get(config, "model_type"));

	for (size_t i = 0; arch != NULL && i < sizeof(families) / sizeof(*families); i++)
		if (strcmp(families[i].architecture, arch) == 0 &&
			(families[i].model_type == NULL ||
				(type != NULL && strcmp(families[i].model_type, type) == 0)))
			return families[i].family;
	mc_err_set(err, -ENOENT,
		"no preset layout for architecture \"%.64s\"; write a layout document",
		arch != NULL ? arch : "(none in config.json)");
	return NULL;
}

/* "tp4-pp2" to sizes; 0 where an axis is not named. */
static int parse_name(const char *name, uint32_t *sizes, struct mc_err *err)
{
	const char *s = name;

	for (;;) {
		unsigned a = 0;
		uint32_t v = 0;

		while (a < N_AXES && strncmp(s, axis_names[a], 2) != 0)
			a++;
		if (a == N_AXES || sizes[a] != 0)
			break;
		for (s += 2; *s >= '0' && *s <= '9' && v < MC_LAYOUT_MAX_WORLD; s++)
			v = v * 10 + (uint32_t)(*s - '0');
		if (v == 0 || v > MC_LAYOUT_MAX_WORLD || (*s != '-' && *s != 0))
			break;
		sizes[a] = v;
		if (*s++ == 0)
			return 0;
	}
	return mc_err_set(err, -ENOENT,
		"\"%.64s\" is no layout: no document of that name, and no mesh like tp8-pp2", name);
}

static json_t *derived(const char *a, const char *b, uint32_t div, uint32_t mod)
{
	json_t *from = json_array(), *o = json_object();

	if (a != NULL)
		json_array_append_new(from, json_string(a));
	if (b != NULL)
		json_array_append_new(from, json_string(b));
	json_object_set_new(o, "from", from);
	if (div > 0)
		json_object_set_new(o, "div", json_integer(div));
	if (mod > 0)
		json_object_set_new(o, "mod", json_integer(mod));
	return o;
}

/* Where the experts are spread: ep and moe_tp from dp and tp. May set dp. */
static int expert_axes(uint32_t *n, json_t *axes, struct mc_err *err)
{
	uint32_t dp = n[DP], tp = n[TP] > 0 ? n[TP] : 1, ep = n[EP];

	if (ep <= 1) {
		json_object_set_new(axes, "ep", derived(NULL, NULL, 0, 0));
		json_object_set_new(axes, "moe_tp", derived("tp", NULL, 0, 0));
		return 0;
	}
	if (dp <= 1 && n[TP] > 0 && tp % ep == 0) {
		json_object_set_new(axes, "ep", derived("tp", NULL, tp / ep, 0));
		json_object_set_new(axes, "moe_tp", derived("tp", NULL, 0, tp / ep));
		return 0;
	}
	if (dp == 0 && ep % tp == 0)
		n[DP] = dp = ep / tp;
	if ((uint64_t)dp * tp != ep)
		return mc_err_set(err, -EINVAL,
			"ep%u fits neither inside tp%u nor over dp%u × tp%u", ep, tp,
			dp > 0 ? dp : 1, tp);
	json_object_set_new(axes, "ep", derived("dp", "tp", 0, 0));
	json_object_set_new(axes, "moe_tp", derived(NULL, NULL, 0, 0));
	return 0;
}

static int make_mesh(json_t *root, const char *family, uint32_t *n, struct mc_err *err)
{
	json_t *mesh = json_object_get(root, "mesh"), *axes = json_array();
	json_t *experts = json_object_get(mesh, "derived");
	int r = 0;

	if (experts != NULL)
		r = expert_axes(n, experts, err);
	else if (n[EP] > 1)
		r = mc_err_set(err, -EINVAL, "ep%u: %s models have no experts", n[EP], family);
	for (unsigned a = DP; a <= TP; a++) {
		json_t *pair = json_array();

		json_array_append_new(pair, json_string(axis_names[a]));
		json_array_append_new(pair, json_integer(n[a] > 0 ? n[a] : 1));
		json_array_append_new(axes, pair);
	}
	json_object_set_new(mesh, "axes", axes);
	return r;
}

/* family NULL: what config says. */
static int open_preset(const char *family, const json_t *config, const char *name,
	struct mc_layout **ret, struct mc_err *err)
{
	bool tied = json_is_true(json_object_get(config, "tie_word_embeddings"));
	const struct mc_preset_text *t = mc_preset_texts;
	uint32_t sizes[N_AXES] = {0};
	json_t *root = NULL;
	char *text = NULL;
	char mesh[64];
	bool engine = mc_preset_engine_mesh(name, mesh, sizeof(mesh));
	int r = parse_name(engine ? mesh : name, sizes, err);

	if (r < 0)
		return r;
	if (family == NULL)
		family = family_of(config, err);
	if (family == NULL)
		return -ENOENT;
	while (t->name != NULL && strcmp(t->name, family) != 0)
		t++;
	if (t->name == NULL)
		return mc_err_set(err, -ENOENT, "no preset \"%.64s\"", family);
	r = mc_json_load(t->text, t->len, 16, &root, err);
	if (r == 0)
		r = make_mesh(root, family, sizes, err);
	if (r == 0 && engine)
		r = mc_preset_engine_emit(root, family, tied, err);
	if (r == 0) {
		json_object_set_new(root, "name", json_string(name));
		text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
		r = text != NULL ? mc_layout_parse(text, strlen(text), ret, err) : -ENOMEM;
	}
	free(text);
	json_decref(root);
	return r;
}

int mc_preset_open(const char *family, const char *name, struct mc_layout **ret, struct mc_err *err)
{
	return open_preset(family, NULL, name, ret, err);
}

int mc_preset_layout(
	const json_t *config, const char *name, struct mc_layout **ret, struct mc_err *err)
{
	return open_preset(NULL, config, name, ret, err);
}
