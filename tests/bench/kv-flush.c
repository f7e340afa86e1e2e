/*
 * Flush of KV objects to NVMe against a plain sequential write of the same bytes, and how long a
 * restart takes with a million objects.
 *
 *   kv-flush DIR 4k COUNT      COUNT objects of 4 KiB
 *   kv-flush DIR mix COUNT     70 % 4 KiB, 20 % 256 KiB, 10 % 3.12 MiB, by number
 *   kv-flush DIR restart COUNT small objects, then a restart
 *
 * The counterpart is fio (1 MiB, O_DIRECT, depth 8, preallocated, fsync at the end), where
 * installed.
 */
#include "tier/digest.h"
#include "tier/kv-log.h"
#include "tier/lock.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define BATCH 256u
#define WINDOW (UINT64_C(512) << 20) /* bytes under way at most, as a dirty bound would have it */

struct bench {
	struct mc_mutex lock;
	struct mc_cond over;
	uint64_t under_way; /* bytes */
	size_t left;        /* objects */
	int error;
	int recovered; /* 1 until recovery is done */
	uint64_t told;
};

struct object {
	struct mc_kv_item item;
	char key[72];
};

static struct bench bench;

static void item_done(struct mc_kv_item *item, int res)
{
	mc_mutex_lock(&bench.lock);
	bench.under_way -= item->meta.size;
	bench.left--;
	if (res != 0)
		bench.error = res;
	mc_cond_signal(&bench.over);
	mc_mutex_unlock(&bench.lock);
}

static void told_put(void *ctx, const struct mc_kv_meta *meta, const struct mc_kv_loc *loc)
{
	(void)ctx;
	(void)meta;
	(void)loc;
	bench.told++;
}

static void told_done(void *ctx, int res)
{
	(void)ctx;
	mc_mutex_lock(&bench.lock);
	bench.recovered = res;
	mc_cond_signal(&bench.over);
	mc_mutex_unlock(&bench.lock);
}

static double seconds_since(uint64_t start)
{
	return (double)(mc_now_ns() - start) / 1e9;
}

static struct mc_kv_log *open_log(const char *dir, uint64_t capacity)
{
	struct mc_kv_log_opts o = {.dir = dir, .capacity = capacity};
	struct mc_kv_log_replay replay = {.put = told_put, .done = told_done};
	struct mc_err err = {0};
	uint64_t start = mc_now_ns();
	struct mc_kv_log *log;
	double opened;
	int r;

	bench.recovered = 1;
	bench.told = 0;
	r = mc_kv_log_open(&o, &replay, &log, &err);
	if (r != 0) {
		fprintf(stderr, "%s\n", err.text);
		exit(1);
	}
	opened = seconds_since(start);
	mc_mutex_lock(&bench.lock);
	while (bench.recovered == 1)
		mc_cond_wait(&bench.over, &bench.lock);
	mc_mutex_unlock(&bench.lock);
	printf("open %.3f s, %" PRIu64 " objects known after %.3f s\n", opened, bench.told,
		seconds_since(start));
	return log;
}

static uint64_t size_of(const char *mode, size_t i)
{
	unsigned dice = (unsigned)(i * 2654435761u >> 7) % 10;

	if (strcmp(mode, "restart") == 0)
		return 64;
	if (strcmp(mode, "4k") == 0 || dice < 7)
		return 4096;
	return dice < 9 ? 262144 : 3271557;
}

static struct object *make_objects(const char *mode, size_t n, uint64_t *ret_bytes)
{
	static unsigned char buf[4 * MIB] __attribute__((aligned(4096)));
	static uint32_t crc[3][4];
	struct object *objects = calloc(n, sizeof(*objects));

	if (objects == NULL)
		exit(1);
	memset(buf, 0x5a, sizeof(buf));
	*ret_bytes = 0;
	for (size_t i = 0; i < n; i++) {
		struct mc_kv_meta *m = &objects[i].item.meta;
		uint32_t *c;

		m->size = size_of(mode, i);
		c = crc[m->size > 4096 ? 1 + (m->size > 262144) : 0];
		m->n_crc = (uint32_t)((m->size + MIB - 1) / MIB);
		for (uint32_t k = 0; k < m->n_crc; k++)
			if (c[k] == 0)
				c[k] = mc_crc32c(
					0, buf, m->size - k * MIB < MIB ? m->size - k * MIB : MIB);
		m->crc = c;
		snprintf(objects[i].key, sizeof(objects[i].key), "model-8b@4096@0@%016zx%032zx",
			i * 2654435761u, i);
		m->key = objects[i].key;
		memcpy(m->version, &i, sizeof(i));
		objects[i].item.buf = buf;
		objects[i].item.done = item_done;
		*ret_bytes += m->size;
	}
	return objects;
}

