/*
 * The mount point before and after mounting.
 * /proc/self/mountinfo: "36 35 98:0 /root /mount/point opts [optional …] - fstype source
 * superopts", octal escapes for space, tab, newline and backslash (proc(5)).
 */
#include "fs/mountpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "tier/cleanup.h"

#define FSTYPE "fuse.mooncakefs"
#define FD_PREFIX "/dev/fd/"
#define FUSE_MAJOR 10 /* of /dev/fuse, Documentation/admin-guide/devices.txt */
#define FUSE_MINOR 229

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

/* "major:minor"; false when it is something else. */
static bool parse_device(const char *s, struct mc_mountinfo *ret)
{
	char *end;

	ret->major = (unsigned)strtoul(s, &end, 10);
	if (end == s || *end != ':')
		return false;
	s = end + 1;
	ret->minor = (unsigned)strtoul(s, &end, 10);
	return end != s && *end == '\0';
}

/* Splits a line in place; false when it is not the mount of path. ret is touched only on true. */
static bool parse_line(char *line, const char *path, struct mc_mountinfo *ret)
{
	char *save, *field[5], *dash = strstr(line, " - ");
	struct mc_mountinfo info;

	if (dash == NULL)
		return false;
	*dash = '\0';
	for (int i = 0; i < 5; i++) {
		field[i] = strtok_r(i == 0 ? line : NULL, " ", &save);
		if (field[i] == NULL)
			return false;
	}
	unescape(field[4]);
	if (strcmp(field[4], path) != 0 || !parse_device(field[2], &info))
		return false;
	snprintf(info.fstype, sizeof(info.fstype), "%.*s", (int)strcspn(dash + 3, " "), dash + 3);
	*ret = info;
	return true;
}

int mc_mountinfo_find(const char *path, struct mc_mountinfo *ret)
{
	cleanup_free char *line = NULL;
	size_t cap = 0;
	int r = -ENOENT;
	FILE *f = fopen("/proc/self/mountinfo", "re");

	if (f == NULL)
		return -errno;
	while (getline(&line, &cap, f) > 0) {
		if (parse_line(line, path, ret))
			r = 0; /* go on: the last line is the topmost mount */
	}
	fclose(f);
	return r;
}

bool mc_mountpoint_mounted(const char *path)
{
	struct mc_mountinfo info;

	return mc_mountinfo_find(path, &info) == 0 && strcmp(info.fstype, FSTYPE) == 0;
}

/* Resolves the parent only: the last component may be a dead mount, which cannot be looked at. */
static int canonical(const char *path, char **ret)
{
	cleanup_free char *copy = strdup(path);
	cleanup_free char *parent = NULL;
	char *base;
	size_t len;

	*ret = realpath(path, NULL);
	if (*ret != NULL)
		return 0;
	if (errno != ENOTCONN)
		return -errno;
	if (copy == NULL)
		return -ENOMEM;
	len = strlen(copy);
	while (len > 1 && copy[len - 1] == '/')
		copy[--len] = '\0';
	base = strrchr(copy, '/');
	if (base == NULL)
		parent = realpath(".", NULL);
	else if (base == copy)
		parent = strdup("");
	else {
		*base = '\0';
		parent = realpath(copy, NULL);
	}
	if (parent == NULL)
		return -errno;
	return asprintf(ret, "%s/%s", parent, base != NULL ? base + 1 : copy) < 0 ? -ENOMEM : 0;
}

/* Without the right to unmount: ask fusermount3, as mounting did. */
static int unmount_by_helper(const char *path)
{
	int status;
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		execlp("fusermount3", "fusermount3", "-u", "-z", "-q", "--", path, (char *)NULL);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) < 0)
		return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPERM;
}

int mc_mountpoint_unmount(const char *path)
{
	int r = umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) == 0 ? 0 : -errno;

	return r == -EPERM ? unmount_by_helper(path) : r;
}

/* Asks whoever serves the mount: cached attributes of a dead one would still be given otherwise. */
static int look_at(const char *path, mode_t *ret_mode)
{
	struct statx stx;

	if (statx(AT_FDCWD, path, AT_STATX_FORCE_SYNC, STATX_TYPE, &stx) < 0)
		return -errno;
	*ret_mode = stx.stx_mode;
	return 0;
}

