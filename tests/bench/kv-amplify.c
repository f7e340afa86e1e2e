/*
 * Write amplification of the KV log on NVMe at 80 % utilisation: what was written to data files,
 * copies of survivors included, divided by the payload of the puts.
 *
 *   kv-amplify DIR TRACE BLOCKS   the trace (Mooncake's JSON lines, or "generated") through an LRU
 * of BLOCKS objects, and uniform overwriting of as many
 *
 * The capacity is 1.25 times what the wanted objects take. Objects that fall out of the LRU are no
 * longer wanted and wait for reclaim.
 */
#include "tests/replay/replay.h"
#include "tier/digest.h"
#include "tier/kv-log.h"
#include "tier/lock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OBJECT 16000u /* bytes; with its frame 16 KiB, 64-byte grid */
#define SPACE 16192u
#define SEGMENT (UINT64_C(1) << 20)
#define BATCH 64u

struct object {
	struct mc_kv_item item;
	char key[24];
	uint32_t newer, older; /* LRU; ids + 1 */
	bool wanted, busy;
};

struct bench {
	struct mc_mutex lock;
	struct object *objects;
	uint32_t newest, oldest, n; /* LRU */
	int error;
	bool recovered;
	struct mc_cond over;
};

static struct bench bench;
static unsigned char payload[OBJECT];
static uint32_t crc;

static void told_done(void *ctx, int res)
{
	(void)ctx;
	mc_mutex_lock(&bench.lock);
	bench.recovered = true;
	bench.error = res;
	mc_cond_signal(&bench.over);
	mc_mutex_unlock(&bench.lock);
}

static bool keep(void *ctx, const char *key, const uint8_t version[16])
{
	const struct object *o = &bench.objects[strtoul(key, NULL, 16)];
	bool wanted;

	(void)ctx;
	(void)version;
	mc_mutex_lock(&bench.lock);
	wanted = o->wanted;
	mc_mutex_unlock(&bench.lock);
	return wanted;
}

static void put_done(struct mc_kv_item *item, int res)
{
	struct object *o = item->ctx;

	mc_mutex_lock(&bench.lock);
	o->busy = false;
	if (res != 0 && res != -ECANCELED)
		bench.error = res;
	mc_cond_signal(&bench.over);
	mc_mutex_unlock(&bench.lock);
}

static struct mc_kv_log *open_log(const char *dir, uint32_t blocks)
{
	struct mc_kv_log_opts o = {.dir = dir,
		.segment_bytes = SEGMENT,
		.capacity = (uint64_t)blocks * SPACE * 5 / 4 / SEGMENT * SEGMENT};
	struct mc_kv_log_replay replay = {.done = told_done};
	struct mc_kv_log_owner owner = {.keep = keep};
	struct mc_err err = {0};
	struct mc_kv_log *log;

	bench.recovered = false;
	if (mc_kv_log_open(&o, &replay, &log, &err) != 0) {
		fprintf(stderr, "%s\n", err.text);
		exit(1);
	}
	mc_kv_log_set_owner(log, &owner);
	mc_mutex_lock(&bench.lock);
	while (!bench.recovered)
		mc_cond_wait(&bench.over, &bench.lock);
	mc_mutex_unlock(&bench.lock);
	return log;
}

static void unlink_locked(struct object *o) MC_REQUIRES(bench.lock)
{
	if (o->newer != 0)
		bench.objects[o->newer - 1].older = o->older;
	else
		bench.newest = o->older;
	if (o->older != 0)
		bench.objects[o->older - 1].newer = o->newer;
	else
		bench.oldest = o->newer;
	bench.n--;
}

static void touch_locked(uint32_t id, uint32_t blocks) MC_REQUIRES(bench.lock)
{
	struct object *o = &bench.objects[id];

	if (o->wanted)
		unlink_locked(o);
	o->wanted = true;
	o->newer = 0;
	o->older = bench.newest;
	if (bench.newest != 0)
		bench.objects[bench.newest - 1].newer = id + 1;
	else
		bench.oldest = id + 1;
	bench.newest = id + 1;
	if (++bench.n > blocks) {
		struct object *last = &bench.objects[bench.oldest - 1];

		unlink_locked(last);
		last->wanted = false;
	}
}

