/* Blocks of files between an NVMe directory and the device below it: what the directory gives up,
 * in both directions, over restarts and when both are full. */
#include "tests/block-fixture.h"

#define NVME (16 * MIB)

static void begin(struct tiers *t, uint64_t device)
{
	tiers_make(t, device);
	t->nvme = NVME;
	tiers_open(t);
}

static void end(struct tiers *t)
{
	tiers_close(t);
	tiers_remove(t);
}

static void evict(struct tiers *t, const struct pattern *pat, enum mc_tier tier)
{
	const struct mc_file_id id = id_of(pat);
	const char *why;

	ck_assert_msg(mc_store_evict(t->p.store, &id, tier, &why) == 0, "%s", why);
}

/* Reads the file until all of it is on NVMe or, since it has left that, on the device. What leaves
 * DRAM while those have enough to write is not kept: again. */
static void keep(struct tiers *t, const struct pattern *pat)
{
	struct mc_residency res;

	for (;;) {
		read_all(t, pat);
		for (int i = 0; i < 100; i++) {
			res = pattern_residency(&t->p, pat);
			if (res.nvme + res.block >= pat->size)
				return;
			usleep(1000);
		}
		evict(t, pat, MC_TIER_DRAM);
	}
}

/* Reads the file until what DRAM does not have is on NVMe or the device. */
static void bring(struct tiers *t, const struct pattern *pat)
{
	uint64_t before;

	do {
		evict(t, pat, MC_TIER_DRAM);
		before = stats(&t->p).fetches;
		read_all(t, pat);
	} while (stats(&t->p).fetches != before);
}

START_TEST(what_leaves_nvme_is_read_from_the_device)
{
	struct tiers t;
	struct pattern pat;
	uint64_t fetches;

	begin(&t, DEVICE);
	pat = make_pattern(&t.p, "a", SIZE);
	bring(&t, &pat);
	fetches = stats(&t.p).fetches;
	empty_remote(&t);
	for (int i = 0; i < 3; i++)
		read_all(&t, &pat);
	ck_assert_uint_eq(stats(&t.p).fetches, fetches);
	ck_assert_uint_ge(pattern_residency(&t.p, &pat).block, SIZE - NVME);
	ck_assert_uint_ge(stats(&t.p).sunk, (SIZE - NVME) / MIB);
	end(&t);
}
END_TEST

START_TEST(a_block_that_leaves_nvme_is_not_fetched_again)
{
	static const char *const names[] = {"a", "b", "c"};
	struct tiers t;
	struct pattern pat[3];
	uint64_t fetches;

	begin(&t, DEVICE);
	for (int i = 0; i < 3; i++) {
		pat[i] = make_pattern(&t.p, names[i], 10 * MIB);
		keep(&t, &pat[i]);
	}
	fetches = stats(&t.p).fetches;
	empty_remote(&t);
	for (int i = 0; i < 3; i++)
		read_all(&t, &pat[i]);
	ck_assert_uint_eq(stats(&t.p).fetches, fetches);
	end(&t);
}
END_TEST

START_TEST(a_restart_finds_both_and_needs_no_remote)
{
	struct tiers t;
	struct pattern pat;
	struct mc_residency res;

	begin(&t, DEVICE);
	pat = make_pattern(&t.p, "a", SIZE);
	bring(&t, &pat);
	while (stats(&t.p).sinking > 0)
		usleep(1000);
	res = pattern_residency(&t.p, &pat);
	tiers_close(&t);
	empty_remote(&t);
	tiers_open(&t);
	ck_assert_int_eq(kv_put_wait(t.kv, "after-recovery", 1, 1), 0);
	while (pattern_residency(&t.p, &pat).block != res.block)
		usleep(1000);
	evict(&t, &pat, MC_TIER_DRAM);
	read_all(&t, &pat);
	ck_assert_uint_eq(stats(&t.p).fetches, 0);
	end(&t);
}
END_TEST

/* Others push it out of NVMe. */
static void push_down(struct tiers *t, const struct pattern *pat)
{
	for (unsigned i = 0; pattern_residency(&t->p, pat).nvme > 0; i++) {
		char name[16];
		struct pattern other;

		snprintf(name, sizeof(name), "other%u", i);
		other = make_pattern(&t->p, name, 10 * MIB);
		keep(t, &other);
	}
	while (stats(&t->p).sinking > 0)
		usleep(1000);
}

START_TEST(what_is_read_there_twice_goes_up_to_nvme)
{
	struct tiers t;
	struct pattern pat;

	begin(&t, 2 * DEVICE);
	pat = make_pattern(&t.p, "a", 3 * MIB);
	keep(&t, &pat);
	push_down(&t, &pat);
	ck_assert_uint_eq(pattern_residency(&t.p, &pat).block, 3 * MIB);
	evict(&t, &pat, MC_TIER_DRAM);
	read_all(&t, &pat);
	ck_assert_uint_eq(pattern_residency(&t.p, &pat).nvme, 0);
	evict(&t, &pat, MC_TIER_DRAM);
	read_all(&t, &pat);
	while (pattern_residency(&t.p, &pat).nvme == 0)
		usleep(1000);
	end(&t);
}
END_TEST

START_TEST(a_file_taken_out_of_both_by_hand_stays_out)
{
	struct tiers t;
	struct pattern pat;

	begin(&t, DEVICE);
	pat = make_pattern(&t.p, "a", SIZE);
	bring(&t, &pat);
	evict(&t, &pat, MC_TIER_NVME);
	evict(&t, &pat, MC_TIER_BLOCK);
	ck_assert_uint_eq(pattern_residency(&t.p, &pat).nvme, 0);
	ck_assert_uint_eq(pattern_residency(&t.p, &pat).block, 0);
	tiers_close(&t);
	tiers_open(&t);
	ck_assert_int_eq(kv_put_wait(t.kv, "after-recovery", 1, 1), 0);
	ck_assert_uint_eq(pattern_residency(&t.p, &pat).nvme, 0);
	ck_assert_uint_eq(pattern_residency(&t.p, &pat).block, 0);
	end(&t);
}
END_TEST

START_TEST(when_both_are_full_blocks_go_and_objects_stay)
{
	struct tiers t;
	struct pattern pat;

	begin(&t, 64 * MIB);
	for (uint32_t i = 0; i < 40; i++) {
		char key[16];

		snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(kv_put_wait(t.kv, key, MIB, i), 0);
		ck_assert_int_eq(mc_kv_sync(t.kv, key), 0);
	}
	pat = make_pattern(&t.p, "large", 100 * MIB);
	read_all(&t, &pat);
	while (stats(&t.p).sunk == 0) /* a busy disk may leave them out */
		read_all(&t, &pat);
	ck_assert_uint_le(stats(&t.p).device.used, 64 * MIB);
	for (uint32_t i = 0; i < 40; i++) {
		char key[16];

		snprintf(key, sizeof(key), "k%u", i);
		kv_expect(t.kv, key, MIB, i);
	}
	end(&t);
}
END_TEST

SUITE_MAIN("block-under", what_leaves_nvme_is_read_from_the_device,
	a_block_that_leaves_nvme_is_not_fetched_again, a_restart_finds_both_and_needs_no_remote,
	what_is_read_there_twice_goes_up_to_nvme, a_file_taken_out_of_both_by_hand_stays_out,
	when_both_are_full_blocks_go_and_objects_stay)
