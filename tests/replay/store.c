/*
 * A trace through the real store library: each use of a block is a get of an object; what is not
 * found, or on the remote alone, was a miss, and what is not found is put. Objects are 64 KiB, the
 * smallest that has a file of its own in DRAM, so that a capacity is a number of blocks.
 *
 * A trace is replayed as fast as it goes, an hour of a node in a minute, but flushing does not go
 * faster: hence puts are waited for, each on a remote alone, BATCH at a time on NVMe, as if it had
 * kept up.
 */
#include "tests/replay/hollow.h"
#include "tests/replay/replay.h"

#include "tier/future.h"
#include "tier/kv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK UINT64_C(65536) /* bytes */
#define META 256u             /* what DRAM keeps of an object beside its bytes, at most */
#define PIECE (UINT64_C(2) << 20)
/* What NVMe keeps beside the bytes, at most: from 64 KiB on they begin on a page. */
#define FRAME 4096u
#define BATCH 64u

struct run {
	struct mc_kv *kv;
	struct mc_remote *like, *remote;
	bool has_nvme;
	unsigned unflushed;    /* puts */
	struct mc_future over; /* of the call that is waited for */
	struct mc_kv_object *obj;
};

static void got(void *ctx, int res, struct mc_kv_object *obj)
{
	struct run *s = ctx;

	s->obj = obj;
	mc_future_set(&s->over, res);
}

static void roomed(void *ctx, int res)
{
	mc_future_set(ctx, res);
}

static int get(struct run *s, const char *key)
{
	int r;

	mc_future_init(&s->over);
	mc_kv_get(s->kv, key, got, s);
	r = (int)mc_future_wait(&s->over);
	if (r == 0)
		mc_kv_object_put(s->obj);
	return r;
}

static int put(struct run *s, const char *key)
{
	const struct timespec t = {.tv_sec = 1};
	struct mc_kv_writer *w;
	int r;

	while ((r = mc_kv_create(s->kv, BLOCK, &w)) == -EAGAIN) {
		mc_future_init(&s->over);
		mc_kv_wait_room(s->kv, roomed, &s->over);
		r = (int)mc_future_wait(&s->over);
		if (r < 0)
			return r;
	}
	if (r == 0 && ftruncate(mc_kv_writer_fd(w), BLOCK) != 0)
		r = -errno;
	if (r == 0)
		r = mc_kv_publish(w, key, &t, 0, false, NULL);
	if (r == 0 && s->has_nvme && ++s->unflushed == BATCH) {
		r = mc_kv_sync(s->kv, key);
		s->unflushed = 0;
	}
	return r;
}

static int run_open(struct run *s, const char *dir, uint32_t dram_blocks, uint32_t nvme_blocks)
{
	uint64_t meta = (dram_blocks * META + PIECE - 1) / PIECE * PIECE;
	char dram[4096], nvme[4096], url[4096];
	struct mc_kv_opts o = {.dram_dir = dram,
		.dram_capacity = dram_blocks * BLOCK + meta,
		.node = "00000001",
		.ack = nvme_blocks > 0 ? MC_KV_ACK_DRAM : MC_KV_ACK_REMOTE};
	struct mc_err err = {0};
	int r;

	snprintf(dram, sizeof(dram), "%s/dram", dir);
	snprintf(nvme, sizeof(nvme), "%s/nvme%u", dir, dram_blocks);
	snprintf(url, sizeof(url), "dir:%s", dir);
	s->has_nvme = nvme_blocks > 0;
	r = mc_remote_open(url, NULL, &s->like, &err);
	if (r == 0)
		r = replay_hollow_open(s->like, &s->remote);
	o.remote = s->remote;
	if (s->has_nvme) {
		o.nvme_dir = nvme;
		o.nvme_capacity = nvme_blocks * (BLOCK + FRAME);
	}
	if (r == 0)
		r = mc_kv_open(&o, &s->kv, &err);
	if (r < 0)
		fprintf(stderr, "%s: %s\n", dir, err.text[0] != '\0' ? err.text : strerror(-r));
	return r;
}

static void run_close(struct run *s)
{
	if (s->kv != NULL)
		mc_kv_close(s->kv, 60000);
	mc_remote_close(s->remote);
	mc_remote_close(s->like);
}

static int use(struct run *s, uint32_t block)
{
	char key[16];
	int r;

	snprintf(key, sizeof(key), "b%08" PRIx32, block);
	r = get(s, key);
	return r == -ENOENT ? put(s, key) : r;
}

int replay_store(const struct replay_trace *t, const char *dir, uint32_t dram_blocks,
	uint32_t nvme_blocks, struct replay_tier_hits *ret)
{
	struct run s = {0};
	struct mc_kv_stats stats;
	int r = run_open(&s, dir, dram_blocks, nvme_blocks);

	for (size_t i = 0; r == 0 && i < t->n; i++)
		r = use(&s, t->ids[i]);
	if (r == 0) {
		mc_kv_stats(s.kv, &stats);
		*ret = (struct replay_tier_hits){.dram = stats.hits_dram,
			.nvme = stats.hits_nvme,
			.flushed = stats.flushed_bytes,
			.written = stats.nvme_written_bytes};
	} else {
		fprintf(stderr, "%s: the replay failed: %s\n", dir, strerror(-r));
	}
	run_close(&s);
	return r;
}
