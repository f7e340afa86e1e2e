/* Mounts, read from /proc/self/mountinfo. */
#include "fs/mount-table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int mc_mount_resolve(const char *path, char ret[PATH_MAX])
{
	char copy[PATH_MAX], dir[PATH_MAX], *slash;
	size_t n = strlen(path);

	if (n == 0 || n >= sizeof(copy))
		return n == 0 ? -ENOENT : -ENAMETOOLONG;
	memcpy(copy, path, n + 1);
	/* A descriptor of /dev/fuse that somebody mounted already: a name of this process alone. */
	if (strncmp(path, "/dev/fd/", 8) == 0) {
		memcpy(ret, path, n + 1);
		return 0;
	}
	while (n > 1 && copy[n - 1] == '/')
		copy[--n] = '\0';
	slash = strrchr(copy, '/');
	/* "x/..", "." and "/" name a directory by what it is: nothing to leave alone. */
	if (strcmp(copy, "/") == 0 || strcmp(slash == NULL ? copy : slash + 1, ".") == 0 ||
		strcmp(slash == NULL ? copy : slash + 1, "..") == 0)
		return realpath(copy, ret) == NULL ? -errno : 0;
	if (slash != NULL)
		*slash = '\0';
	if (realpath(slash == NULL ? "." : slash == copy ? "/" : copy, dir) == NULL)
		return -errno;
	n = (size_t)snprintf(ret, PATH_MAX, "%s%s%s", dir, strcmp(dir, "/") == 0 ? "" : "/",
		slash == NULL ? copy : slash + 1);
	return n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/* Undoes the octal escapes of /proc/self/mountinfo in place. */
static void unescape(char *s)
{
	char *out = s;

	for (; *s != '\0'; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
			s[3] >= '0' && s[3] <= '7') {
			*out++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*out++ = *s;
		}
	}
	*out = '\0';
}

/* "36 35 98:0 / /mnt/x rw,noatime master:1 - ext3 /dev/root rw" (proc(5)) */
static bool parse_line(char *line, struct mc_mount *ret)
{
	char *tail = strstr(line, " - "), *owner;

	if (tail == NULL)
		return false;
	owner = strstr(strrchr(tail, ' '), "user_id="); /* among the options, which are last */
	ret->owner = owner != NULL ? (uid_t)strtoul(owner + 8, NULL, 10) : 0;
	*tail = '\0';
	/* %4095s: PATH_MAX - 1 */
	if (sscanf(line, "%*u %*u %u:%u %*s %4095s", &ret->major, &ret->minor, ret->path) != 3 ||
		sscanf(tail + 3, "%63s %255s", ret->type, ret->source) != 2)
		return false;
	unescape(ret->path);
	unescape(ret->source);
	return true;
}

/* The last mount, which lies on top of earlier ones, that matches. *ret_n: how many places. */
static int find_mount(const char *path, const char *type, struct mc_mount *ret, unsigned *ret_n)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t cap = 0;
	struct mc_mount m;

	*ret_n = 0;
	if (f == NULL)
		return -errno;
	while (getline(&line, &cap, f) > 0)
		if (parse_line(line, &m) && (path == NULL || strcmp(m.path, path) == 0) &&
			(type == NULL || strcmp(m.type, type) == 0)) {
			*ret_n += *ret_n == 0 || strcmp(m.path, ret->path) != 0;
			*ret = m;
		}
	free(line);
	fclose(f);
	return *ret_n > 0 ? 0 : -ENOENT;
}

int mc_mount_find(const char *path, struct mc_mount *ret)
{
	unsigned n;

	return find_mount(path, NULL, ret, &n);
}

int mc_mount_over(const char *path, struct mc_mount *ret)
{
	char copy[PATH_MAX];
	char *slash;
	int r;

	snprintf(copy, sizeof(copy), "%s", path);
	for (;;) {
		r = mc_mount_find(copy[0] == '\0' ? "/" : copy, ret);
		slash = strrchr(copy, '/');
		if (r != -ENOENT || slash == NULL)
			return r;
		*slash = '\0';
	}
}

int mc_mount_only(struct mc_mount *ret)
{
	unsigned n;
	int r = find_mount(NULL, "fuse.mooncakefs", ret, &n);

	return r == 0 && n > 1 ? -EEXIST : r;
}

void mc_run_dir(uid_t uid, char *ret, size_t size)
{
	if (uid == 0)
		snprintf(ret, size, "/run/mooncakefs");
	else
		snprintf(ret, size, "/dev/shm/mooncakefs-%u", (unsigned)uid);
}
