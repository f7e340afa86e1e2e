/* What is mounted where, and who uses it; from /proc only, so a hung mount cannot hang the asker.
 */
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
