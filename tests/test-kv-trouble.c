/*
 * The whole KV store in trouble, against a model: a disk that is full or fails, from any byte or
 * call on; NVMe that hangs; a remote that is away; clocks that jump; limits of the process.
 *
 * KV_SEED chooses places and objects (it is printed), KV_STEPS how many places.
 */
#include "tests/io-switch.h"
#include "tests/kv-fixture.h"
#include "tests/suite.h"

#include "tier/lock.h"
#include "tier/remote-fault.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MIB (1u << 20)
#define KEYS 5

static struct io_switch disk;
static _Atomic int64_t wall_clock_jump; /* seconds */

/* Every clock_gettime of this program: the wall clock jumps at a test's will. */
int clock_gettime(clockid_t id, struct timespec *ts)
{
	int r = (int)syscall(SYS_clock_gettime, id, ts);

	if (id == CLOCK_REALTIME)
		ts->tv_sec += wall_clock_jump;
	return r;
}

/* What the store told the log. */
static struct {
	_Atomic unsigned degraded, restored;
	uint64_t since_ns;
	unsigned lives; /* of stores */
} told;

static void on_event(void *ctx, const char *event, const char *text)
{
	(void)ctx;
	ck_assert_int_gt((int)strlen(text), 10);
	atomic_fetch_add(strcmp(event, "kv-degraded") == 0 ? &told.degraded : &told.restored, 1);
}

/* However often it failed: once for each daemon, or once in 5 s. */
static void expect_told_rarely(void)
{
	uint64_t most = told.lives + (mc_now_ns() - told.since_ns) / UINT64_C(5000000000);

	ck_assert_uint_ge(told.degraded, 1);
	ck_assert_uint_le(told.degraded, most);
}

static void paths(struct kv_fixture *x)
{
	io_switch_init(&disk);
	told.degraded = told.restored = 0;
	told.since_ns = mc_now_ns();
	told.lives = 1;
	kv_fixture_paths(x, 64 * MIB);
	x->opts.retry_ms = 10;
	x->opts.io = &disk.io;
	x->opts.event = on_event;
}

static void with_nvme(struct kv_fixture *x)
{
	x->opts.nvme_dir = x->nvme;
	x->opts.nvme_capacity = UINT64_C(64) << 20;
}

static struct mc_fault *with_remote(struct kv_fixture *x)
{
	struct mc_fault *fault;

	kv_fixture_remote(x);
	ck_assert_int_eq(mc_remote_fault_open(x->remote, &fault, &x->remote), 0);
	x->opts.remote = x->remote;
	return fault;
}

static struct mc_kv_stats stats(struct mc_kv *kv)
{
	struct mc_kv_stats s;

	mc_kv_stats(kv, &s);
	return s;
}

static void wait_recovered(struct mc_kv *kv)
{
	while (stats(kv).recovering)
		sched_yield();
}

static void forget_dram_and_restart(struct kv_fixture *x)
{
	mc_kv_close(x->kv, 20000);
	x->kv = NULL;
	kv_fixture_forget_dram(x);
	kv_fixture_start(x);
	wait_recovered(x->kv);
}

/* As a daemon that follows finds it: what is dirty is adopted from DRAM. */
static void restart(struct kv_fixture *x, unsigned deadline_ms)
{
	mc_kv_close(x->kv, 0);
	told.lives++;
	x->opts.deadline_ms = deadline_ms;
	kv_fixture_start(x);
	wait_recovered(x->kv);
}

/* Puts 1 MiB each until there is no room. How many there were. */
static unsigned put_until_full(struct mc_kv *kv)
{
	char key[16];
	unsigned n = 0;
	int r = 0;

	while (r == 0 && n < 60) {
		snprintf(key, sizeof(key), "k%u", n);
		r = kv_put_wait(kv, key, MIB, n);
		n += r == 0;
	}
	ck_assert_int_eq(r, -ENOSPC);
	return n;
}

