/* Versions of a key: what replaces one, who goes on reading it, what a change of its mtime leaves.
 */
#include "tests/io-switch.h"
#include "tests/kv-fixture.h"
#include "tests/suite.h"

#include "tier/kv-impl.h"
#include "tier/kv-log.h"
#include "tier/remote-fault.h"

#include <unistd.h>

#define MIB (1u << 20)

static struct io_switch disk;

static void start(struct kv_fixture *x)
{
	io_switch_init(&disk);
	kv_fixture_paths(x, 128 * MIB);
	x->opts.nvme_dir = x->nvme;
	x->opts.nvme_capacity = UINT64_C(512) << 20;
	x->opts.io = &disk.io;
	x->opts.retry_ms = 20;
	kv_fixture_start(x);
}

/* A power failure: what is dirty is lost with DRAM. */
static void lose_dram(struct kv_fixture *x)
{
	mc_kv_close(x->kv, 0);
	x->kv = NULL;
	kv_fixture_forget_dram(x);
	disk.syncs = 0;
	kv_fixture_start(x);
}

static void put_durable(struct mc_kv *kv, const char *key, size_t size, uint32_t seed)
{
	ck_assert_int_eq(kv_put(kv, key, size, seed, 0), 0);
	ck_assert_int_eq(mc_kv_sync(kv, key), 0);
}

static struct mc_kv_attr attr_of(struct mc_kv *kv, const char *key)
{
	struct mc_kv_attr a;

	ck_assert_int_eq(mc_kv_lookup(kv, key, &a), 0);
	return a;
}

static void wait_recovered(struct mc_kv *kv)
{
	struct mc_kv_stats s;

	do {
		mc_kv_stats(kv, &s);
		usleep(200);
	} while (s.recovering);
}

