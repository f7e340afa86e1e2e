/* A rename on the remote that a kill cut in two, and removals that are not pending any more. */
#include "tests/kv-fixture.h"
#include "tests/suite.h"

#include "tier/kv-impl.h"
#include "tier/kv-remote.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ENTRY 32 /* bytes of an entry of kv-deletes before its key; those here have one byte */

static const struct mc_fault_rule no_unlink = {
	.op = MC_FAULT_UNLINK, .kind = MC_FAULT_FAIL, .error = -EIO};
static const struct mc_fault_rule no_put = {
	.op = MC_FAULT_PUT, .kind = MC_FAULT_FAIL, .error = -EIO};
static const struct mc_fault_rule away = {.op = MC_FAULT_OPS, .kind = MC_FAULT_FAIL, .error = -EIO};

/* The daemon was killed while it renamed "a" to "b", with another "b" on the remote or not, before
 * or after the remote had the new name; the next one has not started. */
static void cut_rename(struct kv_fixture *x, struct mc_fault **ret, bool replaces, bool happened)
{
	char path[128];

	kv_fixture_faulty(x, ret);
	kv_put_on_remote(x->kv, "a", 5000, 1);
	if (replaces)
		kv_put_on_remote(x->kv, "b", 6000, 2);
	mc_fault_add(*ret, happened ? &no_unlink : &no_put);
	ck_assert_int_eq(mc_kv_rename(x->kv, "a", "b", 0), happened ? 0 : -EIO);
	kv_fixture_stop(x);
	mc_fault_clear(*ret);
	/* The old "b" waits for its end, then comes the rename. */
	snprintf(path, sizeof(path), "%s/kv-deletes", x->nvme);
	ck_assert_int_eq(truncate(path, (replaces ? ENTRY + 1 : 0) + ENTRY + 3), 0);
}

static int ask(struct mc_kv *kv, const char *key)
{
	struct mc_kv_attr a;

	return kv_ask(kv, key, &a);
}

static void expect_happened(struct mc_kv *kv)
{
	ck_assert_int_eq(ask(kv, "b"), 0);
	kv_expect(kv, "b", 5000, 1);
	ck_assert_int_eq(ask(kv, "a"), -ENOENT);
}

static void expect_not_happened(struct mc_kv *kv, bool replaces)
{
	ck_assert_int_eq(ask(kv, "a"), 0);
	kv_expect(kv, "a", 5000, 1);
	ck_assert_int_eq(ask(kv, "b"), replaces ? 0 : -ENOENT);
	if (replaces)
		kv_expect(kv, "b", 6000, 2);
}

START_TEST(a_rename_whose_new_name_the_remote_has_is_whole_after_a_kill)
{
	for (unsigned replaces = 0; replaces < 2; replaces++) {
		struct mc_fault *fault;
		struct kv_fixture x;

		cut_rename(&x, &fault, replaces != 0, true);
		kv_fixture_start(&x);
		expect_happened(x.kv);
		while (kv_delete_pending(x.kv, "a"))
			usleep(200);
		kv_fixture_stop(&x);
		kv_fixture_start(&x);
		expect_happened(x.kv);
		kv_fixture_close(&x);
	}
}
END_TEST

START_TEST(a_rename_whose_new_name_the_remote_has_not_is_not_seen_after_a_kill)
{
	for (unsigned replaces = 0; replaces < 2; replaces++) {
		struct mc_fault *fault;
		struct kv_fixture x;

		cut_rename(&x, &fault, replaces != 0, false);
		kv_fixture_start(&x);
		expect_not_happened(x.kv, replaces != 0);
		kv_fixture_stop(&x);
		kv_fixture_start(&x);
		expect_not_happened(x.kv, replaces != 0);
		kv_fixture_close(&x);
	}
}
END_TEST

static int count(void *ctx, const char *name, const struct mc_kv_attr *attr, uint64_t next)
{
	unsigned *n = ctx;

	++*n;
	return 0;
}

