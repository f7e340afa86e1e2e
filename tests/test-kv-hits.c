/* Which tier a get finds its object in, and what stays on NVMe when it fills. */
#include "tests/kv-fixture.h"
#include "tests/replay/hollow.h"
#include "tests/suite.h"

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
		usleep(200);
	if (r == 0)
		r = ftruncate(mc_kv_writer_fd(w), (off_t)size);
	return r == 0 ? mc_kv_publish(w, key, &t, 0, false, NULL) : r;
}

/* Each percent of DRAM that eviction leaves empty is lost to hits. */
START_TEST(a_full_dram_tier_uses_96_percent_of_its_memory)
{
	enum { OBJECTS = 800, OBJECT = 65536 };
	struct kv_fixture x;
	struct mc_kv_stats s;
	char key[16];

	kv_fixture_paths(&x, 32 * MIB);
	x.opts.nvme_dir = x.nvme;
	x.opts.nvme_capacity = UINT64_C(1) << 30;
	kv_fixture_start(&x);
	for (unsigned i = 0; i < OBJECTS; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(put_zeros(x.kv, key, OBJECT), 0);
		mc_kv_stats(x.kv, &s);
		ck_assert_uint_le(s.dram_used, s.dram_capacity);
		if (s.evicted_objects > 0)
			ck_assert_uint_ge(s.dram_used, s.dram_capacity / 100 * 96);
	}
	ck_assert_uint_ge(s.evicted_objects, OBJECTS / 4);
	kv_fixture_close(&x);
}
END_TEST

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

static struct mc_kv_attr attr_of(struct mc_kv *kv, const char *key)
{
	struct mc_kv_attr a;

	ck_assert_int_eq(mc_kv_lookup(kv, key, &a), 0);
	return a;
}

static void wait_nvme(struct mc_kv *kv, const char *key)
{
	while (attr_of(kv, key).nvme == 0)
		usleep(1000);
}

static void evict(struct mc_kv *kv, const char *key, enum mc_tier tier)
{
	const char *why = NULL;

	ck_assert_int_eq(mc_kv_evict_from(kv, key, tier, &why), 0);
	ck_assert_ptr_null(why);
}

static void start_with_remote(struct kv_fixture *x)
{
	kv_fixture_paths(x, 128 * MIB);
	x->opts.nvme_dir = x->nvme;
	x->opts.nvme_capacity = UINT64_C(1) << 30;
	kv_fixture_remote(x);
	kv_fixture_start(x);
}

START_TEST(what_comes_back_from_the_remote_is_on_nvme_again)
{
	static const struct {
		const char *key;
		size_t size;
	} objects[] = {{"small", 1000}, {"block", MIB}, {"large", 3 * MIB + 5}};
	struct kv_fixture x;
	struct mc_kv_stats s;

	start_with_remote(&x);
	for (unsigned i = 0; i < 3; i++) {
		const char *key = objects[i].key;

		ck_assert_int_eq(kv_put(x.kv, key, objects[i].size, i, 0), 0);
		ck_assert_int_eq(mc_kv_sync(x.kv, key), 0);
		evict(x.kv, key, MC_TIER_NVME);
		evict(x.kv, key, MC_TIER_DRAM);
		kv_expect(x.kv, key, objects[i].size, i);
		ck_assert_int_eq(attr_of(x.kv, key).state, MC_KV_CLEAN);
		wait_nvme(x.kv, key);
		evict(x.kv, key, MC_TIER_DRAM);
		kv_expect(x.kv, key, objects[i].size, i);
	}
	mc_kv_stats(x.kv, &s);
	ck_assert_uint_eq(s.hits_remote, 3);
	ck_assert_uint_eq(s.hits_nvme, 3);
	ck_assert_int_eq(mc_kv_close(x.kv, 30000), 0);
	/* The log knows that the remote has them, too. */
	kv_fixture_forget_dram(&x);
	kv_fixture_start(&x);
	for (unsigned i = 0; i < 3; i++) {
		const char *key = objects[i].key;

		kv_expect(x.kv, key, objects[i].size, i);
		ck_assert_uint_eq(attr_of(x.kv, key).nvme, objects[i].size);
		ck_assert_uint_eq(attr_of(x.kv, key).remotes, 1);
	}
	kv_fixture_close(&x);
}
END_TEST

START_TEST(what_is_read_from_the_remote_once_is_not_written_to_nvme)
{
	struct kv_fixture x, y;
	struct mc_kv_attr a;

	start_with_remote(&x);
	x.opts.ack = MC_KV_ACK_REMOTE;
	ck_assert_int_eq(kv_put(x.kv, "a", MIB, 1, 0), 0);
	ck_assert_int_eq(mc_kv_sync(x.kv, "a"), 0);
	evict(x.kv, "a", MC_TIER_NVME);
	kv_fixture_paths(&y, 128 * MIB);
	y.opts.nvme_dir = y.nvme;
	y.opts.nvme_capacity = UINT64_C(1) << 30;
	y.opts.remote = x.remote;
	y.opts.node = "0badcafe";
	kv_fixture_start(&y);
	ck_assert_int_eq(kv_ask(y.kv, "a", &a), 0);
	kv_expect(y.kv, "a", MIB, 1);
	ck_assert_int_eq(kv_put(y.kv, "later", MIB, 2, 0), 0);
	ck_assert_int_eq(mc_kv_sync(y.kv, "later"), 0); /* "a" would have gone with it */
	ck_assert_uint_eq(attr_of(y.kv, "a").nvme, 0);
	evict(y.kv, "a", MC_TIER_DRAM);
	kv_expect(y.kv, "a", MIB, 1);
	wait_nvme(y.kv, "a");
	kv_fixture_close(&y);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(what_waits_to_be_on_nvme_again_leaves_every_tier_at_once)
{
	struct kv_fixture x;

	start_with_remote(&x);
	ck_assert_int_eq(kv_put(x.kv, "a", MIB, 1, 0), 0);
	ck_assert_int_eq(mc_kv_sync(x.kv, "a"), 0);
	for (unsigned i = 0; i < 4; i++) {
		evict(x.kv, "a", MC_TIER_NVME);
		evict(x.kv, "a", MC_TIER_DRAM);
		kv_expect(x.kv, "a", MIB, 1);
		evict(x.kv, "a", i % 2 == 0 ? MC_TIER_DRAM : MC_TIER_NVME);
	}
	ck_assert_int_eq(mc_kv_rename(x.kv, "a", "b", 0), 0);
	kv_expect(x.kv, "b", MIB, 1);
	ck_assert_int_eq(mc_kv_unlink(x.kv, "b"), 0);
	kv_fixture_close(&x);
}
END_TEST

SUITE_MAIN("kv-hits", each_get_is_one_hit_of_one_tier,
	a_full_dram_tier_uses_96_percent_of_its_memory, what_is_used_stays_on_nvme_when_it_fills,
	what_comes_back_from_the_remote_is_on_nvme_again,
	what_is_read_from_the_remote_once_is_not_written_to_nvme,
	what_waits_to_be_on_nvme_again_leaves_every_tier_at_once)
