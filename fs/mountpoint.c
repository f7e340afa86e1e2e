/* The mount point before and after mounting. */
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

bool mc_mountpoint_mounted(const char *path)
{
	struct mc_mount m;

	return mc_mount_find(path, &m) == 0 && strcmp(m.type, FSTYPE) == 0;
}

/* A dead mount cannot be looked at: then only its directory is resolved. */
static int canonical(const char *path, char **ret)
{
	char where[PATH_MAX];
	int r;

	*ret = realpath(path, NULL);
	if (*ret != NULL)
		return 0;
	if (errno != ENOTCONN)
		return -errno;
	r = mc_mount_resolve(path, where);
	if (r < 0)
		return r;
	*ret = strdup(where);
	return *ret == NULL ? -ENOMEM : 0;
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
static int find_by_descriptor(int fd, struct mc_mount *ret)
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
			*ret = (struct mc_mount){.minor = connection, .type = FSTYPE};
			r = 0;
		}
	fclose(f);
	return r;
}

int mc_mountpoint_device(const char *path, struct mc_mount *ret)
{
	int fd = descriptor_of(path);

	return fd >= 0 ? find_by_descriptor(fd, ret) : mc_mount_find(path, ret);
}

int mc_mountpoint_set_readahead(const char *path, unsigned kb)
{
	struct mc_mount m;
	char file[96], text[32];
	cleanup_close int fd = -1;
	ssize_t n;
	int r = mc_mountpoint_device(path, &m);

	if (r < 0)
		return r;
	snprintf(file, sizeof(file), "/sys/class/bdi/%u:%u/read_ahead_kb", m.major, m.minor);
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
