/*
 * Materialising a view: a checkpoint under a layout, written down as a new revision. All ranks are
 * made together, in the order of the source's bytes, so that what the store has fetched serves
 * every rank before it is evicted: each source byte is read once.
 *
 * The new tensor table says where the source's tensors now lie, box by box, also in what is fused,
 * stacked, padded or renamed: the result can be a source again. Only a piece that lies scattered
 * (fused or padded inside its rows) is not entered.
 *
 * It may be killed at any point: nothing half is visible, and the next run neither reads nor writes
 * again what was done, but for the chunks in work.
 */
#pragma once

#include "manifest/catalogue.h"
#include "manifest/progress.h"
#include "manifest/view.h"

struct mc_materialise_in {
	struct mc_view_layout *layout;  /* borrowed */
	struct mc_store *store;         /* of where the source lies; borrowed */
	struct mc_remote *remote;       /* where the new revision will be; borrowed */
	struct mc_catalogue *catalogue; /* of remote; borrowed */
	struct mc_rev_name name;        /* rev "" = the first digits of the manifest's id */
	unsigned jobs;                  /* chunks in work at once, > 0 */
	/* Texts to be put beside the weights (mc_view_of_text); borrowed. */
	struct mc_view *const *beside;
	unsigned n_beside;
	mc_progress_fn *progress; /* may be NULL */
	void *ctx;
};

struct mc_materialise_result {
	struct mc_rev_name name;
	uint8_t id[MC_SHA256_SIZE]; /* of the manifest */
	uint64_t files, bytes;      /* of the new revision */
	uint64_t chunks, new_chunks;
	uint64_t written_bytes; /* sizes of new_chunks */
	uint64_t resumed_bytes; /* sizes of chunks that an earlier run made */
	uint32_t unlisted;      /* tensors that are in the new files, but not in the tensor table */
};

/* 0 when the revision is READY. -EEXIST: it exists with other content; else as the store and the
 * remote have it, with a text, and nothing visible. */
int mc_materialise(
	const struct mc_materialise_in *in, struct mc_materialise_result *ret, struct mc_err *err);
