/* The KV store on NVMe that fails, hangs or is slow, and below it a remote that is away. */
#include "tests/kv-trouble.h"
#include "tests/suite.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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
		usleep(200);
	ck_assert_int_eq(kv_put(x->kv, "during", 100000, 3, 0), 0);
	do {
		ck_assert_int_eq(mc_kv_lookup(x->kv, "during", &a), 0);
		usleep(200);
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
		usleep(200);
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

/* ---- NVMe that cannot be read at the start */

START_TEST(what_nvme_may_hold_is_eio_and_not_absent_until_it_can_be_read)
{
	struct kv_fixture x;
	struct mc_kv_attr a;
	struct mc_kv_object *obj;

	paths(&x);
	with_nvme(&x);
	kv_fixture_start(&x);
	ck_assert_int_eq(kv_put(x.kv, "a", 100000, 1, 0), 0);
	ck_assert_int_eq(mc_kv_sync(x.kv, "a"), 0);
	mc_kv_close(x.kv, 20000);
	kv_fixture_forget_dram(&x);
	disk.segment_opens = -EIO;
	kv_fixture_start(&x);
	ck_assert_int_eq(kv_ask(x.kv, "a", &a), -EIO);
	ck_assert_int_eq(kv_open_object(x.kv, "a", &obj), -EIO);
	ck_assert_int_eq(mc_kv_unlink(x.kv, "a"), -EIO);
	ck_assert_ptr_nonnull(strstr(mc_kv_why(x.kv, -EIO), "NVMe cannot be read"));
	ck_assert(stats(x.kv).recovering);
	ck_assert_ptr_nonnull(strstr(stats(x.kv).degraded, "fsck"));
	ck_assert_int_eq(kv_put(x.kv, "b", 100000, 2, 0),
		-EIO); /* of what it would replace nothing is known */
	disk.segment_opens = -EMFILE;
	while (kv_ask(x.kv, "a", &a) != -EMFILE)
		usleep(200);
	ck_assert_ptr_nonnull(strstr(mc_kv_why(x.kv, -EMFILE), "file descriptor"));
	disk.segment_opens = 0;
	wait_recovered(x.kv);
	ck_assert_ptr_null(stats(x.kv).degraded);
	kv_expect(x.kv, "a", 100000, 1);
	ck_assert_int_eq(kv_ask(x.kv, "absent", &a), -ENOENT);
	ck_assert_int_eq(kv_put(x.kv, "b", 100000, 2, 0), 0);
	ck_assert_int_eq(mc_kv_sync(x.kv, "b"), 0);
	forget_dram_and_restart(&x);
	kv_expect(x.kv, "a", 100000, 1);
	kv_expect(x.kv, "b", 100000, 2);
	kv_fixture_close(&x);
}
END_TEST

/* ---- memory that forgets */

/* Flips a bit of the only object that has a file in DRAM. */
static void flip_in_memory(const struct kv_fixture *x)
{
	char path[160];
	unsigned char byte;
	int fd = -1;

	for (unsigned i = 1; i < 16 && fd < 0; i++) {
		struct stat st = {0};

		snprintf(path, sizeof(path), "%s/f/%016x", x->dram, i);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size == 0) { /* one of the pool */
			close(fd);
			fd = -1;
		}
	}
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, &byte, 1, 5000), 1);
	byte ^= 1;
	ck_assert_int_eq(pwrite(fd, &byte, 1, 5000), 1);
	close(fd);
}

START_TEST(what_flips_in_memory_is_not_taken_for_right_below)
{
	struct kv_fixture x;
	struct mc_kv_object *obj;

	paths(&x);
	with_nvme(&x);
	kv_fixture_start(&x);
	wait_recovered(x.kv);
	syncs_fail(); /* it stays in memory alone */
	ck_assert_int_eq(kv_put(x.kv, "a", 100000, 1, 0), 0);
	flip_in_memory(&x);
	syncs_work();
	while (mc_kv_sync(x.kv, "a") != 0)
		usleep(200);
	ck_assert_int_eq(mc_kv_evict(x.kv, "a"), 0);
	ck_assert_int_eq(kv_open_object(x.kv, "a", &obj), -EIO);
	kv_fixture_close(&x);
}
END_TEST

SUITE_MAIN("KV trouble", nvme_that_fails_is_left_out_told_once_and_used_again,
	what_comes_back_while_nvme_fails_is_read_and_may_leave_again,
	nvme_that_hangs_is_left_out_told_once_and_used_again,
	nvme_that_is_slow_is_left_out_told_once_and_used_again,
	nvme_that_is_slow_is_used_where_the_remote_fails_or_there_is_none,
	without_the_remote_residents_are_read_and_dirty_data_waits_within_its_bound,
	what_nvme_may_hold_is_eio_and_not_absent_until_it_can_be_read,
	what_flips_in_memory_is_not_taken_for_right_below)
