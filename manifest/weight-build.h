/* Private to the reader of Mooncake's manifests. */
#pragma once

#include "manifest/weight-canon.h"
#include "manifest/weight-manifest.h"

struct weight_tensor {
	struct mc_weight_tensor t;
	uint64_t bytes; /* of the whole tensor */
};

struct mc_weight_manifest {
	enum mc_weight_kind kind;
	json_t *root; /* owned; arrays in canonical order; all strings live in it */
	uint64_t generation;
	struct weight_tensor *tensor; /* sorted by id, owned */
	uint32_t n_tensors;
	struct mc_weight_fragment
		*fragment; /* stored: in the document's order; placement: part by part; owned */
	uint32_t n_fragments, cap_fragments;
	const char **participant; /* owned array, borrowed strings */
	uint32_t n_participants;
	const char *placement_id, *topology_id; /* borrowed */
	struct mc_err *err;                     /* during parse */
};

int mc_weight_bad(struct mc_weight_manifest *m, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Exactly these keys (NULL-terminated), and optional ones after a second NULL. */
int mc_weight_fields(
	struct mc_weight_manifest *m, const json_t *o, const char *const *keys, const char *what);
int mc_weight_uint(struct mc_weight_manifest *m, const json_t *o, const char *key, uint64_t min,
	uint64_t *ret);
int mc_weight_string(
	struct mc_weight_manifest *m, const json_t *o, const char *key, const char **ret);
int mc_weight_tensors_parse(struct mc_weight_manifest *m);
/* The fields a fragment has in both kinds. f->participant is set by the caller. */
int mc_weight_fragment_parse(struct mc_weight_manifest *m, json_t *o, struct mc_weight_fragment *f);
int mc_weight_fragment_add(struct mc_weight_manifest *m, const struct mc_weight_fragment *f);
/* Sorts an array of objects by a string field; a value that comes twice is an error. */
int mc_weight_sort(struct mc_weight_manifest *m, json_t *array, const char *key, const char *what);
/* All fragments together are all of every tensor; stored ones do not overlap. */
int mc_weight_check_cover(struct mc_weight_manifest *m);
int mc_weight_placement_parse(struct mc_weight_manifest *m);
