/* The kernel's I/O table with switches: see io-switch.h. */
#include "tests/io-switch.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>

static struct io_switch *self(const struct mc_io *io)
{
	return (struct io_switch *)(uintptr_t)io;
}

static const struct mc_io *real(void)
{
	return mc_io_real();
}

static int fail(struct io_switch *s, int error)
{
	if (error != 0)
		atomic_fetch_add(&s->failed, 1);
	return error;
}

static void wait_while(_Atomic bool *hangs)
{
	const struct timespec moment = {.tv_nsec = 1000000};

	while (atomic_load(hangs))
		nanosleep(&moment, NULL); /* a disk has no event to wait for */
}

/* The outcome of a changing call, 0 = do it: kind is the switch of its kind. */
static int enter(struct io_switch *s, _Atomic int *kind, bool waits)
{
	if (waits)
		wait_while(&s->hang);
	if (atomic_load(&s->fail_at) > 0 && atomic_fetch_sub(&s->fail_at, 1) == 1)
		return fail(s, atomic_load(&s->error));
	return fail(s, kind != NULL ? atomic_load(kind) : 0);
}

static bool is_spared(const struct io_switch *s, int fd)
{
	return s->only != NULL && fd != atomic_load(&s->only_fd);
}

static bool is_the_one(const struct io_switch *s, const char *path)
{
	size_t len = strlen(path), end = s->only != NULL ? strlen(s->only) : 0;

	return end > 0 && len >= end && strcmp(path + len - end, s->only) == 0;
}

static int switch_open(const struct mc_io *io, const char *path, int flags, mode_t mode)
{
	struct io_switch *s = self(io);
	int r;

	if (s->only != NULL) {
		r = real()->open(real(), path, flags, mode);
		if (r >= 0 && is_the_one(s, path))
			atomic_store(&s->only_fd, r);
		return r;
	}
	r = (flags & O_CREAT) != 0 ? enter(s, &s->opens, false) : fail(s, atomic_load(&s->opens));
	if (r == 0 && strstr(path, "/segments/") != NULL)
		r = fail(s, atomic_load(&s->segment_opens));
	return r == 0 ? real()->open(real(), path, flags, mode) : r;
}

static int switch_close(const struct mc_io *io, int fd)
{
	(void)io;
	return real()->close(real(), fd);
}

static int64_t switch_pread(const struct mc_io *io, int fd, void *buf, size_t len, uint64_t off)
{
	struct io_switch *s = self(io);
	int r = 0;

	if (!is_spared(s, fd)) {
		wait_while(&s->reads_hang);
		r = fail(s, atomic_load(&s->reads));
	}

	return r == 0 ? real()->pread(real(), fd, buf, len, off) : r;
}

static int64_t switch_pwrite(
	const struct mc_io *io, int fd, const void *buf, size_t len, uint64_t off)
{
	struct io_switch *s = self(io);
	int r = is_spared(s, fd) ? 0 : enter(s, &s->writes, true);
	int64_t had;

	if (r != 0)
		return r;
	had = atomic_fetch_sub(&s->room, (int64_t)len);
	if (had <= 0)
		return fail(s, -ENOSPC);
	return real()->pwrite(real(), fd, buf, had < (int64_t)len ? (size_t)had : len, off);
}

static int sync_result(struct io_switch *s)
{
	unsigned ms = atomic_load(&s->sync_ms);
	const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
	int r;

	wait_while(&s->syncs_hang);
	r = enter(s, &s->syncs, true);

	if (ms > 0)
		nanosleep(&pause, NULL);

	if (r == 0 && atomic_load(&s->once) > 0) {
		atomic_fetch_sub(&s->once, 1);
		r = fail(s, -EIO);
	}
	return r;
}

static int switch_fdatasync(const struct mc_io *io, int fd)
{
	int r = is_spared(self(io), fd) ? 0 : sync_result(self(io));

	return r == 0 ? real()->fdatasync(real(), fd) : r;
}

static int switch_fsync(const struct mc_io *io, int fd)
{
	int r = is_spared(self(io), fd) ? 0 : sync_result(self(io));

	return r == 0 ? real()->fsync(real(), fd) : r;
}

static int switch_ftruncate(const struct mc_io *io, int fd, uint64_t size)
{
	int r = enter(self(io), NULL, false);

	return r == 0 ? real()->ftruncate(real(), fd, size) : r;
}

static int switch_fallocate(const struct mc_io *io, int fd, int mode, uint64_t off, uint64_t len)
{
	int r = enter(self(io), &self(io)->space, false);

	if (r == 0 && atomic_load(&self(io)->room) <= 0)
		r = fail(self(io), -ENOSPC);
	return r == 0 ? real()->fallocate(real(), fd, mode, off, len) : r;
}

static int switch_fstat(const struct mc_io *io, int fd, struct stat *ret)
{
	(void)io;
	return real()->fstat(real(), fd, ret);
}

static int switch_rename(const struct mc_io *io, const char *from, const char *to)
{
	int r = enter(self(io), NULL, false);

	return r == 0 ? real()->rename(real(), from, to) : r;
}

static int switch_unlink(const struct mc_io *io, const char *path)
{
	int r = enter(self(io), NULL, false);

	return r == 0 ? real()->unlink(real(), path) : r;
}

static int switch_mkdir(const struct mc_io *io, const char *path, mode_t mode)
{
	int r = enter(self(io), NULL, false);

	return r == 0 ? real()->mkdir(real(), path, mode) : r;
}

void io_switch_init(struct io_switch *s)
{
	*s = (struct io_switch){.io = {.open = switch_open,
					.close = switch_close,
					.pread = switch_pread,
					.pwrite = switch_pwrite,
					.fdatasync = switch_fdatasync,
					.fsync = switch_fsync,
					.ftruncate = switch_ftruncate,
					.fallocate = switch_fallocate,
					.fstat = switch_fstat,
					.rename = switch_rename,
					.unlink = switch_unlink,
					.mkdir = switch_mkdir},
		.room = INT64_MAX};
}
