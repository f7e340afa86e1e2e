/*
 * The I/O table: every system call by which a persistent tier touches its files. The real table is
 * the kernel; a fault table (io-fault.h) fails or tears the n-th call and can crash, so that
 * recovery is explored in process.
 *
 * All calls return ≥ 0 or -errno; none but fallocate retries, none is partial in secret: pread and
 * pwrite may be short as in the kernel, mc_io_read_full and mc_io_write_full continue. Thread-safe.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct mc_io {
	int (*open)(const struct mc_io *io, const char *path, int flags, mode_t mode);
	int (*close)(const struct mc_io *io, int fd);
	int64_t (*pread)(const struct mc_io *io, int fd, void *buf, size_t len, uint64_t off);
	int64_t (*pwrite)(
		const struct mc_io *io, int fd, const void *buf, size_t len, uint64_t off);
	int (*fdatasync)(const struct mc_io *io, int fd);
	int (*fsync)(const struct mc_io *io, int fd);
	int (*ftruncate)(const struct mc_io *io, int fd, uint64_t size);
	int (*fallocate)(const struct mc_io *io, int fd, int mode, uint64_t off, uint64_t len);
	int (*fstat)(const struct mc_io *io, int fd, struct stat *ret);
	int (*rename)(const struct mc_io *io, const char *from, const char *to);
	int (*unlink)(const struct mc_io *io, const char *path);
	int (*mkdir)(const struct mc_io *io, const char *path, mode_t mode);
};

/* The system calls themselves. */
const struct mc_io *mc_io_real(void);

/* Its fallocate. A signal ends an allocation of memory in the middle, a stop or a freeze of the
 * process among them: it begins anew. */
int mc_io_allocate(int fd, int mode, uint64_t off, uint64_t len);

/* Exactly len bytes: 0, -ENODATA when the file ends before, or -errno. */
int mc_io_read_full(const struct mc_io *io, int fd, void *buf, size_t len, uint64_t off);
int mc_io_write_full(const struct mc_io *io, int fd, const void *buf, size_t len, uint64_t off);
/* Opens the directory, fsyncs and closes it: names made, renamed or removed in it become durable.
 */
int mc_io_sync_dir(const struct mc_io *io, const char *path);
/*
 * The directory is there, and its name is durable: also one that is found, an earlier life may have
 * ended before its sync. A parent that we may not read is not ours to sync. *ret_path: canonical,
 * owned by the caller.
 */
int mc_io_make_dir(const struct mc_io *io, const char *path, char **ret_path);
