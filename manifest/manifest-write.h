/*
 * Building a manifest: files, directories, links and tensors are added in any order, then written
 * as canonical JSON (docs/FORMAT.md): the same input gives the same bytes, hence the same id.
 *
 * One owner, not thread-safe. Everything given is copied. An add fails with -EINVAL and a text when
 * it breaks a rule of its own; rules between entries are checked by finish.
 */
#pragma once

#include "manifest/manifest.h"

struct mc_writer;

int mc_writer_open(struct mc_writer **ret);
void mc_writer_close(struct mc_writer *w); /* NULL allowed */

/* mode: permission bits, ≤ 07777. */
struct mc_new_meta {
	uint32_t mode;
	int64_t mtime_s;
	uint32_t mtime_ns;
};

/* A part of a file, in file order: a chunk, or a hole (adjacent holes are joined). */
struct mc_new_span {
	uint64_t len; /* bytes; a chunk 1 .. MC_CHUNK_MAX */
	bool hole;
	uint8_t sha256[MC_SHA256_SIZE]; /* unless hole */
};

struct mc_new_file {
	uint64_t size; /* bytes; the spans' sum */
	const struct mc_new_span *spans;
	size_t n_spans;
	const uint32_t *crc32c;  /* mc_block_count(size) */
	const uint8_t *sha256;   /* plain digest, or NULL */
	const char *parse_error; /* NULL or "" = none */
	/* The bytes lie in an existing file on the remote, at ext_off; NULL = in chunk objects. */
	const char *ext_path;
	uint64_t ext_off;
	struct mc_guard ext_guard; /* set */
};

struct mc_new_tensor {
	const char *name;
	const char *file; /* path of a file that is or will be added */
	uint8_t dtype;    /* enum mc_dtype */
	uint8_t rank;     /* ≤ MC_MAX_RANK */
	const uint64_t *shape;
	uint64_t off, len;                /* bytes, absolute in the file */
	const uint64_t *box_off, *global; /* rank each, or both NULL */
};

/* The root directory; without it mode 0755 and time 0. */
void mc_writer_root(struct mc_writer *w, const struct mc_new_meta *meta);
int mc_writer_dir(
	struct mc_writer *w, const char *path, const struct mc_new_meta *meta, struct mc_err *err);
int mc_writer_symlink(struct mc_writer *w, const char *path, const struct mc_new_meta *meta,
	const char *target, struct mc_err *err);
int mc_writer_file(struct mc_writer *w, const char *path, const struct mc_new_meta *meta,
	const struct mc_new_file *file, struct mc_err *err);
int mc_writer_tensor(struct mc_writer *w, const struct mc_new_tensor *t, struct mc_err *err);
/* Each may be NULL or "". */
int mc_writer_model(struct mc_writer *w, const struct mc_model *model);

/*
 * The canonical JSON in a new buffer (owned by the caller, free()), and its id. What was written
 * was parsed again with every rule: a result is a good manifest, *ret (may be NULL) is it. -EINVAL
 * with a text when entries contradict each other, -ENOMEM, -EFBIG above MC_MANIFEST_MAX_BYTES.
 */
int mc_writer_finish(struct mc_writer *w, char **ret_json, size_t *ret_len,
	struct mc_manifest **ret, struct mc_err *err);
