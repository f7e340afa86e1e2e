/* What a manifest writer holds between its adds and its finish (manifest/ only). */
#pragma once

#include "manifest/json-out.h"
#include "manifest/manifest-write.h"

struct mc_new_item {
	enum mc_entry_type type;
	struct mc_new_meta meta;
	char *path;        /* owned, as all pointers here */
	char *target;      /* SYMLINK */
	char *parse_error; /* FILE, or NULL */
	char *ext_path;    /* FILE, or NULL */
	uint64_t ext_off;
	struct mc_guard ext_guard;
	uint64_t size;
	struct mc_new_span *spans;
	size_t n_spans;
	uint32_t *crcs; /* mc_block_count(size) */
	bool has_sha256;
	uint8_t sha256[MC_SHA256_SIZE];
	uint8_t digest[MC_SHA256_SIZE];
};

struct mc_writer_tensor {
	char *name, *file; /* owned */
	uint8_t dtype, rank;
	bool boxed;
	uint64_t shape[MC_MAX_RANK];
	uint64_t box[2 * MC_MAX_RANK]; /* offsets, then global, rank each */
	uint64_t off, len;
	size_t file_no; /* set by finish */
};

struct mc_writer {
	struct mc_new_meta root;
	struct mc_new_item *items; /* owned */
	size_t n_items, cap_items;
	struct mc_writer_tensor *tensors; /* owned */
	size_t n_tensors, cap_tensors;
	char *config_path, *architecture, *quantisation; /* owned, or NULL */
};

/* The value of "tensors"; files resolved and tensors sorted before. */
void mc_writer_put_tensors(struct mc_json_out *o, const struct mc_writer *w);
