/* What all commands on a remote begin with: opening it. */
#pragma once

#include "tools/options.h"

struct mc_remote;

/* Opens the remotes that --remote names as one, with the options of the connection. 0, or the exit
 * code: the error is printed. Trouble with one of several is a warning on standard error. */
int mc_open_remote(const struct mc_options *o, struct mc_remote **ret);
/* The same; what happens to one of several is told to event (see remote-set.h). */
int mc_open_remote_telling(const struct mc_options *o,
	void (*event)(void *ctx, const char *event, const char *text), struct mc_remote **ret);
/* The same as mc_open_remote for --payload-root, a URL or a local directory; *ret is NULL without
 * that option. */
int mc_open_payload(const struct mc_options *o, struct mc_remote **ret);
/* Opens each --from by itself, of repair. 0, or the exit code: the error is printed, none is open.
 */
#define MC_FROM_MAX 16
int mc_open_from(const struct mc_options *o, struct mc_remote *ret[MC_FROM_MAX], unsigned *ret_n);
void mc_close_remotes(struct mc_remote *const *remotes, unsigned n);
/* How many --remote there are. */
unsigned mc_count_remotes(const struct mc_options *o);
