/* The manifest of the revision that a command's argument names. */
#pragma once

#include "manifest/catalogue.h"
#include "tools/options.h"

/*
 * text: ORG/MODEL[@REV]; without REV the newest, which *ret_name then says. 0, or the exit code:
 * the error is printed. *ret is the caller's reference; ret may be NULL: only the name is wanted.
 */
int mc_load_revision(const struct mc_options *o, struct mc_remote *r, const char *text,
	struct mc_rev_name *ret_name, struct mc_manifest **ret);
