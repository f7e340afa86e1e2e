/*
 * Garbage on a remote: chunks that no READY revision refers to, and files that interrupted work
 * left unpublished (docs/FORMAT.md, "Garbage collection").
 */
#pragma once

#include "manifest/progress.h"
#include "tier/error.h"

#include <stdbool.h>
#include <stdint.h>

struct mc_remote;

struct mc_gc_opts {
	uint64_t grace_s;         /* what is younger, by the server's clock, stays */
	unsigned jobs;            /* directories in work at once, > 0 */
	bool remove;              /* otherwise nothing is changed, only counted */
	mc_progress_fn *progress; /* may be NULL */
	/* A chunk that a revision needs and the remote does not have, or a strange file. From any
	 * thread, one at a time; may be NULL. */
	void (*note)(void *ctx, const char *text);
	void *ctx; /* of both */
};

struct mc_gc_result {
	uint64_t revisions;              /* READY */
	uint64_t referenced;             /* chunks that they or unfinished imports refer to */
	uint64_t missing;                /* of them: of a READY revision, and not on the remote */
	uint64_t chunks, bytes;          /* on the remote */
	uint64_t garbage, garbage_bytes; /* removed, or to be removed */
	uint64_t young, young_bytes;     /* not referred to, but younger than the grace period */
	uint64_t restored;               /* came into use again while they were being removed */
	uint64_t leftovers, leftover_bytes; /* unpublished files, likewise removed or to be */
	uint64_t strangers;                 /* files below chunks/ that are no chunks; left alone */
};

/*
 * Marks from all READY revisions and from this machine's unfinished imports, then looks at every
 * chunk. Safe beside imports on any node, beside another gc, and when killed anywhere: begun again
 * it goes on. Fails with nothing removed when a READY revision cannot be read (-EBADMSG, named in
 * err).
 */
int mc_gc(struct mc_remote *r, const struct mc_gc_opts *opts, struct mc_gc_result *ret,
	struct mc_err *err);
