/* The crashing I/O table: which call goes wrong, and what each does to the disk below it. */
#include "tests/io-fault.h"

#include "tests/io-fault-disk.h"
#include "tier/lock.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FD 1024

struct io_fault {
	struct mc_io io; /* first */
	struct mc_mutex lock;
	struct io_disk disk;
	struct io_node *by_fd[MAX_FD];
	char *dir_by_fd[MAX_FD];
	enum io_fault_kind kind;
	uint64_t at, calls;
	bool crashed;
	void (*on_crash)(void *ctx);
	void *crash_ctx;
};

static struct io_fault *self(const struct mc_io *io)
{
	return (struct io_fault *)(uintptr_t)io;
}

/* ---- the calls */

/* 0: go on; -EIO: this call goes wrong. *ret_tear: a write may be done in part first. */
static int enter(struct io_fault *f, bool *ret_tear)
{
	*ret_tear = false;
	if (f->crashed)
		return -EIO;
	f->calls++;
	if (f->kind == IO_FAULT_NONE || f->calls != f->at)
		return 0;
	if (f->kind != IO_FAULT_FAIL)
		f->crashed = true;
	if (f->crashed && f->on_crash != NULL)
		f->on_crash(f->crash_ctx);
	*ret_tear = f->kind == IO_FAULT_TEAR;
	return -EIO;
}

static const struct mc_io *real(void)
{
	return mc_io_real();
}

static int fault_open(const struct mc_io *io, const char *path, int flags, mode_t mode)
{
	struct io_fault *f = self(io);
	bool create, tear;
	struct io_name *e;
	int fd = 0;

	mc_mutex_lock(&f->lock);
	e = io_disk_find(&f->disk, path);
	create = (flags & O_CREAT) != 0 && e == NULL;
	if (f->crashed)
		fd = -EIO;
	else if (create || (flags & O_TRUNC) != 0)
		fd = enter(f, &tear);
	if (fd == 0)
		fd = real()->open(real(), path, flags, mode);
	if (fd < 0)
		goto out;
	ck_assert_int_lt(fd, MAX_FD);
	f->by_fd[fd] = NULL;
	f->dir_by_fd[fd] = NULL;
	if ((flags & O_DIRECTORY) != 0) {
		f->dir_by_fd[fd] = strdup(path);
	} else if (create) {
		f->by_fd[fd] = io_node_new(&f->disk);
		io_disk_rename(&f->disk, IO_MAKE, path, NULL, f->by_fd[fd]);
	} else {
		ck_assert_msg(e != NULL, "%s is unknown", path);
		f->by_fd[fd] = e->node;
		if ((flags & O_TRUNC) != 0)
			io_node_change(e->node, IO_TRUNCATE, 0, 0, 0, NULL);
	}
out:
	mc_mutex_unlock(&f->lock);
	return fd;
}

static int fault_close(const struct mc_io *io, int fd)
{
	struct io_fault *f = self(io);

	mc_mutex_lock(&f->lock);
	f->by_fd[fd] = NULL;
	free(f->dir_by_fd[fd]);
	f->dir_by_fd[fd] = NULL;
	mc_mutex_unlock(&f->lock);
	return real()->close(real(), fd);
}

static int64_t fault_pread(const struct mc_io *io, int fd, void *buf, size_t len, uint64_t off)
{
	struct io_fault *f = self(io);
	bool crashed;

	mc_mutex_lock(&f->lock);
	crashed = f->crashed;
	mc_mutex_unlock(&f->lock);
	return crashed ? -EIO : real()->pread(real(), fd, buf, len, off);
}

static int64_t fault_pwrite(
	const struct mc_io *io, int fd, const void *buf, size_t len, uint64_t off)
{
	struct io_fault *f = self(io);
	int64_t r;
	bool tear;

	mc_mutex_lock(&f->lock);
	r = enter(f, &tear);
	if (tear && len > 512)
		io_node_change(f->by_fd[fd], IO_WRITE, 0, off,
			512 *
				(1 +
					(uint64_t)rand_r(&f->disk.seed) %
						(len / 512 - (len % 512 == 0))),
			buf);
	if (r == 0)
		r = real()->pwrite(real(), fd, buf, len, off);
	if (r > 0)
		io_node_change(f->by_fd[fd], IO_WRITE, 0, off, (uint64_t)r, buf);
	mc_mutex_unlock(&f->lock);
	return r;
}

static int fault_fsync(const struct mc_io *io, int fd)
{
	struct io_fault *f = self(io);
	bool tear;
	int r;

	mc_mutex_lock(&f->lock);
	r = enter(f, &tear);
	if (f->dir_by_fd[fd] != NULL) {
		if (r == 0)
			io_disk_sync(&f->disk, f->dir_by_fd[fd]);
	} else if (r == 0 || !f->crashed) {
		io_node_settle(&f->disk, f->by_fd[fd], r == 0);
	}
	mc_mutex_unlock(&f->lock);
	return r;
}

