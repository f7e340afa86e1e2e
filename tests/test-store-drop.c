/* Files of the store taken out of a tier by hand, and pinned ones. */
#include "tests/store-fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define TAIL 12345u

/* In DRAM, and, with nvme, there too. */
static void load(struct place *p, const struct pattern *pat, bool nvme)
{
	struct mc_file *f = file_open(p, pat);

	for (uint64_t off = 0; off < pat->size; off += MIB)
		ck_assert_int_eq(read_check(f, pat, off, mc_block_len(pat->size, off / MIB)), 0);
	mc_file_put(f);
	while (nvme && pattern_residency(p, pat).nvme < pat->size)
		usleep(1000);
}

static void expect_evict(struct place *p, const struct pattern *pat, enum mc_tier tier, int want,
	const char *want_why)
{
	const struct mc_file_id id = id_of(pat);
	const char *why = "not set";

	ck_assert_int_eq(mc_store_evict(p->store, &id, tier, &why), want);
	if (want_why == NULL)
		ck_assert_ptr_null(why);
	else
		ck_assert_str_eq(why, want_why);
}

START_TEST(a_file_leaves_one_tier_and_stays_in_the_other)
{
	struct place p;
	struct pattern pat;
	struct mc_store_stats st;

	place_make(&p);
	pat = make_pattern(&p, "a", 20 * MIB + TAIL);
	place_open(&p, 64 * MIB, 64 * MIB);
	ck_assert_uint_eq(pattern_residency(&p, &pat).dram, 0);
	load(&p, &pat, true);
	ck_assert_uint_eq(pattern_residency(&p, &pat).dram, pat.size);
	expect_evict(&p, &pat, MC_TIER_DRAM, 0, NULL);
	ck_assert_uint_eq(pattern_residency(&p, &pat).dram, 0);
	ck_assert_uint_eq(pattern_residency(&p, &pat).nvme, pat.size);
	mc_store_stats(p.store, &st);
	ck_assert_uint_eq(st.dram.used, 0);
	load(&p, &pat, true);
	expect_evict(&p, &pat, MC_TIER_NVME, 0, NULL);
	ck_assert_uint_eq(pattern_residency(&p, &pat).nvme, 0);
	ck_assert_uint_eq(pattern_residency(&p, &pat).dram, pat.size);
	mc_store_stats(p.store, &st);
	ck_assert_uint_eq(st.nvme.used, 0);
	expect_evict(&p, &pat, MC_TIER_DRAM, 0, NULL);
	mc_store_stats(p.store, &st);
	ck_assert_uint_eq(st.files, 0);
	expect_evict(&p, &pat, MC_TIER_DRAM, 0, NULL);
	load(&p, &pat, true);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(a_part_of_a_file_counts_by_its_bytes)
{
	struct place p;
	struct pattern pat;
	struct mc_file *f;

	place_make(&p);
	pat = make_pattern(&p, "a", 9 * MIB + TAIL);
	place_open(&p, 64 * MIB, 0);
	f = file_open(&p, &pat);
	ck_assert_int_eq(read_check(f, &pat, 9 * MIB, TAIL), 0);
	ck_assert_uint_eq(pattern_residency(&p, &pat).dram, TAIL);
	ck_assert_int_eq(read_check(f, &pat, 2 * MIB, 10), 0);
	ck_assert_uint_eq(pattern_residency(&p, &pat).dram, MIB + TAIL);
	mc_file_put(f);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(what_a_client_reads_past_us_stays)
{
	static const enum mc_tier tiers[] = {MC_TIER_DRAM, MC_TIER_NVME};
	struct place p;
	struct pattern pat;

	place_make(&p);
	pat = make_pattern(&p, "a", 8 * MIB);
	place_open(&p, 64 * MIB, 64 * MIB);
	load(&p, &pat, true);
	for (size_t i = 0; i < 2; i++) {
		struct mc_file *f = file_open(&p, &pat);
		enum mc_tier tier;
		char path[64];
		int fd, client;

		if (mc_file_backing_get(f, &fd, &tier) < 0) { /* no leases here */
			mc_file_put(f);
			break;
		}
		ck_assert_int_eq(tier, tiers[i]);
		expect_evict(&p, &pat, tier, -EBUSY, "a client has it open");
		mc_file_backing_put(f, tier);
		mc_file_put(f);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		client = open(path, O_RDONLY); /* as the kernel does */
		close(fd);
		expect_evict(&p, &pat, tier, -EBUSY, "a client has it open or mapped");
		close(client);
		expect_evict(&p, &pat, tier, 0, NULL);
	}
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(a_pinned_file_outlives_pressure_and_restarts)
{
	struct place p;
	struct pattern a, b;
	struct mc_file_id id;

	place_make(&p);
	a = make_pattern(&p, "a", 10 * MIB + TAIL);
	b = make_pattern(&p, "b", 60 * MIB);
	id = id_of(&a);
	place_open(&p, 32 * MIB, 48 * MIB);
	ck_assert_int_eq(mc_store_pin(p.store, &id, true), 0);
	load(&p, &a, true);
	for (int restart = 0; restart < 2; restart++) {
		ck_assert(pattern_residency(&p, &a).pinned);
		load(&p, &b, false);
		ck_assert_uint_eq(pattern_residency(&p, &a).nvme, a.size);
		expect_evict(&p, &a, MC_TIER_NVME, -EBUSY, "it is pinned");
		if (restart == 0) { /* in DRAM too: it fits */
			ck_assert_uint_eq(pattern_residency(&p, &a).dram, a.size);
			expect_evict(&p, &a, MC_TIER_DRAM, -EBUSY, "it is pinned");
			place_close(&p, false);
			place_open(&p, 32 * MIB, 48 * MIB);
		}
	}
	ck_assert_int_eq(mc_store_pin(p.store, &id, false), 0);
	ck_assert(!pattern_residency(&p, &a).pinned);
	expect_evict(&p, &a, MC_TIER_NVME, 0, NULL);
	place_close(&p, false);
	place_open(&p, 32 * MIB, 48 * MIB);
	ck_assert(!pattern_residency(&p, &a).pinned);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(more_pins_than_half_of_a_tier_are_refused)
{
	struct place p;
	struct mc_store_stats st;
	struct mc_file_id id = {.digest = {1}};

	place_make(&p);
	place_open(&p, 16 * MIB, 0);
	id.size = 8 * MIB + 1;
	ck_assert_int_eq(mc_store_pin(p.store, &id, true), -ENOSPC);
	id.size = 8 * MIB;
	ck_assert_int_eq(mc_store_pin(p.store, &id, true), 0);
	ck_assert_int_eq(mc_store_pin(p.store, &id, true), 0);
	id.digest[0] = 2;
	id.size = 1;
	ck_assert_int_eq(mc_store_pin(p.store, &id, true), -ENOSPC);
	mc_store_stats(p.store, &st);
	ck_assert_uint_eq(st.files, 1);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(uses_are_counted)
{
	struct place p;
	struct pattern pat;
	struct mc_file *f;

	place_make(&p);
	pat = make_pattern(&p, "a", MIB);
	place_open(&p, 16 * MIB, 0);
	f = file_open(&p, &pat);
	for (uint64_t i = 0; i < 5; i++) {
		ck_assert_int_eq(read_check(f, &pat, 0, 100), 0);
		ck_assert_uint_eq(pattern_residency(&p, &pat).hits, i);
	}
	mc_file_put(f);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

SUITE_MAIN("store-drop", a_file_leaves_one_tier_and_stays_in_the_other,
	a_part_of_a_file_counts_by_its_bytes, what_a_client_reads_past_us_stays,
	a_pinned_file_outlives_pressure_and_restarts, more_pins_than_half_of_a_tier_are_refused,
	uses_are_counted)
