/* The KV log in a directory with a device below it. Devices are files, through the real system
 * calls; test-kv-log-crash has the crashes. */
#include "tests/io-switch.h"
#include "tests/kv-floors.h"
#include "tests/suite.h"

START_TEST(what_the_directory_has_no_room_for_moves_down_and_is_read_there)
{
	unsigned n = 2 * UPPER / OBJECT;
	struct mc_kv_log *log;
	struct mc_kv_log_stats s;

	make();
	log = start();
	put_all(log, 0, n, OBJECT);
	check_all(log, 0, n);
	s = kv_stats(log);
	ck_assert_uint_eq(s.objects, n);
	ck_assert_uint_le(s.used, UPPER);
	ck_assert_uint_ge(s.below.live, (uint64_t)n * OBJECT - UPPER);
	ck_assert_uint_ge(s.below.used, s.below.live);
	ck_assert_uint_eq(owner.evicted, 0);
	for (int round = 0; round < 2; round++) {
		unsigned below;

		ck_assert_int_eq(mc_kv_log_seal(log), 0); /* nothing is on its way any more */
		below = count_below(n);
		stop(log);
		log = start();
		check_all(log, 0, n);
		ck_assert_uint_eq(count_below(n), below);
	}
	stop(log);
	finish();
}
END_TEST

START_TEST(nothing_is_dropped_before_both_are_full)
{
	struct mc_kv_log *log;
	unsigned n = 0;

	make();
	owner.keep = keep_none;
	log = start();
	while (owner.evicted == 0) {
		put_all(log, n, n + 1, OBJECT);
		n++;
	}
	ck_assert_uint_gt((uint64_t)n * OBJECT, (UPPER + kv_stats(log).below.capacity) / 4 * 3);
	/* It goes on, and what is dropped lay below. */
	put_all(log, n, 2 * n, OBJECT);
	ck_assert_uint_gt(owner.evicted, n / 2);
	for (unsigned i = 0; i < 2 * n; i++)
		if (kv_find_locked(&owner, key_of(i))->there)
			ck_assert_int_eq(kv_check(log, &owner, key_of(i), i + 1), 0);
	ck_assert_int_eq(kv_check(log, &owner, key_of(2 * n - 1), 2 * n), 0);
	stop(log);
	finish();
}
END_TEST

START_TEST(both_full_of_what_is_kept_is_enospc_and_loses_nothing)
{
	struct mc_kv_log *log;
	unsigned n = 0, gone;
	struct kv_known k;
	int r;

	make();
	log = start();
	while ((r = kv_put(log, &owner, key_of(n), n + 1, OBJECT)) == 0)
		n++;
	ck_assert_int_eq(r, -ENOSPC);
	ck_assert_uint_gt((uint64_t)n * OBJECT, (UPPER + kv_stats(log).below.capacity) / 4 * 3);
	check_all(log, 0, n);
	/* Room on either floor is room. */
	for (gone = 0; gone < n / 2; gone++) {
		k = *kv_find_locked(&owner, key_of(gone));
		ck_assert_int_eq(mc_kv_log_remove(log, key_of(gone), k.version, &k.loc), 0);
	}
	put_all(log, n, n + n / 3, OBJECT);
	check_all(log, gone, n + n / 3);
	stop(log);
	log = start();
	check_all(log, gone, n + n / 3);
	ck_assert_uint_eq(kv_stats(log).objects, n + n / 3 - gone);
	stop(log);
	finish();
}
END_TEST

START_TEST(large_objects_move_down_in_parts)
{
	struct mc_kv_log *log;

	make();
	log = start();
	put_all(log, 0, 4, 600000);
	put_all(log, 4, 4 + UPPER / OBJECT, OBJECT);
	ck_assert_uint_gt(kv_stats(log).below.live, 0);
	check_all(log, 0, 4 + UPPER / OBJECT);
	stop(log);
	log = start();
	check_all(log, 0, 4 + UPPER / OBJECT);
	stop(log);
	finish();
}
END_TEST

START_TEST(what_is_removed_renamed_or_replaced_below_is_so_after_a_restart)
{
	unsigned n = 2 * UPPER / OBJECT;
	struct mc_kv_log *log;
	struct kv_known k;

	make();
	log = start();
	put_all(log, 0, n, OBJECT);
	for (unsigned i = 0; i < 3; i++)
		ck_assert(is_below(key_of(i)));
	k = *kv_find_locked(&owner, key_of(0));
	ck_assert_int_eq(mc_kv_log_remove(log, key_of(0), k.version, &k.loc), 0);
	ck_assert_int_eq(mc_kv_log_rename(log, key_of(1), "renamed"), 0);
	ck_assert_int_eq(kv_put(log, &owner, key_of(2), 9999, OBJECT), 0);
	ck_assert(!is_below(key_of(2)));
	stop(log);
	log = start();
	ck_assert_int_eq(kv_check(log, &owner, key_of(0), 1), -ENOENT);
	ck_assert_int_eq(kv_check(log, &owner, key_of(1), 2), -ENOENT);
	ck_assert_int_eq(kv_check(log, &owner, "renamed", 2), 0);
	ck_assert_int_eq(kv_check(log, &owner, key_of(2), 9999), 0);
	check_all(log, 3, n);
	stop(log);
	finish();
}
END_TEST

