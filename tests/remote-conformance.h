/*
 * What every kind of remote must do. A test program names its kind and how to open it; the same
 * tests then run against it. Each test works in its own fresh directory of the remote.
 */
#pragma once

#include "tier/remote.h"

#include <check.h>
#include <stddef.h>

/* The program's: opens the remote under test. opts may be NULL. */
struct mc_remote *kind_open(const struct mc_remote_opts *opts);
/* The program's: the directory of this machine in which the remote's root lies. */
const char *kind_root(void);

/* Runs the suite, and after it the program's own tests; returns main's exit code. */
int conformance_run(const char *name, const TTest *const *own, size_t n_own);