START_TEST(a_durable_version_outlives_what_replaced_it_and_was_lost)
{
	struct kv_fixture x;
	struct mc_kv_attr a;

	start(&x);
	put_durable(x.kv, "put", 3000, 1);
	put_durable(x.kv, "renamed", 300000, 2);
	put_durable(x.kv, "image", 12 * MIB, 3);
	disk.syncs = -EIO;
	ck_assert_int_eq(kv_put(x.kv, "put", 4000, 4, 0), 0);
	ck_assert_int_eq(kv_put(x.kv, "image", 4000, 5, 0), 0);
	ck_assert_int_eq(kv_put(x.kv, "tmp", 5000, 6, 0), 0);
	ck_assert_int_eq(mc_kv_rename(x.kv, "tmp", "renamed", 0), 0);
	kv_expect(x.kv, "put", 4000, 4);
	kv_expect(x.kv, "renamed", 5000, 6);
	lose_dram(&x);
	kv_expect(x.kv, "put", 3000, 1);
	kv_expect(x.kv, "renamed", 300000, 2);
	kv_expect(x.kv, "image", 12 * MIB, 3);
	ck_assert_int_eq(mc_kv_lookup(x.kv, "tmp", &a), -ENOENT);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(removing_a_version_that_is_not_durable_removes_the_durable_one_below)
{
	struct kv_fixture x;

	start(&x);
	put_durable(x.kv, "a", 3000, 1);
	ck_assert_int_eq(kv_put(x.kv, "a", 4000, 2, 0), 0);
	ck_assert_int_eq(mc_kv_unlink(x.kv, "a"), 0);
	put_durable(x.kv, "b", 100, 3);
	lose_dram(&x);
	wait_recovered(x.kv);
	ck_assert_int_eq(mc_kv_sync(x.kv, "a"), -ENOENT);
	kv_expect(x.kv, "b", 100, 3);
	kv_fixture_close(&x);
}
END_TEST

/* Its old name had a durable version, which must neither be lost nor come back. */
START_TEST(a_rename_of_what_replaced_a_durable_version_is_durable_first)
{
	struct kv_fixture x;

	start(&x);
	put_durable(x.kv, "a", 3000, 1);
	ck_assert_int_eq(kv_put(x.kv, "a", 4000, 2, 0), 0);
	ck_assert_int_eq(mc_kv_rename(x.kv, "a", "b", 0), 0);
	disk.syncs = -EIO;
	lose_dram(&x);
	kv_expect(x.kv, "b", 4000, 2);
	ck_assert_int_eq(mc_kv_sync(x.kv, "a"), -ENOENT);
	kv_fixture_close(&x);
}
END_TEST

/* Versions of which the remote has the only copy: it stays until the next one is durable. */
START_TEST(the_remotes_only_copy_outlives_what_replaced_it_and_was_lost)
{
	const struct mc_fault_rule down = {
		.op = MC_FAULT_PUT, .kind = MC_FAULT_FAIL, .error = -EIO};
	struct mc_fault *fault;
	struct kv_fixture x;
	struct mc_kv_attr a;

	for (int nvme = 0; nvme < 2; nvme++) {
		io_switch_init(&disk);
		kv_fixture_paths(&x, 128 * MIB);
		kv_fixture_remote(&x);
		ck_assert_int_eq(mc_remote_fault_open(x.remote, &fault, &x.remote), 0);
		x.opts.remote = x.remote;
		x.opts.retry_ms = 20;
		kv_fixture_start(&x);
		put_durable(x.kv, "a", 3000, 1);
		put_durable(x.kv, "b", 3000, 2);
		put_durable(x.kv, "c", 3000, 3);
		ck_assert_int_eq(mc_kv_close(x.kv, 20000), 0);
		kv_fixture_forget_dram(&x);
		if (nvme) { /* the index has them from the remote alone */
			x.opts.nvme_dir = x.nvme;
			x.opts.nvme_capacity = UINT64_C(512) << 20;
			x.opts.io = &disk.io;
		}
		kv_fixture_start(&x);
		wait_recovered(x.kv);
		ck_assert_int_eq(kv_ask(x.kv, "a", &a), 0);
		ck_assert_int_eq(kv_ask(x.kv, "b", &a), 0);
		ck_assert_int_eq(kv_ask(x.kv, "c", &a), 0);
		mc_fault_add(fault, &down);
		disk.syncs = -EIO;
		ck_assert_int_eq(kv_put(x.kv, "a", 4000, 4, 0), 0);
		ck_assert_int_eq(kv_put(x.kv, "b", 4000, 5, 0), 0);
		disk.syncs = 0;
		ck_assert_int_eq(mc_kv_unlink(x.kv, "b"), 0);
		ck_assert_int_eq(kv_put(x.kv, "c", 4000, 6, 0), 0);
		if (nvme)
			ck_assert_int_eq(mc_kv_sync(x.kv, "c"), 0);
		disk.syncs = -EIO;
		mc_kv_close(x.kv, 0);
		disk.syncs = 0;
		mc_fault_clear(fault);
		kv_fixture_forget_dram(&x);
		kv_fixture_start(&x);
		wait_recovered(x.kv);
		if (!nvme) {
			ck_assert_int_eq(kv_ask(x.kv, "a", &a), 0);
			kv_expect(x.kv, "a", 3000, 1);
			ck_assert_int_eq(kv_ask(x.kv, "c", &a), 0);
		}
		kv_expect(x.kv, "c", nvme ? 4000 : 3000, nvme ? 6 : 3);
		ck_assert_int_eq(kv_ask(x.kv, "b", &a), -ENOENT);
		kv_fixture_close(&x);
	}
}
END_TEST

static uint64_t parts(struct mc_kv *kv)
{
	struct mc_kv_log_stats s;

	mc_kv_log_stats(kv->log, &s);
	return s.parts;
}

/* Larger than what is brought to DRAM whole, and not there. */
START_TEST(readers_of_a_large_version_keep_it_when_it_is_replaced_renamed_over_or_removed)
{
	static const char *const keys[] = {"replaced", "renamed", "removed"};
	struct mc_kv_object *readers[3];
	struct kv_fixture x;
	bool same;

	start(&x);
	put_durable(x.kv, "other", 1000, 9);
	for (unsigned i = 0; i < 3; i++) {
		put_durable(x.kv, keys[i], 12 * MIB + i, i);
		ck_assert_int_eq(mc_kv_evict(x.kv, keys[i]), 0);
		ck_assert_int_eq(kv_open_object(x.kv, keys[i], &readers[i]), 0);
	}
	put_durable(x.kv, "replaced", 5000, 7);
	ck_assert_int_eq(mc_kv_rename(x.kv, "other", "renamed", 0), 0);
	ck_assert_int_eq(mc_kv_unlink(x.kv, "removed"), 0);
	put_durable(x.kv, "later", 5000, 8); /* the committer has looked after the parts */
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(kv_check_object(readers[i], 12 * MIB + i, i, &same), 0);
		ck_assert_int_eq(same, true);
	}
	ck_assert_uint_ge(parts(x.kv), 6);
	for (unsigned i = 0; i < 3; i++)
		mc_kv_object_put(readers[i]);
	while (parts(x.kv) > 0)
		usleep(200);
	kv_expect(x.kv, "replaced", 5000, 7);
	kv_expect(x.kv, "renamed", 1000, 9);
	kv_fixture_close(&x);
}
END_TEST

