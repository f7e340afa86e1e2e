/* Canonical JSON as Python's json.dumps(sort_keys=True, separators=(",", ":")) writes it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "manifest/json-out.h"

struct mc_canon {
	struct mc_json_out out;
	bool ascii;          /* escape everything above 0x7e */
	uint64_t generation; /* stands for the value of a top-level "weight_generation" */
};

/* Appends v. extra: one more key with a string value at the top level, or NULL. */
void mc_canon_put(struct mc_canon *c, const json_t *v, const char *extra_key, const char *extra);
/* SHA-256 in hex of what was put; empties the buffer. -ENOMEM also when an earlier put failed. */
int mc_canon_digest(struct mc_canon *c, char out[65]);

/*
 * jansson has no unsigned 64-bit numbers: copies text with the top-level "weight_generation"
 * replaced by 0, and returns its value. *ret is the caller's to free. -EBADMSG (not a plain number
 * ≤ 2^64 - 1, or not there), -ENOMEM.
 */
int mc_canon_take_generation(const char *text, size_t len, char **ret, uint64_t *ret_generation);
