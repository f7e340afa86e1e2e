/*
 * The KV store above a file on NVMe that cannot be opened: what lies there alone is EIO and told,
 * what the remote or memory has is served, and all of it is there again once the file is mended.
 */
#include "tests/kv-trouble.h"
#include "tests/suite.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* No open for writing ever succeeds of the segment files there are; or they are as before. */
static void spoil_segments(const struct kv_fixture *x, unsigned n, bool spoil)
{
	char path[160], away[160];

	for (unsigned i = 1; i <= n; i++) {
		snprintf(path, sizeof(path), "%s/segments/%08x", x->nvme, i);
		snprintf(away, sizeof(away), "%s/away%u", x->nvme, i);
		if (!spoil)
			ck_assert_int_eq(rmdir(path), 0);
		ck_assert_int_eq(spoil ? rename(path, away) : rename(away, path), 0);
		if (spoil)
			ck_assert_int_eq(mkdir(path, 0700), 0);
	}
}

static _Atomic unsigned unreadable_told;

static void on_segment_event(void *ctx, const char *event, const char *text)
{
	const struct kv_fixture *x = ctx;

	if (strcmp(event, "kv-segment-unreadable") != 0)
		return;
	ck_assert_ptr_nonnull(strstr(text, x->nvme));
	ck_assert_ptr_nonnull(strstr(text, "/segments/0000000"));
	ck_assert_ptr_nonnull(strstr(text, "of its 1 objects"));
	unreadable_told++;
}

static void put_and_copy(struct kv_fixture *x, const char *key, uint32_t seed)
{
	struct mc_kv_attr a;

	ck_assert_int_eq(kv_put(x->kv, key, 100000, seed, 0), 0);
	ck_assert_int_eq(mc_kv_sync(x->kv, key), 0);
	do {
		ck_assert_int_eq(mc_kv_lookup(x->kv, key, &a), 0);
		usleep(200);
	} while (x->opts.replicas > 0 && a.remotes == 0);
	ck_assert_uint_eq(a.nvme, 100000);
}

/* "copied", which the remote has, too, and "alone" lie in files of their own, which are spoiled. */
static void start_spoiled(struct kv_fixture *x)
{
	paths(x);
	with_nvme(x);
	with_remote(x);
	x->opts.patience_ms = 1;
	x->opts.replicas = 1;
	kv_fixture_start(x);
	put_and_copy(x, "copied", 1);
	x->opts.replicas = 0;
	x->opts.event = on_segment_event;
	x->opts.event_ctx = x;
	forget_dram_and_restart(x);
	put_and_copy(x, "alone", 2);
	mc_kv_close(x->kv, 20000);
	kv_fixture_forget_dram(x);
	spoil_segments(x, 2, true);
	unreadable_told = 0;
	kv_fixture_start(x);
	wait_recovered(x->kv);
	ck_assert_uint_eq(unreadable_told, 2);
}