/* It was on NVMe when they opened it, and lies on the remote alone when it loses its name. */
START_TEST(readers_keep_a_large_version_that_left_nvme_after_they_opened_it)
{
	static const char *const keys[] = {"replaced", "renamed", "removed", "moved"};
	struct mc_kv_object *readers[4];
	struct kv_fixture x;
	const char *why;
	bool same;

	kv_fixture_paths(&x, 128 * MIB);
	x.opts.nvme_dir = x.nvme;
	x.opts.nvme_capacity = 512 * MIB;
	kv_fixture_remote(&x);
	kv_fixture_start(&x);
	put_durable(x.kv, "other", 1000, 9);
	for (unsigned i = 0; i < 4; i++) {
		put_durable(x.kv, keys[i], 12 * MIB + i, i);
		ck_assert_int_eq(mc_kv_evict(x.kv, keys[i]), 0);
		ck_assert_int_eq(kv_open_object(x.kv, keys[i], &readers[i]), 0);
	}
	ck_assert_int_eq(mc_kv_rename(x.kv, "moved", "elsewhere", 0), 0);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(
			mc_kv_evict_from(x.kv, i < 3 ? keys[i] : "elsewhere", MC_TIER_NVME, &why),
			0);
	put_durable(x.kv, "replaced", 5000, 7);
	ck_assert_int_eq(mc_kv_rename(x.kv, "other", "renamed", 0), 0);
	ck_assert_int_eq(mc_kv_unlink(x.kv, "removed"), 0);
	ck_assert_int_eq(mc_kv_unlink(x.kv, "elsewhere"), 0);
	/* It would take the place of what is read. */
	ck_assert_int_eq(mc_kv_evict_from(x.kv, "replaced", MC_TIER_NVME, &why), -EBUSY);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_int_eq(kv_check_object(readers[i], 12 * MIB + i, i, &same), 0);
		ck_assert_int_eq(same, true);
		mc_kv_object_put(readers[i]);
	}
	ck_assert_int_eq(mc_kv_evict_from(x.kv, "replaced", MC_TIER_NVME, &why), 0);
	kv_expect(x.kv, "replaced", 5000, 7);
	kv_expect(x.kv, "renamed", 1000, 9);
	kv_fixture_close(&x);
}
END_TEST

/* On the remote alone: its copy stays there until the reader is done, unless somebody waits for the
 * new one to get there. */
