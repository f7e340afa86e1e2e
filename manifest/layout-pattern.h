/*
 * Name patterns of layout documents: globs, and "re:" followed by a regular expression. Matching is
 * always of the whole name, and its cost is bounded: globs by length², expressions by length ×
 * size.
 *
 * Globs: '*' is one or more characters without '.', '**' any characters, '?' one character, '#' a
 * decimal number, '{a,b}' alternatives. Captures are '*', '**' and '#', numbered from 1 in order
 * of appearance. Expressions: literals, '.', classes, \d \w, groups, '|', '*', '+', '?', '{m,n}';
 * captures are the parentheses.
 */
#pragma once

#include "tier/error.h"

#include <stdbool.h>
#include <stdint.h>

#define MC_PATTERN_MAX 512 /* bytes of a pattern */
#define MC_NAME_MAX 1024   /* bytes of a name that patterns are tried on */
#define MC_CAPTURES 8

struct mc_match {
	uint32_t n;                                  /* captures that the pattern has */
	uint32_t from[MC_CAPTURES], to[MC_CAPTURES]; /* offsets in the name */
};

struct mc_name_pattern;
/* -EINVAL with the reason; -ENOMEM. */
int mc_name_pattern_open(const char *text, struct mc_name_pattern **ret, struct mc_err *err);
void mc_name_pattern_close(struct mc_name_pattern *p); /* NULL allowed */
bool mc_name_pattern_match(
	const struct mc_name_pattern *p, const char *name, size_t len, struct mc_match *ret);
uint32_t mc_name_pattern_captures(const struct mc_name_pattern *p);
/* What a try costs, in globs without alternatives. */
uint32_t mc_name_pattern_cost(const struct mc_name_pattern *p);

/* Capture number which (from 1) as a decimal number without leading zeros; -EINVAL. */
int mc_match_number(const struct mc_match *m, const char *name, uint32_t which, uint64_t *ret);
/*
 * Writes template with {1} … {8} replaced by captures of name. -ENAMETOOLONG, -EINVAL (no such
 * capture, stray brace).
 */
int mc_match_expand(
	const struct mc_match *m, const char *name, const char *template, char *out, size_t size);
