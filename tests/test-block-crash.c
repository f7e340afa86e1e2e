/*
 * Crash exploration of blocks of checkpoint files on a device: a life of writes, reads, reclaims
 * that copy and evict, drops and restarts, with the power going, or one call failing, at every
 * changing call; then the log recovers.
 *
 * I1 a block that is there has its bytes, whole. I2 one whose write was acknowledged is there,
 * unless it was evicted since. I3 one that was dropped is not, unless it was written again. I4 what
 * is there can be dropped, and the room of it used.
 *
 * MC_SEED=n chooses other pieces of unsynced writes. The sanitizer builds explore every 16th call.
 */
#include "tests/io-fault.h"
#include "tests/seed.h"
#include "tests/suite.h"
#include "tests/tier-dir.h"
#include "tier/future.h"
#include "tier/block-cache.h"
#include "tier/block-super.h"
#include "tier/digest.h"
#include "tier/lock.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define FILES 12u
#define SEGMENT 65536u
#define ROUNDS 3 /* of other pieces of what was not synced */
#define MIB (UINT64_C(1) << 20)

enum state { OUT, MAYBE, IN };

struct life {
	char *dir, *device;
	struct io_fault *fault;
	struct mc_block_cache *cache;
	struct mc_kv_log *log;
	struct mc_future recovered;
	bool told; /* recovery ended, or failed for the first time */
	_Atomic enum state state[FILES];
};

enum kind { WRITE, READ, DROP, SEAL, RECLAIM, RESTART };
struct step {
	enum kind kind;
	unsigned files; /* bits */
};

static const struct step steps[] = {{WRITE, 0x00f}, {READ, 0x002}, {SEAL, 0}, {DROP, 0x001},
	{WRITE, 0x070}, {RECLAIM, 0}, {WRITE, 0x001}, {RESTART, 0}, {READ, 0x010}, {SEAL, 0},
	{WRITE, 0x780}, {DROP, 0x012}, {RECLAIM, 0}, {WRITE, 0x010}, {RESTART, 0}, {DROP, 0x100}};

/* ---- files, each of one block: some in one record, some in parts */

static struct mc_file_id id_of(unsigned file)
{
	struct mc_file_id id = {.size = 3000 + 2500 * (uint64_t)file};

	memset(id.digest, (int)file + 1, sizeof(id.digest));
	return id;
}

static unsigned file_of(const uint8_t version[16])
{
	return version[0] - 1u;
}

/* ---- the KV store's part */

static void found(void *ctx, const struct mc_kv_meta *meta, const struct mc_kv_loc *loc)
{
	(void)loc;
	mc_block_cache_found(((struct life *)ctx)->cache, meta);
}

static void recovery_ended(void *ctx, int res)
{
	struct life *l = ctx;

	if (!__atomic_exchange_n(&l->told, true, __ATOMIC_ACQ_REL))
		mc_future_set(&l->recovered, res);
}

static bool keep(void *ctx, const char *key, const uint8_t version[16])
{
	return mc_block_cache_keep(((struct life *)ctx)->cache, key, version);
}

static bool moved(void *ctx, const char *key, const uint8_t version[16],
	const struct mc_kv_loc *from, const struct mc_kv_loc *to)
{
	(void)from;
	(void)to;
	return mc_block_cache_moved(((struct life *)ctx)->cache, key, version);
}

/* Perhaps not durably yet. */
static void evicted(
	void *ctx, const char *key, const uint8_t version[16], const struct mc_kv_loc *from)
{
	struct life *l = ctx;

	(void)from;
	l->state[file_of(version)] = MAYBE;
	mc_block_cache_evicted(l->cache, key, version);
}

/* False: the log does not come up. */
static bool start(struct life *l)
{
	const struct mc_kv_log_opts o = {.device = l->device,
		.capacity = 6 * SEGMENT,
		.io = io_fault_table(l->fault),
		.journal_bytes = 12288,
		.commit_ms = 1000000,
		.probe_ms = 1000000};
	const struct mc_kv_log_replay replay = {
		.put = found, .unread = recovery_ended, .done = recovery_ended, .ctx = l};
	const struct mc_kv_log_owner owner = {
		.keep = keep, .moved = moved, .evicted = evicted, .ctx = l};
	struct mc_err err = {0};

	ck_assert_int_eq(mc_block_cache_open(&l->cache), 0);
	mc_future_init(&l->recovered);
	l->told = false;
	if (mc_kv_log_open(&o, &replay, &l->log, &err) != 0)
		l->log = NULL;
	if (l->log == NULL)
		return false;
	mc_kv_log_set_owner(l->log, &owner);
	mc_block_cache_attach(l->cache, l->log);
	return mc_future_wait(&l->recovered) == 0;
}