START_TEST(neither_name_is_shown_while_the_remote_does_not_say_whether_a_rename_happened)
{
	struct mc_fault *fault;
	struct kv_fixture x;
	struct mc_kv_object *obj;
	uint64_t cursor = 0;
	unsigned n = 0;

	cut_rename(&x, &fault, false, true);
	mc_fault_add(fault, &away);
	kv_fixture_start(&x);
	ck_assert_int_eq(ask(x.kv, "a"), -EIO);
	ck_assert_int_eq(ask(x.kv, "b"), -EIO);
	ck_assert_int_eq(kv_open_object(x.kv, "a", &obj), -EIO);
	ck_assert_int_eq(kv_open_object(x.kv, "b", &obj), -EIO);
	ck_assert_int_eq(mc_kv_unlink(x.kv, "a"), -EIO);
	ck_assert_int_eq(mc_kv_rename(x.kv, "c", "b", 0), -EIO);
	ck_assert_int_eq(kv_put(x.kv, "c", 3000, 3, 0), 0);
	kv_expect(x.kv, "c", 3000, 3);
	ck_assert_int_eq(mc_kv_list(x.kv, "", &cursor, count, &n), 0);
	ck_assert_uint_eq(n, 1);
	mc_fault_clear(fault);
	while (ask(x.kv, "b") == -EIO)
		usleep(200);
	expect_happened(x.kv);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(who_waits_finds_the_one_name_of_a_rename_that_a_kill_cut)
{
	static const struct mc_fault_rule hang = {.op = MC_FAULT_STAT, .kind = MC_FAULT_HANG};
	struct mc_fault *fault;
	struct kv_fixture x;
	struct mc_kv_object *obj;
	struct mc_kv_attr a, b;
	uint64_t cursor = 0;
	unsigned n = 0;

	cut_rename(&x, &fault, false, true);
	mc_fault_add(fault, &hang);
	kv_fixture_start(&x);
	mc_fault_wait_held(fault, 1);
	ck_assert_int_eq(mc_kv_is_whole(x.kv), false);
	ck_assert_int_eq(mc_kv_lookup(x.kv, "b", &b), -EIO);
	mc_fault_clear(fault);
	while (!mc_kv_is_whole(x.kv))
		mc_kv_wait_whole(x.kv);
	ck_assert_int_eq(mc_kv_list(x.kv, "", &cursor, count, &n), 0);
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(mc_kv_find(x.kv, "b", &b), 0);
	ck_assert_int_eq(mc_kv_find(x.kv, "a", &a), -ENOENT);
	/* Whoever had it open under the old name has it still. */
	ck_assert_int_eq(mc_kv_bind(x.kv, "a", b.version, 0, false, &obj), -ENOENT);
	ck_assert_int_eq(mc_kv_bind(x.kv, "a", b.version, 0, true, &obj), 0);
	kv_expect_object(obj, 5000, 1);
	mc_kv_object_put(obj);
	kv_fixture_close(&x);
}
END_TEST

static void remember_removal(struct mc_kv *kv, const char *key)
{
	uint8_t version[16];

	mc_mutex_lock(&kv->lock);
	memcpy(version, kv_index_find(kv->index, key)->version, sizeof(version));
	mc_mutex_unlock(&kv->lock);
	ck_assert_int_eq(kv_delete_add(kv, key, version), 0);
}

/* The daemon was killed after it remembered the removal, before the log knew of it: the object
 * stays, and lies on the remote alone later. */
START_TEST(a_removal_that_a_kill_undid_removes_nothing_two_starts_later)
{
	struct mc_fault *fault;
	struct kv_fixture x;
	const char *why;

	kv_fixture_faulty(&x, &fault);
	ck_assert_int_eq(kv_put(x.kv, "a", 5000, 1, 0), 0);
	ck_assert_int_eq(mc_kv_sync(x.kv, "a"), 0);
	mc_fault_add(fault, &away);
	remember_removal(x.kv, "a");
	kv_fixture_stop(&x);
	mc_fault_clear(fault);
	kv_fixture_start(&x);
	kv_expect(x.kv, "a", 5000, 1);
	ck_assert_int_eq(mc_kv_evict_from(x.kv, "a", MC_TIER_NVME, &why), 0);
	kv_fixture_stop(&x);
	kv_fixture_start(&x);
	ck_assert_int_eq(mc_kv_unlink(x.kv, "none"), -ENOENT); /* recovery has ended */
	while (kv_delete_pending(x.kv, "a"))
		usleep(200);
	ck_assert_int_eq(ask(x.kv, "a"), 0);
	kv_expect(x.kv, "a", 5000, 1);
	kv_fixture_close(&x);
}
END_TEST

SUITE_MAIN("kv-rename", a_rename_whose_new_name_the_remote_has_is_whole_after_a_kill,
	a_rename_whose_new_name_the_remote_has_not_is_not_seen_after_a_kill,
	neither_name_is_shown_while_the_remote_does_not_say_whether_a_rename_happened,
	who_waits_finds_the_one_name_of_a_rename_that_a_kill_cut,
	a_removal_that_a_kill_undid_removes_nothing_two_starts_later)