START_TEST(a_file_of_nvme_that_cannot_be_opened_costs_its_last_copies_only)
{
	struct kv_fixture x;
	struct mc_kv_attr a;
	struct mc_kv_object *obj;

	start_spoiled(&x);
	ck_assert_uint_eq(stats(x.kv).nvme_unreadable, 2);
	while (stats(x.kv).degraded == NULL)
		usleep(200);
	ck_assert_ptr_nonnull(strstr(stats(x.kv).degraded, "cannot be opened"));
	ck_assert_int_eq(kv_ask(x.kv, "alone", &a), 0); /* it may be there once more */
	ck_assert_int_eq(kv_open_object(x.kv, "alone", &obj), -EIO);
	ck_assert_ptr_nonnull(strstr(mc_kv_why(x.kv, -EIO), "cannot be opened"));
	ck_assert_int_eq(mc_kv_rename(x.kv, "alone", "lone", 0), 0);
	ck_assert_int_eq(mc_kv_rename(x.kv, "copied", "moved", 0), -EXDEV);
	kv_expect(x.kv, "copied", 100000, 1);
	ck_assert_int_eq(kv_put(x.kv, "new", 100000, 3, 0), 0);
	ck_assert_int_eq(mc_kv_sync(x.kv, "new"), 0);
	ck_assert_int_eq(mc_kv_sync(x.kv, "copied"), 0);
	mc_kv_close(x.kv, 20000);
	kv_fixture_forget_dram(&x);
	spoil_segments(&x, 2, false);
	kv_fixture_start(&x);
	wait_recovered(x.kv);
	ck_assert_ptr_null(stats(x.kv).degraded);
	kv_expect(x.kv, "lone", 100000, 2);
	kv_expect(x.kv, "copied", 100000, 1);
	kv_expect(x.kv, "new", 100000, 3);
	ck_assert_int_eq(kv_ask(x.kv, "alone", &a), -ENOENT);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(what_is_replaced_or_removed_does_not_come_back_from_a_file_that_could_not_be_opened)
{
	struct kv_fixture x;
	struct mc_kv_attr a;

	start_spoiled(&x);
	ck_assert_int_eq(kv_put(x.kv, "alone", 100000, 4, 0), 0);
	ck_assert_int_eq(mc_kv_sync(x.kv, "alone"), 0);
	ck_assert_int_eq(mc_kv_unlink(x.kv, "copied"), 0);
	ck_assert_uint_eq(stats(x.kv).nvme_unreadable, 0);
	while (stats(x.kv).degraded != NULL)
		usleep(200);
	mc_kv_close(x.kv, 20000);
	kv_fixture_forget_dram(&x);
	spoil_segments(&x, 2, false);
	kv_fixture_start(&x);
	wait_recovered(x.kv);
	kv_expect(x.kv, "alone", 100000, 4);
	ck_assert_int_eq(kv_ask(x.kv, "copied", &a), -ENOENT);
	kv_fixture_close(&x);
}
END_TEST

/* Nothing goes to NVMe that is there to be read only: nothing may be dirty. */
START_TEST(what_memory_has_of_the_remote_s_copy_is_renamed_by_copying_at_once)
{
	struct kv_fixture x;

	start_spoiled(&x);
	x.opts.dirty_bound = 1;
	forget_dram_and_restart(&x);
	wait_recovered(x.kv);
	kv_expect(x.kv, "copied", 100000, 1);
	ck_assert_int_eq(mc_kv_rename(x.kv, "copied", "moved", 0), -EXDEV);
	kv_expect(x.kv, "copied", 100000, 1);
	kv_fixture_close(&x);
}
END_TEST

/* Puts "a", and is killed. */
static void killed_child(struct kv_fixture *x)
{
	pid_t pid = fork();
	int status = -1;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		kv_fixture_start(x);
		_exit(kv_put(x->kv, "a", 100000, 1, 0) == 0 && mc_kv_sync(x->kv, "a") == 0 ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

START_TEST(what_memory_has_of_a_file_that_cannot_be_opened_is_written_again)
{
	struct kv_fixture x;

	paths(&x);
	with_nvme(&x);
	x.opts.patience_ms = 1;
	killed_child(&x);
	spoil_segments(&x, 1, true);
	kv_fixture_start(&x);
	wait_recovered(x.kv);
	kv_expect(x.kv, "a", 100000, 1);
	drain(x.kv);
	ck_assert_uint_eq(stats(x.kv).nvme_unreadable, 0);
	forget_dram_and_restart(&x); /* the file is as it was */
	ck_assert_uint_eq(stats(x.kv).nvme_unreadable, 0);
	kv_expect(x.kv, "a", 100000, 1);
	kv_fixture_close(&x);
}
END_TEST

SUITE_MAIN("KV aside", a_file_of_nvme_that_cannot_be_opened_costs_its_last_copies_only,
	what_is_replaced_or_removed_does_not_come_back_from_a_file_that_could_not_be_opened,
	what_memory_has_of_the_remote_s_copy_is_renamed_by_copying_at_once,
	what_memory_has_of_a_file_that_cannot_be_opened_is_written_again)
