/* Where the DRAM tier of a mount lies. */
#pragma once

#include "tier/error.h"

#include <limits.h>

/*
 * One place in run_dir for each pair of remote and mountpoint, so that a restarted daemon finds
 * what a crashed one left. Who cannot mount a tmpfs gets a directory on one. was: the one of a
 * mount that is taken over, "" = none. -EACCES and others described in err.
 */
int mc_mount_dram_dir(const char *run_dir, const char *remote, const char *mountpoint,
	const char *was, char ret[PATH_MAX], struct mc_err *err);
