/*
 * Readers that know every byte, for tests under which servers, disks and daemons fail:
 *   verified-reads make DIR FILES MIB          files f0, f1, … of known content
 *   verified-reads run DIR KV FILES MIB        read them, and objects that it puts below KV, until
 *                                              the file $MC_STOP appears; MC_SEED chooses
 * Each read is 4 to 64 KiB at any offset. What it gave must be right to the last byte; an error is
 * counted, the file opened anew. Progress stands in $MC_PROGRESS: "reads kv-reads errors wrong".
 * Ends with 1 at the first wrong byte, which is told. KV objects say themselves which version they
 * are: they must be whole, and a version that was put.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define READ_MIN (4 * KIB)
#define READ_MAX (64 * KIB)
#define READERS 6
#define KV_CLIENTS 2
#define BURST 200     /* reads of one open file */
#define KEYS 8000     /* KV objects; each has one client */
#define HOT (6 * MIB) /* where most reads of a file go; it moves */
#define HOT_SHARE 94  /* of 100 reads */

/* What stands at the beginning of a KV object. */
struct head {
	uint64_t key, version, size;
};

static const char *dir, *kv, *progress, *stop;
static unsigned n_files;
static uint64_t file_size;
static _Atomic uint64_t reads, kv_reads, kv_puts, errors[256], wrong;
static _Atomic bool stopping;
static uint64_t versions[KEYS]; /* the last that was tried; of the key's client */

static uint64_t mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static uint64_t draw(uint64_t *seed)
{
	return mix(++*seed);
}

/* Bytes [off, off + len) of the content called id; words has room for a word more. */
static const char *content(uint64_t *words, uint64_t id, uint64_t off, uint64_t len)
{
	for (uint64_t w = off / 8, i = 0; w <= (off + len) / 8; w++, i++)
		words[i] = mix(id << 40 ^ w);
	return (const char *)words + off % 8;
}

static bool failed(void)
{
	int e = errno;

	atomic_fetch_add(&errors[e < 256 ? e : 0], 1);
	nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	return false;
}

static void tell_wrong(const char *what, uint64_t off, uint64_t len, uint64_t at)
{
	atomic_fetch_add(&wrong, 1);
	atomic_store(&stopping, true);
	fprintf(stderr, "WRONG: %s: %" PRIu64 " bytes from %" PRIu64 " on: byte %" PRIu64 "\n",
		what, len, off, at);
}

/* Where two texts of that length differ; len: nowhere. */
static uint64_t difference(const char *a, const char *b, uint64_t len)
{
	uint64_t i = 0;

	if (memcmp(a, b, len) == 0)
		return len;
	while (a[i] == b[i])
		i++;
	return i;
}

/* ---- checkpoint files */

static bool read_once(int fd, unsigned file, uint64_t *seed, char *buf, uint64_t *words)
{
	uint64_t len = READ_MIN + draw(seed) % (READ_MAX - READ_MIN + 1), off, at;
	uint64_t hot = mix(file + (uint64_t)time(NULL) / 20) % (file_size - HOT);
	char name[32];
	ssize_t n;

	off = draw(seed) % 100 < HOT_SHARE ? hot + draw(seed) % (HOT - READ_MAX)
					   : draw(seed) % (file_size - READ_MIN);
	if (len > file_size - off)
		len = file_size - off;
	posix_fadvise(
		fd, (off_t)(off & ~(4 * KIB - 1)), (off_t)(len + 4 * KIB), POSIX_FADV_DONTNEED);
	n = pread(fd, buf, len, (off_t)off);
	if (n < 0)
		return failed();
	at = difference(buf, content(words, file, off, (uint64_t)n), (uint64_t)n);
	snprintf(name, sizeof(name), "f%u", file);
	if (at < (uint64_t)n || n == 0)
		tell_wrong(name, off, (uint64_t)n, at);
	if ((uint64_t)n == len) /* shorter before an error: the next one tells */
		atomic_fetch_add(&reads, 1);
	return true;
}

static void *reader_main(void *arg)
{
	uint64_t seed = mix((uint64_t)(uintptr_t)arg), *words = malloc(READ_MAX + 32);
	char *buf = malloc(READ_MAX), path[4096];

	while (!atomic_load(&stopping)) {
		unsigned file = (unsigned)(draw(&seed) % n_files);
		bool good = true;
		int fd;

		snprintf(path, sizeof(path), "%s/f%u", dir, file);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0) {
			failed();
			continue;
		}
		posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
		for (int i = 0; i < BURST && good && !atomic_load(&stopping); i++)
			good = read_once(fd, file, &seed, buf, words);
		close(fd);
	}
	free(words);
	free(buf);
	return NULL;
}

/* ---- KV objects */

static uint64_t content_of(const struct head *h)
{
	return mix(h->key * 1000003 + h->version);
}

static void put_object(uint64_t key, uint64_t *seed, uint64_t *words)
{
	struct head h = {.key = key,
		.version = ++versions[key],
		.size = READ_MIN + draw(seed) % (READ_MAX - READ_MIN + 1)};
	char path[4096];
	int fd;
	bool good;

	snprintf(path, sizeof(path), "%s/k%" PRIu64, kv, key);
	content(words, content_of(&h), 0, h.size);
	memcpy(words, &h, sizeof(h));
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0) {
		failed();
		return;
	}
	good = write(fd, words, h.size) == (ssize_t)h.size;
	if (!good) {
		failed();
		unlink(path); /* what was closed in the middle is not to be published */
	}
	if (close(fd) < 0)
		failed();
	else if (good)
		atomic_fetch_add(&kv_puts, 1);
}

