/* Private to the views: view-layout.c compiles, view-open.c lays files out, view-region.c says
 * where their bytes come from, view-plan.c makes plans of that. */
#pragma once

#include "manifest/buffer.h"
#include "manifest/region.h"
#include "manifest/view.h"

#include <stdatomic.h>

/* A file of the checkpoint that stands unchanged beside the weights. */
struct mc_view_beside {
	const char *name; /* borrowed from the manifest */
	uint32_t entry;   /* in the manifest, a FILE */
};

struct mc_view_layout {
	atomic_uint refs;
	struct mc_manifest *manifest;    /* owned reference */
	struct mc_layout *layout;        /* owned */
	struct mc_layout_tensor *tensor; /* the checkpoint's, whole; owned */
	uint32_t n_tensors;
	uint32_t *first_part;         /* n_tensors + 1: parts of tensor t are the manifest's tensors
					 first_part[t] … first_part[t + 1]; owned */
	struct mc_sharding *sharding; /* owned */
	struct mc_view_beside *beside; /* by name, owned */
	uint32_t n_beside;
	uint8_t digest[MC_SHA256_SIZE]; /* of the layout */
	uint64_t max_header;            /* bytes */
	char *config;                   /* config.json, owned; NULL = none */
	size_t config_len;
};

/*
 * Bytes of a file that come from one region, from several whose runs interleave, or from a
 * constant. Between segments the file is zeros.
 */
struct mc_view_segment {
	uint64_t off, len; /* bytes in the file */
	uint32_t words;    /* where its regions, or the constant's value, stand in words */
	uint32_t n;        /* regions; 0 = a constant */
};

/*
 * What is synthesised. Segments are disjoint and sorted; so are the runs of each region. A region
 * is 4 + 3 × rank words: src, dst, inner, file << 8 | rank, counts, src strides, dst strides. A
 * constant is two: the value and its bytes.
 */
struct mc_view_file {
	char *header; /* the first header_len bytes, owned */
	uint64_t header_len, size;
	struct mc_view_segment *segment; /* owned */
	uint32_t n_segments;
	uint64_t *words; /* owned */
	size_t n_words;
	uint32_t *entry; /* files of the checkpoint that regions number; owned */
	uint32_t n_entries;
	uint8_t digest[MC_SHA256_SIZE];
};

struct mc_view {
	atomic_uint refs;
	struct mc_view_layout *of; /* owned reference */
	struct mc_manifest *tree;  /* owned reference */
	struct mc_view_file *file; /* owned */
	uint32_t n_files;
	/* By entry of the tree: a file's number, or n_files + the entry in the checkpoint; owned.
	 */
	uint32_t *where;
};

/* A tensor being laid out. */
struct mc_view_tensor {
	const struct mc_local *local; /* borrowed */
	uint64_t off, len;            /* bytes in the file */
};

/*
 * Where the bytes of tensors (in the order of off) come from; fills segment, words and entry of
 * file. -EINVAL with a text when the checkpoint lacks some of them.
 */
int mc_view_regions(const struct mc_view_layout *l, const struct mc_rank_tensors *rank,
	const struct mc_view_tensor *tensors, uint32_t n, struct mc_view_file *file,
	struct mc_err *err);
void mc_view_file_done(struct mc_view_file *f);

/* The first segment that ends after off; n_segments = none. */
uint32_t mc_view_segment_find(const struct mc_view_file *f, uint64_t off);
/* The region that starts at words; returns its words. */
unsigned mc_view_region_get(const uint64_t *words, struct mc_region *ret, uint32_t *ret_file);

/* An entry of the tree of a view. */
struct mc_view_child {
	const char *name;    /* borrowed during the call */
	uint32_t where;      /* as struct mc_view has it */
	uint32_t mode;       /* permission bits */
	uint64_t size;       /* bytes */
	uint64_t hole_bytes; /* of size */
	int64_t mtime_s;     /* seconds since the epoch */
	uint32_t mtime_ns;
	const uint8_t *digest; /* MC_SHA256_SIZE bytes, borrowed during the call */
};
/* Sorts the n children and fills tree and where; c[n] says the times of the directory. */
int mc_view_tree_make(
	struct mc_view *v, struct mc_view_child *c, uint32_t n, const uint8_t id[MC_SHA256_SIZE]);

/* Appends the pieces of [off, off + len); files by the numbers of f->entry, borrowed by the plan.
 */
int mc_view_file_plan(const struct mc_view_file *f, struct mc_file *const *files, uint64_t off,
	uint32_t len, struct mc_plan *plan);
/* As mc_source_ops.next_data. */
int mc_view_file_next_data(
	const struct mc_view_file *f, uint64_t off, uint64_t *ret_start, uint64_t *ret_end);
