/* Who uses a mount, and who serves it; from /proc only, so a hung mount cannot hang the asker. */
#pragma once

#include "fs/mount-table.h"

struct mc_holder {
	pid_t pid;
	char name[32];
	const char *how; /* "working directory", "open file", … constant */
};

/* Up to max processes that use something at or below path, one entry each. Returns how many were
 * found, of those this user may look at. */
unsigned mc_mount_holders(const char *path, struct mc_holder *ret, unsigned max);

/* The process that serves a FUSE mount, 0 when the kernel does not say (before 6.11). */
pid_t mc_mount_daemon(const struct mc_mount *m);
