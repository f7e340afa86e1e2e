/*
 * Error text that travels up with a -errno: which file, which tier, what to do.
 * Libraries return it, fs/ and tools/ print or log it.
 */
#pragma once

#include <stddef.h>

struct mc_err {
	char text[512]; /* empty when no failure was described; always NUL-terminated */
};

/* Describes a failure and returns code (a negative errno). err may be NULL. Keeps the first text.
 */
int mc_err_set(struct mc_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before what is described already; returns code. err may be NULL. */
int mc_err_prefix(struct mc_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* What a person can do about code, as the tail of a text: "; …", or "" when nothing general helps.
 */
const char *mc_err_hint(int code);
