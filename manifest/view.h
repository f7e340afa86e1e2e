/*
 * Views: a checkpoint under a layout, as files. Which files there are, their sizes and their
 * safetensors headers follow from the manifest, config.json and the layout alone; the data is a
 * plan over the checkpoint's own files, made for the range that is asked.
 *
 * A file's identity is SHA-256 (synthesiser version, manifest id, canonical layout digest, path):
 * the same on every node. What stands beside the weights (config, tokenizer) keeps the identity it
 * has in the checkpoint. Everything here is thread-safe, and immutable once open.
 */
#pragma once

#include "manifest/layout.h"
#include "manifest/manifest.h"
#include "tier/store.h"

/* Part of every identity: a change of what is synthesised must raise it. */
#define MC_VIEW_VERSION 1
/* Headers beyond this are split over several files: other readers stop at 25 MB. */
#define MC_VIEW_MAX_HEADER UINT64_C(20000000)
#define MC_VIEW_RANK_NAME 32 /* bytes of "rank-00000", NUL included */

struct mc_profile;
struct mc_view_layout; /* a checkpoint under a layout; reference-counted */

struct mc_view_in {
	struct mc_manifest *manifest; /* a reference is taken */
	const char *config;           /* config.json, config_len bytes; NULL = none */
	size_t config_len;
	struct mc_layout *layout; /* taken over, in every case */
	/* What the document's profile names, if it is not built in; NULL = not known. */
	const struct mc_profile *profile;
	uint64_t max_header; /* bytes, 0 = MC_VIEW_MAX_HEADER */
};
/* Compiles the layout. -EINVAL: it does not fit the checkpoint, with a text; -ENOMEM. */
int mc_view_layout_open(
	const struct mc_view_in *in, struct mc_view_layout **ret, struct mc_err *err);
struct mc_view_layout *mc_view_layout_ref(struct mc_view_layout *l);
void mc_view_layout_unref(struct mc_view_layout *l);                  /* NULL allowed */
const uint8_t *mc_view_layout_digest(const struct mc_view_layout *l); /* canonical; borrowed */
struct mc_manifest *mc_view_layout_manifest(const struct mc_view_layout *l); /* borrowed */
/* Directories rank-00000 … below the layout's; 0: the style has all files in one directory. */
uint32_t mc_view_layout_ranks(const struct mc_view_layout *l);

/* Names of files that hold weights, in whatever format: a view shows its own instead. */
bool mc_view_is_weights(const char *name);

void mc_view_rank_name(uint32_t rank, char out[MC_VIEW_RANK_NAME]);
int mc_view_rank_parse(const char *name, uint32_t *ret); /* -ENOENT */

struct mc_view; /* the files of one directory; reference-counted */

/* rank: < mc_view_layout_ranks, or 0 when that is 0. -EINVAL with a text, -EFBIG, -ENOMEM. */
int mc_view_open(struct mc_view_layout *l, uint32_t rank, struct mc_view **ret, struct mc_err *err);
struct mc_view *mc_view_ref(struct mc_view *v);
void mc_view_unref(struct mc_view *v); /* NULL allowed */
/* The directory as a manifest of entries: names, sizes, modes, digests; no spans, no tensors, and
 * never a source of its own. Borrowed. */
struct mc_manifest *mc_view_tree(const struct mc_view *v);
struct mc_view_layout *mc_view_of(const struct mc_view *v); /* borrowed */
uint64_t mc_view_memory(const struct mc_view *v);           /* bytes it keeps */

/* A directory of one file (entry 1) with these bytes, which are copied; its identity is their
 * SHA-256. Its mc_view_of is NULL. -ENOMEM. */
int mc_view_of_text(const char *name, const void *text, size_t len,
	const struct mc_remote_attr *times, struct mc_view **ret);

/*
 * The source of a FILE entry of the tree with size > 0; the caller's reference. It holds references
 * of the checkpoint files it needs, got from store.
 */
int mc_view_source(
	struct mc_view *v, uint32_t entry, struct mc_store *store, struct mc_source **ret);
