/* What the parts of an import share: import.c drives, -plan cuts, -copy reads and writes, -publish
 * ends. */
#pragma once

#include "manifest/import-journal.h"
#include "manifest/import.h"
#include "manifest/manifest-write.h"
#include "manifest/safetensors.h"
#include "manifest/scan.h"
#include "tier/lock.h"
#include "tier/remote.h"

#include <stdatomic.h>

/* A range of a file that becomes one chunk. After the copy sha256 and crc are set. */
struct mc_import_chunk {
	uint64_t off;  /* bytes in the file */
	uint32_t len;  /* bytes */
	uint32_t file; /* number in mc_import.files */
	uint32_t crc[MC_CHUNK_BLOCKS];
	uint8_t sha256[MC_SHA256_SIZE];
	bool first; /* no earlier chunk has this content: the one that is on the remote for all */
	enum {
		MC_CHUNK_NEW,
		MC_CHUNK_STORED,
		MC_CHUNK_FAILED
	} state; /* if first; under the lock */
};

struct mc_import_file {
	const struct mc_scan_entry *entry; /* borrowed from the scan */
	char *open_path;                   /* mc_scan_open_path, owned */
	char *ext_path;              /* reference: where it lies on the remote; owned, else NULL */
	char *parse_error;           /* owned, NULL = none */
	struct mc_safetensors *st;   /* its header while planning; owned, NULL = opaque */
	uint8_t key[MC_SHA256_SIZE]; /* in the journal */
	size_t first_chunk, n_chunks;
	bool hashed;
	uint8_t sha256[MC_SHA256_SIZE]; /* when hashed */
	/* While copying, under mc_import.lock. */
	int fd;      /* -1 = not open */
	size_t left; /* chunks not done: the last one closes fd */
};

struct mc_import {
	struct mc_remote *remote;          /* borrowed */
	const struct mc_import_opts *opts; /* borrowed */
	unsigned jobs;
	struct mc_scan scan;
	char *ref_root; /* reference: where this machine has the remote's root, NULL = it does not;
			   owned */
	struct mc_import_journal *journal; /* owned */
	struct mc_import_file *files;      /* the scan's FILEs in its order; owned */
	size_t n_files;
	struct mc_import_chunk *chunks; /* by file, then offset; owned */
	size_t n_chunks, cap_chunks;
	struct mc_writer *writer; /* owned; tensors are added while planning */

	struct mc_mutex lock;
	struct mc_cond stored;              /* some first chunk left MC_CHUNK_NEW */
	uint32_t *seen MC_GUARDED_BY(lock); /* open hash of contents: chunk number + 1; owned */
	size_t seen_mask;
	void **buffers; /* one of MC_CHUNK_MAX for each job; owned */

	const char *stage;
	_Atomic uint64_t done_bytes, done_items;
	uint64_t total_bytes, total_items;
	_Atomic uint64_t read_bytes, resumed_bytes, written_bytes, new_chunks;
	unsigned warnings;
};

static inline void mc_import_stage(
	struct mc_import *im, const char *stage, uint64_t bytes, uint64_t items)
{
	im->stage = stage;
	im->total_bytes = bytes;
	im->total_items = items;
	im->done_bytes = 0;
	im->done_items = 0;
}
/* A tick of struct mc_crew: reports progress. */
void mc_import_tick(void *im);
void mc_import_warn(struct mc_import *im, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* For a reference: the scan; then where each file lies on the remote. */
int mc_import_scan_reference(struct mc_import *im, struct mc_err *err);
int mc_import_ext_paths(struct mc_import *im, struct mc_err *err);

/* Scan → files, chunks, tensors. */
int mc_import_plan(struct mc_import *im, struct mc_err *err);
/* Headers and index → the tensor table. */
int mc_import_tensors(struct mc_import *im, struct mc_err *err);
/* config.json → facts about the model. */
int mc_import_model(struct mc_import *im, struct mc_err *err);
/* The FILE at path, links inside the source followed; NULL = none. */
struct mc_import_file *mc_import_find(struct mc_import *im, const char *path);
/* A whole small file into a new buffer (free()); -EFBIG above max bytes. */
int mc_import_slurp(struct mc_import *im, const struct mc_import_file *f, uint64_t max, char **ret,
	struct mc_err *err);

/* Reads, hashes and writes every chunk; then, when asked, the plain SHA-256 of each file. */
int mc_import_copy(struct mc_import *im, struct mc_err *err);
int mc_import_hash_files(struct mc_import *im, struct mc_err *err);

/* A file of the source, local or on the remote, to be read. */
struct mc_import_source {
	struct mc_import *im;
	const struct mc_import_file *f;
	int fd; /* -1 on the remote */
};
int mc_import_source_open(struct mc_import *im, const struct mc_import_file *f,
	struct mc_import_source *ret, struct mc_err *err);
void mc_import_source_close(struct mc_import_source *s);
/* The first and only reader of a range of it. */
int mc_import_read(const struct mc_import_source *s, uint64_t off, uint32_t len, void *buf,
	struct mc_err *err);

/* The source is still what was scanned. */
int mc_import_recheck_source(struct mc_import *im, struct mc_err *err);
/* Every chunk lies on the remote, whole. */
int mc_import_recheck_chunks(struct mc_import *im, struct mc_err *err);
/* Writes the manifest and makes it visible. */
int mc_import_publish(struct mc_import *im, struct mc_import_result *ret, struct mc_err *err);
