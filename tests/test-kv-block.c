/* What lies on a device is in the tier "block" and nowhere else by that name: with the device
 * alone, and with it below a directory. */
#include "tests/kv-fixture.h"
#include "tests/suite.h"

#include "tier/block-super.h"

#include <stdio.h>

#define MIB (UINT64_C(1) << 20)
#define N 48u
#define LARGE (3 * MIB / 2) /* in parts: a segment of so small a directory is shorter */

static char device[96];

/* nvme: bytes of a directory above the device, 0 = none. */
static void start(struct kv_fixture *x, uint64_t nvme)
{
	const struct mc_block_format f = {.path = device, .bytes = 256 * MIB};
	struct mc_err err = {0};

	kv_fixture_paths(x, 128 * MIB);
	snprintf(device, sizeof(device), "%s/device", x->root);
	ck_assert_msg(mc_block_format(&f, &err) == 0, "%s", err.text);
	x->opts.device = device;
	x->opts.nvme_dir = nvme > 0 ? x->nvme : NULL;
	x->opts.nvme_capacity = nvme;
	kv_fixture_remote(x);
	kv_fixture_start(x);
	ck_assert_int_eq(mc_kv_mkdir(x->kv, "d"), 0);
}

static const char *key_of(unsigned i)
{
	static char key[16];

	snprintf(key, sizeof(key), "d/%03u", i);
	return key;
}

/* Every other one is large; one is empty. */
static uint64_t size_of(unsigned i)
{
	return i == 1 ? 0 : i % 2 == 0 ? LARGE : 50000 + i;
}

static void put_all(struct kv_fixture *x)
{
	for (unsigned i = 0; i < N; i++) {
		ck_assert_int_eq(kv_put_wait(x->kv, key_of(i), size_of(i), i), 0);
		ck_assert_int_eq(mc_kv_sync(x->kv, key_of(i)), 0);
	}
}

static struct mc_kv_attr attr_of(struct kv_fixture *x, unsigned i)
{
	struct mc_kv_attr a;

	ck_assert_int_eq(mc_kv_lookup(x->kv, key_of(i), &a), 0);
	return a;
}

static void evict(struct kv_fixture *x, unsigned i, enum mc_tier tier)
{
	const char *why;

	ck_assert_int_eq(mc_kv_evict_from(x->kv, key_of(i), tier, &why), 0);
}

struct count {
	enum mc_tier tier;
	unsigned n;
	uint64_t bytes;
};

static int count_one(void *ctx, const char *name, const struct mc_kv_attr *a, uint64_t next)
{
	struct count *c = ctx;

	ck_assert_msg(mc_kv_attr_in(a, c->tier), "%s", name);
	c->n++;
	c->bytes += mc_kv_attr_bytes(a, c->tier);
	return 0;
}

static struct count list(struct kv_fixture *x, enum mc_tier tier)
{
	struct count c = {.tier = tier};
	uint64_t cursor = 0;

	ck_assert_int_eq(mc_kv_list_in(x->kv, "d", tier, &cursor, count_one, &c), 0);
	return c;
}

START_TEST(what_lies_on_a_device_alone_is_in_block)
{
	struct kv_fixture x;
	struct mc_kv_stats s;

	start(&x, 0);
	ck_assert(mc_kv_has(x.kv, MC_TIER_BLOCK) && !mc_kv_has(x.kv, MC_TIER_NVME));
	put_all(&x);
	for (unsigned i = 0; i < N; i++) {
		ck_assert_uint_eq(attr_of(&x, i).block, size_of(i));
		ck_assert_uint_eq(attr_of(&x, i).nvme, 0);
		evict(&x, i, MC_TIER_NVME); /* it is not there */
		ck_assert_uint_eq(attr_of(&x, i).remotes, 0);
		evict(&x, i, MC_TIER_DRAM);
	}
	ck_assert_uint_eq(list(&x, MC_TIER_BLOCK).n, N);
	ck_assert_uint_eq(list(&x, MC_TIER_NVME).n, 0);
	ck_assert(mc_kv_dir_holds(x.kv, "d", MC_TIER_BLOCK));
	ck_assert(!mc_kv_dir_holds(x.kv, "d", MC_TIER_NVME));
	for (unsigned i = 0; i < N; i++) {
		kv_expect(x.kv, key_of(i), size_of(i), i);
		evict(&x, i, MC_TIER_BLOCK);
		ck_assert_uint_eq(attr_of(&x, i).block, 0);
		ck_assert_uint_eq(attr_of(&x, i).remotes, 1);
	}
	mc_kv_stats(x.kv, &s);
	ck_assert_uint_eq(s.hits_block, N);
	ck_assert_uint_eq(s.hits_nvme, 0);
	ck_assert(!mc_kv_dir_holds(x.kv, "", MC_TIER_BLOCK));
	for (unsigned i = 0; i < N; i++)
		kv_expect(x.kv, key_of(i), size_of(i), i);
	kv_fixture_close(&x);
}
END_TEST

