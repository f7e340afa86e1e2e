/* Which tier a get finds its object in, and what stays on NVMe when it fills. */
#include "tests/kv-fixture.h"
#include "tests/replay/hollow.h"
#include "tests/suite.h"

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#define MIB (1u << 20)

START_TEST(each_get_is_one_hit_of_one_tier)
{
	struct kv_fixture x;
	struct mc_kv_stats s;

	kv_fixture_paths(&x, 128 * MIB);
	x.opts.nvme_dir = x.nvme;
	x.opts.nvme_capacity = UINT64_C(1) << 30;
	kv_fixture_start(&x);
	ck_assert_int_eq(kv_put(x.kv, "a", MIB, 1, 0), 0);
	ck_assert_int_eq(mc_kv_evict(x.kv, "a"), 0);
	for (unsigned i = 0; i < 3; i++)
		kv_expect(x.kv, "a", MIB, 1);
	ck_assert_int_eq(kv_open_object(x.kv, "b", &(struct mc_kv_object *){NULL}), -ENOENT);
	mc_kv_stats(x.kv, &s);
	ck_assert_uint_eq(s.gets, 4);
	ck_assert_uint_eq(s.hits_nvme, 1);
	ck_assert_uint_eq(s.hits_dram, 2);
	ck_assert_uint_eq(s.misses, 1);
	kv_fixture_close(&x);
}
END_TEST

static int put_zeros(struct mc_kv *kv, const char *key, size_t size)
{
	const struct timespec t = {.tv_sec = 1};
	struct mc_kv_writer *w;
	int r;

	while ((r = mc_kv_create(kv, size, &w)) == -EAGAIN)
		sched_yield();
	if (r == 0)
		r = ftruncate(mc_kv_writer_fd(w), (off_t)size);
	return r == 0 ? mc_kv_publish(w, key, &t, 0, false, NULL) : r;
}

/* Hot objects are read now and then while three times as much as NVMe holds is put. */
START_TEST(what_is_used_stays_on_nvme_when_it_fills)
{
	enum { HOT = 64, COLD = 1500, OBJECT = 65536 };
	struct kv_fixture x;
	struct mc_remote *like;
	struct mc_kv_attr a;
	unsigned hot = 0;
	char key[16];

	kv_fixture_paths(&x, 8 * MIB);
	kv_fixture_remote(&x);
	like = x.remote;
	ck_assert_int_eq(replay_hollow_open(like, &x.remote), 0);
	mc_remote_close(like);
	x.opts.remote = x.remote;
	x.opts.nvme_dir = x.nvme;
	x.opts.nvme_capacity = 32 * MIB;
	kv_fixture_start(&x);
	for (unsigned i = 0; i < HOT + COLD; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(put_zeros(x.kv, key, OBJECT), 0);
		if (i % 8 == 0)
			ck_assert_int_eq(mc_kv_sync(x.kv, key), 0);
		for (unsigned h = 0; h < HOT && i % 64 == 0 && i > HOT; h++) {
			struct mc_kv_object *obj;

			snprintf(key, sizeof(key), "k%u", h);
			ck_assert_int_eq(kv_open_object(x.kv, key, &obj), 0);
			mc_kv_object_put(obj);
		}
	}
	for (unsigned i = 0; i < HOT; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(mc_kv_lookup(x.kv, key, &a), 0);
		hot += a.nvme > 0;
	}
	ck_assert_uint_ge(hot, HOT * 3 / 4);
	kv_fixture_close(&x);
}
END_TEST

SUITE_MAIN("kv-hits", each_get_is_one_hit_of_one_tier, what_is_used_stays_on_nvme_when_it_fills)
