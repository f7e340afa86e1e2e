/*
 * Why something that was asked of a file did not happen, for user.mooncake.error: the last 1,024
 * failures, by what they were about. Thread-safe.
 */
#pragma once

#include <stdint.h>

#define MC_REASON_BYTES 320

struct mc_reasons;

int mc_reasons_open(struct mc_reasons **ret);
void mc_reasons_close(struct mc_reasons *rs); /* NULL allowed */

/* about: a hash of what it is about. text NULL or "": it went well, the last failure is forgotten.
 */
void mc_reasons_set(struct mc_reasons *rs, uint64_t about, const char *text);
/* "" when there is none. */
void mc_reasons_get(struct mc_reasons *rs, uint64_t about, char out[MC_REASON_BYTES]);
