/* Objects on a disk whose reads do not end: the remote serves, and it is used again when they do.
 */
#include "tests/kv-trouble.h"
#include "tests/suite.h"
#include "tier/block-super.h"
#include "tier/future.h"

#include <unistd.h>

#define SMALL 100000u   /* promoted */
#define LARGE (9 * MIB) /* read by range */

static char device[128];
static uint64_t device_bytes = 128 * MIB;

static void with_device(struct kv_fixture *x)
{
	struct mc_block_format f = {.path = device, .bytes = device_bytes};
	struct mc_err err = {0};

	snprintf(device, sizeof(device), "%s/device", x->root);
	ck_assert_msg(mc_block_format(&f, &err) == 0, "%s", err.text);
	x->opts.device = device;
}

static void await_copies(struct mc_kv *kv, const char *key, bool remote)
{
	struct mc_kv_attr a;

	do {
		ck_assert_int_eq(mc_kv_lookup(kv, key, &a), 0);
		usleep(200);
	} while (a.nvme + a.block == 0 || (remote && a.remotes == 0));
}

/* Both objects are on the disk, and on the remote or not, and not in DRAM. */
static void start_cold(struct kv_fixture *x, bool remote)
{
	if (remote) {
		with_remote(x);
		x->opts.replicas = 1;
	}
	x->opts.deadline_ms = remote ? 2000 : 4000;
	kv_fixture_start(x);
	ck_assert_int_eq(kv_put(x->kv, "small", SMALL, 1, 0), 0);
	ck_assert_int_eq(kv_put(x->kv, "large", LARGE, 2, 0), 0);
	await_copies(x->kv, "small", remote);
	await_copies(x->kv, "large", remote);
	forget_dram_and_restart(x);
}

static uint64_t disk_hits(struct kv_fixture *x)
{
	struct mc_kv_stats st = stats(x->kv);

	return st.hits_nvme + st.hits_block;
}

/* As soon as what hung has ended the disk serves. */
static void expect_served_by_the_disk(struct kv_fixture *x)
{
	uint64_t before = disk_hits(x);

	do {
		mc_kv_evict(x->kv, "small");
		kv_expect(x->kv, "small", SMALL, 1);
	} while (disk_hits(x) == before);
	kv_expect(x->kv, "large", LARGE, 2);
}

static void expect_left_out_and_used_again(
	struct kv_fixture *x, const char *first, size_t size, uint32_t seed)
{
	disk.reads_hang = true;
	kv_expect(x->kv, first, size, seed);
	kv_expect(x->kv, "large", LARGE, 2);
	kv_expect(x->kv, "small", SMALL, 1);
	while (stats(x->kv).nvme_trouble == NULL)
		usleep(200);
	ck_assert_ptr_nonnull(strstr(stats(x->kv).nvme_trouble, "slow"));
	disk.reads_hang = false;
	expect_served_by_the_disk(x);
	kv_fixture_close(x);
}

START_TEST(ranges_of_a_device_that_hangs_come_from_the_remote)
{
	struct kv_fixture x;

	paths(&x);
	with_device(&x);
	start_cold(&x, true);
	expect_left_out_and_used_again(&x, "large", LARGE, 2);
}
END_TEST

START_TEST(promotions_from_a_device_that_hangs_come_from_the_remote)
{
	struct kv_fixture x;

	paths(&x);
	with_device(&x);
	start_cold(&x, true);
	expect_left_out_and_used_again(&x, "small", SMALL, 1);
}
END_TEST

START_TEST(a_directory_that_hangs_is_left_out_as_a_device_is)
{
	struct kv_fixture x;

	paths(&x);
	with_nvme(&x);
	start_cold(&x, true);
	expect_left_out_and_used_again(&x, "small", SMALL, 1);
}
END_TEST

static void note_open(void *ctx, int res, struct mc_kv_object *obj)
{
	ck_assert_ptr_null(obj);
	mc_future_set(ctx, res);
}

START_TEST(without_another_copy_it_is_eio_and_right_once_the_device_answers)
{
	struct mc_kv_object *large = NULL;
	struct mc_future small;
	struct kv_fixture x;

	paths(&x);
	with_device(&x);
	start_cold(&x, false);
	disk.reads_hang = true;
	mc_future_init(&small);
	mc_kv_get(x.kv, "small", note_open, &small);
	ck_assert_int_eq(kv_open_object(x.kv, "large", &large), 0);
	ck_assert_int_eq(kv_read_range(large, MIB, 4096), -EIO);
	ck_assert_int_eq(mc_future_wait(&small), -EIO);
	disk.reads_hang = false;
	kv_expect_object(large, LARGE, 2);
	kv_expect(x.kv, "small", SMALL, 1);
	mc_kv_object_put(large);
	kv_fixture_close(&x);
}
END_TEST

