/*
 * A checkpoint manifest (native format v1, docs/FORMAT.md): files → extents → chunks, block CRCs,
 * tensor table. Immutable. Its id is the SHA-256 of the JSON's exact bytes.
 *
 * In memory and on the local disk it is one flat buffer, the index (manifest-index.c): parsing the
 * JSON makes it, saving writes it as it is, loading maps it. Entry 0 is the root directory; the
 * children of a directory are consecutive and sorted by name bytes. Everything is thread-safe to
 * read.
 */
#pragma once

#include "tier/error.h"
#include "tier/source.h"

struct mc_manifest; /* reference-counted */

#define MC_MANIFEST_MAX_BYTES (UINT64_C(1) << 30)

/* Parses untrusted JSON: every rule of docs/FORMAT.md, the offender named in err. -EBADMSG,
 * -ENOMEM. */
int mc_manifest_parse(const void *json, size_t len, struct mc_manifest **ret, struct mc_err *err);
/* The index of manifest id (NULL = whichever) from path: -ENOENT, -EBADMSG (other id or format, or
 * damaged: parse the JSON anew). */
int mc_manifest_load_index(
	const char *path, const uint8_t id[MC_SHA256_SIZE], struct mc_manifest **ret);
/* Writes the index to path by tmp + fsync + rename. */
int mc_manifest_save_index(const struct mc_manifest *m, const char *path, struct mc_err *err);
struct mc_manifest *mc_manifest_ref(struct mc_manifest *m);
void mc_manifest_unref(struct mc_manifest *m);              /* NULL allowed */
const uint8_t *mc_manifest_id(const struct mc_manifest *m); /* MC_SHA256_SIZE bytes, borrowed */

enum mc_entry_type { MC_ENTRY_DIR, MC_ENTRY_FILE, MC_ENTRY_SYMLINK };

struct mc_entry {
	enum mc_entry_type type;
	uint32_t mode; /* permission bits */
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint64_t size;         /* FILE: bytes; SYMLINK: length of target */
	uint64_t hole_bytes;   /* FILE: bytes of size in holes */
	const char *name;      /* last component, NUL-terminated, borrowed from the manifest */
	const char *target;    /* SYMLINK, borrowed */
	const uint8_t *digest; /* FILE, MC_SHA256_SIZE bytes, borrowed */
	const uint8_t
		*sha256; /* FILE: plain SHA-256 of its bytes where recorded, else NULL; borrowed */
	const char
		*parse_error; /* FILE: why it is opaque though its name promises tensors, or "" */
	bool external;        /* FILE: its bytes lie in an existing file on the remote */
	const char *ext_path; /* FILE: that file's path on the remote, or NULL; borrowed */
	uint32_t parent;      /* entry number */
	uint32_t first_child, n_children; /* DIR */
};

/* The identity of a FILE's bytes, which has a digest; size 0: no store knows it. */
static inline void mc_entry_file_id(const struct mc_entry *e, struct mc_file_id *ret)
{
	*ret = (struct mc_file_id){.size = e->digest != NULL ? e->size : 0};
	if (e->digest != NULL)
		__builtin_memcpy(ret->digest, e->digest, MC_SHA256_SIZE);
}

uint32_t mc_manifest_entries(const struct mc_manifest *m);
void mc_manifest_entry(const struct mc_manifest *m, uint32_t entry, struct mc_entry *ret);
/* Child by name (binary search); -ENOENT, -ENOTDIR. */
int mc_manifest_lookup(const struct mc_manifest *m, uint32_t dir, const char *name, size_t name_len,
	uint32_t *ret_entry);
/* Entry by path relative to the root ("" = root); links are not followed. */
int mc_manifest_walk(const struct mc_manifest *m, const char *path, uint32_t *ret_entry);
/* The path of an entry; out holds size bytes. -ENAMETOOLONG. */
int mc_manifest_path(const struct mc_manifest *m, uint32_t entry, char *out, size_t size);

/* Where a FILE's bytes come from: a source for the store; the caller's reference. size > 0. */
int mc_manifest_source(struct mc_manifest *m, uint32_t entry, struct mc_source **ret);

/* Chunks in the order of the files that use them; the same content may stand there more than once.
 */
#define MC_CHUNK_MAX (UINT32_C(8) << 20) /* bytes */
struct mc_chunk {
	const uint8_t *sha256; /* borrowed */
	uint32_t len;          /* bytes, 1 .. MC_CHUNK_MAX */
	bool stored; /* an object under chunks/; false = it lies inside an external file */
};
uint32_t mc_manifest_chunks(const struct mc_manifest *m);
void mc_manifest_chunk(const struct mc_manifest *m, uint32_t chunk, struct mc_chunk *ret);
/* The remote path of a stored chunk: chunks/<2 hex>/<64 hex>. */
#define MC_CHUNK_PATH (7 + 3 + MC_SHA256_HEX + 1) /* bytes, NUL included */
void mc_chunk_path(const uint8_t sha256[MC_SHA256_SIZE], char out[MC_CHUNK_PATH]);

/* The parts of a FILE in order: chunks and holes; adjacent holes are one. */
struct mc_span {
	uint64_t off, len; /* bytes in the file */
	bool hole;
	uint32_t chunk; /* unless hole */
};
uint32_t mc_manifest_spans(const struct mc_manifest *m, uint32_t entry);
void mc_manifest_span(
	const struct mc_manifest *m, uint32_t entry, uint32_t span, struct mc_span *ret);

#define MC_MAX_RANK 8
struct mc_tensor {
	const char *name;              /* borrowed */
	uint8_t dtype;                 /* enum mc_dtype, dtype.h */
	uint8_t rank;                  /* dimensions, ≤ MC_MAX_RANK */
	uint64_t shape[MC_MAX_RANK];   /* elements, of what is stored here */
	uint32_t entry;                /* the file */
	uint64_t off, len;             /* bytes, absolute in the file */
	bool boxed;                    /* a part of a larger tensor: */
	uint64_t box_off[MC_MAX_RANK]; /* elements, where shape lies in global */
	uint64_t global[MC_MAX_RANK];  /* elements */
};
uint32_t mc_manifest_tensors(const struct mc_manifest *m);
void mc_manifest_tensor(const struct mc_manifest *m, uint32_t tensor, struct mc_tensor *ret);
/* The first tensor of that name (tensors are sorted by name bytes; parts of one tensor follow each
 * other); -ENOENT. */
int mc_manifest_tensor_find(const struct mc_manifest *m, const char *name, uint32_t *ret_tensor);

/* Facts about the model, "" where unknown. Borrowed. */
struct mc_model {
	const char *config_path;  /* config.json's path in the checkpoint */
	const char *architecture; /* architectures[0] */
	const char *quantisation; /* quantization_config.quant_method */
};
void mc_manifest_model(const struct mc_manifest *m, struct mc_model *ret);