static void expect_all(struct mc_kv *kv, unsigned n)
{
	char key[16];

	for (unsigned i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		kv_expect(kv, key, MIB, i);
	}
}

/* ---- a disk that is full from any byte on, or fails at any call */

struct version {
	uint32_t seed; /* 0 = absent */
	uint32_t size;
};

/* What a key may hold: where a change answered an error, either. */
struct model {
	struct version v[2];
	uint64_t rng;
	uint32_t next_seed;
};

static uint64_t next(uint64_t *rng)
{
	*rng ^= *rng << 13;
	*rng ^= *rng >> 7;
	*rng ^= *rng << 17;
	return *rng;
}

static const char *name_of(unsigned k)
{
	static const char *const names[KEYS] = {"k0", "k1", "k2", "k3", "k4"};

	return names[k];
}

static bool holds(struct mc_kv *kv, unsigned k, struct version want)
{
	struct mc_kv_object *obj;
	struct mc_kv_attr a;
	int r = kv_open_object(kv, name_of(k), &obj);
	bool same;

	if (r == -ENOENT)
		return want.seed == 0;
	ck_assert_msg(r == 0, "%s: %d", name_of(k), r);
	mc_kv_object_attr(obj, &a);
	same = a.size == want.size && want.seed != 0;
	if (same)
		ck_assert_int_eq(kv_check_object(obj, want.size, want.seed, &same), 0);
	mc_kv_object_put(obj);
	return same;
}

/* Every key holds what it may; which of the two is known then. */
static void check(struct mc_kv *kv, struct model *m)
{
	for (unsigned k = 0; k < KEYS; k++) {
		struct version now = m[k].v[0];

		if (!holds(kv, k, now)) {
			now = m[k].v[1];
			ck_assert_msg(holds(kv, k, now), "%s: want %u or %u", name_of(k),
				m[k].v[0].seed, now.seed);
		}
		m[k].v[0] = m[k].v[1] = now;
	}
}

static void expect_refusal(int r)
{
	ck_assert_msg(r == 0 || r == -ENOSPC || r == -EIO || r == -ETIMEDOUT || r == -EMFILE ||
			r == -ENOMEM,
		"answered %d", r);
}

/* One change of a key, and what the model says of it. */
static void step(struct mc_kv *kv, struct model *m, uint64_t *rng, uint32_t seed)
{
	unsigned k = (unsigned)(next(rng) % KEYS), op = (unsigned)(next(rng) % 10);
	unsigned to = (unsigned)(next(rng) % KEYS);
	struct version fresh = {.seed = seed}, none = {0}, was = m[k].v[0];
	int r;

	if (was.seed != 0 && op < 2) {
		r = mc_kv_unlink(kv, name_of(k));
		m[k].v[1] = none;
		if (r == 0)
			m[k].v[0] = none;
	} else if (was.seed != 0 && op < 5 && to != k) {
		r = mc_kv_rename(kv, name_of(k), name_of(to), 0);
		m[k].v[1] = none;
		m[to].v[1] = was;
		if (r == 0) {
			m[k].v[0] = none;
			m[to].v[0] = was;
		}
	} else {
		fresh.size = (uint32_t)(next(rng) % (op == 9 ? 3 * MIB : op > 6 ? 200000 : 9000));
		r = kv_put_wait(kv, name_of(k), fresh.size, fresh.seed);
		m[k].v[1] = fresh;
		if (r == 0)
			m[k].v[0] = fresh;
	}
	expect_refusal(r);
	if (next(rng) % 2 == 0) {
		r = mc_kv_sync(kv, name_of(k));
		if (r != -ENOENT)
			expect_refusal(r);
	}
	check(kv, m); /* nothing is ever missing or wrong meanwhile */
}

/* Everything goes down once the trouble is over. */
static void drain(struct mc_kv *kv)
{
	uint64_t give_up = mc_now_ns() + UINT64_C(60000000000);

	while (stats(kv).dirty_bytes > 0) {
		ck_assert_msg(mc_now_ns() < give_up, "data stays dirty");
		sched_yield();
	}
}

