/*
 * Many small objects in the KV store: puts them through the store library, or opens a store that
 * has them and says what its index costs. One line of JSON.
 *
 *   kv-many put DRAM NVME COUNT    into the directory d/, in a store that is closed then
 *   kv-many open DRAM NVME         until the index is complete; memory before and after
 *
 * DRAM is a mount point for the memory tier, NVME a directory.
 */
#include "tier/future.h"
#include "tier/kv.h"

#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GIB (UINT64_C(1) << 30)
#define DRAM_BYTES (2 * GIB)
#define NVME_BYTES (8 * GIB)
#define SIZE 256u /* bytes of an object */

static struct mc_kv *open_store(const char *dram, const char *nvme)
{
	struct mc_kv_opts o = {.dram_dir = dram,
		.dram_capacity = DRAM_BYTES,
		.nvme_dir = nvme,
		.nvme_capacity = NVME_BYTES,
		.node = "00000001"};
	struct mc_err error = {0};
	struct mc_kv *kv;

	if (mc_kv_open(&o, &kv, &error) != 0)
		errx(1, "%s", error.text);
	return kv;
}

static void roomed(void *ctx, int res)
{
	if (res < 0)
		errx(1, "no room: %s", strerror(-res));
	mc_future_set(ctx, res);
}

static void wait_room(struct mc_kv *kv)
{
	struct mc_future over;

	mc_future_init(&over);
	mc_kv_wait_room(kv, roomed, &over);
	mc_future_wait(&over);
}

static void put_one(struct mc_kv *kv, const char *key)
{
	static char bytes[SIZE];
	const struct timespec t = {.tv_sec = 1};
	struct mc_kv_writer *w;
	int r;

	while ((r = mc_kv_create(kv, SIZE, &w)) == -EAGAIN)
		wait_room(kv);
	if (r == 0 && pwrite(mc_kv_writer_fd(w), bytes, SIZE, 0) != SIZE)
		err(1, "write");
	if (r == 0)
		r = mc_kv_publish(w, key, &t, 0, false, NULL);
	if (r < 0)
		errx(1, "%s: %s", key, strerror(-r));
}

static void put_all(struct mc_kv *kv, uint64_t count)
{
	uint64_t begin = mc_now_ns();
	char key[128];

	if (mc_kv_mkdir(kv, "d") < 0)
		errx(1, "mkdir");
	for (uint64_t i = 0; i < count; i++) {
		snprintf(key, sizeof(key), "d/model-8b@4096@0@%016" PRIx64 "%016" PRIx64,
			i * UINT64_C(0x9e3779b97f4a7c15), i);
		put_one(kv, key);
	}
	if (mc_kv_close(kv, 600000) != 0)
		errx(1, "objects stay dirty");
	printf("{\"files\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"seconds\": %.3f}\n", count,
		count * SIZE, (double)(mc_now_ns() - begin) / 1e9);
}

/* Private memory of this process, bytes. */
static uint64_t private_bytes(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	unsigned long long kib = 0;

	malloc_trim(0);
	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "RssAnon: %llu", &kib) == 1)
			break;
	if (f != NULL)
		fclose(f);
	return kib * 1024;
}

static void open_and_weigh(const char *dram, const char *nvme)
{
	const struct timespec pause = {.tv_nsec = 5000000};
	uint64_t before = private_bytes(), begin = mc_now_ns();
	struct mc_kv *kv = open_store(dram, nvme);
	double ready = (double)(mc_now_ns() - begin) / 1e9;
	struct mc_kv_stats s;

	mc_kv_stats(kv, &s);
	while (s.recovering) {
		nanosleep(&pause, NULL);
		mc_kv_stats(kv, &s);
	}
	printf("{\"objects\": %" PRIu64 ", \"ready\": %.3f, \"complete\": %.3f, \"index\": %" PRIu64
	       ", \"resident\": %" PRIu64 ", \"key\": %zu}\n",
		s.objects, ready, (double)(mc_now_ns() - begin) / 1e9, s.index_bytes,
		private_bytes() - before, strlen("d/model-8b@4096@0@") + 32);
	mc_kv_close(kv, 0);
}

int main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "put") == 0)
		put_all(open_store(argv[2], argv[3]), strtoull(argv[4], NULL, 0));
	else if (argc == 4 && strcmp(argv[1], "open") == 0)
		open_and_weigh(argv[2], argv[3]);
	else
		errx(2, "usage: kv-many put DRAM NVME COUNT | open DRAM NVME");
	return 0;
}
