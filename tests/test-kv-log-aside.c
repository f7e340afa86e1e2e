/*
 * One segment of a KV log that cannot be opened at a start: it is set aside after a while, costs
 * its own objects and no others, and is whole again for a start that can open it.
 */
#include "tests/io-switch.h"
#include "tests/kv-log-fixture.h"
#include "tests/suite.h"
#include "tier/kv-log-check.h"

#include <stdio.h>
#include <unistd.h>

#define CAPACITY (32 * MIB)
#define LARGE (2 * MIB) /* in parts */

static struct io_switch trouble;
static char *dir, path[4096], away[4200];
static struct kv_owner owner;
static struct mc_kv_log *klog;

static _Atomic unsigned unread, unreadable, segments;
static struct mc_kv_log_aside aside;

static void on_unread(void *ctx, int res)
{
	(void)ctx;
	(void)res;
	unread++;
}

static void on_unreadable(void *ctx, const char *key, const uint8_t version[16])
{
	(void)version;
	ck_assert_ptr_nonnull(kv_find_locked(ctx, key));
	unreadable++;
}

static void on_aside(void *ctx, const struct mc_kv_log_aside *what)
{
	(void)ctx;
	ck_assert_str_eq(what->file, path);
	aside = *what;
	segments++;
}

/* A life that sets aside what it cannot open after a millisecond. */
static void open_log(void)
{
	struct mc_kv_log_opts o = {.dir = dir,
		.capacity = CAPACITY,
		.commit_ms = 1000000,
		.probe_ms = 5,
		.patience_ms = 1,
		.io = &trouble.io};
	struct mc_kv_log_replay replay = {.unread = on_unread,
		.unreadable = on_unreadable,
		.aside = on_aside,
		.put = kv_told_put,
		.dir = kv_told_dir,
		.pin = kv_told_pin,
		.remote = kv_told_remote,
		.done = kv_told_done,
		.ctx = &owner};
	struct mc_kv_log_owner own = {
		.keep = kv_keep, .moved = kv_moved, .evicted = kv_evicted, .ctx = &owner};
	struct mc_err err = {0};

	unread = unreadable = segments = 0;
	owner = (struct kv_owner){.done = 1};
	mc_mutex_init(&owner.lock);
	mc_cond_init(&owner.told);
	ck_assert_int_eq(mc_kv_log_open(&o, &replay, &klog, &err), 0);
	mc_kv_log_set_owner(klog, &own);
}

static void wait_recovered(void)
{
	mc_mutex_lock(&owner.lock);
	while (owner.done == 1)
		mc_cond_wait(&owner.told, &owner.lock);
	mc_mutex_unlock(&owner.lock);
	ck_assert_int_eq(owner.done, 0);
}

static void close_log(void)
{
	mc_kv_log_close(klog);
	kv_forget(&owner);
}

static void restart(void)
{
	close_log();
	open_log();
	wait_recovered();
}

/* In the first segment: a, d, e, x and a part of large. In another one: b. */
static void start(void)
{
	io_switch_init(&trouble);
	dir = tier_dir_make("/var/tmp");
	open_log();
	wait_recovered();
	ck_assert_int_eq(kv_put(klog, &owner, "a", 1, 5000), 0);
	ck_assert_int_eq(kv_put(klog, &owner, "d", 2, 5000), 0);
	ck_assert_int_eq(kv_put(klog, &owner, "e", 3, 5000), 0);
	ck_assert_int_eq(kv_put(klog, &owner, "x", 4, 5000), 0);
	ck_assert_int_eq(kv_put(klog, &owner, "large", 5, LARGE), 0);
	ck_assert_int_eq(mc_kv_log_remote(klog, "x", kv_find_locked(&owner, "x")->version, 1), 0);
	ck_assert_int_eq(mc_kv_log_seal(klog), 0);
	ck_assert_int_eq(kv_put(klog, &owner, "b", 6, 5000), 0);
	snprintf(path, sizeof(path), "%s/segments/%08x", dir,
		kv_find_locked(&owner, "a")->loc.segment);
	snprintf(away, sizeof(away), "%s/away", dir);
}

static void stop(void)
{
	close_log();
	tier_dir_remove(dir);
}

/* No open for writing ever succeeds. */
static void damage(void)
{
	ck_assert_int_eq(rename(path, away), 0);
	ck_assert_int_eq(mkdir(path, 0700), 0);
}

static void mend(void)
{
	ck_assert_int_eq(rmdir(path), 0);
	ck_assert_int_eq(rename(away, path), 0);
}

