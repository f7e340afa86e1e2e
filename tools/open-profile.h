/* An engine's profile by what stands on the command line or in a layout. */
#pragma once

#include "manifest/profile.h"
#include "tools/options.h"

/* text: a path that ends in ".json", a built-in profile (made from config for tp ranks), or a name
 * under layouts/profiles/ of the remote. 0, or an exit code after a message. */
int mc_open_profile(const struct mc_options *o, const char *text, const json_t *config, uint32_t tp,
	struct mc_profile **ret);
