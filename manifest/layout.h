/*
 * Layout documents (docs/LAYOUT.md): rules that say which part of every tensor each rank holds. A
 * document is parsed once, then compiled against a model (tensor table and config.json); the result
 * is every rank's tensors as pieces of source tensors. Fails closed: what no rule covers, what does
 * not divide, what is not used is an error that names tensor, dimension, rank and rule.
 */
#pragma once

#include "manifest/planner-side.h"
#include "tier/error.h"

#include <jansson.h>

#define MC_LAYOUT_MAX_BYTES ((size_t)4 << 20) /* of a document */
#define MC_LAYOUT_MAX_RULES 1024
#define MC_LAYOUT_MAX_PATTERNS                                                                     \
	4096 /* globs with their alternatives, and instructions of expressions */
#define MC_LAYOUT_MAX_CUTS (UINT64_C(1) << 26) /* kinds of tensors × ranks */
#define MC_LAYOUT_MAX_WORLD 65536              /* participants */

struct mc_layout;
/* Untrusted text. -EBADMSG: err names the place by JSON pointer; -E2BIG; -ENOMEM. */
int mc_layout_parse(const void *text, size_t len, struct mc_layout **ret, struct mc_err *err);
void mc_layout_free(struct mc_layout *l);              /* NULL allowed */
const char *mc_layout_name(const struct mc_layout *l); /* borrowed */
uint32_t mc_layout_world(const struct mc_layout *l);   /* participants */
/* SHA-256 of the document with sorted keys and without white space. -ENOMEM. */
int mc_layout_digest(const struct mc_layout *l, uint8_t ret_digest[32]);

enum mc_layout_style {
	MC_STYLE_HF,      /* per-rank slices under the source's names */
	MC_STYLE_SUBSET,  /* whole tensors, only those the rank needs */
	MC_STYLE_SHARDED, /* an engine's sharded_state: names, shapes, dtypes as in a profile */
};
enum mc_layout_style mc_layout_style(const struct mc_layout *l);
const char *mc_layout_profile(const struct mc_layout *l); /* "" = none; borrowed */

/* Coordinate of rank on an axis (derived ones too) and the axis's size. -ENOENT. */
int mc_layout_coordinate(const struct mc_layout *l, const char *axis, uint32_t rank,
	uint32_t *ret_at, uint32_t *ret_size);

/* A tensor of the source, whole. */
struct mc_layout_tensor {
	const char *name;            /* borrowed while the sharding lives */
	uint8_t dtype;               /* enum mc_dtype */
	uint8_t rank;                /* ≤ MC_BOX_RANK */
	uint64_t shape[MC_BOX_RANK]; /* elements */
};

struct mc_layout_in {
	const struct mc_layout *layout; /* borrowed while the sharding lives */
	const json_t *config;           /* config.json or NULL; borrowed during the call */
	const struct mc_layout_tensor
		*tensors; /* borrowed while the sharding lives; names unique */
	uint32_t n_tensors;
};

struct mc_sharding;
/* -EINVAL with a text; -EOVERFLOW, -E2BIG, -ENOMEM. Every rank is checked here. */
int mc_layout_compile(const struct mc_layout_in *in, struct mc_sharding **ret, struct mc_err *err);
void mc_sharding_free(struct mc_sharding *s); /* NULL allowed */

/* A box of a source tensor and where it lies in the rank's tensor. */
struct mc_local_piece {
	uint32_t tensor;          /* source */
	struct mc_box box;        /* elements, in the source tensor */
	uint64_t at[MC_BOX_RANK]; /* elements, in the rank's tensor */
	bool stacked;             /* the rank's tensor has one dimension more, in front: at[0] */
};

/* What no piece covers is zeros (padding), except in a constant. */
struct mc_local {
	const char *name; /* borrowed from the sharding */
	uint8_t dtype, rank;
	uint64_t shape[MC_BOX_RANK];
	uint32_t first, n; /* pieces, disjoint */
	bool constant;     /* every element is value */
	uint8_t value[8];  /* one element, little-endian */
};

struct mc_rank_tensors {
	struct mc_local *local; /* by name; owned */
	uint32_t n;
	struct mc_local_piece *piece; /* owned */
	uint32_t n_pieces;
};
int mc_sharding_rank(const struct mc_sharding *s, uint32_t rank, struct mc_rank_tensors *ret,
	struct mc_err *err);
void mc_rank_tensors_done(struct mc_rank_tensors *t);

/*
 * The sharding as one side of a plan: tensor numbers as in the source table, rank r is participant
 * base + r. Places count from the start of the rank's tensor; output is the how many-th output of
 * that source tensor the piece belongs to.
 */
int mc_sharding_side(
	const struct mc_sharding *s, uint32_t base, struct mc_side *ret, struct mc_err *err);
/* Which rule holds for a source tensor: "rule /rules/3 (glob)", "the default rule", "dropped". */
const char *mc_sharding_explain(
	const struct mc_sharding *s, uint32_t tensor, char *out, size_t size);
/* The rank's tensor behind a shard's tensor and output number, or NULL; borrowed. */
const char *mc_sharding_output_name(const struct mc_sharding *s, uint32_t tensor, uint32_t output);
/* Every source tensor whole at one participant. */
int mc_side_of_files(
	const struct mc_layout_tensor *t, uint32_t n, uint32_t participant, struct mc_side *ret);