START_TEST(a_segment_that_cannot_be_opened_costs_its_own_objects_only)
{
	struct mc_kv_log_check *check;
	struct mc_kv_log_checked sum = {0};

	start();
	close_log();
	damage();
	open_log();
	wait_recovered();
	ck_assert_uint_ge(unread, 1); /* it was tried again */
	ck_assert_uint_eq(segments, 1);
	ck_assert_int_eq(aside.error, -EISDIR);
	ck_assert_uint_eq(aside.objects, 5);
	ck_assert_uint_eq(aside.copied, 1);
	ck_assert_uint_eq(unreadable, 5);
	ck_assert_uint_eq(kv_stats(klog).unreadable, 5);
	ck_assert_uint_eq(kv_stats(klog).objects, 6);
	ck_assert_uint_eq(kv_stats(klog).bad, 0);
	ck_assert_int_eq(kv_check(klog, &owner, "b", 6), 0);
	ck_assert_int_eq(kv_check(klog, &owner, "a", 1), -EIO);
	ck_assert_int_eq(kv_check(klog, &owner, "large", 5), -EIO);
	ck_assert_int_eq(kv_put(klog, &owner, "c", 7, LARGE), 0);
	ck_assert_int_eq(kv_check(klog, &owner, "c", 7), 0);
	ck_assert_int_eq(mc_kv_log_seal(klog), 0);
	while (mc_kv_log_reclaim(klog) == 0 && kv_stats(klog).reclaimed < 5)
		ck_assert_int_eq(mc_kv_log_seal(klog), 0);
	ck_assert_uint_eq(owner.evicted, 0);
	ck_assert_int_eq(kv_check(klog, &owner, "c", 7), 0);
	ck_assert_int_eq(mc_kv_log_check_open(klog, NULL, NULL, NULL, &check), 0);
	while (mc_kv_log_check_next(check, &sum) == 0)
		;
	mc_kv_log_check_close(check);
	ck_assert_uint_ge(sum.failed, 5);
	stop();
}
END_TEST

START_TEST(a_segment_that_was_set_aside_is_whole_again_unless_it_was_replaced)
{
	start();
	close_log();
	damage();
	open_log();
	wait_recovered();
	ck_assert_int_eq(kv_put(klog, &owner, "d", 8, 5000), 0);
	ck_assert_int_eq(
		mc_kv_log_remove(klog, "e", kv_find_locked(&owner, "e")->version, NULL), 0);
	ck_assert_int_eq(mc_kv_log_rename(klog, "a", "z"), 0);
	ck_assert_uint_eq(kv_stats(klog).unreadable, 3);
	restart(); /* aside once more */
	ck_assert_uint_eq(kv_stats(klog).unreadable, 3);
	ck_assert_uint_eq(segments, 1);
	close_log();
	mend();
	open_log();
	wait_recovered();
	ck_assert_uint_eq(segments, 0);
	ck_assert_uint_eq(kv_stats(klog).unreadable, 0);
	ck_assert_int_eq(kv_check(klog, &owner, "z", 1), 0);
	ck_assert_int_eq(kv_check(klog, &owner, "a", 1), -ENOENT);
	ck_assert_int_eq(kv_check(klog, &owner, "d", 8), 0);
	ck_assert_int_eq(kv_check(klog, &owner, "e", 3), -ENOENT);
	ck_assert_int_eq(kv_check(klog, &owner, "x", 4), 0);
	ck_assert_int_eq(kv_check(klog, &owner, "large", 5), 0);
	ck_assert_int_eq(kv_check(klog, &owner, "b", 6), 0);
	ck_assert_uint_eq(kv_stats(klog).bad, 0);
	stop();
}
END_TEST

START_TEST(a_segment_without_objects_is_not_waited_for_and_not_written_to)
{
	static const char *const keys[] = {"a", "d", "e", "x", "large"};
	struct stat st;

	start();
	close_log();
	damage();
	open_log();
	wait_recovered();
	for (unsigned i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		ck_assert_int_eq(mc_kv_log_remove(klog, keys[i], (uint8_t[16]){0}, NULL), 0);
	restart();
	ck_assert_uint_eq(unread, 0);
	ck_assert_uint_eq(segments, 0);
	for (unsigned i = 0; i < 40; i++) /* more than there is room for, over the same key */
		ck_assert_int_eq(kv_put(klog, &owner, "c", i, MIB), 0);
	ck_assert_int_eq(kv_check(klog, &owner, "c", 39), 0);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert(S_ISDIR(st.st_mode));
	close_log();
	mend();
	open_log();
	wait_recovered();
	ck_assert_int_eq(kv_check(klog, &owner, "a", 1), -ENOENT);
	ck_assert_int_eq(kv_check(klog, &owner, "c", 39), 0);
	stop();
}
END_TEST

/* Recovery was tried so often, long after the patience was over, and nothing was set aside. */
static void expect_no_end(void)
{
	while (unread < 10)
		usleep(200);
	ck_assert_uint_eq(segments, 0);
	ck_assert(kv_stats(klog).recovering);
}

START_TEST(nothing_is_set_aside_for_want_of_descriptors_or_of_a_disk_that_works)
{
	start();
	close_log();
	trouble.segment_opens = -EMFILE;
	open_log();
	expect_no_end();
	trouble.writes = -EIO; /* of a probe as well */
	trouble.segment_opens = -EIO;
	unread = 0;
	expect_no_end();
	trouble.segment_opens = 0;
	trouble.writes = 0;
	wait_recovered();
	ck_assert_uint_eq(segments, 0);
	ck_assert_int_eq(kv_check(klog, &owner, "a", 1), 0);
	ck_assert_int_eq(kv_check(klog, &owner, "large", 5), 0);
	stop();
}
END_TEST

SUITE_MAIN("kv-log-aside", a_segment_that_cannot_be_opened_costs_its_own_objects_only,
	a_segment_that_was_set_aside_is_whole_again_unless_it_was_replaced,
	a_segment_without_objects_is_not_waited_for_and_not_written_to,
	nothing_is_set_aside_for_want_of_descriptors_or_of_a_disk_that_works)
