/* Writing a revision back as plain files. */
#pragma once

#include "manifest/manifest.h"
#include "manifest/progress.h"

struct mc_remote;

struct mc_export_opts {
	unsigned jobs;            /* ranges in work at once, > 0 */
	mc_progress_fn *progress; /* may be NULL */
	void *ctx;
};

struct mc_export_result {
	uint64_t files;
	uint64_t bytes;      /* sizes of all files */
	uint64_t data_bytes; /* read from the remote, verified, written */
};

/*
 * Makes dest (which does not exist, or is an empty directory; its parent exists) hold what the
 * manifest holds: bytes, modes, times, links; holes stay holes. Each file is written under a
 * temporary name, every block compared with its checksum, and renamed when whole. Data and names
 * are durable when it returns 0. -ENOTEMPTY when dest holds something, -EBADMSG when the remote
 * gave wrong bytes; after a failure dest holds whole files only, but not all.
 */
int mc_export(struct mc_remote *r, struct mc_manifest *m, const char *dest,
	const struct mc_export_opts *opts, struct mc_export_result *ret, struct mc_err *err);
