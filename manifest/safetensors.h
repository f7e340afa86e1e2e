/*
 * The safetensors container: u64 LE N, N bytes of JSON, tensor data. The parser is as strict as the
 * format's own library and names the tensor and the rule; the writer makes headers whose data
 * starts on a page, large tensors page-aligned.
 */
#pragma once

#include "manifest/manifest.h"

#define MC_SAFETENSORS_MAX_HEADER UINT64_C(100000000) /* bytes of JSON, the format's own limit */

struct mc_st_tensor {
	const char *name; /* borrowed from the header */
	uint8_t dtype;    /* enum mc_dtype */
	uint8_t rank;     /* ≤ MC_MAX_RANK */
	uint64_t shape[MC_MAX_RANK];
	uint64_t off, len; /* bytes; off counts from the start of the file */
};

struct mc_safetensors; /* immutable once parsed */

/*
 * From a file's first 8 bytes and its size: the bytes a caller must have read before
 * mc_safetensors_parse (8 + N). -EBADMSG when the length rules fail already. got: how many of the 8
 * the file had.
 */
int mc_safetensors_header_size(
	const void *first, size_t got, uint64_t file_size, uint64_t *ret, struct mc_err *err);
/*
 * Parses the header (len bytes from the file's start, at least 8 + N of them) of a file of
 * file_size bytes. -EBADMSG with tensor, rule, expected and actual in err; -ENOMEM. Tensors of more
 * than MC_MAX_RANK dimensions are refused, which the format itself allows.
 */
int mc_safetensors_parse(const void *header, size_t len, uint64_t file_size,
	struct mc_safetensors **ret, struct mc_err *err);
void mc_safetensors_close(struct mc_safetensors *st); /* NULL allowed */

size_t mc_safetensors_count(const struct mc_safetensors *st);
/* In the order of the data. Borrowed until close. */
const struct mc_st_tensor *mc_safetensors_tensor(const struct mc_safetensors *st, size_t i);
/* A value of __metadata__, or NULL. Borrowed until close. */
const char *mc_safetensors_metadata(const struct mc_safetensors *st, const char *key);
/* Bytes of 8 + N: where the data starts. */
uint64_t mc_safetensors_data_start(const struct mc_safetensors *st);

/* A tensor to be written; the caller fills the upper part, mc_safetensors_write the rest. */
struct mc_st_new {
	const char *name; /* UTF-8; borrowed */
	uint8_t dtype, rank;
	const uint64_t *shape; /* borrowed */
	uint64_t off, len;     /* bytes, absolute in the file */
};

struct mc_st_meta {
	const char *key, *value; /* UTF-8; borrowed */
};

#define MC_SAFETENSORS_ALIGN 4096 /* bytes: the data's start, and every tensor of whole pages */

/*
 * Lays the tensors out (those whose size is a multiple of 4096 first, otherwise in the order given)
 * and writes the header, padded with spaces. -EINVAL (duplicate name, bad dtype or shape,
 * described), -EFBIG, -ENOMEM.
 */
struct mc_st_header {
	char *bytes; /* owned by the caller, free() */
	size_t len;  /* bytes, a multiple of 4096 */
	uint64_t file_size;
};
int mc_safetensors_write(struct mc_st_new *tensors, size_t n, const struct mc_st_meta *meta,
	size_t n_meta, struct mc_st_header *ret, struct mc_err *err);
