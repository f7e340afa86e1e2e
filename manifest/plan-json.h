/*
 * Plans as text. Both forms are deterministic: the same plan is the same bytes.
 *
 * mc_plan_json writes the native form (docs/LAYOUT.md): totals and bounds, then one entry for each
 * class of tensors that lie alike (geometry once, names of all its tensors), and the rounds if
 * there are any. mc_plan_regions_json writes one entry for each region between a fragment of one of
 * Mooncake's manifests and a fragment of another, in Mooncake's terms.
 */
#pragma once

#include "manifest/binder.h"
#include "manifest/json-out.h"
#include "manifest/weight-manifest.h"

struct mc_plan_json_in {
	const struct mc_reshard *plan;    /* borrowed */
	const struct mc_binding *binding; /* borrowed, NULL = none */
	const char *const *names;         /* of tensors, as the planner had them */
	const char *const *participants;  /* names, NULL = numbers only */
	bool with_links;                  /* false: totals only */
};
/* -ENOMEM. The text is appended to out->b. */
int mc_plan_json(const struct mc_plan_json_in *in, struct mc_json_out *out);

/* plan is between the sides of these two manifests, the target's participants start at base. */
int mc_plan_regions_json(const struct mc_reshard *plan, const struct mc_weight_manifest *source,
	const struct mc_weight_manifest *target, struct mc_json_out *out);
