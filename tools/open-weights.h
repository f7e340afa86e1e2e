/* One of Mooncake's manifests by what stands on the command line. */
#pragma once

#include "manifest/weight-manifest.h"

/* A path that ends in ".json" and is no layout document is parsed; anything else leaves *ret NULL.
 * 0, or an exit code after a message. */
int mc_open_weights(const char *text, struct mc_weight_manifest **ret);
