/* The mount point before and after mounting: dead or stacked mounts, and the mount's readahead. */
#pragma once

#include "fs/mount-table.h"
#include "tier/error.h"

#include <stdbool.h>

/*
 * Makes sure a mount may go there: a directory; a mooncakefs left there by a dead daemon (ENOTCONN)
 * is unmounted lazily; a living one is refused with -EBUSY. *ret_path is the canonical path, the
 * caller's to free. "/dev/fd/N" stands for a descriptor of /dev/fuse that the caller's caller has
 * mounted: it is only looked at.
 */
int mc_mountpoint_prepare(const char *path, char **ret_path, struct mc_err *err);

/* Takes the mount at path out of the tree; whoever uses it goes on with it. */
int mc_mountpoint_unmount(const char *path);

/* Whether a mooncakefs is (still) mounted at path. */
bool mc_mountpoint_mounted(const char *path);

/* The device of what is mounted at a path that prepare gave; -ENOENT, -errno. */
int mc_mountpoint_device(const char *path, struct mc_mount *ret);

/* Sets and reads back the readahead of the mount at path: KiB in effect, or -errno. */
int mc_mountpoint_set_readahead(const char *path, unsigned kb);
