/* An I/O table that ends its process: see io-kill.h. */
#include "tests/io-kill.h"

#include <fcntl.h>
#include <signal.h>

static int64_t after(const struct mc_io *io, int64_t r)
{
	const struct io_kill *k = (const struct io_kill *)io;

	if (atomic_fetch_add(k->calls, 1) + 1 == k->at)
		raise(SIGKILL);
	return r;
}

static int kill_open(const struct mc_io *io, const char *path, int flags, mode_t mode)
{
	int fd = mc_io_real()->open(mc_io_real(), path, flags, mode);

	return (flags & O_CREAT) != 0 ? (int)after(io, fd) : fd;
}

static int64_t kill_pwrite(
	const struct mc_io *io, int fd, const void *buf, size_t len, uint64_t off)
{
	return after(io, mc_io_real()->pwrite(mc_io_real(), fd, buf, len, off));
}

static int kill_fdatasync(const struct mc_io *io, int fd)
{
	return (int)after(io, mc_io_real()->fdatasync(mc_io_real(), fd));
}

static int kill_fsync(const struct mc_io *io, int fd)
{
	return (int)after(io, mc_io_real()->fsync(mc_io_real(), fd));
}

static int kill_ftruncate(const struct mc_io *io, int fd, uint64_t size)
{
	return (int)after(io, mc_io_real()->ftruncate(mc_io_real(), fd, size));
}

static int kill_fallocate(const struct mc_io *io, int fd, int mode, uint64_t off, uint64_t len)
{
	return (int)after(io, mc_io_real()->fallocate(mc_io_real(), fd, mode, off, len));
}

static int kill_rename(const struct mc_io *io, const char *from, const char *to)
{
	return (int)after(io, mc_io_real()->rename(mc_io_real(), from, to));
}

static int kill_unlink(const struct mc_io *io, const char *path)
{
	return (int)after(io, mc_io_real()->unlink(mc_io_real(), path));
}

void io_kill_init(struct io_kill *k, _Atomic uint64_t *calls, uint64_t at)
{
	k->io = *mc_io_real();
	k->io.open = kill_open;
	k->io.pwrite = kill_pwrite;
	k->io.fdatasync = kill_fdatasync;
	k->io.fsync = kill_fsync;
	k->io.ftruncate = kill_ftruncate;
	k->io.fallocate = kill_fallocate;
	k->io.rename = kill_rename;
	k->io.unlink = kill_unlink;
	k->calls = calls;
	k->at = at;
}