static void stop(struct life *l)
{
	if (l->log != NULL) {
		mc_block_cache_detach(l->cache);
		mc_kv_log_close(l->log);
	}
	mc_block_cache_close(l->cache);
	l->log = NULL;
	l->cache = NULL;
}

/* ---- steps */

struct transfer {
	struct life *life;
	unsigned file;
	struct mc_file_id id;
	struct mc_block_op op;
	struct mc_future answer;
};

static void op_read(struct mc_block_op *op, int res)
{
	mc_future_set(&((struct transfer *)op->ctx)->answer, res);
}

/* Here, since it may be evicted at any time from now on. */
static void op_written(struct mc_block_op *op, int res)
{
	struct transfer *t = op->ctx;

	if (res == 0)
		t->life->state[t->file] = IN;
	op_read(op, res);
}

static void transfer_init(struct transfer *t, struct life *l, unsigned file)
{
	*t = (struct transfer){.life = l, .file = file, .id = id_of(file)};
	mc_future_init(&t->answer);
	t->op = (struct mc_block_op){.cache = l->cache,
		.id = &t->id,
		.buf = aligned_alloc(4096, MIB),
		.done = op_read,
		.ctx = t};
	ck_assert_ptr_nonnull(t->op.buf);
}

static int64_t transfer_end(struct transfer *t)
{
	int64_t r = mc_future_wait(&t->answer);

	if (r == 0 && !tier_matches(t->op.buf, (uint32_t)t->id.size, t->file, 0))
		r = -EILSEQ;
	free(t->op.buf);
	return r;
}

static void write_files(struct life *l, unsigned files)
{
	struct transfer t[FILES];

	for (unsigned i = 0; i < FILES; i++) {
		if ((files >> i & 1) == 0)
			continue;
		transfer_init(&t[i], l, i);
		tier_fill(t[i].op.buf, (uint32_t)t[i].id.size, i, 0);
		t[i].op.crc = mc_crc32c(0, t[i].op.buf, t[i].id.size);
		t[i].op.done = op_written;
		l->state[i] = MAYBE;
		mc_block_cache_write(&t[i].op, false);
	}
	mc_kv_log_sync(l->log);
	for (unsigned i = 0; i < FILES; i++)
		if ((files >> i & 1) != 0)
			transfer_end(&t[i]);
}

/* What reading says; bytes that are not the file's are -EILSEQ. */
static int read_file(struct life *l, unsigned file)
{
	struct transfer t;

	transfer_init(&t, l, file);
	mc_block_cache_read(&t.op);
	return (int)transfer_end(&t);
}

static void read_files(struct life *l, unsigned files)
{
	for (unsigned i = 0; i < FILES; i++)
		if ((files >> i & 1) != 0)
			ck_assert_int_ne(read_file(l, i), -EILSEQ);
}

static void drop_files(struct life *l, unsigned files)
{
	for (unsigned i = 0; i < FILES; i++) {
		const struct mc_file_id id = id_of(i);
		bool had = mc_block_cache_has(l->cache, &id, 0);

		if ((files >> i & 1) == 0 || !had)
			continue;
		l->state[i] = MAYBE;
		if (mc_block_cache_drop(l->cache, &id) > 0)
			l->state[i] = OUT;
	}
}

/* False: it went no further. */
static bool take_step(struct life *l, const struct step *s)
{
	switch (s->kind) {
	case WRITE:
		write_files(l, s->files);
		break;
	case READ:
		read_files(l, s->files);
		break;
	case DROP:
		drop_files(l, s->files);
		break;
	case SEAL:
		mc_kv_log_seal(l->log);
		break;
	case RECLAIM:
		mc_kv_log_reclaim(l->log);
		break;
	case RESTART:
		stop(l);
		return start(l);
	}
	return true;
}

/* What was read is held until a moment after its end, and its room is taken as long. */
static void await_no_parts(struct life *l)
{
	struct mc_kv_log_stats st;

	do {
		ck_assert_int_eq(mc_kv_log_sync(l->log), 0);
		usleep(200);
		mc_kv_log_stats(l->log, &st);
	} while (st.parts > 0);
}

