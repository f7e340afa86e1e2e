/* Profiles of engines: parsed, or made by rule for dense models. */
#include "manifest/profile.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/dtype.h"
#include "manifest/json.h"

#define DEPTH 8
#define VOCAB_PAD 64 /* vLLM's DEFAULT_VOCAB_PADDING_SIZE */

struct entry {
	char *name; /* owned */
	uint8_t dtype, rank;
	uint64_t shape[MC_BOX_RANK];
};

struct mc_profile {
	struct entry *v; /* by name, owned */
	size_t n, cap;
};

void mc_profile_free(struct mc_profile *p)
{
	if (p == NULL)
		return;
	for (size_t i = 0; i < p->n; i++)
		free(p->v[i].name);
	free(p->v);
	free(p);
}

size_t mc_profile_count(const struct mc_profile *p)
{
	return p->n;
}

static int entry_compare(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

/* Room for one more; its name is a copy. */
static struct entry *add(struct mc_profile *p, const char *name, uint8_t dtype)
{
	char *copy;

	if (p->n == p->cap) {
		size_t cap = p->cap != 0 ? p->cap * 2 : 64;
		void *v = reallocarray(p->v, cap, sizeof(*p->v));

		if (v == NULL)
			return NULL;
		p->v = v;
		p->cap = cap;
	}
	copy = strdup(name);
	if (copy == NULL)
		return NULL;
	p->v[p->n] = (struct entry){.name = copy, .dtype = dtype};
	return &p->v[p->n++];
}

static int parse_entry(struct mc_profile *p, const char *name, const json_t *v, struct mc_err *err)
{
	const char *dtype = json_string_value(json_object_get(v, "dtype"));
	const json_t *shape = json_object_get(v, "shape");
	struct entry *e;
	uint8_t type;

	if (dtype == NULL || mc_dtype_parse(dtype, &type) < 0 || !json_is_array(shape) ||
		json_array_size(shape) > MC_BOX_RANK)
		return mc_err_set(err, -EBADMSG,
			"profile: tensor \"%.200s\" has no good dtype and shape", name);
	e = add(p, name, type);
	if (e == NULL)
		return -ENOMEM;
	e->rank = (uint8_t)json_array_size(shape);
	for (unsigned d = 0; d < e->rank; d++)
		if (mc_json_uint(json_array_get(shape, d), MC_JSON_INT_MAX, &e->shape[d]) < 0)
			return mc_err_set(err, -EBADMSG,
				"profile: tensor \"%.200s\": a dimension is no whole number", name);
	return 0;
}

static int parse_root(struct mc_profile *p, const json_t *root, struct mc_err *err)
{
	static const char *const keys[] = {
		"format", "version", "engine", "engine_version", "tensors", NULL};
	const char *format = json_string_value(json_object_get(root, "format"));
	const char *unknown = mc_json_unknown_key(root, keys), *name;
	json_t *tensors = json_object_get(root, "tensors"), *v;
	uint64_t version;
	int r = 0;

	if (format == NULL || strcmp(format, "engine-profile") != 0 ||
		mc_json_uint(json_object_get(root, "version"), 1, &version) < 0 || version != 1 ||
		!json_is_object(tensors))
		return mc_err_set(err, -EBADMSG,
			"not a profile: format \"engine-profile\", version 1 and tensors are "
			"needed");
	if (unknown != NULL)
		return mc_err_set(err, -EBADMSG, "profile: unknown key \"%.64s\"", unknown);
	json_object_foreach(tensors, name, v)
	{
		r = parse_entry(p, name, v, err);
		if (r < 0)
			break;
	}
	return r;
}

int mc_profile_parse(const void *text, size_t len, struct mc_profile **ret, struct mc_err *err)
{
	struct mc_profile *p = calloc(1, sizeof(*p));
	json_t *root = NULL;
	int r = p != NULL ? mc_json_load(text, len, DEPTH, &root, err) : -ENOMEM;

	if (r == 0)
		r = parse_root(p, root, err);
	json_decref(root);
	if (r < 0) {
		mc_profile_free(p);
		return r;
	}
	if (p->n > 1)
		qsort(p->v, p->n, sizeof(*p->v), entry_compare);
	*ret = p;
	return 0;
}

/* The numbers of a dense model, as config.json has them, and what one rank holds. */
struct dense {
	struct mc_profile *p;
	bool qwen2, qwen3, tied;
	uint8_t dtype;
	uint64_t hidden, inter, layers, heads, kv, head, vocab, tp;
	bool failed; /* no memory */
};

static void put(struct dense *d, const char *name, uint64_t rows, uint64_t columns)
{
	struct entry *e = add(d->p, name, d->dtype);

	if (e == NULL) {
		d->failed = true;
		return;
	}
	e->rank = columns > 0 ? 2 : 1;
	e->shape[0] = rows;
	e->shape[1] = columns;
}

static void put_layer(struct dense *d, uint64_t layer)
{
	static const char *const scales[] = {"_k_scale", "_prob_scale", "_q_scale", "_v_scale"};
	uint64_t q = d->heads / d->tp * d->head;
	uint64_t kv = (d->kv >= d->tp ? d->kv / d->tp : 1) * d->head;
	char prefix[48], name[128];
	const struct {
		const char *name;
		uint64_t rows, columns;
		bool present;
	} tensors[] = {{"input_layernorm.weight", d->hidden, 0, true},
		{"post_attention_layernorm.weight", d->hidden, 0, true},
		{"self_attn.qkv_proj.weight", q + 2 * kv, d->hidden, true},
		{"self_attn.qkv_proj.bias", q + 2 * kv, 0, d->qwen2},
		{"self_attn.q_norm.weight", d->head, 0, d->qwen3},
		{"self_attn.k_norm.weight", d->head, 0, d->qwen3},
		{"self_attn.o_proj.weight", d->hidden, q, true},
		{"mlp.gate_up_proj.weight", 2 * (d->inter / d->tp), d->hidden, true},
		{"mlp.down_proj.weight", d->hidden, d->inter / d->tp, true}};

	snprintf(prefix, sizeof(prefix), "model.layers.%llu.", (unsigned long long)layer);
	for (size_t i = 0; i < sizeof(tensors) / sizeof(*tensors); i++) {
		snprintf(name, sizeof(name), "%s%s", prefix, tensors[i].name);
		if (tensors[i].present)
			put(d, name, tensors[i].rows, tensors[i].columns);
	}
	for (size_t i = 0; i < sizeof(scales) / sizeof(*scales); i++) {
		snprintf(name, sizeof(name), "%sself_attn.attn.%s", prefix, scales[i]);
		if (add(d->p, name, MC_DTYPE_F32) == NULL)
			d->failed = true;
	}
}

static int number(
	const json_t *config, const char *key, uint64_t fallback, uint64_t *ret, struct mc_err *err)
{
	const json_t *v = json_object_get(config, key);

	*ret = fallback;
	if ((v == NULL || json_is_null(v)) && fallback > 0)
		return 0;
	if (mc_json_uint(v, UINT32_MAX, ret) == 0 && *ret > 0)
		return 0;
	return mc_err_set(err, -EINVAL, "config.json: %s is no whole number above 0", key);
}

static int read_config(struct dense *d, const json_t *config, struct mc_err *err)
{
	const char *type = json_string_value(json_object_get(config, "torch_dtype"));
	int r = number(config, "hidden_size", 0, &d->hidden, err);

	d->dtype = MC_DTYPE_BF16;
	if (type != NULL && strcmp(type, "float16") == 0)
		d->dtype = MC_DTYPE_F16;
	if (type != NULL && strcmp(type, "float32") == 0)
		d->dtype = MC_DTYPE_F32;
	d->tied = json_is_true(json_object_get(config, "tie_word_embeddings"));
	if (r == 0)
		r = number(config, "intermediate_size", 0, &d->inter, err);
	if (r == 0)
		r = number(config, "num_hidden_layers", 0, &d->layers, err);
	if (r == 0)
		r = number(config, "num_attention_heads", 0, &d->heads, err);
	if (r == 0)
		r = number(config, "num_key_value_heads", d->heads, &d->kv, err);
	if (r == 0)
		r = number(config, "head_dim", d->hidden / d->heads, &d->head, err);
	return r < 0 ? r : number(config, "vocab_size", 0, &d->vocab, err);
}

static void put_all(struct dense *d)
{
	uint64_t rows = (d->vocab + VOCAB_PAD - 1) / VOCAB_PAD * VOCAB_PAD / d->tp;

	for (uint64_t i = 0; i < d->layers && !d->failed; i++)
		put_layer(d, i);
	put(d, "model.norm.weight", d->hidden, 0);
	/* Of names that share their storage an engine keeps the smallest. */
	put(d, "lm_head.weight", rows, d->hidden);
	if (!d->tied)
		put(d, "model.embed_tokens.weight", rows, d->hidden);
}

int mc_profile_builtin(const char *name, const json_t *config, uint32_t tp, struct mc_profile **ret,
	struct mc_err *err)
{
	struct dense d = {.tp = tp,
		.qwen2 = strcmp(name, "vllm-qwen2") == 0,
		.qwen3 = strcmp(name, "vllm-qwen3") == 0};
	int r;

	if (!d.qwen2 && !d.qwen3 && strcmp(name, "vllm-llama") != 0)
		return mc_err_set(err, -ENOENT, "no profile \"%.64s\"", name);
	r = read_config(&d, config, err);
	if (r < 0)
		return r;
	d.p = calloc(1, sizeof(*d.p));
	if (d.p == NULL)
		return -ENOMEM;
	put_all(&d);
	if (d.failed) {
		mc_profile_free(d.p);
		return -ENOMEM;
	}
	qsort(d.p->v, d.p->n, sizeof(*d.p->v), entry_compare);
	*ret = d.p;
	return 0;
}

static int check_one(
	const struct entry *e, const struct mc_local *l, uint32_t number, struct mc_err *err)
{
	int c = e == NULL ? 1 : l == NULL ? -1 : strcmp(e->name, l->name);

	if (c < 0)
		return mc_err_set(err, -EINVAL,
			"rank %u: the profile has tensor %s, which the layout does not make",
			number, e->name);
	if (c > 0)
		return mc_err_set(err, -EINVAL,
			"rank %u: the layout makes tensor %s, which is not in the profile", number,
			l->name);
	if (e->dtype != l->dtype)
		return mc_err_set(err, -EINVAL, "rank %u, tensor %s: type %s, in the profile %s",
			number, l->name, mc_dtype_name(l->dtype), mc_dtype_name(e->dtype));
	if (e->rank != l->rank)
		return mc_err_set(err, -EINVAL,
			"rank %u, tensor %s: %u dimensions, in the profile %u", number, l->name,
			l->rank, e->rank);
	for (unsigned d = 0; d < e->rank; d++)
		if (e->shape[d] != l->shape[d])
			return mc_err_set(err, -EINVAL,
				"rank %u, tensor %s: dimension %u is %llu, in the profile %llu",
				number, l->name, d, (unsigned long long)l->shape[d],
				(unsigned long long)e->shape[d]);
	return 0;
}

int mc_profile_check(const struct mc_profile *p, const struct mc_rank_tensors *rank,
	uint32_t number, struct mc_err *err)
{
	int r = 0;

	for (size_t i = 0; (i < p->n || i < rank->n) && r == 0; i++)
		r = check_one(i < p->n ? &p->v[i] : NULL, i < rank->n ? &rank->local[i] : NULL,
			number, err);
	return r;
}
