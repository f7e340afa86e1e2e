/* fsck of a mount: its daemon reads the local tiers through now. */
#pragma once

#include "fs/mount-table.h"
#include "tools/options.h"

/* The exit code; prints what came of it. */
int mc_fsck_mount(const struct mc_options *o, const struct mc_mount *m);
