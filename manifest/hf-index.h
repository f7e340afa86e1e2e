/* model.safetensors.index.json: which file holds which tensor. The index is authoritative. */
#pragma once

#include "tier/error.h"

#include <stddef.h>

#define MC_HF_INDEX_MAX_BYTES (256u << 20)

struct mc_hf_index; /* immutable once parsed */

/* -EBADMSG with the offender in err (a file name that is absolute or climbs, a value that is no
 * string), -ENOMEM. File names are relative to the index's directory. */
int mc_hf_index_parse(const void *text, size_t len, struct mc_hf_index **ret, struct mc_err *err);
void mc_hf_index_close(struct mc_hf_index *x); /* NULL allowed */

/* The distinct files, in byte order. Borrowed until close, as all strings here. */
size_t mc_hf_index_files(const struct mc_hf_index *x);
const char *mc_hf_index_file(const struct mc_hf_index *x, size_t i);
/* The tensors, in byte order of their names. */
size_t mc_hf_index_tensors(const struct mc_hf_index *x);
const char *mc_hf_index_tensor(const struct mc_hf_index *x, size_t i, const char **ret_file);
/* The file of a tensor, or NULL. */
const char *mc_hf_index_file_of(const struct mc_hf_index *x, const char *tensor);