START_TEST(readers_of_a_large_version_on_the_remote_keep_it_when_it_is_replaced)
{
	struct mc_kv_object *reader;
	struct kv_fixture x;
	struct mc_kv_attr a;
	bool same;

	for (int haste = 0; haste < 2; haste++) {
		kv_fixture_paths(&x, 512 * MIB); /* no want of memory */
		kv_fixture_remote(&x);
		kv_fixture_start(&x);
		put_durable(x.kv, "a", 12 * MIB, 1);
		ck_assert_int_eq(mc_kv_evict(x.kv, "a"), 0);
		ck_assert_int_eq(kv_open_object(x.kv, "a", &reader), 0);
		ck_assert_int_eq(kv_put(x.kv, "a", 12 * MIB, 2, 0), 0);
		put_durable(x.kv, "b", 1000, 3); /* flushed after it, were it not held */
		ck_assert_uint_eq(attr_of(x.kv, "a").remotes, 0);
		ck_assert_int_eq(kv_check_object(reader, 12 * MIB, 1, &same), 0);
		ck_assert_int_eq(same, true);
		if (haste) {
			ck_assert_int_eq(mc_kv_sync(x.kv, "a"), 0);
			ck_assert_int_eq(kv_check_object(reader, 12 * MIB, 1, &same), -EIO);
		}
		mc_kv_object_put(reader);
		while (attr_of(x.kv, "a").remotes == 0)
			usleep(200);
		ck_assert_int_eq(mc_kv_close(x.kv, 20000), 0);
		x.kv = NULL;
		kv_fixture_forget_dram(&x);
		kv_fixture_start(&x);
		ck_assert_int_eq(kv_ask(x.kv, "a", &a), 0);
		kv_expect(x.kv, "a", 12 * MIB, 2);
		kv_fixture_close(&x);
	}
}
END_TEST

START_TEST(a_new_mtime_of_a_flushed_object_survives_and_writes_no_data)
{
	static const char *const keys[] = {"dram", "cold", "image"};
	struct timespec t = {.tv_sec = -77, .tv_nsec = 123456789};
	struct kv_fixture x;
	struct mc_kv_stats before, after;

	start(&x);
	put_durable(x.kv, "dram", 3000, 1);
	put_durable(x.kv, "cold", 3000, 2);
	put_durable(x.kv, "image", 12 * MIB, 3);
	ck_assert_int_eq(mc_kv_evict(x.kv, "cold"), 0);
	ck_assert_int_eq(mc_kv_evict(x.kv, "image"), 0);
	mc_kv_stats(x.kv, &before);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(mc_kv_set_mtime(x.kv, keys[i], &t), 0);
	mc_kv_stats(x.kv, &after);
	ck_assert_uint_eq(after.nvme_written_bytes, before.nvme_written_bytes);
	ck_assert_uint_eq(after.dirty_bytes, 0);
	lose_dram(&x);
	wait_recovered(x.kv);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(attr_of(x.kv, keys[i]).mtime_s, -77);
		ck_assert_uint_eq(attr_of(x.kv, keys[i]).mtime_ns, 123456789);
		kv_expect(x.kv, keys[i], i == 2 ? 12 * MIB : 3000, i + 1);
	}
	kv_fixture_close(&x);
}
END_TEST

/* Nothing overflows on the way to the journal and back. */
START_TEST(a_time_that_nanoseconds_cannot_say_becomes_the_nearest)
{
	static const struct timespec far[] = {{.tv_sec = INT64_MAX, .tv_nsec = 999999999},
		{.tv_sec = INT64_MIN}, {.tv_sec = MC_KV_TIME_MAX_S + 1}};
	struct kv_fixture x;

	start(&x);
	put_durable(x.kv, "a", 3000, 1);
	for (unsigned i = 0; i < 3; i++) {
		int64_t nearest = far[i].tv_sec < 0 ? -MC_KV_TIME_MAX_S : MC_KV_TIME_MAX_S;

		ck_assert_int_eq(mc_kv_set_mtime(x.kv, "a", &far[i]), 0);
		ck_assert_int_eq(attr_of(x.kv, "a").mtime_s, nearest);
		lose_dram(&x);
		wait_recovered(x.kv);
		ck_assert_int_eq(attr_of(x.kv, "a").mtime_s, nearest);
		ck_assert_uint_eq(attr_of(x.kv, "a").mtime_ns, 0);
	}
	kv_fixture_close(&x);
}
END_TEST

