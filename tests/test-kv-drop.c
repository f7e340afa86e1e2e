/* The administrator takes copies out of single tiers; the last good one always stays. */
#include "tests/kv-fixture.h"
#include "tests/suite.h"

#include "tier/kv-remote.h"
#include "tier/remote-fault.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define RACES 400

static const struct {
	const char *key;
	uint64_t size; /* in the slab, a record, an image */
} objects[] = {{"d/small", 1000}, {"d/record", 3 * MIB + 5}, {"d/e/image", 20 * MIB}};
#define OBJECTS (sizeof(objects) / sizeof(*objects))

static struct mc_kv_attr attr_of(struct mc_kv *kv, const char *key)
{
	struct mc_kv_attr a;

	ck_assert_int_eq(mc_kv_lookup(kv, key, &a), 0);
	return a;
}

static void start(struct kv_fixture *x, bool nvme, bool remote, enum mc_kv_ack ack)
{
	kv_fixture_paths(x, 128 * MIB);
	if (nvme) {
		x->opts.nvme_dir = x->nvme;
		x->opts.nvme_capacity = 512 * MIB;
	}
	if (remote)
		kv_fixture_remote(x);
	x->opts.ack = ack;
	kv_fixture_start(x);
	ck_assert_int_eq(mc_kv_mkdir(x->kv, "d"), 0);
	ck_assert_int_eq(mc_kv_mkdir(x->kv, "d/e"), 0);
	for (size_t i = 0; i < OBJECTS; i++) {
		ck_assert_int_eq(kv_put(x->kv, objects[i].key, objects[i].size, (uint32_t)i, 0), 0);
		if (nvme || remote)
			ck_assert_int_eq(mc_kv_sync(x->kv, objects[i].key), 0);
	}
}

static void evict(struct mc_kv *kv, enum mc_tier tier)
{
	for (size_t i = 0; i < OBJECTS; i++) {
		const char *why = "not set";

		ck_assert_int_eq(mc_kv_evict_from(kv, objects[i].key, tier, &why), 0);
		ck_assert_ptr_null(why);
	}
}

static void refuse(struct mc_kv *kv, enum mc_tier tier, const char *want)
{
	for (size_t i = 0; i < OBJECTS; i++) {
		const char *why = NULL;

		ck_assert_int_eq(mc_kv_evict_from(kv, objects[i].key, tier, &why), -EBUSY);
		ck_assert_str_eq(why, want);
	}
}

static void expect_bytes(struct mc_kv *kv)
{
	for (size_t i = 0; i < OBJECTS; i++)
		kv_expect(kv, objects[i].key, objects[i].size, (uint32_t)i);
}

/* Where the objects lie, DRAM not looked at. */
static void expect_copies(struct mc_kv *kv, bool nvme, unsigned remotes)
{
	for (size_t i = 0; i < OBJECTS; i++) {
		struct mc_kv_attr a = attr_of(kv, objects[i].key);

		ck_assert_uint_eq(a.nvme, nvme ? objects[i].size : 0);
		ck_assert_uint_eq(a.remotes, remotes);
	}
}

