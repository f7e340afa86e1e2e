/* Checking that the remote still holds every byte of a revision, right. */
#pragma once

#include "manifest/manifest.h"
#include "manifest/progress.h"

struct mc_remote;

struct mc_verify_opts {
	uint32_t sample;          /* millionths of the chunks whose content is checked; 0 = all */
	uint64_t seed;            /* of the choice */
	unsigned jobs;            /* chunks in work at once, > 0 */
	mc_progress_fn *progress; /* may be NULL */
	/* One damaged or missing chunk: the text names file, range and chunk. From any thread, one
	 * at a time; may be NULL. */
	void (*damage)(void *ctx, const char *text);
	void *ctx; /* of both */
};

struct mc_verify_result {
	uint64_t chunks;  /* of different content, and ranges of referenced files */
	uint64_t checked; /* whose content was read */
	uint64_t bytes;   /* read */
	uint64_t damaged; /* missing, of another size, or with wrong bytes */
};

/* 0 when everything was looked at, ret says what was found; -errno when the remote did not answer.
 */
int mc_verify(struct mc_remote *r, struct mc_manifest *m, const struct mc_verify_opts *opts,
	struct mc_verify_result *ret, struct mc_err *err);
