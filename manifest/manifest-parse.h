/* Parts of the manifest parser share this state (manifest/ only; the door is mc_manifest_parse). */
#pragma once

#include "manifest/json.h"
#include "manifest/manifest-index.h"

/* One element of "files" before the entries are put into directory order. */
struct mc_raw_entry {
	struct mc_index_entry e;
	const char *path; /* borrowed from the JSON */
	uint32_t parent;  /* element of "files", or NONE: the root */
};

struct mc_parse {
	struct mc_index_builder b; /* owned */
	struct mc_raw_entry *raw;  /* owned, n_raw, in path order */
	uint32_t n_raw;
	uint32_t *entry_of;      /* owned: element of "files" → entry */
	uint32_t next_chunk;     /* first chunk no file has used yet */
	uint32_t zero_crc;       /* CRC32C of a block of zeros */
	struct mc_err *err;      /* borrowed, may be NULL */
	const char *kind, *name; /* what is looked at now, for messages; name may be NULL */
};

/* Describes a broken rule, with kind and name before it; -EBADMSG. */
int mc_parse_bad(const struct mc_parse *p, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* obj[key] as a whole number ≤ max. */
int mc_parse_uint(
	const struct mc_parse *p, const json_t *obj, const char *key, uint64_t max, uint64_t *ret);
/* obj[key] as a string, or def when def is not NULL and the key is absent. Borrowed. */
int mc_parse_string(const struct mc_parse *p, const json_t *obj, const char *key, const char *def,
	const char **ret);
/* obj["mtime"]: [seconds, nanoseconds]. */
int mc_parse_mtime(const struct mc_parse *p, const json_t *obj, int64_t *ret_s, uint32_t *ret_ns);
/* mode and mtime of a file, a directory or the root. */
int mc_parse_meta(const struct mc_parse *p, const json_t *obj, struct mc_index_entry *e);

/* manifest-parse-file.c: one element of "files" without its place in the tree. */
int mc_parse_entry(struct mc_parse *p, const json_t *obj, struct mc_raw_entry *raw);
/* manifest-parse-tree.c: path order, parents, and the entries in directory order. */
int mc_parse_tree(struct mc_parse *p, const struct mc_index_entry *root);
/* manifest-parse-tensor.c: the tensor table; obj may be NULL. */
int mc_parse_tensors(struct mc_parse *p, const json_t *obj);