/* Sizes are true also of those that lie on both. */
static void expect_split(struct kv_fixture *x)
{
	struct count nvme = list(x, MC_TIER_NVME), block = list(x, MC_TIER_BLOCK);
	unsigned on_nvme = 0, on_block = 0;
	uint64_t nvme_bytes = 0, block_bytes = 0;

	for (unsigned i = 0; i < N; i++) {
		struct mc_kv_attr a = attr_of(x, i);

		ck_assert_uint_eq(a.nvme + a.block, size_of(i));
		on_nvme += mc_kv_attr_in(&a, MC_TIER_NVME);
		on_block += mc_kv_attr_in(&a, MC_TIER_BLOCK);
		ck_assert(mc_kv_attr_in(&a, MC_TIER_NVME) || mc_kv_attr_in(&a, MC_TIER_BLOCK));
		nvme_bytes += a.nvme;
		block_bytes += a.block;
	}
	ck_assert_uint_eq(nvme.n, on_nvme);
	ck_assert_uint_eq(block.n, on_block);
	ck_assert_uint_eq(nvme.bytes, nvme_bytes);
	ck_assert_uint_eq(block.bytes, block_bytes);
}

START_TEST(below_a_directory_each_tier_has_what_lies_in_it)
{
	const uint64_t upper = 16 * MIB;
	struct kv_fixture x;
	unsigned from_nvme = 0, from_block = 0;

	start(&x, upper);
	ck_assert(mc_kv_has(x.kv, MC_TIER_BLOCK) && mc_kv_has(x.kv, MC_TIER_NVME));
	put_all(&x);
	kv_fixture_stop(&x); /* nothing moves now, nor from memory */
	kv_fixture_start(&x);
	kv_expect(x.kv, key_of(0), size_of(0), 0);
	expect_split(&x);
	ck_assert_uint_le(list(&x, MC_TIER_NVME).bytes, upper);
	ck_assert_uint_gt(list(&x, MC_TIER_BLOCK).bytes, N / 2 * LARGE - upper - 1);
	for (unsigned i = 1; i < N; i++) {
		struct mc_kv_attr a = attr_of(&x, i);
		bool block = mc_kv_attr_in(&a, MC_TIER_BLOCK);

		evict(&x, i, block ? MC_TIER_BLOCK : MC_TIER_NVME);
		from_block += block;
		from_nvme += !block;
		a = attr_of(&x, i);
		ck_assert_uint_eq(a.nvme + a.block, 0);
		ck_assert_uint_eq(a.remotes, 1);
	}
	ck_assert_uint_gt(from_block, 0);
	ck_assert_uint_gt(from_nvme, 0);
	evict(&x, 0, MC_TIER_BLOCK);
	evict(&x, 0, MC_TIER_NVME);
	ck_assert(!mc_kv_dir_holds(x.kv, "", MC_TIER_BLOCK));
	ck_assert(!mc_kv_dir_holds(x.kv, "", MC_TIER_NVME));
	for (unsigned i = 0; i < N; i++)
		kv_expect(x.kv, key_of(i), size_of(i), i);
	kv_fixture_close(&x);
}
END_TEST

SUITE_MAIN("kv-block", what_lies_on_a_device_alone_is_in_block,
	below_a_directory_each_tier_has_what_lies_in_it)
