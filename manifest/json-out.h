/* Writing compact JSON with deterministic bytes; the caller puts keys in sorted order. */
#pragma once

#include "manifest/buffer.h"

#include <stdbool.h>
#include <stdint.h>

/* A failed allocation sticks: later puts do nothing, failed is looked at once at the end. */
struct mc_json_out {
	struct mc_buffer b;
	bool failed;
};

void mc_json_put(struct mc_json_out *o, const char *raw); /* as it is */
void mc_json_put_mem(struct mc_json_out *o, const void *raw, size_t len);
void mc_json_put_uint(struct mc_json_out *o, uint64_t v);
void mc_json_put_int(struct mc_json_out *o, int64_t v);
/* Quoted; escapes only '"', '\' and bytes below 0x20: \b \f \n \r \t, else \u00xx in lower case, as
 * Python does. text is UTF-8. */
void mc_json_put_string(struct mc_json_out *o, const char *text);
/* ',' unless it would be the first element: *first is cleared. */
void mc_json_put_comma(struct mc_json_out *o, bool *first);
