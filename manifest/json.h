/* Reading untrusted JSON: jansson, made strict. */
#pragma once

#include "tier/error.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* Greatest integer a document may hold: every reader, also one with doubles, keeps it exact. */
#define MC_JSON_INT_MAX ((UINT64_C(1) << 53) - 1)

/*
 * Parses one object or array that fills the text (white space around it allowed), nested at most
 * max_depth deep, without duplicate keys. *ret is the caller's to json_decref. -EBADMSG with line
 * and reason in err; -ENOMEM.
 */
int mc_json_load(
	const void *text, size_t len, unsigned max_depth, json_t **ret, struct mc_err *err);

/* A whole number in 0 .. max; reals such as 1.0 and 1e3 are refused. NULL allowed. 0 or -EBADMSG.
 */
int mc_json_uint(const json_t *v, uint64_t max, uint64_t *ret);
/* The first key of obj that is not in the NULL-terminated list, or NULL. Borrowed. */
const char *mc_json_unknown_key(const json_t *obj, const char *const *known);