START_TEST(what_leaves_nvme_is_on_the_remote_first)
{
	struct kv_fixture x;

	start(&x, true, true, MC_KV_ACK_DRAM);
	expect_copies(x.kv, true, 0);
	evict(x.kv, MC_TIER_NVME);
	expect_copies(x.kv, false, 1);
	expect_bytes(x.kv);
	evict(x.kv, MC_TIER_DRAM);
	expect_bytes(x.kv);
	evict(x.kv, MC_TIER_NVME); /* nothing there: nothing to do */
	refuse(x.kv, MC_TIER_REMOTE, "it is the last good copy");
	expect_bytes(x.kv);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(what_leaves_dram_before_nvme_is_copied_from_there)
{
	struct kv_fixture x;

	start(&x, true, true, MC_KV_ACK_DRAM);
	evict(x.kv, MC_TIER_DRAM);
	evict(x.kv, MC_TIER_NVME);
	expect_copies(x.kv, false, 1);
	expect_bytes(x.kv);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(a_remote_copy_goes_when_nvme_has_one)
{
	struct kv_fixture x;

	start(&x, true, true, MC_KV_ACK_REMOTE);
	expect_copies(x.kv, true, 1);
	evict(x.kv, MC_TIER_REMOTE);
	expect_copies(x.kv, true, 0);
	evict(x.kv, MC_TIER_DRAM);
	expect_bytes(x.kv);
	evict(x.kv, MC_TIER_REMOTE);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(without_another_tier_the_copy_stays)
{
	struct kv_fixture x;

	start(&x, true, false, MC_KV_ACK_DRAM);
	refuse(x.kv, MC_TIER_NVME, "no other persistent tier has a copy");
	evict(x.kv, MC_TIER_DRAM);
	refuse(x.kv, MC_TIER_NVME, "no other persistent tier has a copy");
	expect_bytes(x.kv);
	kv_fixture_close(&x);
	start(&x, false, false, MC_KV_ACK_DRAM);
	refuse(x.kv, MC_TIER_DRAM, "no tier below has a copy");
	expect_bytes(x.kv);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(what_is_pinned_stays_everywhere)
{
	struct kv_fixture x;

	start(&x, true, true, MC_KV_ACK_REMOTE);
	for (size_t i = 0; i < OBJECTS; i++)
		ck_assert_int_eq(mc_kv_pin(x.kv, objects[i].key, true), 0);
	refuse(x.kv, MC_TIER_DRAM, "it is pinned");
	refuse(x.kv, MC_TIER_NVME, "it is pinned");
	refuse(x.kv, MC_TIER_REMOTE, "it is pinned");
	for (size_t i = 0; i < OBJECTS; i++)
		ck_assert_int_eq(mc_kv_pin(x.kv, objects[i].key, false), 0);
	evict(x.kv, MC_TIER_DRAM);
	evict(x.kv, MC_TIER_NVME);
	expect_bytes(x.kv);
	kv_fixture_close(&x);
}
END_TEST

static void expect_pins(struct mc_kv *kv)
{
	static const char *const pinned[] = {"0", "one", "2", "4", "16"};

	for (size_t i = 0; i < sizeof(pinned) / sizeof(*pinned); i++)
		ck_assert_msg(attr_of(kv, pinned[i]).pinned, "%s is not pinned", pinned[i]);
	ck_assert_int_eq(mc_kv_pin(kv, "3", true), -ENOSPC);
	ck_assert(!attr_of(kv, "3").pinned);
}

/* Most are pinned before they are flushed. */
START_TEST(pins_are_of_keys_take_half_of_nvme_at_most_and_leave_room_in_dram)
{
	struct kv_fixture x;
	char key[16];

	kv_fixture_paths(&x, 32 * MIB);
	x.opts.nvme_dir = x.nvme;
	x.opts.nvme_capacity = 128 * MIB;
	kv_fixture_start(&x);
	for (uint32_t i = 0; i < 17; i++) {
		snprintf(key, sizeof(key), "%u", i);
		ck_assert_int_eq(kv_put_wait(x.kv, key, 4 * MIB, i), 0);
		ck_assert_int_eq(mc_kv_pin(x.kv, key, true), i < 16 ? 0 : -ENOSPC);
	}
	ck_assert_int_eq(kv_put_wait(x.kv, "0", 4 * MIB, 20), 0);
	ck_assert_int_eq(mc_kv_rename(x.kv, "1", "one", 0), 0);
	ck_assert_int_eq(kv_put_wait(x.kv, "2.tmp", 4 * MIB, 2), 0);
	ck_assert_int_eq(mc_kv_rename(x.kv, "2.tmp", "2", 0), 0);
	ck_assert_int_eq(mc_kv_pin(x.kv, "16", true), -ENOSPC);
	ck_assert_int_eq(mc_kv_unlink(x.kv, "3"), 0);
	ck_assert_int_eq(kv_put_wait(x.kv, "3", 4 * MIB, 3), 0);
	ck_assert_int_eq(mc_kv_pin(x.kv, "16", true), 0);
	expect_pins(x.kv);
	for (uint32_t i = 2; i < 17; i++) {
		snprintf(key, sizeof(key), "%u", i);
		kv_expect(x.kv, key, 4 * MIB, i);
	}
	kv_fixture_stop(&x);
	kv_fixture_start(&x);
	ck_assert_int_eq(mc_kv_pin(x.kv, "5", true), 0); /* when all of NVMe is known */
	expect_pins(x.kv);
	ck_assert_int_eq(mc_kv_pin(x.kv, "one", false), 0);
	ck_assert_int_eq(mc_kv_pin(x.kv, "3", true), 0);
	kv_fixture_close(&x);
}
END_TEST

/* It rests before it is flushed, so that the log hardly has it when it is renamed. */
START_TEST(a_pin_goes_with_what_is_renamed_before_it_is_flushed)
{
	struct kv_fixture x;

	kv_fixture_paths(&x, 32 * MIB);
	x.opts.nvme_dir = x.nvme;
	x.opts.nvme_capacity = 128 * MIB;
	kv_fixture_start(&x);
	ck_assert_int_eq(kv_put(x.kv, "tmp", 1000, 1, 0), 0);
	ck_assert_int_eq(mc_kv_pin(x.kv, "tmp", true), 0);
	ck_assert_int_eq(mc_kv_rename(x.kv, "tmp", "name", 0), 0);
	ck_assert_int_eq(kv_put(x.kv, "tmp", 1000, 2, 0), 0);
	kv_fixture_stop(&x);
	kv_fixture_start(&x);
	kv_expect(x.kv, "name", 1000, 1);
	ck_assert(attr_of(x.kv, "name").pinned);
	ck_assert(!attr_of(x.kv, "tmp").pinned);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(what_somebody_has_open_stays_in_dram)
{
	struct mc_kv_object *obj;
	struct kv_fixture x;
	const char *why;
	int fd;

	start(&x, true, false, MC_KV_ACK_DRAM);
	ck_assert_int_eq(kv_open_object(x.kv, "d/record", &obj), 0);
	ck_assert_int_eq(mc_kv_object_backing_get(obj, &fd), 0);
	ck_assert_int_eq(mc_kv_evict_from(x.kv, "d/record", MC_TIER_DRAM, &why), -EBUSY);
	ck_assert_str_eq(why, "it is being read, copied or renamed");
	mc_kv_object_backing_put(obj);
	mc_kv_object_put(obj);
	ck_assert_int_eq(mc_kv_evict_from(x.kv, "d/record", MC_TIER_DRAM, &why), -EBUSY);
	ck_assert_str_eq(why, "a client has it open or mapped");
	close(fd);
	ck_assert_int_eq(mc_kv_evict_from(x.kv, "d/record", MC_TIER_DRAM, &why), 0);
	kv_fixture_close(&x);
}
END_TEST

/* How a get ended: 1 = not yet. */
static void got(void *ctx, int res, struct mc_kv_object *obj)
{
	if (res == 0)
		mc_kv_object_put(obj);
	atomic_store((atomic_int *)ctx, res);
}

START_TEST(what_is_being_brought_to_dram_stays)
{
	static const struct mc_fault_rule hang = {.op = MC_FAULT_READ, .kind = MC_FAULT_HANG};
	struct mc_fault *fault;
	static const size_t sizes[] = {5000, 3 * MIB}; /* in the slab, a file */
	struct kv_fixture x;
	const char *why;

	kv_fixture_faulty(&x, &fault);
	for (unsigned i = 0; i < 2; i++) {
		atomic_int res = 1;

		kv_put_on_remote(x.kv, "a", sizes[i], i);
		ck_assert_int_eq(mc_kv_evict(x.kv, "a"), 0);
		mc_fault_add(fault, &hang);
		mc_kv_get(x.kv, "a", got, &res);
		mc_fault_wait_held(fault, 1);
		ck_assert_int_eq(mc_kv_evict_from(x.kv, "a", MC_TIER_DRAM, &why), -EBUSY);
		ck_assert_str_eq(why, "it is being read, copied or renamed");
		mc_fault_clear(fault);
		while (atomic_load(&res) == 1)
			usleep(200);
		ck_assert_int_eq(atomic_load(&res), 0);
		kv_expect(x.kv, "a", sizes[i], i);
		ck_assert_int_eq(mc_kv_evict(x.kv, "a"), 0);
	}
	kv_fixture_close(&x);
}
END_TEST

struct racing {
	struct mc_kv *kv;
	atomic_bool over;
	atomic_int wrong; /* an answer that may not be */
};

static void *drop_all_the_time(void *arg)
{
	struct racing *x = arg;
	static const char *const keys[] = {"a", "b"};
	const char *why;

	for (unsigned i = 0; !atomic_load(&x->over); i++) {
		int r = mc_kv_evict_from(x->kv, keys[i % 2], MC_TIER_NVME, &why);

		if (r != 0 && r != -ENOENT && r != -EBUSY)
			atomic_store(&x->wrong, r);
	}
	return NULL;
}

START_TEST(a_rename_that_waits_for_a_copy_is_no_error_of_who_asked_for_it)
{
	struct racing r = {.kv = NULL};
	struct kv_fixture x;
	pthread_t threads[3];

	kv_fixture_paths(&x, 128 * MIB);
	x.opts.nvme_dir = x.nvme;
	x.opts.nvme_capacity = 512 * MIB;
	kv_fixture_remote(&x);
	kv_fixture_start(&x);
	r.kv = x.kv;
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, drop_all_the_time, &r), 0);
	for (unsigned i = 0; i < RACES && atomic_load(&r.wrong) == 0; i++) {
		ck_assert_int_eq(kv_put(x.kv, "a", 1000, i, 0), 0);
		ck_assert_int_eq(mc_kv_sync(x.kv, "a"), 0);
		ck_assert_int_eq(mc_kv_rename(x.kv, "a", "b", 0), 0);
	}
	atomic_store(&r.over, true);
	for (unsigned i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(atomic_load(&r.wrong), 0);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(what_is_not_there_is_enoent)
{
	struct kv_fixture x;
	const char *why;

	start(&x, true, true, MC_KV_ACK_DRAM);
	for (int t = 0; t < MC_TIERS; t++) {
		ck_assert_int_eq(mc_kv_evict_from(x.kv, "d/none", (enum mc_tier)t, &why), -ENOENT);
		ck_assert_int_eq(mc_kv_evict_from(x.kv, "d/e", (enum mc_tier)t, &why), -ENOENT);
		ck_assert_int_eq(mc_kv_evict_from(x.kv, "", (enum mc_tier)t, &why), -ENOENT);
	}
	kv_fixture_close(&x);
}
END_TEST

START_TEST(a_directory_holds_what_lies_below_it)
{
	struct kv_fixture x;

	start(&x, true, true, MC_KV_ACK_DRAM);
	ck_assert_int_eq(mc_kv_mkdir(x.kv, "empty"), 0);
	for (int t = MC_TIER_DRAM; t <= MC_TIER_NVME; t++) {
		ck_assert(mc_kv_dir_holds(x.kv, "", (enum mc_tier)t));
		ck_assert(mc_kv_dir_holds(x.kv, "d", (enum mc_tier)t));
		ck_assert(mc_kv_dir_holds(x.kv, "d/e", (enum mc_tier)t));
		ck_assert(!mc_kv_dir_holds(x.kv, "empty", (enum mc_tier)t));
		ck_assert(!mc_kv_dir_holds(x.kv, "none", (enum mc_tier)t));
		ck_assert(!mc_kv_dir_holds(x.kv, "d/small", (enum mc_tier)t));
	}
	ck_assert(!mc_kv_dir_holds(x.kv, "", MC_TIER_REMOTE));
	ck_assert_int_eq(mc_kv_evict(x.kv, "d/e/image"), 0);
	ck_assert(!mc_kv_dir_holds(x.kv, "d/e", MC_TIER_DRAM));
	ck_assert(mc_kv_dir_holds(x.kv, "d", MC_TIER_DRAM));
	evict(x.kv, MC_TIER_NVME);
	ck_assert(!mc_kv_dir_holds(x.kv, "", MC_TIER_NVME));
	ck_assert(mc_kv_dir_holds(x.kv, "d/e", MC_TIER_REMOTE));
	kv_fixture_close(&x);
}
END_TEST

static void reboot(struct kv_fixture *x)
{
	kv_fixture_stop(x);
	kv_fixture_start(x);
}

START_TEST(a_copy_on_the_remote_that_answered_an_error_goes_with_the_object)
{
	static const struct mc_fault_rule lost = {
		.op = MC_FAULT_PUT, .kind = MC_FAULT_LOST, .error = -EIO};
	struct mc_fault *fault;
	struct kv_fixture x;
	struct mc_kv_attr a;
	const char *why;

	kv_fixture_faulty(&x, &fault);
	ck_assert_int_eq(kv_put(x.kv, "a", 5000, 1, 0), 0);
	ck_assert_int_eq(mc_kv_sync(x.kv, "a"), 0);
	mc_fault_add(fault, &lost);
	ck_assert_int_eq(mc_kv_evict_from(x.kv, "a", MC_TIER_NVME, &why), -EIO);
	mc_fault_clear(fault);
	ck_assert_int_eq(mc_kv_unlink(x.kv, "a"), 0);
	reboot(&x);
	ck_assert_int_eq(kv_ask(x.kv, "a", &a), -ENOENT);
	kv_fixture_close(&x);
}
END_TEST

static const struct mc_fault_rule no_unlink = {
	.op = MC_FAULT_UNLINK, .kind = MC_FAULT_FAIL, .error = -EIO};

/* As a kill leaves what is remembered of removals; each entry here has a key of one byte. */
static void keep_entries(const struct kv_fixture *x, unsigned n)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/kv-deletes", x->nvme);
	ck_assert_int_eq(truncate(path, (off_t)n * (32 + 1)), 0);
}

/* The remote has a version of "a" that a later one, on NVMe, has replaced, and what is remembered
 * of it is that it waits for that: the daemon was killed between the two. It stays while the remote
 * removes nothing. */
static void start_replaced(struct kv_fixture *x, struct mc_fault **ret)
{
	kv_fixture_faulty(x, ret);
	kv_put_on_remote(x->kv, "a", 5000, 1);
	mc_fault_add(*ret, &no_unlink);
	ck_assert_int_eq(kv_put(x->kv, "a", 6000, 2, 0), 0);
	ck_assert_int_eq(mc_kv_sync(x->kv, "a"), 0);
	kv_fixture_stop(x);
	keep_entries(x, 1);
	kv_fixture_start(x);
	kv_expect(x->kv, "a", 6000, 2);
}

static void expect_absent_after_a_reboot(struct kv_fixture *x, struct mc_fault *fault)
{
	struct mc_kv_attr a;

	kv_fixture_stop(x);
	mc_fault_clear(fault);
	kv_fixture_start(x);
	ck_assert_int_eq(mc_kv_unlink(x->kv, "none"), -ENOENT); /* recovery has ended */
	while (kv_delete_pending(x->kv, "a"))
		usleep(200);
	ck_assert_int_eq(kv_ask(x->kv, "a", &a), -ENOENT);
	kv_fixture_close(x);
}

START_TEST(what_waited_to_leave_the_remote_does_not_come_back_when_its_key_is_renamed)
{
	struct mc_fault *fault;
	struct kv_fixture x;

	start_replaced(&x, &fault);
	ck_assert_int_eq(mc_kv_rename(x.kv, "a", "b", 0), 0);
	expect_absent_after_a_reboot(&x, fault);
}
END_TEST

START_TEST(what_waited_to_leave_the_remote_does_not_come_back_when_its_key_is_removed)
{
	struct mc_fault *fault;
	struct kv_fixture x;

	start_replaced(&x, &fault);
	ck_assert_int_eq(kv_put(x.kv, "a", 7000, 3, 0), 0);
	ck_assert_int_eq(mc_kv_unlink(x.kv, "a"), 0);
	expect_absent_after_a_reboot(&x, fault);
}
END_TEST

/* The daemon was killed after the remote had the new version, before the removal of the one that it
 * replaced there was off the list; another removal, which fails, comes before it. */
START_TEST(a_removal_of_an_earlier_daemon_hides_no_later_version)
{
	struct mc_fault *fault;
	struct kv_fixture x;
	struct mc_kv_attr a;

	kv_fixture_faulty(&x, &fault);
	kv_put_on_remote(x.kv, "a", 5000, 1);
	kv_put_on_remote(x.kv, "b", 5000, 2);
	mc_fault_add(fault, &no_unlink);
	ck_assert_int_eq(mc_kv_unlink(x.kv, "a"), 0);
	ck_assert_int_eq(mc_kv_unlink(x.kv, "b"), 0);
	kv_put_on_remote(x.kv, "a", 6000, 3);
	kv_fixture_stop(&x);
	keep_entries(&x, 2);
	kv_fixture_start(&x);
	ck_assert_int_eq(kv_ask(x.kv, "b", &a), -ENOENT);
	ck_assert_int_eq(kv_ask(x.kv, "a", &a), 0);
	kv_expect(x.kv, "a", 6000, 3);
	ck_assert_int_eq(kv_put(x.kv, "a", 7000, 4, 0), 0);
	ck_assert_int_eq(mc_kv_unlink(x.kv, "a"), 0);
	expect_absent_after_a_reboot(&x, fault);
}
END_TEST

SUITE_MAIN("kv-drop", what_leaves_nvme_is_on_the_remote_first,
	what_leaves_dram_before_nvme_is_copied_from_there, a_remote_copy_goes_when_nvme_has_one,
	without_another_tier_the_copy_stays, what_is_pinned_stays_everywhere,
	pins_are_of_keys_take_half_of_nvme_at_most_and_leave_room_in_dram,
	a_pin_goes_with_what_is_renamed_before_it_is_flushed, what_somebody_has_open_stays_in_dram,
	what_is_being_brought_to_dram_stays,
	a_rename_that_waits_for_a_copy_is_no_error_of_who_asked_for_it, what_is_not_there_is_enoent,
	a_directory_holds_what_lies_below_it,
	a_copy_on_the_remote_that_answered_an_error_goes_with_the_object,
	what_waited_to_leave_the_remote_does_not_come_back_when_its_key_is_renamed,
	what_waited_to_leave_the_remote_does_not_come_back_when_its_key_is_removed,
	a_removal_of_an_earlier_daemon_hides_no_later_version)
