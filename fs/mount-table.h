/* What is mounted where; from /proc only, so a hung mount cannot hang the asker. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct mc_mount {
	char path[PATH_MAX]; /* of the mountpoint */
	char type[64];       /* "fuse.mooncakefs" */
	char source[256];
	uid_t owner;           /* who mounted */
	unsigned major, minor; /* of the device; minor is the number of a FUSE connection */
};

/* path with its directory resolved and its last component left alone (a dead FUSE mount cannot be
 * examined), nor a /dev/fd/N. 0, -ENOENT …, -ENAMETOOLONG. */
int mc_mount_resolve(const char *path, char ret[PATH_MAX]);
/* The mount that a resolved path lies in. */
int mc_mount_over(const char *path, struct mc_mount *ret);
/* The only mooncakefs of this machine; -ENOENT there is none, -EEXIST there are several. */
int mc_mount_only(struct mc_mount *ret);
/* Where the mounts of a user have their DRAM tiers and control sockets. */
void mc_run_dir(uid_t uid, char *ret, size_t size);
/* The topmost mount at a resolved path; -ENOENT when there is none. */
int mc_mount_find(const char *path, struct mc_mount *ret);
