/*
 * The reader of the measurements: one file, one way, one line of JSON. The time is that of the
 * passes, without the first open; every buffer has been touched before.
 *
 *   read-file read FILE [PASSES]         read() of 1 MiB from start to end
 *   read-file mmap FILE [PASSES]         a mapping walked from start to end, every cache line
 * loaded read-file random FILE COUNT SEED     COUNT preads of 4 KiB at aligned random offsets
 */
#include <err.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define SMALL 4096u

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static uint64_t read_pass(int fd, uint64_t size, char *buf)
{
	uint64_t at = 0;

	while (at < size) {
		ssize_t n = pread(fd, buf, MIB, (off_t)at);

		if (n <= 0)
			err(1, "read at %llu", (unsigned long long)at);
		at += (uint64_t)n;
	}
	return at;
}

static uint64_t mmap_pass(int fd, uint64_t size)
{
	const volatile uint64_t *p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	uint64_t sum = 0;

	if (p == MAP_FAILED)
		err(1, "mmap");
	for (uint64_t i = 0; i < size / 8; i += 8)
		sum += p[i];
	munmap((void *)(uintptr_t)p, size);
	/* The sum is wanted by nobody; the loads are volatile and happen anyway. */
	return sum == 0 ? size : size;
}

static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* Prints how many different blocks of 1 MiB were touched. */
static void random_reads(int fd, uint64_t size, uint64_t count, uint64_t seed)
{
	uint8_t *seen = calloc(size / MIB + 1, 1);
	uint64_t distinct = 0;
	char buf[SMALL];
	double begin = now_s();

	if (seen == NULL)
		errx(1, "no memory");
	for (uint64_t i = 0; i < count; i++) {
		uint64_t at = next_random(&seed) % (size / SMALL) * SMALL;

		if (pread(fd, buf, SMALL, (off_t)at) != SMALL)
			err(1, "read at %llu", (unsigned long long)at);
		distinct += seen[at / MIB] == 0;
		seen[at / MIB] = 1;
	}
	printf("{\"reads\": %llu, \"distinct_blocks\": %llu, \"seconds\": %.6f}\n",
		(unsigned long long)count, (unsigned long long)distinct, now_s() - begin);
	free(seen);
}

int main(int argc, char **argv)
{
	uint64_t passes, bytes = 0, size;
	struct stat st;
	char *buf;
	double begin;
	int fd;

	if (argc < 3)
		errx(2, "usage: read-file read|mmap FILE [PASSES] | random FILE COUNT SEED");
	fd = open(argv[2], O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		err(1, "%s", argv[2]);
	size = (uint64_t)st.st_size;
	if (strcmp(argv[1], "random") == 0 && argc == 5) {
		random_reads(fd, size, strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
		return 0;
	}
	passes = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
	buf = malloc(MIB);
	if (buf == NULL)
		errx(1, "no memory");
	memset(buf, 1, MIB);
	begin = now_s();
	for (uint64_t i = 0; i < passes; i++)
		bytes += strcmp(argv[1], "mmap") == 0 ? mmap_pass(fd, size)
						      : read_pass(fd, size, buf);
	printf("{\"bytes\": %llu, \"seconds\": %.6f}\n", (unsigned long long)bytes,
		now_s() - begin);
	free(buf);
	return 0;
}