static void get_object(uint64_t key, char *buf, uint64_t *words)
{
	struct head h;
	char path[4096];
	uint64_t at;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/k%" PRIu64, kv, key);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		if (errno != ENOENT) /* never put, or lost with the memory */
			failed();
		return;
	}
	n = pread(fd, buf, READ_MAX + 1, 0);
	if (n < 0)
		failed();
	close(fd);
	if (n < 0)
		return;
	memcpy(&h, buf, sizeof(h));
	if ((size_t)n < sizeof(h) || h.key != key || h.version > versions[key] ||
		h.size != (uint64_t)n) {
		tell_wrong(path, 0, (uint64_t)n, 0);
		return;
	}
	content(words, content_of(&h), 0, h.size);
	memcpy(words, &h, sizeof(h));
	at = difference(buf, (const char *)words, h.size);
	if (at < h.size)
		tell_wrong(path, 0, h.size, at);
	atomic_fetch_add(&kv_reads, 1);
}

static void *kv_main(void *arg)
{
	static _Atomic uint64_t clients;
	uint64_t client = atomic_fetch_add(&clients, 1);
	uint64_t seed = mix((uint64_t)(uintptr_t)arg), *words = malloc(READ_MAX + 32);
	char *buf = malloc(READ_MAX + 1);

	while (!atomic_load(&stopping)) {
		uint64_t key = draw(&seed) % (KEYS / KV_CLIENTS) * KV_CLIENTS + client;

		if (versions[key] == 0 || draw(&seed) % 20 == 0)
			put_object(key, &seed, words);
		else
			get_object(key, buf, words);
	}
	free(words);
	free(buf);
	return NULL;
}

/* ---- the program */

static uint64_t all_errors(void)
{
	uint64_t n = 0;

	for (int e = 0; e < 256; e++)
		n += atomic_load(&errors[e]);
	return n;
}

/* Whoever reads the file sees one line of it. */
static void show_progress(void)
{
	char tmp[4096];
	FILE *f;

	snprintf(tmp, sizeof(tmp), "%s.tmp", progress);
	f = fopen(tmp, "we");
	if (f == NULL)
		return;
	fprintf(f, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
		atomic_load(&reads) + atomic_load(&kv_reads), atomic_load(&kv_reads), all_errors(),
		atomic_load(&wrong));
	if (fclose(f) == 0)
		rename(tmp, progress);
}

static int run(uint64_t seed)
{
	pthread_t threads[READERS + KV_CLIENTS];

	for (uintptr_t i = 0; i < READERS + KV_CLIENTS; i++)
		if (pthread_create(&threads[i], NULL, i < READERS ? reader_main : kv_main,
			    (void *)(uintptr_t)mix(seed * 64 + i)) != 0)
			return 1;
	while (!atomic_load(&stopping)) {
		nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
		show_progress();
		if (access(stop, F_OK) == 0)
			atomic_store(&stopping, true);
	}
	for (int i = 0; i < READERS + KV_CLIENTS; i++)
		pthread_join(threads[i], NULL);
	show_progress();
	printf("%" PRIu64 " verified reads, %" PRIu64 " of KV objects; %" PRIu64 " puts; %" PRIu64
	       " errors:",
		atomic_load(&reads) + atomic_load(&kv_reads), atomic_load(&kv_reads),
		atomic_load(&kv_puts), all_errors());
	for (int e = 0; e < 256; e++)
		if (atomic_load(&errors[e]) > 0)
			printf(" %s %" PRIu64, strerrorname_np(e), atomic_load(&errors[e]));
	printf("; %" PRIu64 " wrong\n", atomic_load(&wrong));
	return atomic_load(&wrong) > 0;
}

static int make(void)
{
	uint64_t *words = malloc(MIB + 8);
	char path[4096];

	for (unsigned file = 0; file < n_files; file++) {
		FILE *f;

		snprintf(path, sizeof(path), "%s/f%u", dir, file);
		f = fopen(path, "we");
		for (uint64_t off = 0; f != NULL && off < file_size; off += MIB)
			if (fwrite(content(words, file, off, MIB), 1, MIB, f) != MIB)
				return 1;
		if (f == NULL || fclose(f) != 0)
			return 1;
	}
	free(words);
	return 0;
}

int main(int argc, char **argv)
{
	const char *seed = getenv("MC_SEED");

	progress = getenv("MC_PROGRESS");
	stop = getenv("MC_STOP");
	dir = argc > 2 ? argv[2] : "";
	if (argc == 5 && strcmp(argv[1], "make") == 0) {
		n_files = (unsigned)atoi(argv[3]);
		file_size = (uint64_t)atoi(argv[4]) * MIB;
		return make();
	}
	if (argc != 6 || strcmp(argv[1], "run") != 0 || progress == NULL || stop == NULL) {
		fprintf(stderr,
			"usage: verified-reads make DIR FILES MIB | run DIR KV FILES MIB\n");
		return 2;
	}
	kv = argv[3];
	n_files = (unsigned)atoi(argv[4]);
	file_size = (uint64_t)atoi(argv[5]) * MIB;
	return run(seed != NULL ? (uint64_t)atoll(seed) : 0);
}
