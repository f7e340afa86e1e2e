/*
 * Memory control groups, version 1 or 2: which one counts what a task uses, and what limits it and
 * those above it set. From /proc and the mounted hierarchy.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MC_CGROUP_PATH 4096

struct mc_cgroup {
	bool v1;
	char path[MC_CGROUP_PATH]; /* in its hierarchy, from '/' on; "" = the root */
};

/* That of a task, "self" or a number. root is put before /proc and /sys (for tests), "" otherwise.
 * -ENOENT: nothing counts memory; -ESRCH: there is no such task; or -errno. */
int mc_cgroup_of(const char *root, const char *task, struct mc_cgroup *ret);

/* How long the path is of the lowest group that has both below it, or is one of them. */
size_t mc_cgroup_common(const struct mc_cgroup *a, const struct mc_cgroup *b);

/*
 * The least limit in bytes of the group and those above it whose path has at least so many bytes;
 * UINT64_MAX: none. Where one of them cannot be looked at, as in another namespace, -errno, and
 * *ret is that of the others.
 */
int mc_cgroup_limit(const char *root, const struct mc_cgroup *g, size_t least, uint64_t *ret);
