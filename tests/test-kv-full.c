/*
 * The KV store on a disk that is full or fails from any byte or call on, against a model, and what
 * callers are told then.
 *
 * MC_SEED chooses places and objects (it is printed), KV_STEPS how many places.
 */
#include "tests/kv-trouble.h"
#include "tests/seed.h"
#include "tests/suite.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEYS 5

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
	unsigned seed = seed_choose(), steps = env_number("KV_STEPS", 8);
	uint64_t rng = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);

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
	unsigned seed = seed_choose(), steps = env_number("KV_STEPS", 8);
	uint64_t rng = (seed + 2) * UINT64_C(0x9e3779b97f4a7c15);

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
	expect_why(x.kv, -EFBIG, "larger", "smaller");
	expect_why(x.kv, -EISDIR, "directory", "another key");
	disk.syncs = -EIO;
	put_until_full(x.kv);
	while (stats(x.kv).nvme_trouble == NULL)
		usleep(200);
	expect_why(x.kv, -ENOSPC, "NVMe", "look at the disk");
	expect_why(x.kv, -EIO, "NVMe", "look at the disk");
	disk.syncs = 0;
	kv_fixture_close(&x);
}
END_TEST

SUITE_MAIN("KV full", a_disk_full_from_any_byte_on_loses_nothing,
	a_call_that_fails_with_any_error_loses_nothing,
	a_file_system_filled_by_others_makes_writers_wait_and_is_used_again,
	each_refusal_names_the_tier_and_the_way_out)