static unsigned env(const char *name, unsigned fallback)
{
	const char *v = getenv(name);

	return v != NULL ? (unsigned)strtoul(v, NULL, 0) : fallback;
}

static void one_life(uint64_t rng, int64_t room, int64_t fail_at, int error)
{
	struct model m[KEYS] = {0};
	struct kv_fixture x;

	paths(&x);
	with_nvme(&x);
	kv_fixture_start(&x);
	wait_recovered(x.kv);
	disk.room = room;
	disk.error = error;
	disk.fail_at = fail_at;
	for (uint32_t seed = 1; seed <= 12; seed++)
		step(x.kv, m, &rng, seed);
	disk.room = INT64_MAX;
	disk.fail_at = 0;
	for (unsigned k = 0; k < KEYS; k++)
		mc_kv_sync(x.kv, name_of(k)); /* no rest before it is flushed */
	drain(x.kv);
	check(x.kv, m);
	forget_dram_and_restart(&x);
	check(x.kv, m);
	kv_fixture_close(&x);
}

START_TEST(a_disk_full_from_any_byte_on_loses_nothing)
{
	unsigned seed = env("KV_SEED", (unsigned)time(NULL)), steps = env("KV_STEPS", 8);
	uint64_t rng = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);

	printf("KV_SEED=%u\n", seed);
	fflush(stdout);
	for (unsigned i = 0; i < steps; i++) {
		/* Any byte, and the borders of pages. */
		int64_t at = (int64_t)(next(&rng) % (i % 3 == 0 ? 100000 : 4 * MIB));

		one_life(next(&rng), i % 2 == 0 ? at : at / 4096 * 4096, 0, 0);
	}
}
END_TEST

START_TEST(a_call_that_fails_with_any_error_loses_nothing)
{
	static const int errors[] = {-EIO, -ENOSPC, -EMFILE, -ENOMEM};
	unsigned seed = env("KV_SEED", (unsigned)time(NULL)), steps = env("KV_STEPS", 8);
	uint64_t rng = (seed + 2) * UINT64_C(0x9e3779b97f4a7c15);

	printf("KV_SEED=%u\n", seed);
	fflush(stdout);
	for (unsigned i = 0; i < steps; i++)
		one_life(next(&rng), INT64_MAX, 1 + (int64_t)(next(&rng) % 80), errors[i % 4]);
}
END_TEST

/* ---- a disk filled by somebody else */

static void fill_disk(const char *dir, const char *name)
{
	char path[128], *block = calloc(1, MIB);
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	while (write(fd, block, MIB) > 0)
		;
	close(fd);
	free(block);
}

START_TEST(a_file_system_filled_by_others_makes_writers_wait_and_is_used_again)
{
	struct kv_fixture x;
	struct mc_kv_stats s;
	char filler[128];
	unsigned n;

	paths(&x);
	with_nvme(&x);
	x.opts.dirty_bound = 8 * MIB;
	ck_assert_int_eq(mkdir(x.nvme, 0700), 0);
	if (mount("mc-kv-trouble", x.nvme, "tmpfs", 0, "size=24m") != 0) {
		printf("skipped: no right to mount\n");
		kv_fixture_close(&x);
		return;
	}
	kv_fixture_start(&x);
	ck_assert_int_eq(kv_put(x.kv, "before", 100000, 77, 0), 0);
	ck_assert_int_eq(mc_kv_sync(x.kv, "before"), 0);
	fill_disk(x.nvme, "filler");
	restart(&x, 100); /* how long a writer waits */
	n = put_until_full(x.kv);
	s = stats(x.kv);
	ck_assert_ptr_nonnull(s.nvme_trouble);
	ck_assert_ptr_nonnull(strstr(s.nvme_trouble, "full"));
	ck_assert_uint_le(s.dirty_bytes, s.dirty_bound);
	restart(&x, 30000);
	ck_assert_int_eq(mc_kv_sync(x.kv, "k0"), -ENOSPC);
	kv_expect(x.kv, "before", 100000, 77);
	expect_all(x.kv, n);
	snprintf(filler, sizeof(filler), "%s/filler", x.nvme);
	ck_assert_int_eq(unlink(filler), 0);
	drain(x.kv);
	ck_assert_ptr_null(stats(x.kv).degraded);
	expect_all(x.kv, n);
	ck_assert_int_eq(mc_kv_close(x.kv, 0), 0);
	x.kv = NULL;
	umount2(x.nvme, 0);
	kv_fixture_close(&x);
}
END_TEST

