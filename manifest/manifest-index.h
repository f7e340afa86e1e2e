/*
 * The index: a manifest as one flat buffer (manifest/ only; the public door is manifest.h). Layout
 * in docs/FORMAT.md. Native byte order: an index never leaves its machine.
 */
#pragma once

#include "manifest/buffer.h"
#include "manifest/manifest.h"

#include <stdatomic.h>

enum mc_index_section {
	MC_INDEX_ENTRIES, /* struct mc_index_entry, children of a directory consecutive */
	MC_INDEX_SPANS,   /* struct mc_index_span, a file's consecutive */
	MC_INDEX_HOLES,   /* struct mc_index_hole, a file's consecutive */
	MC_INDEX_CRCS,    /* uint32_t, a file's consecutive */
	MC_INDEX_CHUNKS,  /* struct mc_index_chunk */
	MC_INDEX_EXTS,    /* struct mc_index_ext */
	MC_INDEX_DIGESTS, /* 32 bytes each: plain SHA-256 of files that have one */
	MC_INDEX_TENSORS, /* struct mc_index_tensor, sorted by name */
	MC_INDEX_NUMBERS, /* uint64_t: shapes and boxes */
	MC_INDEX_STRINGS, /* NUL-terminated; offset 0 is "" */
	MC_INDEX_SECTIONS,
};

#define MC_INDEX_NONE UINT32_MAX

struct mc_index_entry {
	uint64_t size;
	uint64_t hole_bytes;
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint32_t mode;
	uint32_t type;   /* enum mc_entry_type */
	uint32_t parent; /* entry */
	uint32_t name;   /* string */
	uint32_t target; /* SYMLINK: string */
	uint32_t first;  /* DIR: first child entry; FILE: first span */
	uint32_t count;  /* DIR: children; FILE: spans */
	uint32_t first_hole;
	uint32_t n_holes;
	uint32_t first_crc;
	uint32_t ext;         /* FILE: number of the external file that holds the bytes, or NONE */
	uint32_t sha256;      /* FILE: number in DIGESTS, or NONE */
	uint32_t parse_error; /* FILE: string */
	uint8_t digest[MC_SHA256_SIZE];
};

/* Ends where the next span of the file starts, the last one at the file's size. */
struct mc_index_span {
	uint64_t off;   /* byte in the file */
	uint32_t chunk; /* or NONE: a hole */
	uint32_t pad;
};

struct mc_index_hole {
	uint64_t off, len; /* bytes */
};

struct mc_index_chunk {
	uint8_t sha256[MC_SHA256_SIZE];
	uint32_t len;    /* bytes */
	uint32_t stored; /* 1 = an object under chunks/; 0 = part of an external file */
};

struct mc_index_ext {
	uint64_t off;  /* of the file's byte 0 in the external file */
	uint64_t size; /* guard: size of the external file, bytes */
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint32_t path; /* string */
};

struct mc_index_tensor {
	uint64_t off, len; /* bytes */
	uint32_t name;     /* string */
	uint32_t entry;
	uint32_t shape; /* number: first of rank */
	uint32_t box;   /* number: first of 2 * rank (offsets, global), or NONE */
	uint8_t dtype, rank;
	uint8_t pad[6];
};

struct mc_index_header {
	char magic[8];
	uint32_t version;
	uint32_t byte_order; /* 0x01020304 */
	uint64_t total;      /* bytes of the whole index */
	uint8_t id[MC_SHA256_SIZE];
	uint32_t config_path, architecture, quantisation; /* strings */
	uint32_t pad;
	struct {
		uint64_t off, len; /* bytes */
	} section[MC_INDEX_SECTIONS];
	uint32_t reserved;
	uint32_t crc; /* CRC32C of all bytes but these four */
};

struct mc_manifest {
	atomic_uint refs;
	bool mapped;         /* base came from mmap, else from malloc */
	const uint8_t *base; /* owned */
	size_t len;
	const struct mc_index_header *head; /* into base, as are all below */
	const struct mc_index_entry *entries;
	const struct mc_index_span *spans;
	const struct mc_index_hole *holes;
	const uint32_t *crcs;
	const struct mc_index_chunk *chunks;
	const struct mc_index_ext *exts;
	const uint8_t *digests;
	const struct mc_index_tensor *tensors;
	const uint64_t *numbers;
	const char *strings;
	uint32_t n_entries, n_chunks, n_tensors;
};

/* Collects the sections; all zero is empty except that mc_index_builder_init puts string 0. */
struct mc_index_builder {
	struct mc_buffer section[MC_INDEX_SECTIONS];
	uint32_t config_path, architecture, quantisation;
};

int mc_index_builder_init(struct mc_index_builder *b);
void mc_index_builder_done(struct mc_index_builder *b);
/* Appends one record of size bytes to a section; its number within the section in *ret (may be
 * NULL). 0, -ENOMEM, or -EOVERFLOW past 2^32 - 1 records. */
int mc_index_add(struct mc_index_builder *b, enum mc_index_section s, const void *record,
	size_t size, uint32_t *ret);
/* Appends a string; "" is always 0. */
int mc_index_add_string(struct mc_index_builder *b, const char *text, uint32_t *ret);
/* Joins the sections into a manifest and empties them. 0 or -ENOMEM. */
int mc_index_finish(
	struct mc_index_builder *b, const uint8_t id[MC_SHA256_SIZE], struct mc_manifest **ret);

/* A manifest over an index in memory; takes base over on success. -EBADMSG when its header, sizes
 * or checksum are wrong, or it is another manifest's (id may be NULL). */
int mc_index_open(
	const uint8_t *base, size_t len, bool mapped, const uint8_t *id, struct mc_manifest **ret);

/* Where a file's span (number within the index) ends, bytes. */
static inline uint64_t mc_index_span_end(
	const struct mc_manifest *m, const struct mc_index_entry *e, uint32_t span)
{
	return span + 1 < e->first + e->count ? m->spans[span + 1].off : e->size;
}