static int fault_ftruncate(const struct mc_io *io, int fd, uint64_t size)
{
	struct io_fault *f = self(io);
	bool tear;
	int r;

	mc_mutex_lock(&f->lock);
	r = enter(f, &tear);
	if (r == 0)
		r = real()->ftruncate(real(), fd, size);
	if (r == 0)
		io_node_change(f->by_fd[fd], IO_TRUNCATE, 0, 0, size, NULL);
	mc_mutex_unlock(&f->lock);
	return r;
}

static int fault_fallocate(const struct mc_io *io, int fd, int mode, uint64_t off, uint64_t len)
{
	struct io_fault *f = self(io);
	bool tear;
	int r;

	mc_mutex_lock(&f->lock);
	r = enter(f, &tear);
	if (r == 0)
		r = real()->fallocate(real(), fd, mode, off, len);
	if (r == 0)
		io_node_change(f->by_fd[fd], IO_ALLOCATE, mode, off, len, NULL);
	mc_mutex_unlock(&f->lock);
	return r;
}

static int fault_fstat(const struct mc_io *io, int fd, struct stat *ret)
{
	(void)io;
	return real()->fstat(real(), fd, ret);
}

static int fault_rename(const struct mc_io *io, const char *from, const char *to)
{
	struct io_fault *f = self(io);
	struct io_name *e;
	bool tear;
	int r;

	mc_mutex_lock(&f->lock);
	r = enter(f, &tear);
	if (r == 0)
		r = real()->rename(real(), from, to);
	e = io_disk_find(&f->disk, from);
	if (r == 0 && e != NULL)
		io_disk_rename(&f->disk, IO_MOVE, from, to, e->node);
	mc_mutex_unlock(&f->lock);
	return r;
}

static int fault_unlink(const struct mc_io *io, const char *path)
{
	struct io_fault *f = self(io);
	struct io_name *e;
	bool tear;
	int r;

	mc_mutex_lock(&f->lock);
	r = enter(f, &tear);
	if (r == 0)
		r = real()->unlink(real(), path);
	e = io_disk_find(&f->disk, path);
	if (r == 0 && e != NULL)
		io_disk_rename(&f->disk, IO_REMOVE, path, NULL, e->node);
	mc_mutex_unlock(&f->lock);
	return r;
}

static int fault_mkdir(const struct mc_io *io, const char *path, mode_t mode)
{
	struct io_fault *f = self(io);
	bool tear;
	int r = 0;

	mc_mutex_lock(&f->lock);
	if (strcmp(path, f->disk.root) == 0 || io_disk_find(&f->disk, path) != NULL)
		r = f->crashed ? -EIO : -EEXIST;
	if (r == 0)
		r = enter(f, &tear);
	if (r == 0)
		r = real()->mkdir(real(), path, mode);
	if (r == 0)
		io_disk_rename(&f->disk, IO_MAKE, path, NULL, NULL);
	mc_mutex_unlock(&f->lock);
	return r;
}

/* ---- the test's side */

struct io_fault *io_fault_open(const char *root)
{
	struct io_fault *f = calloc(1, sizeof(*f));

	f->io = (struct mc_io){
		.open = fault_open,
		.close = fault_close,
		.pread = fault_pread,
		.pwrite = fault_pwrite,
		.fdatasync = fault_fsync,
		.fsync = fault_fsync,
		.ftruncate = fault_ftruncate,
		.fallocate = fault_fallocate,
		.fstat = fault_fstat,
		.rename = fault_rename,
		.unlink = fault_unlink,
		.mkdir = fault_mkdir,
	};
	mc_mutex_init(&f->lock);
	io_disk_init(&f->disk, root);
	return f;
}

const struct mc_io *io_fault_table(struct io_fault *f)
{
	return &f->io;
}

void io_fault_arm(struct io_fault *f, enum io_fault_kind kind, uint64_t at, unsigned seed)
{
	mc_mutex_lock(&f->lock);
	f->kind = kind;
	f->at = at;
	f->calls = 0;
	f->disk.seed = seed;
	mc_mutex_unlock(&f->lock);
}

void io_fault_tell(struct io_fault *f, void (*on_crash)(void *ctx), void *ctx)
{
	f->on_crash = on_crash;
	f->crash_ctx = ctx;
}

uint64_t io_fault_calls(struct io_fault *f)
{
	uint64_t calls;

	mc_mutex_lock(&f->lock);
	calls = f->calls;
	mc_mutex_unlock(&f->lock);
	return calls;
}

void io_fault_restart(struct io_fault *f)
{
	io_disk_restart(&f->disk);
	f->kind = IO_FAULT_NONE;
	f->crashed = false;
}

void io_fault_close(struct io_fault *f)
{
	io_disk_done(&f->disk);
	mc_mutex_done(&f->lock);
	free(f);
}