/* ---- NVMe that fails or hangs above a remote */

static void expect_bypass(struct kv_fixture *x, void (*begin)(void), void (*end)(void))
{
	struct mc_kv_attr a;

	ck_assert_int_eq(kv_put(x->kv, "before", 100000, 1, 0), 0);
	ck_assert_int_eq(mc_kv_sync(x->kv, "before"), 0);
	ck_assert_int_eq(mc_kv_lookup(x->kv, "before", &a), 0);
	ck_assert_uint_eq(a.nvme, 100000);
	begin();
	ck_assert_int_eq(kv_put(x->kv, "first", 100000, 2, 0), 0);
	while (stats(x->kv).nvme_trouble == NULL)
		sched_yield();
	ck_assert_int_eq(kv_put(x->kv, "during", 100000, 3, 0), 0);
	do {
		ck_assert_int_eq(mc_kv_lookup(x->kv, "during", &a), 0);
		sched_yield();
	} while (a.remotes == 0);
	ck_assert_uint_eq(a.nvme, 0);
	end();
	drain(x->kv);
	do { /* NVMe is tried again, and used */
		ck_assert_int_eq(kv_put(x->kv, "after", 100000, 4, 0), 0);
		ck_assert_int_eq(mc_kv_sync(x->kv, "after"), 0);
		ck_assert_int_eq(mc_kv_lookup(x->kv, "after", &a), 0);
	} while (a.nvme == 0);
	ck_assert_ptr_null(stats(x->kv).nvme_trouble);
	forget_dram_and_restart(x);
	kv_expect(x->kv, "before", 100000, 1);
	kv_expect(x->kv, "after", 100000, 4);
	ck_assert_int_eq(kv_ask(x->kv, "during", &a), 0);
	kv_expect(x->kv, "during", 100000, 3);
	expect_told_rarely();
	kv_fixture_close(x);
}

static void syncs_fail(void)
{
	disk.syncs = -EIO;
}

static void syncs_work(void)
{
	disk.syncs = 0;
}

START_TEST(nvme_that_fails_is_left_out_told_once_and_used_again)
{
	struct kv_fixture x;

	paths(&x);
	with_nvme(&x);
	with_remote(&x);
	kv_fixture_start(&x);
	expect_bypass(&x, syncs_fail, syncs_work);
}
END_TEST

START_TEST(what_comes_back_while_nvme_fails_is_read_and_may_leave_again)
{
	struct kv_fixture x;
	struct mc_kv_attr a;
	const char *why;

	paths(&x);
	with_nvme(&x);
	with_remote(&x);
	kv_fixture_start(&x);
	ck_assert_int_eq(kv_put(x.kv, "a", 100000, 1, 0), 0);
	ck_assert_int_eq(mc_kv_sync(x.kv, "a"), 0);
	ck_assert_int_eq(mc_kv_evict_from(x.kv, "a", MC_TIER_NVME, &why), 0);
	ck_assert_int_eq(mc_kv_evict(x.kv, "a"), 0);
	syncs_fail();
	kv_expect(x.kv, "a", 100000, 1);
	ck_assert_int_eq(kv_put(x.kv, "b", 100000, 2, 0), 0);
	while (stats(x.kv).nvme_trouble == NULL)
		sched_yield();
	ck_assert_int_eq(mc_kv_sync(x.kv, "b"), 0);
	ck_assert_int_eq(mc_kv_lookup(x.kv, "a", &a), 0);
	ck_assert_int_eq(a.state, MC_KV_CLEAN);
	ck_assert_uint_eq(a.nvme, 0);
	ck_assert_int_eq(mc_kv_evict(x.kv, "a"), 0);
	kv_expect(x.kv, "a", 100000, 1);
	syncs_work();
	kv_fixture_close(&x);
}
END_TEST

