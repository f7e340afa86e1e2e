/* Whole files brought into a tier on order, and tiers that change their size. */
#include "tests/store-fixture.h"
#include "tier/store-warm.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define TAIL 12345u

static int warm(struct mc_file *f, enum mc_tier tier)
{
	const struct mc_warm_opts opts = {.tier = tier};

	return mc_store_warm(f, &opts);
}

static struct mc_residency residency(struct place *p, struct mc_file *f)
{
	struct mc_residency res;

	mc_store_residency(p->store, mc_file_id(f), &res);
	return res;
}

START_TEST(what_is_warm_on_nvme_is_durable_when_the_call_returns)
{
	struct place p;
	struct pattern pat;
	struct mc_file *f;
	pid_t pid;
	int status;

	place_make(&p);
	pat = make_pattern(&p, "a", 40 * MIB + TAIL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		/* More than the DRAM tier takes at a time; killed as soon as it is told. */
		place_open(&p, 16 * MIB, 128 * MIB);
		f = file_open(&p, &pat);
		if (warm(f, MC_TIER_NVME) != 0)
			_exit(1);
		raise(SIGKILL);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %x", status);
	umount2(p.dram, MNT_DETACH);
	place_open(&p, 16 * MIB, 128 * MIB);
	f = file_open(&p, &pat);
	for (uint64_t off = 0; off < pat.size; off += MIB)
		ck_assert_int_eq(read_check(f, &pat, off, mc_block_len(pat.size, off / MIB)), 0);
	ck_assert_uint_eq(stats(&p).fetched_bytes, 0);
	mc_file_put(f);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(warm_in_dram_is_resident_and_holes_are_not_missed)
{
	struct place p;
	struct pattern pat;
	struct mc_file *f;

	place_make(&p);
	pat = make_pattern(&p, "a", 10 * MIB + TAIL);
	pat.hole_off = 2 * MIB;
	pat.hole_len = 4 * MIB;
	place_open(&p, 32 * MIB, 0);
	f = file_open(&p, &pat);
	ck_assert_int_eq(warm(f, MC_TIER_DRAM), 0);
	ck_assert_uint_eq(residency(&p, f).dram, 6 * MIB + TAIL);
	ck_assert_uint_eq(stats(&p).fetches, 7);
	/* Again costs nothing. */
	ck_assert_int_eq(warm(f, MC_TIER_DRAM), 0);
	ck_assert_uint_eq(stats(&p).fetches, 7);
	mc_file_put(f);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(what_cannot_be_warmed_says_why)
{
	struct place p;
	struct pattern pat, bad;
	struct mc_file *f, *g;

	place_make(&p);
	pat = make_pattern(&p, "a", 40 * MIB);
	bad = make_pattern(&p, "b", 4 * MIB);
	bad.bad_block = 2;
	place_open(&p, 16 * MIB, 0);
	f = file_open(&p, &pat);
	g = file_open(&p, &bad);
	ck_assert_int_eq(warm(f, MC_TIER_DRAM), -ENOSPC);
	ck_assert_uint_eq(stats(&p).fetches, 0);
	ck_assert_int_eq(warm(f, MC_TIER_NVME), -ENODEV);
	ck_assert_int_eq(warm(f, MC_TIER_REMOTE), -ENODEV);
	ck_assert_int_eq(warm(g, MC_TIER_DRAM), -EIO);
	mc_file_put(f);
	mc_file_put(g);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

static bool stop_at(void *ctx, uint64_t bytes_done)
{
	const uint64_t *limit = ctx;

	return bytes_done < *limit;
}

START_TEST(a_caller_that_says_no_ends_it)
{
	struct place p;
	struct pattern pat;
	struct mc_file *f;
	uint64_t limit = 3 * MIB;
	const struct mc_warm_opts opts = {.tier = MC_TIER_DRAM,
		.bytes_per_second = 100 * MIB,
		.keep_on = stop_at,
		.ctx = &limit};

	place_make(&p);
	pat = make_pattern(&p, "a", 30 * MIB);
	place_open(&p, 64 * MIB, 0);
	f = file_open(&p, &pat);
	ck_assert_int_eq(mc_store_warm(f, &opts), -ECANCELED);
	ck_assert_uint_ge(residency(&p, f).dram, limit);
	ck_assert_uint_lt(residency(&p, f).dram, pat.size);
	mc_file_put(f);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(a_rate_holds_across_files_and_many_share_one_wait)
{
	struct place p;
	struct pattern pat[4];
	struct mc_file *f[4];
	uint64_t next_ns = 0, begun;
	const char *const names[] = {"a", "b", "c", "d"};
	struct mc_warm_opts opts = {.tier = MC_TIER_NVME,
		.bytes_per_second = 4 * MIB,
		.next_ns = &next_ns,
		.unsettled = true};

	place_make(&p);
	for (int i = 0; i < 4; i++)
		pat[i] = make_pattern(&p, names[i], MIB);
	place_open(&p, 32 * MIB, 64 * MIB);
	begun = mc_now_ns();
	for (int i = 0; i < 4; i++) {
		f[i] = file_open(&p, &pat[i]);
		ck_assert_int_eq(mc_store_warm(f[i], &opts), 0);
		ck_assert_uint_eq(residency(&p, f[i]).dram, MIB);
	}
	/* Only the first of four is free. */
	ck_assert_uint_ge(mc_now_ns() - begun, UINT64_C(750000000));
	opts.unsettled = false;
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(mc_store_warm(f[i], &opts), 0);
		ck_assert_uint_eq(residency(&p, f[i]).nvme, MIB);
		mc_file_put(f[i]);
	}
	ck_assert_uint_eq(stats(&p).fetches, 4);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(a_smaller_tier_evicts_and_a_larger_one_takes_more)
{
	struct place p;
	struct pattern pat;
	struct mc_file *f;

	place_make(&p);
	pat = make_pattern(&p, "a", 30 * MIB);
	place_open(&p, 64 * MIB, 128 * MIB);
	f = file_open(&p, &pat);
	ck_assert_int_eq(warm(f, MC_TIER_NVME), 0);
	ck_assert_int_eq(warm(f, MC_TIER_DRAM), 0);
	ck_assert_int_eq(mc_store_resize(p.store, MC_TIER_DRAM, 16 * MIB), 0);
	ck_assert_uint_le(stats(&p).dram.used, 16 * MIB);
	ck_assert_int_eq(warm(f, MC_TIER_DRAM), -ENOSPC);
	ck_assert_int_eq(mc_store_resize(p.store, MC_TIER_NVME, 16 * MIB), 0);
	ck_assert_uint_le(stats(&p).nvme.used, 16 * MIB);
	for (uint64_t off = 0; off < pat.size; off += MIB)
		ck_assert_int_eq(read_check(f, &pat, off, MIB), 0);
	ck_assert_uint_le(stats(&p).dram.used, 16 * MIB);
	ck_assert_int_eq(mc_store_resize(p.store, MC_TIER_DRAM, 64 * MIB), 0);
	ck_assert_int_eq(warm(f, MC_TIER_DRAM), 0);
	ck_assert_uint_eq(residency(&p, f).dram, pat.size);
	ck_assert_int_eq(mc_store_resize(p.store, MC_TIER_REMOTE, MIB), -ENODEV);
	mc_file_put(f);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(what_nvme_evicted_and_dram_still_has_goes_to_nvme_on_order)
{
	struct place p;
	struct pattern pat;
	struct mc_file *f;

	place_make(&p);
	pat = make_pattern(&p, "a", 30 * MIB);
	place_open(&p, 64 * MIB, 128 * MIB);
	f = file_open(&p, &pat);
	ck_assert_int_eq(warm(f, MC_TIER_NVME), 0);
	ck_assert_int_eq(mc_store_resize(p.store, MC_TIER_NVME, 16 * MIB), 0);
	ck_assert_uint_eq(residency(&p, f).dram, pat.size);
	ck_assert_uint_le(residency(&p, f).nvme, 16 * MIB);
	ck_assert_int_eq(mc_store_resize(p.store, MC_TIER_NVME, 128 * MIB), 0);
	ck_assert_int_eq(warm(f, MC_TIER_NVME), 0);
	ck_assert_uint_eq(residency(&p, f).nvme, pat.size);
	mc_file_put(f);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

SUITE_MAIN("store-warm", what_is_warm_on_nvme_is_durable_when_the_call_returns,
	warm_in_dram_is_resident_and_holes_are_not_missed, what_cannot_be_warmed_says_why,
	a_caller_that_says_no_ends_it, a_rate_holds_across_files_and_many_share_one_wait,
	a_smaller_tier_evicts_and_a_larger_one_takes_more,
	what_nvme_evicted_and_dram_still_has_goes_to_nvme_on_order)
