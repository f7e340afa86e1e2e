/*
 * How fast a KV log on a device takes and gives objects, without a mount.
 *
 *   block-rate DEVICE format    makes it an empty store, whatever lies there
 *   block-rate DEVICE put N     N objects of 1 MiB, all queued at once as a flush does
 *   block-rate DEVICE get N     each read once, in another order, 8 at a time, O_DIRECT
 *
 * Says bytes and seconds as JSON.
 */
#include "tier/block-super.h"
#include "tier/digest.h"
#include "tier/kv-log.h"
#include "tier/lock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define DEPTH 8u
#define WINDOW 256u  /* objects queued at once */
#define STRIDE 7919u /* a prime: each is read once */

struct object {
	struct mc_kv_item item;
	struct mc_kv_log_read read;
	char key[32];
	struct mc_kv_loc loc;
};

static struct mc_mutex lock = MC_MUTEX_INIT;
static struct mc_cond over;
static unsigned under_way;
static int error, recovered = 1;
static struct object *objects;
static size_t n_objects;
static unsigned char *bytes;
static uint32_t crc;

static void ended(int res)
{
	mc_mutex_lock(&lock);
	under_way--;
	if (res != 0)
		error = res;
	mc_cond_signal(&over);
	mc_mutex_unlock(&lock);
}

static void item_done(struct mc_kv_item *item, int res)
{
	(void)item;
	ended(res);
}

static void read_done(struct mc_kv_log_read *r, int res)
{
	if (res == 0 && mc_crc32c(0, r->buf, MIB) != crc)
		res = -EBADMSG;
	ended(res);
}

static void wait_below(unsigned most)
{
	mc_mutex_lock(&lock);
	while (under_way >= most)
		mc_cond_wait(&over, &lock);
	mc_mutex_unlock(&lock);
}

static void begin(void)
{
	mc_mutex_lock(&lock);
	under_way++;
	mc_mutex_unlock(&lock);
}

static void told_put(void *ctx, const struct mc_kv_meta *meta, const struct mc_kv_loc *loc)
{
	size_t i = strtoul(meta->key + 1, NULL, 10);

	(void)ctx;
	if (i < n_objects)
		objects[i].loc = *loc;
}

static void told_done(void *ctx, int res)
{
	(void)ctx;
	mc_mutex_lock(&lock);
	recovered = res;
	mc_cond_signal(&over);
	mc_mutex_unlock(&lock);
}

static struct mc_kv_log *open_log(const char *device)
{
	const struct mc_kv_log_opts o = {.device = device};
	const struct mc_kv_log_replay replay = {.put = told_put, .done = told_done};
	struct mc_err err = {0};
	struct mc_kv_log *log;

	if (mc_kv_log_open(&o, &replay, &log, &err) != 0) {
		fprintf(stderr, "%s\n", err.text);
		exit(1);
	}
	mc_mutex_lock(&lock);
	while (recovered == 1)
		mc_cond_wait(&over, &lock);
	mc_mutex_unlock(&lock);
	return log;
}

static void put_all(struct mc_kv_log *log)
{
	for (size_t i = 0; i < n_objects; i++) {
		struct mc_kv_item *item = &objects[i].item;

		snprintf(objects[i].key, sizeof(objects[i].key), "k%zu", i);
		item->meta = (struct mc_kv_meta){
			.key = objects[i].key, .size = MIB, .n_crc = 1, .crc = &crc};
		memcpy(item->meta.version, &i, sizeof(i));
		item->buf = bytes;
		item->done = item_done;
		wait_below(WINDOW);
		begin();
		mc_kv_log_put(log, &item, 1);
	}
	mc_kv_log_sync(log);
}

static void get_all(struct mc_kv_log *log)
{
	for (size_t i = 0; i < n_objects; i++) {
		size_t at = i * STRIDE % n_objects;
		struct mc_kv_log_read *r = &objects[at].read;

		*r = (struct mc_kv_log_read){.loc = objects[at].loc,
			.size = MIB,
			.len = (uint32_t)MIB,
			.buf = bytes + (1 + i % DEPTH) * MIB,
			.done = read_done};
		memcpy(r->version, &at, sizeof(at));
		wait_below(DEPTH);
		begin();
		mc_kv_log_read(log, r);
	}
	wait_below(1);
}

int main(int argc, char **argv)
{
	const struct mc_block_format f = {.path = argv[1], .force = true};
	struct mc_err err = {0};
	struct mc_kv_log *log;
	uint64_t start;

	if (argc == 3 && strcmp(argv[2], "format") == 0) {
		if (mc_block_format(&f, &err) != 0)
			fprintf(stderr, "%s\n", err.text);
		return err.text[0] != '\0';
	}
	if (argc != 4) {
		fprintf(stderr, "usage: block-rate DEVICE format|put N|get N\n");
		return 2;
	}
	n_objects = strtoul(argv[3], NULL, 10);
	objects = calloc(n_objects, sizeof(*objects));
	bytes = aligned_alloc(4096, (1 + DEPTH) * MIB);
	if (objects == NULL || bytes == NULL)
		return 1;
	mc_cond_init(&over);
	memset(bytes, 0x5a, (1 + DEPTH) * MIB);
	crc = mc_crc32c(0, bytes, MIB);
	log = open_log(argv[1]);
	start = mc_now_ns();
	if (strcmp(argv[2], "put") == 0)
		put_all(log);
	else
		get_all(log);
	printf("{\"bytes\": %zu, \"seconds\": %.6f}\n", n_objects * (size_t)MIB,
		(double)(mc_now_ns() - start) / 1e9);
	mc_kv_log_close(log);
	if (error != 0)
		fprintf(stderr, "%s\n", strerror(-error));
	return error != 0;
}
