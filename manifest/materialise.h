/*
 * Materialising a view: a checkpoint under a layout, written down as a new revision. All ranks are
 * made together, in the order of the source's bytes, so that what the store has fetched serves
 * every rank before it is evicted: each source byte is read once.
 *
 * Whole tensors and cuts of one tensor are entered in the new tensor table as boxes, so that the
 * result can be a source again; what is fused, stacked or padded is not.
 *
 * It may be killed at any point: nothing half is visible, and what lies on the remote already is
 * not written again.
 */
#pragma once

#include "manifest/catalogue.h"
#include "manifest/progress.h"
#include "manifest/view.h"

struct mc_materialise_in {
	struct mc_view_layout *layout;  /* borrowed */
	struct mc_store *store;         /* of remote; borrowed */
	struct mc_remote *remote;       /* borrowed */
	struct mc_catalogue *catalogue; /* of remote; borrowed */
	struct mc_rev_name name;        /* rev "" = the first digits of the manifest's id */
	unsigned jobs;                  /* chunks in work at once, > 0 */
	mc_progress_fn *progress;       /* may be NULL */
	void *ctx;
};

struct mc_materialise_result {
	struct mc_rev_name name;
	uint8_t id[MC_SHA256_SIZE]; /* of the manifest */
	uint64_t files, bytes;      /* of the new revision */
	uint64_t chunks, new_chunks;
	uint64_t written_bytes; /* sizes of new_chunks */
};

/* 0 when the revision is READY. -EEXIST: it exists with other content; else as the store and the
 * remote have it, with a text, and nothing visible. */
int mc_materialise(
	const struct mc_materialise_in *in, struct mc_materialise_result *ret, struct mc_err *err);