static void disk_hangs(void)
{
	disk.hang = true;
}

static void disk_goes_on(void)
{
	disk.hang = false;
}

START_TEST(nvme_that_hangs_is_left_out_told_once_and_used_again)
{
	struct kv_fixture x;

	paths(&x);
	with_nvme(&x);
	with_remote(&x);
	kv_fixture_start(&x);
	expect_bypass(&x, disk_hangs, disk_goes_on);
}
END_TEST

/* ---- what callers are told */

static void expect_why(struct mc_kv *kv, int r, const char *tier, const char *way_out)
{
	const char *why = mc_kv_why(kv, r);

	ck_assert_msg(strstr(why, tier) != NULL && strstr(why, way_out) != NULL, "%d: %s", r, why);
}

START_TEST(each_refusal_names_the_tier_and_the_way_out)
{
	struct kv_fixture x;

	paths(&x); /* no tier below */
	x.opts.deadline_ms = 50;
	kv_fixture_start(&x);
	put_until_full(x.kv);
	expect_why(x.kv, -ENOSPC, "DRAM", "--kv-dram");
	expect_why(x.kv, -EIO, "no persistent tier", "--remote");
	expect_why(x.kv, -EMFILE, "descriptor", "LimitNOFILE");
	kv_fixture_close(&x);
	paths(&x);
	with_nvme(&x);
	x.opts.deadline_ms = 50;
	kv_fixture_start(&x);
	wait_recovered(x.kv);
	expect_why(x.kv, -ENOSPC, "DRAM", "--kv-dram");
	disk.syncs = -EIO;
	put_until_full(x.kv);
	while (stats(x.kv).nvme_trouble == NULL)
		sched_yield();
	expect_why(x.kv, -ENOSPC, "NVMe", "look at the disk");
	expect_why(x.kv, -EIO, "NVMe", "look at the disk");
	disk.syncs = 0;
	kv_fixture_close(&x);
}
END_TEST

/* ---- NVMe that is slow */

#define SLOW_MS 40

/* Until the store finds that it is slow. */
static void put_until_slow(struct mc_kv *kv)
{
	disk.sync_ms = 3 * SLOW_MS; /* a probe is granted some time for its bytes */
	for (uint32_t seed = 10; stats(kv).nvme_trouble == NULL; seed++) {
		ck_assert_int_eq(kv_put(kv, "first", 100000, seed, 0), 0);
		ck_assert_int_eq(mc_kv_sync(kv, "first"), 0);
	}
	ck_assert_ptr_nonnull(strstr(stats(kv).nvme_trouble, "slow"));
}

static struct mc_kv_attr put_and_sync(struct mc_kv *kv, const char *key, uint32_t seed)
{
	struct mc_kv_attr a;

	ck_assert_int_eq(kv_put(kv, key, 100000, seed, 0), 0);
	ck_assert_int_eq(mc_kv_sync(kv, key), 0);
	ck_assert_int_eq(mc_kv_lookup(kv, key, &a), 0);
	return a;
}

START_TEST(nvme_that_is_slow_is_left_out_told_once_and_used_again)
{
	struct kv_fixture x;
	struct mc_kv_attr a;

	paths(&x);
	with_nvme(&x);
	with_remote(&x);
	x.opts.slow_ms = SLOW_MS;
	kv_fixture_start(&x);
	put_until_slow(x.kv);
	do { /* what was on its way there has landed */
		a = put_and_sync(x.kv, "during", 3);
	} while (a.remotes == 0);
	ck_assert_uint_eq(a.nvme, 0);
	disk.sync_ms = 0;
	do {
		a = put_and_sync(x.kv, "after", 4);
	} while (a.nvme == 0 || stats(x.kv).nvme_trouble != NULL);
	forget_dram_and_restart(&x);
	kv_expect(x.kv, "after", 100000, 4);
	ck_assert_int_eq(kv_ask(x.kv, "during", &a), 0);
	kv_expect(x.kv, "during", 100000, 3);
	expect_told_rarely();
	kv_fixture_close(&x);
}
END_TEST

