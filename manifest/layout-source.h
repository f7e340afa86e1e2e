/*
 * A checkpoint as a layout and a plan see it: its tensors whole, by name, and which box of each
 * lies where. A checkpoint that is sharded already (boxes of one tensor in several places) is one
 * tensor with several shards.
 */
#pragma once

#include "manifest/layout.h"
#include "manifest/manifest.h"

struct mc_layout_source {
	struct mc_layout_tensor
		*tensor;   /* by name, whole; names borrowed from the manifest; owned */
	const char **name; /* the same names, for the planner; owned */
	uint32_t n;
	struct mc_side side; /* all held by one participant; a shard's tag is its tensor number in
				the manifest */
};

/*
 * The manifest must outlive it. Equal boxes are replicas; boxes that overlap otherwise, parts that
 * do not agree on type or whole shape, or one name twice without boxes are -EINVAL with a text.
 * -ENOMEM. Whether the boxes cover what is wanted is the planner's to prove.
 */
int mc_layout_source_init(struct mc_layout_source *s, const struct mc_manifest *m,
	uint32_t participant, struct mc_err *err);
void mc_layout_source_done(struct mc_layout_source *s);
