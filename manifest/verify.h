/*
 * Checking that the remotes still hold every byte of a revision, right, in every copy that there
 * should be; and putting right bytes back where they do not.
 */
#pragma once

#include "manifest/catalogue.h"
#include "manifest/progress.h"

struct mc_verify_opts {
	uint32_t sample;          /* millionths of the chunks whose content is checked; 0 = all */
	uint64_t seed;            /* of the choice */
	unsigned jobs;            /* chunks in work at once, > 0 */
	const char *only;         /* name or URL of the only remote to look at; NULL = all */
	mc_progress_fn *progress; /* may be NULL */
	/* One damaged or missing copy: the text names file, range, chunk and remote. repaired:
	 * right bytes are there now. From any thread, one at a time; may be NULL. */
	void (*damage)(void *ctx, const char *text, bool repaired);
	void *ctx; /* of both */
	/* Repair: bad copies of chunks and manifests are overwritten with bytes of another copy;
	 * where none is good, with those of `from`, and at last of the files below `source`. */
	bool repair; /* sample and only are not given then */
	struct mc_remote *const *from;
	unsigned n_from;
	const char *source; /* directory of what was imported, or NULL */
};

struct mc_verify_result {
	uint64_t chunks;  /* of different content, and ranges of referenced files */
	uint64_t copies;  /* of them that there should be */
	uint64_t checked; /* copies whose content was read */
	uint64_t bytes;   /* of those */
	uint64_t damaged; /* copies missing, of another size, or with wrong bytes; manifests and
			     pointers, too */
	uint64_t repaired, repaired_bytes; /* of those: put back and read again */
	uint64_t fetched_bytes;            /* read from elsewhere because no copy was good */
};

/*
 * The chunks of m. 0 when everything was looked at, ret says what was found; -errno when a remote
 * did not answer; -EINVAL `only` is none of the remotes.
 */
int mc_verify(struct mc_remote *r, struct mc_manifest *m, const struct mc_verify_opts *opts,
	struct mc_verify_result *ret, struct mc_err *err);

/* The same for a revision with its manifest and the pointer to the latest; of the manifest one good
 * copy is needed: errors as those of mc_catalogue_load when there is none. */
int mc_verify_revision(struct mc_remote *r, const struct mc_rev_name *rev,
	const struct mc_verify_opts *opts, struct mc_verify_result *ret, struct mc_err *err);
