/* Regular expressions that cannot explode: an NFA walked once over the name. */
#pragma once

#include "manifest/layout-pattern.h"

struct mc_re;
/* -EINVAL with the reason: syntax, or more than 1,000 instructions after {m,n} are written out. */
int mc_re_open(const char *text, struct mc_re **ret, struct mc_err *err);
void mc_re_close(struct mc_re *re); /* NULL allowed */
/* The whole name must match. Time: length × instructions. */
bool mc_re_match(const struct mc_re *re, const char *name, size_t len, struct mc_match *ret);
uint32_t mc_re_captures(const struct mc_re *re);
uint32_t mc_re_size(const struct mc_re *re); /* instructions */
