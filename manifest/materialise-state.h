/* Private to materialise-plan.c (what is to be done), materialise.c (doing it),
 * materialise-publish.c (the new manifest) and materialise-table.c (its tensors). */
#pragma once

#include "manifest/import-journal.h"
#include "manifest/manifest-write.h"
#include "manifest/materialise.h"
#include "manifest/view-build.h"

struct mc_mat_chunk {
	uint64_t off; /* bytes in the file */
	uint32_t len; /* bytes */
	uint32_t file;
	uint64_t order;                /* source entry << 40 | MiB in it: work goes in this order */
	uint32_t crc[MC_CHUNK_BLOCKS]; /* of its part of each block it touches */
	uint8_t sha256[MC_SHA256_SIZE];
};

struct mc_mat_file {
	char *path;            /* owned */
	struct mc_view *view;  /* borrowed */
	uint32_t rank;         /* of the mesh; beside the weights: any */
	uint32_t entry;        /* of the view's tree */
	const uint8_t *digest; /* what the file is, for the journal; borrowed from the tree */
	struct mc_source *src; /* synthesised: where from, owned reference; else NULL */
	struct mc_file *file;  /* beside the weights: of the store, owned reference; else NULL */
	uint64_t size;         /* bytes */
	size_t first_chunk, n_chunks;
};

struct mc_mat {
	const struct mc_materialise_in *in; /* borrowed */
	struct mc_view **view;              /* owned references */
	uint32_t n_views;
	struct mc_mat_file *file; /* owned */
	uint32_t n_files, cap_files;
	struct mc_mat_chunk *chunk; /* by file, then offset; owned */
	size_t n_chunks, cap_chunks;
	uint32_t *queue;                   /* chunk numbers in the order of work; owned */
	void **buffers;                    /* one of MC_CHUNK_MAX for each job; owned */
	struct mc_import_journal *journal; /* owned */
	_Atomic uint64_t done_bytes, done_items, new_chunks, written_bytes, resumed_bytes;
	uint64_t total_bytes;
};

/* Opens the views and cuts their files into chunks, in the order of work. */
int mc_mat_plan(struct mc_mat *m, struct mc_err *err);
/* The tensors of the new files, as boxes of the source's tensors; *ret_unlisted: of how many
 * the files have pieces, but the table not all of them. */
int mc_mat_tensors(
	struct mc_mat *m, struct mc_writer *w, uint32_t *ret_unlisted, struct mc_err *err);

/* Makes the manifest of what was done and publishes it. */
int mc_mat_publish(struct mc_mat *m, struct mc_materialise_result *ret, struct mc_err *err);
