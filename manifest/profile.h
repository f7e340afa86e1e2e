/*
 * Profiles: what an engine's state dict looks like on one rank, so that a sharded-state view is
 * what that engine loads, or is refused. JSON: {"format": "engine-profile", "version": 1,
 * "engine": …, "engine_version": …, "tensors": {name: {"dtype": …, "shape": […]}}}; the same for
 * every rank.
 */
#pragma once

#include "manifest/layout.h"

#define MC_PROFILE_MAX_BYTES ((size_t)64 << 20)

struct mc_profile;

/* Untrusted text. -EBADMSG with a text; -ENOMEM. */
int mc_profile_parse(const void *text, size_t len, struct mc_profile **ret, struct mc_err *err);
/* vllm-llama, vllm-qwen2 and vllm-qwen3: dense models as vLLM 0.8 holds them before it
 * post-processes weights, made from config.json. -ENOENT: no such profile; -EINVAL: config.json
 * lacks something. */
int mc_profile_builtin(const char *name, const json_t *config, uint32_t tp, struct mc_profile **ret,
	struct mc_err *err);
void mc_profile_free(struct mc_profile *p); /* NULL allowed */
size_t mc_profile_count(const struct mc_profile *p);

/* The rank's tensors are exactly the profile's: names, types, shapes. -EINVAL names the first that
 * differs. */
int mc_profile_check(const struct mc_profile *p, const struct mc_rank_tensors *rank,
	uint32_t number, struct mc_err *err);
