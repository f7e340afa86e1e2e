/*
 * Cutting a file into chunks for the remote: anchored at the starts of large tensors, so that a
 * tensor that did not change gives the same chunks wherever it lies, and around the file system's
 * holes.
 */
#pragma once

#include "manifest/manifest.h"
#include "manifest/safetensors.h"

#define MC_ANCHOR_MIN (UINT64_C(1) << 20) /* bytes: a tensor this large starts a chunk */
#define MC_HOLE_ALIGN 4096 /* bytes: holes start and end on pages (or at the file's end) */
#define MC_HOLE_MIN (UINT64_C(64) << 10) /* bytes: a smaller hole is stored as zeros */

/* A range of data as the file system reports it (SEEK_DATA … SEEK_HOLE). */
struct mc_extent {
	uint64_t off, len; /* bytes */
};

/* Spans cover the file exactly, in order; adjacent holes are one. */
struct mc_chunk_span {
	uint64_t off, len; /* bytes; a chunk is 1 .. MC_CHUNK_MAX */
	bool hole;
};

struct mc_chunk_plan {
	struct mc_chunk_span *spans; /* owned */
	size_t n, cap;
	size_t n_chunks;
};

/*
 * anchors: ascending offsets inside the file at which a chunk must start (NULL, 0 for an opaque
 * file). data: ascending and disjoint; the file is hole between them (whole file data: one extent).
 * 0, -EINVAL (order broken or outside the file), -ENOMEM.
 */
struct mc_chunk_input {
	uint64_t size; /* bytes */
	const uint64_t *anchors;
	size_t n_anchors;
	const struct mc_extent *data;
	size_t n_data;
};
int mc_chunk_plan(const struct mc_chunk_input *in, struct mc_chunk_plan *ret);
void mc_chunk_plan_done(struct mc_chunk_plan *p);

/* The starts of the tensors of at least MC_ANCHOR_MIN bytes; *ret is the caller's to free. */
int mc_chunk_anchors(const struct mc_safetensors *st, uint64_t **ret, size_t *ret_n);
