/*
 * Importing a directory as a revision of a checkpoint: scan, plan chunks from the headers, read
 * once (hashing and checksumming from the same buffer), write the chunks that the remote lacks,
 * look whether the source changed meanwhile, look whether all chunks are there, publish the
 * manifest last.
 *
 * It may be killed at any point: nothing half is visible, and the next run reads again only the
 * chunks that were in work, at most one for each job.
 */
#pragma once

#include "manifest/catalogue.h"
#include "manifest/progress.h"
#include "tier/digest.h"
#include "tier/error.h"

#include <stdbool.h>

#define MC_IMPORT_REV_HEX 12

struct mc_import_opts {
	const char *src; /* a local directory; with reference on NFS also a path below the export */
	struct mc_rev_name
		name;     /* rev "" = the first MC_IMPORT_REV_HEX digits of the manifest's id */
	bool reference;   /* copy nothing, point at the files below the remote's root */
	bool strict;      /* a weight file that does not parse is an error */
	bool file_sha256; /* record the plain SHA-256 of each file too */
	unsigned jobs;    /* chunks in work at once; 0 = mc_import_default_jobs() */
	mc_progress_fn *progress;                     /* may be NULL */
	void (*warning)(void *ctx, const char *text); /* from the calling thread; may be NULL */
	void *ctx;                                    /* of both */
};

struct mc_import_result {
	struct mc_rev_name name;
	uint8_t id[MC_SHA256_SIZE]; /* of the manifest */
	bool existed;               /* the revision was there already, with this id */
	uint64_t files;
	uint64_t bytes; /* sizes of all files */
	uint64_t hole_bytes;
	uint64_t read_bytes;    /* read from the source in this run */
	uint64_t resumed_bytes; /* known from an interrupted run, not read again */
	uint64_t chunks;        /* in the manifest */
	uint64_t new_chunks;    /* written in this run */
	uint64_t written_bytes; /* sizes of new_chunks */
	unsigned warnings;
};

/* Four for each core, 8 to 64. */
unsigned mc_import_default_jobs(void);

/*
 * 0 and ret when the revision is readable; else -errno, a text that names the file, the tier and
 * the way out, and nothing visible. -ESTALE: the source changed; -EEXIST: the revision exists with
 * other content; -EBADMSG: a weight file is damaged; -ENOSPC: the remote is full.
 */
int mc_import(struct mc_remote *r, const struct mc_import_opts *opts, struct mc_import_result *ret,
	struct mc_err *err);
