/*
 * Mooncake's own descriptions of weights, accepted verbatim: the stored WeightManifest (which
 * object holds which box of which tensor) and the WeightPlacementManifest (which participant wants
 * which box). Digests and ids are those of Mooncake's canonical JSON: keys sorted, no white space,
 * non-ASCII kept in the stored manifest and escaped in the placement.
 */
#pragma once

#include "manifest/planner.h"

struct mc_weight_manifest;

enum mc_weight_kind { MC_WEIGHT_STORED, MC_WEIGHT_PLACEMENT };

#define MC_WEIGHT_DIGEST 65 /* characters of a digest with its NUL */
#define MC_WEIGHT_ID 72     /* of "sha256:" + digest with its NUL */

/*
 * Untrusted text of either kind; the kind shows in its fields. Checks exact fields, geometry, that
 * every tensor is covered (stored: exactly once), and in a placement that all ids are the canonical
 * ones. -EBADMSG with a text; -ENOMEM.
 */
int mc_weight_manifest_parse(
	const void *text, size_t len, struct mc_weight_manifest **ret, struct mc_err *err);
void mc_weight_manifest_free(struct mc_weight_manifest *m); /* NULL allowed */

enum mc_weight_kind mc_weight_manifest_kind(const struct mc_weight_manifest *m);
uint64_t mc_weight_manifest_generation(const struct mc_weight_manifest *m);
/* SHA-256 of the canonical JSON, in hex. -ENOMEM. */
int mc_weight_manifest_digest(const struct mc_weight_manifest *m, char out[MC_WEIGHT_DIGEST]);
/* "": not a placement. Borrowed. */
const char *mc_weight_manifest_placement_id(const struct mc_weight_manifest *m);
const char *mc_weight_manifest_topology_id(const struct mc_weight_manifest *m);

struct mc_weight_tensor {
	const char *id, *dtype; /* dtype: torch's name; borrowed */
	uint32_t itemsize;      /* bytes */
	uint8_t rank;
	uint64_t shape[MC_BOX_RANK];
};
uint32_t mc_weight_manifest_tensors(const struct mc_weight_manifest *m);
void mc_weight_manifest_tensor(
	const struct mc_weight_manifest *m, uint32_t i, struct mc_weight_tensor *ret);

struct mc_weight_fragment {
	const char *id; /* borrowed */
	uint32_t tensor;
	uint32_t participant; /* placement; stored: 0 */
	struct mc_box box;    /* elements */
	uint64_t bytes;
	const char *object_key; /* stored; else "" */
	uint64_t object_offset; /* bytes; stored */
};
uint32_t mc_weight_manifest_fragments(const struct mc_weight_manifest *m);
void mc_weight_manifest_fragment(
	const struct mc_weight_manifest *m, uint32_t i, struct mc_weight_fragment *ret);

uint32_t mc_weight_manifest_participants(const struct mc_weight_manifest *m); /* stored: 1 */
const char *mc_weight_manifest_participant(
	const struct mc_weight_manifest *m, uint32_t i); /* borrowed */

/*
 * One side of a plan. names: the tensor numbering of the plan (n, unique); as: the plan's numbers
 * of the participants; a shard's tag is its fragment number. A tensor that names does not have is
 * -ENOENT with a text.
 */
int mc_weight_manifest_side(const struct mc_weight_manifest *m, const char *const *names,
	uint32_t n, const uint32_t *as, struct mc_side *ret, struct mc_err *err);
