/*
 * Linked into a mooncakefs of its own (mooncakefs-faulty), below which local disks misbehave: calls
 * of its I/O table fail at random, at rates that a test changes while the daemon runs.
 *
 * MC_IO_FAULTS names a file of six numbers of four digits, a blank between them, each the calls of
 * 10,000 that go wrong: reads and syncs that fail with EIO, writes that are done in part and fail
 * with EIO, writes that are done in part and said to be whole, reads of which a bit is flipped,
 * writes and allocations that find no space. MC_SEED chooses them. MC_IO_FAULTS_ONLY names a file
 * that is there: others are spared.
 *
 * Nothing of it is in the product: the linker puts it in the place of mc_io_real, and refuses the
 * ring, so that all I/O goes through the table.
 */
#include "tier/io.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum fault { READ_FAILS, SYNC_FAILS, WRITE_TORN, WRITE_LIES, READ_FLIPS, NO_SPACE, N_FAULTS };
#define FIELD 5 /* characters of a number and its blank */

const struct mc_io *__real_mc_io_real(void);
const struct mc_io *__wrap_mc_io_real(void);
int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);

static const volatile char *rates; /* NULL: nothing fails */
static unsigned first_seed;
static struct mc_io table;
static struct stat only; /* st_ino 0: none is spared */

static unsigned draw(void)
{
	static unsigned threads;
	static __thread unsigned seed;

	if (seed == 0)
		seed = first_seed + 7919 * (1 + __atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED));
	return (unsigned)rand_r(&seed);
}

static bool happens(enum fault f, int fd)
{
	unsigned rate = 0;
	struct stat st;

	if (only.st_ino != 0 &&
		(fstat(fd, &st) != 0 || st.st_dev != only.st_dev || st.st_ino != only.st_ino))
		return false;
	for (int i = 0; i < FIELD - 1 && rates != NULL; i++)
		rate = 10 * rate + ((unsigned char)rates[(int)f * FIELD + i] - (unsigned)'0');
	return rate > 0 && draw() % 10000 < rate;
}

static const struct mc_io *real(void)
{
	return __real_mc_io_real();
}

static int64_t faulty_pread(const struct mc_io *io, int fd, void *buf, size_t len, uint64_t off)
{
	int64_t n;

	(void)io;
	if (happens(READ_FAILS, fd))
		return -EIO;
	n = real()->pread(real(), fd, buf, len, off);
	if (n > 0 && happens(READ_FLIPS, fd))
		((char *)buf)[draw() % (uint64_t)n] ^= (char)(1u << draw() % 8);
	return n;
}

/* Sectors up to a random one. */
static int64_t write_a_part(int fd, const void *buf, size_t len, uint64_t off)
{
	size_t part = len < 1024 ? 0 : 512 * (draw() % (len / 512));

	return part == 0 ? 0 : real()->pwrite(real(), fd, buf, part, off);
}

static int64_t faulty_pwrite(
	const struct mc_io *io, int fd, const void *buf, size_t len, uint64_t off)
{
	(void)io;
	if (happens(NO_SPACE, fd))
		return -ENOSPC;
	if (happens(WRITE_TORN, fd)) {
		write_a_part(fd, buf, len, off);
		return -EIO;
	}
	if (happens(WRITE_LIES, fd))
		return write_a_part(fd, buf, len, off) < 0 ? -EIO : (int64_t)len;
	return real()->pwrite(real(), fd, buf, len, off);
}

static int faulty_fdatasync(const struct mc_io *io, int fd)
{
	(void)io;
	return happens(SYNC_FAILS, fd) ? -EIO : real()->fdatasync(real(), fd);
}

static int faulty_fsync(const struct mc_io *io, int fd)
{
	(void)io;
	return happens(SYNC_FAILS, fd) ? -EIO : real()->fsync(real(), fd);
}

static int faulty_fallocate(const struct mc_io *io, int fd, int mode, uint64_t off, uint64_t len)
{
	(void)io;
	return happens(NO_SPACE, fd) ? -ENOSPC : real()->fallocate(real(), fd, mode, off, len);
}

const struct mc_io *__wrap_mc_io_real(void)
{
	return &table;
}

/* Before main: there are no other threads. */
static __attribute__((constructor)) void begin(void)
{
	const char *path = getenv("MC_IO_FAULTS"), *seed = getenv("MC_SEED");
	int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *at;

	table = *real();
	table.pread = faulty_pread;
	table.pwrite = faulty_pwrite;
	table.fdatasync = faulty_fdatasync;
	table.fsync = faulty_fsync;
	table.fallocate = faulty_fallocate;
	if (getenv("MC_IO_FAULTS_ONLY") != NULL && stat(getenv("MC_IO_FAULTS_ONLY"), &only) != 0)
		abort();
	first_seed = (seed != NULL ? (unsigned)atol(seed) : 0) + (unsigned)getpid();
	if (fd < 0)
		return;
	at = mmap(NULL, (size_t)N_FAULTS * FIELD, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (at != MAP_FAILED)
		rates = at;
}

int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
	(void)entries;
	(void)ring;
	(void)flags;
	return -ENOSYS;
}