static void put(struct mc_kv_log *log, uint32_t id)
{
	struct object *o = &bench.objects[id];
	struct mc_kv_item *item = &o->item;
	static uint64_t version;

	mc_mutex_lock(&bench.lock);
	while (o->busy)
		mc_cond_wait(&bench.over, &bench.lock);
	o->busy = true;
	mc_mutex_unlock(&bench.lock);
	snprintf(o->key, sizeof(o->key), "%08x", id);
	o->item = (struct mc_kv_item){.buf = payload, .done = put_done, .ctx = o};
	o->item.meta = (struct mc_kv_meta){.key = o->key, .size = OBJECT, .n_crc = 1, .crc = &crc};
	version++;
	memcpy(o->item.meta.version, &version, sizeof(version));
	mc_kv_log_put(log, &item, 1);
}

static void report(const char *what, struct mc_kv_log *log)
{
	struct mc_kv_log_stats s;

	mc_kv_log_sync(log);
	mc_kv_log_stats(log, &s);
	printf("%s: put %" PRIu64 " MiB, written ÷ put %.3f, wanted ÷ capacity %.2f, %" PRIu64
	       " segments reclaimed, error %d\n",
		what, s.put_bytes >> 20, (double)s.written / (double)s.put_bytes,
		(double)bench.n * SPACE / (double)s.capacity, s.reclaimed, bench.error);
	mc_kv_log_close(log);
}

static void begin(uint32_t n_ids)
{
	free(bench.objects);
	bench.objects = calloc(n_ids, sizeof(*bench.objects));
	if (bench.objects == NULL)
		exit(1);
	bench.newest = bench.oldest = bench.n = 0;
}

/* Waits now and then, so that the queue stays as short as a dirty bound would keep it. */
static void replay(struct mc_kv_log *log, const struct replay_trace *t, uint32_t blocks)
{
	size_t puts = 0;

	for (size_t i = 0; i < t->n; i++) {
		uint32_t id = t->ids[i];
		bool hit;

		mc_mutex_lock(&bench.lock);
		hit = bench.objects[id].wanted;
		touch_locked(id, blocks);
		mc_mutex_unlock(&bench.lock);
		if (hit)
			continue;
		put(log, id);
		if (++puts % (BATCH * 16) == 0)
			mc_kv_log_sync(log);
	}
}

static void overwrite(struct mc_kv_log *log, uint32_t blocks, size_t rounds)
{
	unsigned seed = 1;

	for (uint32_t id = 0; id < blocks; id++) {
		mc_mutex_lock(&bench.lock);
		touch_locked(id, blocks);
		mc_mutex_unlock(&bench.lock);
		put(log, id);
	}
	for (size_t i = 0; i < rounds * blocks; i++) {
		put(log, (uint32_t)rand_r(&seed) % blocks);
		if (i % (BATCH * 16) == 0)
			mc_kv_log_sync(log);
	}
}

int main(int argc, char **argv)
{
	struct replay_trace t;
	struct mc_kv_log *log;
	char dir[4096];
	uint32_t blocks;
	int r;

	if (argc != 4) {
		fprintf(stderr, "usage: kv-amplify DIR TRACE|generated BLOCKS\n");
		return 2;
	}
	blocks = (uint32_t)atol(argv[3]);
	r = strcmp(argv[2], "generated") == 0 ? replay_trace_generate(1, 4000, &t)
					      : replay_trace_read(argv[2], &t);
	if (r != 0) {
		fprintf(stderr, "%s: %s\n", argv[2], strerror(-r));
		return 1;
	}
	mc_mutex_init(&bench.lock);
	mc_cond_init(&bench.over);
	crc = mc_crc32c(0, payload, sizeof(payload));
	snprintf(dir, sizeof(dir), "%s/trace", argv[1]);
	begin(t.n_ids);
	log = open_log(dir, blocks);
	replay(log, &t, blocks);
	report("trace", log);
	snprintf(dir, sizeof(dir), "%s/uniform", argv[1]);
	begin(blocks);
	log = open_log(dir, blocks);
	overwrite(log, blocks, 4);
	report("uniform overwrite", log);
	free(bench.objects);
	replay_trace_done(&t);
	return 0;
}