#define RECORDS 250u /* objects, of which each is one record */
#define IN_PARTS 8u  /* but each of so many */

static size_t size_of(unsigned i)
{
	return i % IN_PARTS != 0 ? SMALL : 6 * SMALL;
}

static void expect_all_of_them(struct mc_kv *kv)
{
	char key[16];

	for (unsigned i = 0; i < RECORDS; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		kv_expect(kv, key, size_of(i), i);
	}
}

/* Objects in the directory and, since that is full, on the device below it. */
static void start_on_both(struct kv_fixture *x)
{
	char key[16];

	with_nvme(x);
	x->opts.nvme_capacity = 16 * MIB;
	with_device(x);
	disk.only = "/device";
	with_remote(x);
	x->opts.replicas = 1;
	x->opts.ack = MC_KV_ACK_REMOTE; /* soon */
	x->opts.deadline_ms = 2000;
	kv_fixture_start(x);
	for (unsigned i = 0; i < RECORDS; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(kv_put_wait(x->kv, key, size_of(i), i), 0);
		await_copies(x->kv, key, true);
	}
	ck_assert_uint_gt(stats(x->kv).block_used, 0);
	forget_dram_and_restart(x);
}

START_TEST(of_a_device_that_hangs_below_a_directory_the_directory_is_read_on)
{
	struct kv_fixture x;
	struct mc_kv_stats s;

	paths(&x);
	start_on_both(&x);
	disk.reads_hang = true;
	expect_all_of_them(x.kv);
	s = stats(x.kv);
	ck_assert_uint_gt(s.hits_nvme, RECORDS / 4);
	ck_assert_uint_gt(s.hits_remote, 0);
	ck_assert_uint_eq(s.hits_block, 0);
	while (stats(x.kv).block_trouble == NULL)
		usleep(200);
	disk.reads_hang = false;
	do { /* until the device serves, too */
		forget_dram_and_restart(&x);
		expect_all_of_them(x.kv);
	} while (stats(x.kv).hits_remote > 0);
	ck_assert_uint_gt(stats(x.kv).hits_block, 0);
	kv_fixture_close(&x);
}
END_TEST

static void put_many(struct mc_kv *kv, unsigned from, unsigned to)
{
	char key[16];

	for (unsigned i = from; i < to; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(kv_put_wait(kv, key, SMALL, i), 0);
	}
}

START_TEST(copies_of_what_lies_where_reads_hang_hold_up_no_others)
{
	struct kv_fixture x;
	struct mc_kv_stats s;
	struct mc_kv_attr a;
	unsigned n = 0;

	paths(&x);
	with_nvme(&x);
	x.opts.nvme_capacity = 16 * MIB;
	device_bytes = 64 * MIB;
	with_device(&x);
	with_remote(&x);
	disk.only = "/device";
	kv_fixture_start(&x);
	do { /* it is swept from 80 % on */
		put_many(x.kv, n, n + 10);
		n += 10;
		s = stats(x.kv);
	} while (s.log_live < (s.nvme_capacity + s.block_capacity) / 100 * 82);
	x.opts.deadline_ms = 2000;
	x.opts.replicas = 1;
	forget_dram_and_restart(&x);
	disk.reads_hang = true;
	while (stats(x.kv).block_trouble == NULL) /* a copy was given up */
		usleep(200);
	ck_assert_int_eq(kv_put_wait(x.kv, "new", SMALL, 1), 0);
	do { /* it goes there at once where the directory has no room */
		ck_assert_int_eq(mc_kv_lookup(x.kv, "new", &a), 0);
		usleep(200);
	} while (a.remotes == 0);
	ck_assert_ptr_null(stats(x.kv).remote_trouble);
	disk.reads_hang = false;
	kv_fixture_close(&x);
}
END_TEST

SUITE_MAIN("kv-hang", ranges_of_a_device_that_hangs_come_from_the_remote,
	promotions_from_a_device_that_hangs_come_from_the_remote,
	a_directory_that_hangs_is_left_out_as_a_device_is,
	without_another_copy_it_is_eio_and_right_once_the_device_answers,
	of_a_device_that_hangs_below_a_directory_the_directory_is_read_on,
	copies_of_what_lies_where_reads_hang_hold_up_no_others)
