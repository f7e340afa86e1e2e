/*
 * libFuzzer entry: the records of a KV log's journal, in pages whose checksums hold. Whatever they
 * say, the log opens: what contradicts itself is passed over, and what is told has a place.
 *
 * The input is records: type, two bytes of length, bytes.
 */
#include "tier/future.h"
#include "tier/io.h"
#include "tier/journal.h"
#include "tier/kv-log-journal.h"

#include <assert.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEGMENT 65536u
#define TYPES (MC_JOURNAL_KV_PART - MC_JOURNAL_KV_PUT + 1)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *p;
	size_t len;
};

static int pass_over(void *ctx, uint8_t type, const void *rec, size_t len, struct mc_err *err)
{
	return 0;
}

/* A table of segments of any number only takes time: those of the first hundreds stay. */
static void keep_small(uint8_t *rec, size_t len, size_t at)
{
	uint32_t id;

	if (len < at + sizeof(id))
		return;
	memcpy(&id, rec + at, sizeof(id));
	if (id != MC_KV_SPLIT)
		id &= MC_KV_BELOW | 0xff;
	memcpy(rec + at, &id, sizeof(id));
}

static int emit(void *ctx, struct mc_journal *j)
{
	struct input in = *(struct input *)ctx;
	uint8_t rec[MC_JOURNAL_RECORD_MAX];
	int r = 0;

	while (r == 0 && in.len > 3) {
		uint8_t type = (uint8_t)(MC_JOURNAL_KV_PUT + in.p[0] % TYPES);
		size_t len = in.p[1] | (size_t)in.p[2] << 8;

		if (len > in.len - 3)
			len = in.len - 3;
		memcpy(rec, in.p + 3, len);
		if (type == MC_JOURNAL_KV_SEGMENT)
			keep_small(rec, len, 0);
		if (type == MC_JOURNAL_KV_PUT || type == MC_JOURNAL_KV_PART)
			keep_small(rec, len, offsetof(struct mc_kv_put_front, segment));
		r = mc_journal_snapshot_add(j, type, rec, len);
		in.p += 3 + len;
		in.len -= 3 + len;
	}
	return r;
}

static void told_put(void *ctx, const struct mc_kv_meta *meta, const struct mc_kv_loc *loc)
{
	assert(strlen(meta->key) <= MC_KV_KEY_MAX && meta->n_crc <= MC_KV_CRC_MAX);
	assert(loc->segment != 0);
}

static void told_done(void *ctx, int res)
{
	mc_future_set(ctx, res);
}

/* Opens it, waits for the end of recovery. */
static struct mc_kv_log *open_log(const char *dir)
{
	const struct mc_kv_log_opts opts = {.dir = dir,
		.capacity = UINT64_C(8) * SEGMENT,
		.segment_bytes = SEGMENT,
		.journal_bytes = 65536};
	struct mc_future over;
	const struct mc_kv_log_replay replay = {.put = told_put, .done = told_done, .ctx = &over};
	struct mc_err err = {0};
	struct mc_kv_log *log;
	int r;

	mc_future_init(&over);
	r = mc_kv_log_open(&opts, &replay, &log, &err);
	assert(r == 0);
	r = (int)mc_future_wait(&over);
	assert(r == 0);
	return log;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	return remove(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	char dir[] = "/dev/shm/mc-fuzz-XXXXXX", path[64];
	struct mc_journal_opts o = {.io = mc_io_real(), .dir = path, .apply = pass_over};
	struct mc_journal *j;
	struct mc_kv_log *log;
	unsigned damaged;
	int r;

	if (mkdtemp(dir) == NULL)
		return 0;
	snprintf(path, sizeof(path), "%s/kvjournal", dir);
	log = open_log(dir);
	memcpy(o.uuid, log->floors[0].store->uuid, sizeof(o.uuid));
	mc_kv_log_close(log);
	r = mc_journal_open(&o, &j, &damaged, NULL);
	assert(r == 0);
	r = mc_journal_snapshot(j, emit, &in);
	assert(r == 0);
	mc_journal_close(j);
	mc_kv_log_close(open_log(dir));
	nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	return 0;
}
