/* The I/O table that is the kernel, and the helpers that work over any table. */
#include "tier/io.h"

#include "tier/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int result(int r)
{
	return r < 0 ? -errno : r;
}

static int real_open(const struct mc_io *io, const char *path, int flags, mode_t mode)
{
	(void)io;
	return result(open(path, flags | O_CLOEXEC, mode));
}

static int real_close(const struct mc_io *io, int fd)
{
	(void)io;
	return result(close(fd));
}

static int64_t real_pread(const struct mc_io *io, int fd, void *buf, size_t len, uint64_t off)
{
	ssize_t n = pread(fd, buf, len, (off_t)off);

	(void)io;
	return n < 0 ? -errno : n;
}

static int64_t real_pwrite(
	const struct mc_io *io, int fd, const void *buf, size_t len, uint64_t off)
{
	ssize_t n = pwrite(fd, buf, len, (off_t)off);

	(void)io;
	return n < 0 ? -errno : n;
}

static int real_fdatasync(const struct mc_io *io, int fd)
{
	(void)io;
	return result(fdatasync(fd));
}

static int real_fsync(const struct mc_io *io, int fd)
{
	(void)io;
	return result(fsync(fd));
}

static int real_ftruncate(const struct mc_io *io, int fd, uint64_t size)
{
	(void)io;
	return result(ftruncate(fd, (off_t)size));
}

int mc_io_allocate(int fd, int mode, uint64_t off, uint64_t len)
{
	int r;

	do
		r = result(fallocate(fd, mode, (off_t)off, (off_t)len));
	while (r == -EINTR);
	return r;
}

static int real_fallocate(const struct mc_io *io, int fd, int mode, uint64_t off, uint64_t len)
{
	(void)io;
	return mc_io_allocate(fd, mode, off, len);
}

static int real_fstat(const struct mc_io *io, int fd, struct stat *ret)
{
	(void)io;
	return result(fstat(fd, ret));
}

static int real_rename(const struct mc_io *io, const char *from, const char *to)
{
	(void)io;
	return result(rename(from, to));
}

static int real_unlink(const struct mc_io *io, const char *path)
{
	(void)io;
	return result(unlink(path));
}

static int real_mkdir(const struct mc_io *io, const char *path, mode_t mode)
{
	(void)io;
	return result(mkdir(path, mode));
}

static const struct mc_io real_io = {
	.open = real_open,
	.close = real_close,
	.pread = real_pread,
	.pwrite = real_pwrite,
	.fdatasync = real_fdatasync,
	.fsync = real_fsync,
	.ftruncate = real_ftruncate,
	.fallocate = real_fallocate,
	.fstat = real_fstat,
	.rename = real_rename,
	.unlink = real_unlink,
	.mkdir = real_mkdir,
};

const struct mc_io *mc_io_real(void)
{
	return &real_io;
}

int mc_io_read_full(const struct mc_io *io, int fd, void *buf, size_t len, uint64_t off)
{
	for (size_t at = 0; at < len;) {
		int64_t n = io->pread(io, fd, (char *)buf + at, len - at, off + at);

		if (n == -EINTR)
			continue;
		if (n < 0)
			return (int)n;
		if (n == 0)
			return -ENODATA;
		at += (size_t)n;
	}
	return 0;
}

int mc_io_write_full(const struct mc_io *io, int fd, const void *buf, size_t len, uint64_t off)
{
	for (size_t at = 0; at < len;) {
		int64_t n = io->pwrite(io, fd, (const char *)buf + at, len - at, off + at);

		if (n == -EINTR)
			continue;
		if (n < 0)
			return (int)n;
		if (n == 0)
			return -EIO;
		at += (size_t)n;
	}
	return 0;
}

int mc_io_sync_dir(const struct mc_io *io, const char *path)
{
	int fd = io->open(io, path, O_RDONLY | O_DIRECTORY, 0);
	int r;

	if (fd < 0)
		return fd;
	r = io->fsync(io, fd);
	io->close(io, fd);
	return r;
}

/* path: canonical. */
static int sync_parent(const struct mc_io *io, const char *path)
{
	cleanup_free char *parent = strdup(path);

	if (parent == NULL)
		return -ENOMEM;
	/* The root is its own parent. */
	*(strrchr(parent, '/') == parent ? parent + 1 : strrchr(parent, '/')) = '\0';
	return mc_io_sync_dir(io, parent);
}

int mc_io_make_dir(const struct mc_io *io, const char *path, char **ret_path)
{
	cleanup_free char *found = NULL;
	int made = io->mkdir(io, path, 0700), r;

	if (made != 0 && made != -EEXIST)
		return made;
	found = realpath(path, NULL);
	if (found == NULL)
		return -errno;
	r = sync_parent(io, found);
	if (r != 0 && (r != -EACCES || made == 0))
		return r;
	*ret_path = found;
	found = NULL;
	return 0;
}