static void check(struct life *l, const char *where)
{
	struct mc_block_cache_stats st;

	for (unsigned i = 0; i < FILES; i++) {
		const struct mc_file_id id = id_of(i);
		bool has = mc_block_cache_has(l->cache, &id, 0);
		int r = has ? read_file(l, i) : 0;

		ck_assert_msg(l->state[i] != OUT || !has, "%s: file %u is back", where, i);
		ck_assert_msg(l->state[i] != IN || has, "%s: file %u is gone", where, i);
		ck_assert_msg(r == 0, "%s: file %u reads %d", where, i, r);
	}
	drop_files(l, UINT32_MAX);
	mc_block_cache_stats(l->cache, &st);
	ck_assert_msg(st.used == 0 && st.blocks == 0, "%s: not all dropped", where);
	await_no_parts(l);
	write_files(l, 0xfff);
	for (unsigned i = 0; i < FILES; i++)
		ck_assert_msg(l->state[i] == IN && read_file(l, i) == 0, "%s: then %u", where, i);
}

/* A life with a fault at the at-th call, 0 = none, and what is there after it. Its calls. */
static uint64_t live(enum io_fault_kind kind, uint64_t at, unsigned seed)
{
	struct life l = {.dir = tier_dir_make("/dev/shm")};
	struct mc_block_format f = {.bytes = 3 * MIB, .segment_bytes = SEGMENT};
	struct mc_err err = {0};
	char where[80];
	uint64_t calls;
	bool goes_on;

	snprintf(where, sizeof(where), "MC_SEED=%u kind %d call %u", seed, kind, (unsigned)at);
	ck_assert_int_gt(asprintf(&l.device, "%s/device", l.dir), 0);
	l.fault = io_fault_open(l.dir);
	f.path = l.device;
	f.io = io_fault_table(l.fault);
	ck_assert_msg(mc_block_format(&f, &err) == 0, "%s", err.text);
	ck_assert_int_eq(mc_io_sync_dir(f.io, l.dir), 0);
	io_fault_arm(l.fault, at != 0 ? kind : IO_FAULT_NONE, at, seed + (unsigned)at);
	goes_on = start(&l);
	for (unsigned i = 0; i < sizeof(steps) / sizeof(*steps) && goes_on; i++)
		goes_on = take_step(&l, &steps[i]);
	ck_assert_msg(at != 0 || goes_on, "%s: not to its end", where);
	calls = io_fault_calls(l.fault);
	/* The power goes before close can do anything. */
	if (at == 0 || calls < at || kind == IO_FAULT_FAIL)
		io_fault_arm(l.fault, IO_FAULT_CRASH, 1, seed);
	stop(&l);
	io_fault_restart(l.fault);
	ck_assert_msg(start(&l), "%s: no recovery", where);
	check(&l, where);
	stop(&l);
	io_fault_close(l.fault);
	tier_dir_remove(l.dir);
	free(l.device);
	return calls;
}

static void explore(enum io_fault_kind kind, unsigned round)
{
	unsigned seed = env_number("MC_SEED", 1) + round * 1000;
	unsigned stride = SUITE_SLOW ? 16 : 1;
	uint64_t calls = live(kind, 0, seed);

	ck_assert_uint_gt(calls, 50);
	for (uint64_t at = 1 + seed % stride; at <= calls + 1; at += stride)
		live(kind, at, seed);
	printf("kind %d: %u calls, MC_SEED=%u\n", kind, (unsigned)calls, seed);
}

START_TEST(a_crash_at_any_call_leaves_no_wrong_block_and_keeps_what_was_written)
{
	for (unsigned i = 0; i < ROUNDS; i++)
		explore(IO_FAULT_TEAR, i);
}
END_TEST

START_TEST(one_failure_at_any_call_leaves_no_wrong_block_and_keeps_what_was_written)
{
	for (unsigned i = 0; i < ROUNDS; i++)
		explore(IO_FAULT_FAIL, i);
}
END_TEST

SUITE_MAIN("block-crash", a_crash_at_any_call_leaves_no_wrong_block_and_keeps_what_was_written,
	one_failure_at_any_call_leaves_no_wrong_block_and_keeps_what_was_written)