START_TEST(items_may_go_below_at_once)
{
	struct mc_kv_log *log;
	struct mc_kv_item *items[8];
	struct kv_put *puts[8];

	make();
	log = start();
	for (unsigned i = 0; i < 8; i++) {
		puts[i] = kv_put_make(&owner, key_of(i), i + 1, OBJECT);
		items[i] = &puts[i]->item;
		items[i]->below = i % 2 == 0;
	}
	mc_kv_log_put(log, items, 8);
	ck_assert_int_eq(mc_kv_log_sync(log), 0);
	for (unsigned i = 0; i < 8; i++) {
		ck_assert_int_eq(kv_put_free(puts[i]), 0);
		ck_assert_int_eq(is_below(key_of(i)), i % 2 == 0);
	}
	check_all(log, 0, 8);
	stop(log);
	finish();
}
END_TEST

START_TEST(a_device_can_be_put_below_a_directory_that_is_in_use)
{
	unsigned n = UPPER / OBJECT / 2;
	struct mc_kv_log *log;

	make();
	opts.device = NULL;
	log = start();
	put_all(log, 0, n, OBJECT);
	stop(log);
	opts.device = device;
	log = start();
	check_all(log, 0, n);
	put_all(log, n, 4 * n, OBJECT);
	ck_assert_uint_gt(count_below(n), 0);
	check_all(log, 0, 4 * n);
	stop(log);
	finish();
}
END_TEST

static void refused(const char *text, int want)
{
	struct mc_err err = {0};
	struct mc_kv_log *log;

	ck_assert_int_eq(mc_kv_log_open(&opts, NULL, &log, &err), want);
	ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
}

START_TEST(directory_and_device_are_refused_without_each_other_and_with_others)
{
	char other_dir[4200], other_device[4200], path[4200];
	struct mc_kv_log *log;

	make();
	snprintf(other_dir, sizeof(other_dir), "%s/other", dir);
	snprintf(other_device, sizeof(other_device), "%s/other-device", dir);
	snprintf(path, sizeof(path), "%s/KVBELOW", kv_dir);
	log = start();
	put_all(log, 0, 2 * UPPER / OBJECT, OBJECT);
	stop(log);
	opts.device = NULL;
	refused("give --block", -ESTALE);
	format(other_device);
	opts.device = other_device;
	refused("another block tier", -ESTALE);
	opts.dir = NULL;
	opts.device = device;
	refused("give --nvme", -ESTALE);
	opts.dir = other_dir;
	refused("another directory", -ESTALE);
	opts.dir = NULL;
	opts.device = other_device;
	stop(start());
	opts.dir = other_dir;
	refused("without an NVMe directory", -EEXIST);
	/* All of them are as they were. */
	opts.dir = kv_dir;
	opts.device = device;
	log = start();
	check_all(log, 0, 2 * UPPER / OBJECT);
	stop(log);
	/* The device is given up. */
	ck_assert_int_eq(unlink(path), 0);
	opts.device = NULL;
	log = start();
	ck_assert_uint_lt(kv_stats(log).objects, 2 * UPPER / OBJECT);
	ck_assert_uint_gt(kv_stats(log).objects, 0);
	check_all(log, 2 * UPPER / OBJECT - 10, 2 * UPPER / OBJECT);
	stop(log);
	finish();
}
END_TEST

START_TEST(while_the_device_fails_puts_go_on_and_it_is_used_again_when_it_is_back)
{
	unsigned n = UPPER / OBJECT * 3 / 2, m;
	struct io_switch disk;
	struct mc_kv_log *log;
	uint64_t live;

	make();
	io_switch_init(&disk);
	disk.only = "/device";
	opts.io = &disk.io;
	log = start();
	put_all(log, 0, n, OBJECT);
	ck_assert(is_below(key_of(0)));
	disk.syncs = disk.writes = disk.reads = -EIO;
	ck_assert_int_eq(kv_check(log, &owner, key_of(0), 1), -EIO);
	/* What is dropped now leaves the directory: nothing comes or goes below. */
	owner.keep = keep_none;
	for (m = n; !kv_stats(log).below.bypassed || m < 2 * n; m++)
		put_all(log, m, m + 1, OBJECT);
	ck_assert(!kv_stats(log).bypassed);
	ck_assert_int_eq(kv_check(log, &owner, key_of(m - 1), m), 0);
	ck_assert_int_eq(kv_check(log, &owner, key_of(0), 1), -EIO);
	disk.syncs = disk.writes = disk.reads = 0;
	while (kv_stats(log).below.bypassed)
		usleep(1000);
	ck_assert_int_eq(kv_check(log, &owner, key_of(0), 1), 0);
	live = kv_stats(log).below.live;
	put_all(log, m, m + n, OBJECT);
	ck_assert_uint_gt(kv_stats(log).below.live, live);
	for (unsigned i = 0; i < m + n; i++)
		if (kv_find_locked(&owner, key_of(i))->there)
			ck_assert_int_eq(kv_check(log, &owner, key_of(i), i + 1), 0);
	stop(log);
	finish();
}
END_TEST

SUITE_MAIN("kv-floors", what_the_directory_has_no_room_for_moves_down_and_is_read_there,
	nothing_is_dropped_before_both_are_full,
	both_full_of_what_is_kept_is_enospc_and_loses_nothing, large_objects_move_down_in_parts,
	what_is_removed_renamed_or_replaced_below_is_so_after_a_restart, items_may_go_below_at_once,
	a_device_can_be_put_below_a_directory_that_is_in_use,
	directory_and_device_are_refused_without_each_other_and_with_others,
	while_the_device_fails_puts_go_on_and_it_is_used_again_when_it_is_back)
