/* The questions to the catalogue themselves: synchronous, for the work pool. Used by names.c only.
 */
#pragma once

#include "fs/names.h"

/*
 * A new answer in every case but -ENOMEM; what went wrong is logged (rate-limited) and stands in
 * res. known: the revision as it was loaded before, or NULL; it is only compared then.
 */
int mc_names_load(const struct mc_names_sources *sources, const struct mc_question *q,
	struct mc_place *known, struct mc_answer **ret);