START_TEST(nvme_that_is_slow_is_used_where_the_remote_fails_or_there_is_none)
{
	static const struct mc_fault_rule away = {
		.op = MC_FAULT_OPS, .kind = MC_FAULT_FAIL, .error = -EIO};

	for (int remote = 0; remote < 2; remote++) {
		struct kv_fixture x;

		paths(&x);
		with_nvme(&x);
		if (remote)
			mc_fault_add(with_remote(&x), &away);
		x.opts.slow_ms = SLOW_MS;
		kv_fixture_start(&x);
		put_until_slow(x.kv);
		while (put_and_sync(x.kv, "during", 3).nvme == 0)
			;
		ck_assert_ptr_nonnull(stats(x.kv).nvme_trouble);
		disk.sync_ms = 0;
		kv_fixture_close(&x);
	}
}
END_TEST

/* ---- a remote that is away */

START_TEST(without_the_remote_residents_are_read_and_dirty_data_waits_within_its_bound)
{
	const struct mc_fault_rule down = {
		.op = MC_FAULT_OPS, .kind = MC_FAULT_FAIL, .error = -EIO};
	struct mc_fault *fault;
	struct kv_fixture x;
	struct mc_kv_object *obj;
	struct mc_kv_stats s;
	unsigned n;

	paths(&x);
	fault = with_remote(&x);
	x.opts.dirty_bound = 8 * MIB;
	kv_fixture_start(&x);
	ck_assert_int_eq(kv_put(x.kv, "resident", MIB, 1, 0), 0);
	ck_assert_int_eq(mc_kv_sync(x.kv, "resident"), 0);
	ck_assert_int_eq(kv_put(x.kv, "below", 100000, 2, 0), 0);
	ck_assert_int_eq(mc_kv_evict(x.kv, "below"), 0);
	mc_fault_add(fault, &down);
	ck_assert_int_eq(kv_open_object(x.kv, "below", &obj), -EIO);
	ck_assert_int_eq(kv_put(x.kv, "dirty", 100000, 3, 0), 0);
	restart(&x, 100); /* how long a writer waits */
	n = put_until_full(x.kv);
	s = stats(x.kv);
	ck_assert_uint_le(s.dirty_bytes, s.dirty_bound);
	ck_assert_ptr_nonnull(s.remote_trouble);
	ck_assert_ptr_null(s.nvme_trouble);
	kv_expect(x.kv, "resident", MIB, 1);
	kv_expect(x.kv, "dirty", 100000, 3);
	expect_all(x.kv, n);
	restart(&x, 30000);
	mc_fault_clear(fault);
	drain(x.kv);
	ck_assert_ptr_null(stats(x.kv).degraded);
	expect_told_rarely();
	kv_fixture_close(&x);
}
END_TEST

/* ---- limits of the process */