/* N of "/dev/fd/N", or -1. */
static int descriptor_of(const char *path)
{
	char *end;
	long n;

	if (strncmp(path, FD_PREFIX, strlen(FD_PREFIX)) != 0)
		return -1;
	path += strlen(FD_PREFIX);
	n = strtol(path, &end, 10);
	return *path >= '0' && *path <= '9' && *end == '\0' && n <= INT_MAX ? (int)n : -1;
}

static int check_descriptor(const char *path, int fd, struct mc_err *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISCHR(st.st_mode) ||
		st.st_rdev != makedev(FUSE_MAJOR, FUSE_MINOR))
		return mc_err_set(err, -EINVAL,
			"mount point %s: descriptor %d is not an open /dev/fuse", path, fd);
	return 0;
}

int mc_mountpoint_prepare(const char *path, char **ret_path, struct mc_err *err)
{
	cleanup_free char *where = NULL;
	int fd = descriptor_of(path);
	mode_t mode = 0;
	int r = fd >= 0 ? check_descriptor(path, fd, err) : canonical(path, &where);

	if (fd >= 0) {
		*ret_path = r == 0 ? strdup(path) : NULL;
		return r == 0 && *ret_path == NULL ? -ENOMEM : r;
	}
	if (r < 0)
		return mc_err_set(err, r, "mount point %s: %s%s", path, strerror(-r),
			r == -ENOENT ? "; make the directory first" : "");
	/* More than one dead mount may lie there; each try uncovers the next. */
	for (int i = 0; i < 64; i++) {
		r = look_at(where, &mode);
		if (r != -ENOTCONN)
			break;
		if (!mc_mountpoint_mounted(where))
			return mc_err_set(
				err, r, "mount point %s: a dead mount of another kind", where);
		r = mc_mountpoint_unmount(where);
		if (r < 0)
			return mc_err_set(err, r,
				"mount point %s: a dead mooncakefs cannot be unmounted: %s; "
				"try: umount -l %s",
				where, strerror(-r), where);
	}
	if (r < 0)
		return mc_err_set(err, r, "mount point %s: %s", where, strerror(-r));
	if (!S_ISDIR(mode))
		return mc_err_set(err, -ENOTDIR, "mount point %s is not a directory", where);
	if (mc_mountpoint_mounted(where))
		return mc_err_set(err, -EBUSY,
			"%s: a mooncakefs is mounted there already; unmount it first, or mount "
			"elsewhere",
			where);
	*ret_path = steal_ptr(where);
	return 0;
}

/* The device of a mount that is known by its descriptor (Linux 6.11 and later say). */
static int find_by_descriptor(int fd, struct mc_mountinfo *ret)
{
	char path[64], line[128];
	unsigned connection;
	int r = -ENOENT;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "re");
	if (f == NULL)
		return -errno;
	while (fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "fuse_connection: %u", &connection) == 1) {
			*ret = (struct mc_mountinfo){.minor = connection, .fstype = FSTYPE};
			r = 0;
		}
	fclose(f);
	return r;
}

int mc_mountpoint_device(const char *path, struct mc_mountinfo *ret)
{
	int fd = descriptor_of(path);

	return fd >= 0 ? find_by_descriptor(fd, ret) : mc_mountinfo_find(path, ret);
}

int mc_mountpoint_set_readahead(const char *path, unsigned kb)
{
	struct mc_mountinfo info;
	char file[96], text[32];
	cleanup_close int fd = -1;
	ssize_t n;
	int r = mc_mountpoint_device(path, &info);

	if (r < 0)
		return r;
	snprintf(file, sizeof(file), "/sys/class/bdi/%u:%u/read_ahead_kb", info.major, info.minor);
	fd = open(file, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = snprintf(text, sizeof(text), "%u\n", kb);
	if (pwrite(fd, text, (size_t)n, 0) != n)
		return -errno;
	n = pread(fd, text, sizeof(text) - 1, 0);
	if (n <= 0)
		return -EIO;
	text[n] = '\0';
	return (int)strtol(text, NULL, 10);
}
