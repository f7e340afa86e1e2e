/* What a scrub found, as JSON. */
#pragma once

#include "tier/scrub.h"

struct json_t;
/* The caller's; NULL: no memory. */
struct json_t *mc_scrub_counts_json(const struct mc_scrub_counts *c);