/* Takes all descriptors that are free now; the store's threads may give back some later. */
static void take_descriptors(int *taken, unsigned max, unsigned *have)
{
	while (*have < max && (taken[*have] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		++*have;
	ck_assert_uint_lt(*have, max);
}

START_TEST(without_descriptors_callers_are_told_so_and_nothing_is_lost)
{
	struct rlimit old, few = {.rlim_cur = 256};
	struct mc_kv_writer *w[64];
	struct mc_kv_object *obj;
	struct kv_fixture x;
	int taken[256], r = 0;
	unsigned have = 0, n = 0;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	few.rlim_max = old.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	paths(&x);
	with_nvme(&x);
	kv_fixture_start(&x);
	ck_assert_int_eq(kv_put(x.kv, "image", 12 * MIB, 1, 0), 0);
	ck_assert_int_eq(kv_put(x.kv, "small", 1000, 2, 0), 0);
	ck_assert_int_eq(kv_put(x.kv, "file", 300000, 3, 0), 0);
	ck_assert_int_eq(mc_kv_evict(x.kv, "image"), 0);
	ck_assert_int_eq(mc_kv_sync(x.kv, "small"), 0);
	for (r = 0; r == 0 && n < 64; n += r == 0) { /* warm files first */
		take_descriptors(taken, 256, &have);
		r = mc_kv_create(x.kv, 1000, &w[n]);
	}
	ck_assert_int_eq(r, -EMFILE);
	ck_assert_int_eq(kv_open_object(x.kv, "image", &obj), 0);
	take_descriptors(taken, 256, &have);
	kv_expect_object(obj, 12 * MIB, 1);
	kv_expect(x.kv, "small", 1000, 2);
	while (have > 0)
		close(taken[--have]);
	mc_kv_object_put(obj);
	kv_expect(x.kv, "file", 300000, 3);
	while (n > 0)
		mc_kv_discard(w[--n]);
	ck_assert_int_eq(kv_put(x.kv, "after", 1000, 4, 0), 0);
	forget_dram_and_restart(&x);
	kv_expect(x.kv, "after", 1000, 4);
	kv_fixture_close(&x);
	setrlimit(RLIMIT_NOFILE, &old);
}
END_TEST

/* ---- clocks */

START_TEST(a_wall_clock_that_jumps_changes_no_wait_and_no_answer)
{
	static const int64_t jumps[] = {315360000, -315360000, 3600, -3600};
	struct mc_kv_attr a;
	struct kv_fixture x;
	char key[16];

	paths(&x);
	with_nvme(&x);
	with_remote(&x);
	x.opts.replicas = 1;
	x.opts.retry_ms = 5000; /* a slow disk is no failure here */
	kv_fixture_start(&x);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_int_eq(kv_ask(x.kv, "absent", &a), -ENOENT);
		snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(kv_put(x.kv, key, 100000, i, 0), 0);
		wall_clock_jump = jumps[i];
		ck_assert_int_eq(mc_kv_sync(x.kv, key), 0);
		ck_assert_int_eq(kv_ask(x.kv, "absent", &a), -ENOENT);
		ck_assert_int_eq(kv_put_wait(x.kv, "filled", 20 * MIB, i), 0);
		for (unsigned k = 0; k <= i; k++) {
			snprintf(key, sizeof(key), "k%u", k);
			ck_assert_int_eq(kv_ask(x.kv, key, &a), 0);
			ck_assert_int_eq(a.mtime_s, 1000 + k);
			kv_expect(x.kv, key, 100000, k);
		}
	}
	wall_clock_jump = 0;
	ck_assert_ptr_null(stats(x.kv).degraded);
	ck_assert_uint_eq(told.degraded, 0);
	kv_fixture_close(&x);
}
END_TEST

SUITE_MAIN("kv-trouble", a_disk_full_from_any_byte_on_loses_nothing,
	a_call_that_fails_with_any_error_loses_nothing,
	a_file_system_filled_by_others_makes_writers_wait_and_is_used_again,
	nvme_that_fails_is_left_out_told_once_and_used_again,
	what_comes_back_while_nvme_fails_is_read_and_may_leave_again,
	nvme_that_hangs_is_left_out_told_once_and_used_again,
	each_refusal_names_the_tier_and_the_way_out,
	nvme_that_is_slow_is_left_out_told_once_and_used_again,
	nvme_that_is_slow_is_used_where_the_remote_fails_or_there_is_none,
	without_the_remote_residents_are_read_and_dirty_data_waits_within_its_bound,
	without_descriptors_callers_are_told_so_and_nothing_is_lost,
	a_wall_clock_that_jumps_changes_no_wait_and_no_answer)
