/* Private to the planner: what its stages hand to each other. */
#pragma once

#include "manifest/planner-flow.h"
#include "manifest/planner.h"

#define MC_NO_SET UINT32_MAX

/* A link whose sender is not chosen yet keeps the set of possible ones. */
struct mc_draft {
	struct mc_reshard *plan;        /* borrowed */
	const struct mc_reshard_in *in; /* borrowed */
	struct mc_holders holders;      /* over the moved bytes */
	uint32_t *set_of;               /* by link: number of its holder set or MC_NO_SET, owned */
	uint32_t cap_set_of;
	uint64_t *load; /* ingress so far by participant, owned */
};

/* Appends; box may be NULL (the whole overlap). */
int mc_draft_link(
	struct mc_draft *d, const struct mc_link *l, const struct mc_box *box, uint32_t set);
/* All links of class number c. */
int mc_draft_class(struct mc_draft *d, uint32_t c, struct mc_err *err);
/* Chooses the senders of all links with a holder set, cutting where a share ends. */
int mc_draft_assign(struct mc_draft *d);
