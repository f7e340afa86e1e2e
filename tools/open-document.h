/* Layouts and engines' profiles by what stands on the command line. Both: 0, or an exit code after
 * a message. */
#pragma once

#include "manifest/layout.h"
#include "manifest/profile.h"
#include "tools/options.h"

/* text: a path that ends in ".json", a mesh such as tp8 (the preset of the model with this config),
 * or a name under layouts/ of the remote. */
int mc_open_layout(
	const struct mc_options *o, const char *text, const json_t *config, struct mc_layout **ret);
/* text, which may also stand in a layout: a path that ends in ".json", a built-in profile (made
 * from config for tp ranks), or a name under layouts/profiles/ of the remote. */
int mc_open_profile(const struct mc_options *o, const char *text, const json_t *config, uint32_t tp,
	struct mc_profile **ret);
