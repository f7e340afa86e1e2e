/*
 * What the parts of a verification or repair share (manifest/ only; the door is verify.h).
 *
 * Who does what: verify.c the run; -parts what there is to look at; -copies the copies of one
 * chunk; -revision the manifest and its id; -latest the pointer of the model.
 *
 * Invariants
 * 1. What is put back was hashed in this run, after its last change in memory.
 * 2. damage_lock is held while opts->damage runs and never across a call of a remote.
 */
#pragma once

#include "manifest/piece-read.h"
#include "manifest/verify.h"
#include "tier/lock.h"
#include "tier/remote-set.h"

#include <stdatomic.h>

#define VERIFY_TEXT 640 /* bytes of what is said about a copy */

struct verify_part {
	uint64_t off;   /* bytes in the file */
	uint32_t entry; /* the first file that holds it */
	uint32_t chunk;
};

struct verify {
	struct mc_remote *remote;
	struct mc_manifest *m;
	const struct mc_verify_opts *opts;
	struct verify_part *parts; /* owned */
	size_t n, cap;
	void **buffers; /* two for each job, MC_CHUNK_MAX, owned; the second only to repair */
	struct mc_mutex damage_lock; /* held during opts->damage, so that texts do not mix */
	_Atomic uint64_t done, done_bytes, copies, checked, damaged, repaired, repaired_bytes,
		fetched_bytes;
	uint64_t total_bytes; /* of what the sample holds, times its copies */
};

/* ---- verify-parts.c: each stored content once, in the order of the files. 0 or -ENOMEM. */
int verify_list_parts(struct verify *v);

/* ---- verify.c */
/* Whether this copy is to be looked at. */
bool verify_is_wanted(const struct verify *v, const struct mc_set_copy *copy);
/* Whether the content of the item is to be read. */
bool verify_in_sample(const struct verify *v, uint64_t item);
/* A copy's place for texts: "URL: " of several remotes, "" of one. */
void verify_where(const struct mc_set_copies *copies, unsigned i, char *out, size_t size);
/* Counts a damaged copy and tells of it. */
void verify_report(struct verify *v, bool repaired, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The error for a remote that has to be asked and is not there. */
int verify_away(const struct mc_set_copy *copy, struct mc_err *err);

/* ---- verify-copies.c: one item, an mc_crew_fn. */
int verify_item(void *ctx, unsigned worker, uint64_t item, struct mc_err *err);

/* ---- verify-revision.c: the manifest and its id */
struct verify_revision {
	const struct mc_rev_name *name; /* borrowed */
	uint8_t id[MC_SHA256_SIZE];
	void *json; /* owned: the bytes of the manifest */
	size_t len;
	struct mc_manifest *m; /* owned reference */
};
/* An id and the bytes that it promises, of any copies, also those of opts->from. Fills all of *ret
 * but its name; the caller calls done in every case. */
int verify_find_manifest(struct verify *v, struct verify_revision *ret, struct mc_err *err);
void verify_revision_done(struct verify_revision *rev);
/* Every copy of both must be the same; repairs those that are not, if it should. */
int verify_manifest(struct verify *v, const struct verify_revision *rev, struct mc_err *err);

/* ---- verify-latest.c: the same for the model's pointer to its latest revision */
int verify_latest(struct verify *v, const struct mc_rev_name *model, struct mc_err *err);