static void expect_mtime(struct mc_kv *kv, const char *key, const struct timespec *t)
{
	struct mc_kv_attr a;

	ck_assert_int_eq(kv_ask(kv, key, &a), 0);
	ck_assert_int_eq(a.mtime_s, t->tv_sec);
	ck_assert_uint_eq(a.mtime_ns, t->tv_nsec);
}

/* DRAM is lost, and NVMe unless it is kept. */
static void start_anew(struct kv_fixture *x, bool nvme)
{
	ck_assert_int_eq(mc_kv_close(x->kv, 20000), 0);
	x->kv = NULL;
	kv_fixture_forget_dram(x);
	if (!nvme)
		x->opts.nvme_dir = NULL;
	kv_fixture_start(x);
	wait_recovered(x->kv);
}

START_TEST(a_new_mtime_survives_wherever_the_object_lies)
{
	static const struct {
		const char *key;
		size_t size;
	} objects[] = {{"small", 3000}, {"record", 3 * MIB}, {"large", 12 * MIB + 5}};
	static const struct timespec times[] = {{.tv_sec = -77, .tv_nsec = 123456789},
		{.tv_sec = 1700000000, .tv_nsec = 1}, {.tv_sec = 5, .tv_nsec = 0}};
	const char *why;

	for (int nvme = 0; nvme < 2; nvme++) {
		struct kv_fixture x;

		kv_fixture_paths(&x, 64 * MIB);
		kv_fixture_remote(&x);
		x.opts.ack = MC_KV_ACK_REMOTE;
		x.opts.nvme_dir = nvme ? x.nvme : NULL;
		x.opts.nvme_capacity = 64 * MIB;
		kv_fixture_start(&x);
		wait_recovered(x.kv);
		for (unsigned i = 0; i < 3; i++) {
			const char *key = objects[i].key;

			put_durable(x.kv, key, objects[i].size, i + 1);
			ck_assert_int_eq(mc_kv_set_mtime(x.kv, key, &times[0]), 0);
			ck_assert_int_eq(mc_kv_sync(x.kv, key), 0);
			while (attr_of(x.kv, key).remotes == 0)
				usleep(200);
			ck_assert_int_eq(mc_kv_evict_from(x.kv, key, MC_TIER_DRAM, &why), 0);
			ck_assert_int_eq(mc_kv_evict_from(x.kv, key, MC_TIER_NVME, &why), 0);
			ck_assert_int_eq(mc_kv_set_mtime(x.kv, key, &times[1]), 0);
			ck_assert_int_eq(mc_kv_sync(x.kv, key), 0);
		}
		start_anew(&x, nvme);
		for (unsigned i = 0; i < 3; i++) {
			const char *key = objects[i].key;

			expect_mtime(x.kv, key, &times[1]);
			if (nvme) /* and what was set there goes to the remote with it */
				ck_assert_int_eq(mc_kv_set_mtime(x.kv, key, &times[2]), 0);
			if (nvme)
				ck_assert_int_eq(
					mc_kv_evict_from(x.kv, key, MC_TIER_NVME, &why), 0);
		}
		start_anew(&x, false);
		for (unsigned i = 0; i < 3; i++) {
			expect_mtime(x.kv, objects[i].key, &times[nvme ? 2 : 1]);
			kv_expect(x.kv, objects[i].key, objects[i].size, i + 1);
		}
		kv_fixture_close(&x);
	}
}
END_TEST

SUITE_MAIN("kv-version", a_durable_version_outlives_what_replaced_it_and_was_lost,
	removing_a_version_that_is_not_durable_removes_the_durable_one_below,
	a_rename_of_what_replaced_a_durable_version_is_durable_first,
	the_remotes_only_copy_outlives_what_replaced_it_and_was_lost,
	readers_of_a_large_version_keep_it_when_it_is_replaced_renamed_over_or_removed,
	readers_of_a_large_version_on_the_remote_keep_it_when_it_is_replaced,
	readers_keep_a_large_version_that_left_nvme_after_they_opened_it,
	a_new_mtime_of_a_flushed_object_survives_and_writes_no_data,
	a_time_that_nanoseconds_cannot_say_becomes_the_nearest,
	a_new_mtime_survives_wherever_the_object_lies)
