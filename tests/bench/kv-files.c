/*
 * The client of the KV measurements: whole files of one size, named 0, 1, 2 …, and one line of
 * JSON. Every buffer has been touched before.
 *
 *   kv-files put DIR SIZE COUNT            creates, writes in one call and closes each
 *   kv-files get DIR SIZE COUNT [THREADS [PASSES]]   opens, reads in one call and closes each
 *   kv-files list DIR                      names and types, by getdents
 */
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 64u
#define DIRENTS (1u << 20) /* bytes asked for at once; the kernel gives less */

struct part {
	const char *dir;
	size_t size, first, end; /* bytes; files first … end - 1 */
	unsigned passes;
	pthread_t thread;
};

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static char *touched(size_t size)
{
	char *buf = aligned_alloc(4096, (size + 4095) / 4096 * 4096);

	if (buf == NULL)
		err(1, "buffer");
	memset(buf, 0x5a, size);
	return buf;
}

static void put_one(const char *path, const char *buf, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (fd < 0)
		err(1, "%s", path);
	for (size_t at = 0; at < size;) {
		ssize_t n = write(fd, buf + at, size - at);

		if (n <= 0)
			err(1, "%s at %zu", path, at);
		at += (size_t)n;
	}
	if (close(fd) != 0)
		err(1, "%s", path);
}

static void get_one(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY);

	if (fd < 0)
		err(1, "%s", path);
	for (size_t at = 0; at < size;) {
		ssize_t n = read(fd, buf + at, size - at);

		if (n <= 0)
			err(1, "%s at %zu", path, at);
		at += (size_t)n;
	}
	close(fd);
}

static void *get_part(void *arg)
{
	const struct part *p = arg;
	char path[4096], *buf = touched(p->size);

	for (unsigned pass = 0; pass < p->passes; pass++)
		for (size_t i = p->first; i < p->end; i++) {
			snprintf(path, sizeof(path), "%s/%zu", p->dir, i);
			get_one(path, buf, p->size);
		}
	free(buf);
	return NULL;
}

static void get(const char *dir, size_t size, size_t count, unsigned threads, unsigned passes)
{
	struct part parts[MAX_THREADS];

	if (threads == 0 || threads > MAX_THREADS)
		errx(2, "1 … %u threads", MAX_THREADS);
	for (unsigned t = 0; t < threads; t++) {
		parts[t] = (struct part){.dir = dir,
			.size = size,
			.first = count * t / threads,
			.end = count * (t + 1) / threads,
			.passes = passes};
		if (pthread_create(&parts[t].thread, NULL, get_part, &parts[t]) != 0)
			errx(1, "thread");
	}
	for (unsigned t = 0; t < threads; t++)
		pthread_join(parts[t].thread, NULL);
}

static void put(const char *dir, size_t size, size_t count)
{
	char path[4096], *buf = touched(size);

	for (size_t i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/%zu", dir, i);
		put_one(path, buf, size);
	}
	free(buf);
}

struct dirent64 {
	uint64_t ino;
	int64_t off;
	unsigned short len;
	unsigned char type;
	char name[];
};

static size_t list(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY);
	char *buf = touched(DIRENTS);
	size_t names = 0;
	long n;

	if (fd < 0)
		err(1, "%s", dir);
	while ((n = syscall(SYS_getdents64, fd, buf, DIRENTS)) > 0)
		for (long at = 0; at < n; names++) {
			unsigned short len;

			memcpy(&len, buf + at + offsetof(struct dirent64, len), sizeof(len));
			at += len;
		}
	if (n < 0)
		err(1, "%s", dir);
	close(fd);
	free(buf);
	return names;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[1] : "";
	size_t size = argc > 4 ? strtoull(argv[3], NULL, 0) : 0;
	size_t count = argc > 4 ? strtoull(argv[4], NULL, 0) : 0;
	unsigned threads = argc > 5 ? (unsigned)atoi(argv[5]) : 1;
	unsigned passes = argc > 6 ? (unsigned)atoi(argv[6]) : 1;
	double begin = now_s();

	if (strcmp(mode, "put") == 0 && argc == 5)
		put(argv[2], size, count);
	else if (strcmp(mode, "get") == 0 && argc >= 5)
		get(argv[2], size, count, threads, passes);
	else if (strcmp(mode, "list") == 0 && argc == 3)
		count = list(argv[2]);
	else
		errx(2,
			"usage: kv-files put DIR SIZE COUNT | get DIR SIZE COUNT [THREADS "
			"[PASSES]] | list DIR");
	printf("{\"files\": %zu, \"bytes\": %zu, \"seconds\": %.6f}\n", count * passes,
		count * size * passes, now_s() - begin);
	return 0;
}
