/* A layout by what stands on the command line: a file, a mesh, or a registered name. */
#pragma once

#include "manifest/layout.h"
#include "tools/options.h"

/* text: a path that ends in ".json", a mesh such as tp8 (the preset of the model with this config),
 * or a name under layouts/ of the remote. 0, or an exit code after a message. */
int mc_open_layout(
	const struct mc_options *o, const char *text, const json_t *config, struct mc_layout **ret);
