/*
 * A file system that shows a directory and hangs on order, as a mounted DFS does whose servers are
 * gone:  hang-fs DIR MOUNTPOINT HANG   in the foreground; while the file HANG exists no request is
 * answered, and those that came go on once it has been removed.
 */
#define FUSE_USE_VERSION 314

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

static const char *top, *hang;

/* Waits while it hangs; then the path below top, in buf. */
static const char *real(const char *path, char buf[8192])
{
	while (access(hang, F_OK) == 0)
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	snprintf(buf, 8192, "%s%s", top, path);
	return buf;
}

static int result(int r)
{
	return r < 0 ? -errno : 0;
}

static int on_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	char buf[8192];

	(void)fi;
	return result(lstat(real(path, buf), st));
}

static int on_readdir(const char *path, void *out, fuse_fill_dir_t fill, off_t off,
	struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
	char buf[8192];
	DIR *d = opendir(real(path, buf));
	struct dirent *e;

	(void)off;
	(void)fi;
	(void)flags;
	if (d == NULL)
		return -errno;
	while ((e = readdir(d)) != NULL)
		if (fill(out, e->d_name, NULL, 0, (enum fuse_fill_dir_flags)0) != 0)
			break;
	closedir(d);
	return 0;
}

static int open_with(const char *path, int flags, mode_t mode, struct fuse_file_info *fi)
{
	char buf[8192];
	int fd = open(real(path, buf), (flags & ~O_DIRECT) | O_CLOEXEC, mode);

	if (fd < 0)
		return -errno;
	fi->fh = (uint64_t)fd;
	fi->direct_io = 1;
	return 0;
}

static int on_open(const char *path, struct fuse_file_info *fi)
{
	return open_with(path, fi->flags, 0, fi);
}

static int on_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
	return open_with(path, fi->flags | O_CREAT, mode, fi);
}

static int on_read(const char *path, char *data, size_t size, off_t off, struct fuse_file_info *fi)
{
	char buf[8192];
	ssize_t n;

	real(path, buf);
	n = pread((int)fi->fh, data, size, off);
	return n < 0 ? -errno : (int)n;
}

static int on_write(
	const char *path, const char *data, size_t size, off_t off, struct fuse_file_info *fi)
{
	char buf[8192];
	ssize_t n;

	real(path, buf);
	n = pwrite((int)fi->fh, data, size, off);
	return n < 0 ? -errno : (int)n;
}

static int on_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
	char buf[8192];

	(void)fi;
	return result(truncate(real(path, buf), size));
}

static int on_fallocate(const char *path, int mode, off_t off, off_t len, struct fuse_file_info *fi)
{
	char buf[8192];

	real(path, buf);
	return result(fallocate((int)fi->fh, mode, off, len));
}

static int on_fsync(const char *path, int datasync, struct fuse_file_info *fi)
{
	char buf[8192];

	(void)datasync;
	real(path, buf);
	return result(fsync((int)fi->fh));
}

static int on_release(const char *path, struct fuse_file_info *fi)
{
	(void)path;
	return result(close((int)fi->fh));
}

static int on_mkdir(const char *path, mode_t mode)
{
	char buf[8192];

	return result(mkdir(real(path, buf), mode));
}

static int on_unlink(const char *path)
{
	char buf[8192];

	return result(unlink(real(path, buf)));
}

static int on_rmdir(const char *path)
{
	char buf[8192];

	return result(rmdir(real(path, buf)));
}

static int on_rename(const char *from, const char *to, unsigned flags)
{
	char a[8192], b[8192];

	real(from, a);
	real(to, b);
	return result(renameat2(AT_FDCWD, a, AT_FDCWD, b, flags));
}

static int on_utimens(const char *path, const struct timespec t[2], struct fuse_file_info *fi)
{
	char buf[8192];

	(void)fi;
	return result(utimensat(AT_FDCWD, real(path, buf), t, AT_SYMLINK_NOFOLLOW));
}

static int on_statfs(const char *path, struct statvfs *st)
{
	char buf[8192];

	return result(statvfs(real(path, buf), st));
}

/* Nothing is answered by the kernel's memory. */
static void *on_init(struct fuse_conn_info *conn, struct fuse_config *cfg)
{
	(void)conn;
	cfg->use_ino = 1;
	cfg->attr_timeout = cfg->entry_timeout = cfg->negative_timeout = 0;
	return NULL;
}

static const struct fuse_operations operations = {
	.init = on_init,
	.getattr = on_getattr,
	.readdir = on_readdir,
	.open = on_open,
	.create = on_create,
	.read = on_read,
	.write = on_write,
	.truncate = on_truncate,
	.fallocate = on_fallocate,
	.fsync = on_fsync,
	.release = on_release,
	.mkdir = on_mkdir,
	.unlink = on_unlink,
	.rmdir = on_rmdir,
	.rename = on_rename,
	.utimens = on_utimens,
	.statfs = on_statfs,
};

int main(int argc, char **argv)
{
	char foreground[] = "-f", option[] = "-o", options[] = "fsname=hang,max_threads=64";
	char *args[] = {argv[0], foreground, option, options, argc > 2 ? argv[2] : NULL};

	if (argc != 4) {
		fprintf(stderr, "usage: hang-fs DIR MOUNTPOINT HANG\n");
		return 2;
	}
	top = argv[1];
	hang = argv[3];
	return fuse_main(5, args, &operations, NULL);
}
