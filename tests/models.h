/*
 * Tensor tables of real models for tests: the public names, shapes and types, and what config.json
 * says about them. Widths can be divided, so that a model of the same make fits a test.
 */
#pragma once

#include "manifest/layout.h"

struct model {
	const char *name;
	json_t *config;                  /* owned */
	struct mc_layout_tensor *tensor; /* n, in name order, owned */
	uint32_t n, cap;
	char *names; /* owned */
	size_t names_len, names_cap;
};

/*
 * name: llama-3-8b, llama-3-70b, qwen2-0.5b, qwen3-8b, qwen-moe, mixtral-8x7b, deepseek-v3,
 * deepseek-v3-mtp, kimi-k2, gpt-oss-20b. layers and experts: 0 = as published. scale divides widths
 * (not head counts, not the 128 × 128 blocks of fp8). Aborts on an unknown name or without memory.
 */
void model_open(
	struct model *m, const char *name, unsigned layers, unsigned experts, unsigned scale);
void model_close(struct model *m);
