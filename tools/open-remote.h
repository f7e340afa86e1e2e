/* What all commands on a remote begin with: opening it, and reading ORG/MODEL[@REV]. */
#pragma once

#include "tools/options.h"

struct mc_remote;

/* Opens the remote that --remote names, with the options of the connection. 0, or the exit code:
 * the error is printed. */
int mc_open_remote(const struct mc_options *o, struct mc_remote **ret);
/* The same for --payload-root, a URL or a local directory; *ret is NULL without that option. */
int mc_open_payload(const struct mc_options *o, struct mc_remote **ret);
