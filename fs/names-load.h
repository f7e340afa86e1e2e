/* The questions to the catalogue themselves: synchronous, for the work pool. Used by names.c only.
 */
#pragma once

#include "fs/names.h"

/* A new answer in every case but -ENOMEM; what went wrong is logged (rate-limited) and stands in
 * res. */
int mc_names_load(struct mc_catalogue *catalogue, enum mc_topic topic, const char *org,
	const char *name, struct mc_answer **ret);
