/* What verify and repair print. */
#pragma once

#include "manifest/verify.h"

#include <stdbool.h>

/* A damaged copy, as mc_verify_opts.damage; ctx is a struct mc_progress_view. */
void mc_verify_report_damage(void *ctx, const char *text, bool repaired);
/* The JSON line of the result: event, revision, counts. */
void mc_verify_report_json(
	const char *event, const struct mc_rev_name *name, const struct mc_verify_result *res);