static void put_all(struct mc_kv_log *log, struct object *objects, size_t n)
{
	bench.left = n;
	for (size_t i = 0; i < n; i += BATCH) {
		struct mc_kv_item *items[BATCH];
		size_t k = 0;
		uint64_t bytes = 0;

		for (; k < BATCH && i + k < n; k++) {
			items[k] = &objects[i + k].item;
			bytes += items[k]->meta.size;
		}
		mc_mutex_lock(&bench.lock);
		while (bench.under_way > WINDOW)
			mc_cond_wait(&bench.over, &bench.lock);
		bench.under_way += bytes;
		mc_mutex_unlock(&bench.lock);
		mc_kv_log_put(log, items, k);
	}
	mc_kv_log_sync(log);
	if (bench.error != 0 || bench.left != 0) {
		fprintf(stderr, "puts failed: %s\n", strerror(-bench.error));
		exit(1);
	}
}

/* MiB/s, 0 without fio. */
static double run_fio(const char *dir, uint64_t bytes)
{
	char command[1024], line[4096];
	double kib = 0;
	FILE *f;

	snprintf(command, sizeof(command),
		"fio --name=seq --filename=%s/fio --rw=write --bs=1M --size=%" PRIu64
		" --direct=1 --ioengine=io_uring --iodepth=8 --end_fsync=1 --minimal 2>/dev/null",
		dir, bytes / MIB * MIB);
	f = popen(command, "r"); /* the directory is the caller's own */
	if (f == NULL)
		return 0;
	if (fgets(line, sizeof(line), f) != NULL) {
		char *save, *field = strtok_r(line, ";", &save);

		for (int i = 0; field != NULL && i < 47; i++)
			field = strtok_r(NULL, ";", &save);
		kib = field != NULL ? atof(field) : 0;
	}
	pclose(f);
	snprintf(command, sizeof(command), "%s/fio", dir);
	unlink(command);
	return kib / 1024;
}

/* Nanoseconds that a thread of ours has run; *ret_name: its name. */
static uint64_t thread_ran(const char *id, char ret_name[32])
{
	static const char *const files[] = {"comm", "schedstat"};
	char path[64], lines[2][128] = {"", ""};

	for (unsigned i = 0; i < 2; i++) {
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%.20s/%s", id, files[i]);
		f = fopen(path, "re");
		if (f == NULL)
			continue;
		if (fgets(lines[i], sizeof(lines[i]), f) == NULL)
			lines[i][0] = '\0';
		fclose(f);
	}
	snprintf(ret_name, 32, "%.*s", (int)strcspn(lines[0], "\n"), lines[0]);
	return strtoull(lines[1], NULL, 10);
}

/* What each thread of the log has taken so far: steadier than the rate on a busy machine. */
static void report_cpu(size_t n)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;

	printf("CPU, µs an object:");
	while (d != NULL && (e = readdir(d)) != NULL) {
		char name[32];
		uint64_t ran = e->d_name[0] != '.' ? thread_ran(e->d_name, name) : 0;

		if (ran > 0 && strncmp(name, "mc-", 3) == 0)
			printf(" %s %.2f", name, (double)ran / 1e3 / (double)n);
	}
	printf("\n");
	if (d != NULL)
		closedir(d);
}

static void report(struct mc_kv_log *log, const char *dir, uint64_t bytes, double seconds)
{
	struct mc_kv_log_stats s;
	double rate = (double)bytes / (double)MIB / seconds, fio;

	mc_kv_log_stats(log, &s);
	fio = run_fio(dir, bytes);
	printf("%.0f MiB in %.2f s: %.0f MiB/s; fio %.0f MiB/s; ratio %.2f\n",
		(double)bytes / (double)MIB, seconds, rate, fio, fio > 0 ? rate / fio : 0);
	printf("%" PRIu64 " fdatasync, one for each %.1f MiB written; written ÷ payload %.3f\n",
		s.syncs, (double)s.written / (double)MIB / (double)(s.syncs != 0 ? s.syncs : 1),
		(double)s.written / (double)bytes);
}

int main(int argc, char **argv)
{
	struct mc_kv_log *log;
	struct object *objects;
	struct rusage u;
	uint64_t bytes, start;
	double seconds;
	size_t n;

	if (argc != 4) {
		fprintf(stderr, "usage: kv-flush DIR 4k|mix|restart COUNT\n");
		return 2;
	}
	mc_mutex_init(&bench.lock);
	mc_cond_init(&bench.over);
	n = (size_t)atol(argv[3]);
	objects = make_objects(argv[2], n, &bytes);
	log = open_log(argv[1], 2 * bytes + 4096 * MIB);
	start = mc_now_ns();
	put_all(log, objects, n);
	seconds = seconds_since(start);
	report_cpu(n);
	report(log, argv[1], bytes, seconds);
	if (strcmp(argv[2], "restart") == 0) {
		start = mc_now_ns();
		mc_kv_log_close(log);
		printf("close %.3f s\n", seconds_since(start));
		log = open_log(argv[1], 2 * bytes + 4096 * MIB);
		getrusage(RUSAGE_SELF, &u);
		printf("peak memory %ld MiB\n", u.ru_maxrss / 1024);
	}
	mc_kv_log_close(log);
	free(objects);
	return 0;
}
