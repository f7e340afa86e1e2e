/* Objects on their way between DRAM, NVMe and a remote, and back. */
#include "tests/kv-fixture.h"
#include "tests/suite.h"

#include "tier/digest.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1u << 20)

static void with_nvme(struct kv_fixture *x)
{
	x->opts.nvme_dir = x->nvme;
	x->opts.nvme_capacity = UINT64_C(1) << 30;
}

static struct mc_kv_attr attr_of(struct mc_kv *kv, const char *key)
{
	struct mc_kv_attr a;

	ck_assert_int_eq(mc_kv_lookup(kv, key, &a), 0);
	return a;
}

static void wait_remotes(struct mc_kv *kv, const char *key, unsigned n)
{
	while (attr_of(kv, key).remotes != n)
		usleep(200);
}

static void restart(struct kv_fixture *x, bool keep_dram)
{
	ck_assert_int_eq(mc_kv_close(x->kv, 20000), 0);
	x->kv = NULL;
	if (!keep_dram)
		kv_fixture_forget_dram(x);
	kv_fixture_start(x);
}

static const size_t sizes[] = {0, 100, 65535, 70000, MIB, 3 * MIB + 17, 8 * MIB, 20 * MIB + 5};
#define SIZES (sizeof(sizes) / sizeof(*sizes))

static void put_all(struct mc_kv *kv)
{
	char key[16];

	for (size_t i = 0; i < SIZES; i++) {
		snprintf(key, sizeof(key), "k%zu", i);
		ck_assert_int_eq(kv_put(kv, key, sizes[i], (uint32_t)i, 0), 0);
	}
}

static void expect_all(struct mc_kv *kv)
{
	char key[16];

	for (size_t i = 0; i < SIZES; i++) {
		snprintf(key, sizeof(key), "k%zu", i);
		kv_expect(kv, key, sizes[i], (uint32_t)i);
	}
}

static void evict_all(struct mc_kv *kv)
{
	char key[16];

	for (size_t i = 0; i < SIZES; i++) {
		snprintf(key, sizeof(key), "k%zu", i);
		ck_assert_int_eq(mc_kv_evict(kv, key), 0);
		ck_assert_uint_eq(attr_of(kv, key).dram, 0);
	}
}

static void round_trip(bool nvme, bool remote)
{
	struct kv_fixture x;
	struct mc_kv_stats s;

	kv_fixture_paths(&x, 128 * MIB);
	if (nvme)
		with_nvme(&x);
	if (remote)
		kv_fixture_remote(&x);
	kv_fixture_start(&x);
	put_all(x.kv);
	evict_all(x.kv);
	expect_all(x.kv);
	mc_kv_stats(x.kv, &s);
	ck_assert_uint_eq(s.dirty_bytes, 0);
	ck_assert_uint_eq(nvme ? s.hits_nvme : s.hits_remote, SIZES);
	ck_assert_uint_eq(attr_of(x.kv, "k4").dram, MIB); /* promoted */
	ck_assert_uint_eq(attr_of(x.kv, "k7").dram, 0);   /* read by range */
	evict_all(x.kv);
	expect_all(x.kv);
	if (nvme) {
		restart(&x, false);
		expect_all(x.kv);
	}
	kv_fixture_close(&x);
}

START_TEST(objects_go_to_nvme_and_come_back)
{
	round_trip(true, false);
}
END_TEST

START_TEST(without_nvme_objects_go_to_the_remote_and_come_back)
{
	round_trip(false, true);
}
END_TEST

START_TEST(the_last_copy_is_not_evicted)
{
	struct kv_fixture x;

	kv_fixture_open(&x, 64 * MIB);
	ck_assert_int_eq(kv_put(x.kv, "a", 100000, 1, 0), 0);
	ck_assert_int_eq(mc_kv_evict(x.kv, "a"), -EBUSY);
	ck_assert_int_eq(mc_kv_sync(x.kv, "a"), -EIO);
	kv_expect(x.kv, "a", 100000, 1);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(more_than_dram_holds_passes_through_it)
{
	struct kv_fixture x;
	struct mc_kv_stats s;
	char key[16];

	kv_fixture_paths(&x, 32 * MIB);
	with_nvme(&x);
	kv_fixture_start(&x);
	for (unsigned i = 0; i < 200; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(kv_put_wait(x.kv, key, MIB, i), 0);
	}
	for (unsigned i = 0; i < 200; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		kv_expect(x.kv, key, MIB, i);
	}
	mc_kv_stats(x.kv, &s);
	ck_assert_uint_le(s.dram_used, s.dram_capacity);
	ck_assert_uint_gt(s.evicted_objects, 100);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(what_was_removed_replaced_or_renamed_stays_so_after_a_restart)
{
	struct kv_fixture x;
	struct mc_kv_attr a;

	kv_fixture_paths(&x, 128 * MIB);
	with_nvme(&x);
	kv_fixture_start(&x);
	ck_assert_int_eq(mc_kv_mkdir(x.kv, "d"), 0);
	ck_assert_int_eq(mc_kv_mkdir(x.kv, "e"), 0);
	ck_assert_int_eq(mc_kv_mkdir(x.kv, "empty"), 0);
	put_all(x.kv);
	for (int durable = 0; durable < 2; durable++) {
		ck_assert_int_eq(kv_put(x.kv, "removed", 1000, 20, 0), 0);
		ck_assert_int_eq(kv_put(x.kv, "d/replaced", 2000, 21, 0), 0);
		ck_assert_int_eq(kv_put(x.kv, "from", 100000, 22, 0), 0);
		ck_assert_int_eq(kv_put(x.kv, "to", 100, 23, 0), 0);
		if (durable) {
			ck_assert_int_eq(mc_kv_sync(x.kv, "removed"), 0);
			ck_assert_int_eq(mc_kv_sync(x.kv, "d/replaced"), 0);
			ck_assert_int_eq(mc_kv_sync(x.kv, "from"), 0);
			ck_assert_int_eq(mc_kv_sync(x.kv, "to"), 0);
		}
		ck_assert_int_eq(mc_kv_unlink(x.kv, "removed"), 0);
		ck_assert_int_eq(kv_put(x.kv, "d/replaced", 2000, 24, 0), 0);
		ck_assert_int_eq(mc_kv_rename(x.kv, "from", "to", 0), 0);
		restart(&x, false);
		ck_assert_int_eq(mc_kv_sync(x.kv, "to"), 0); /* waits for recovery */
		ck_assert_int_eq(mc_kv_lookup(x.kv, "removed", &a), -ENOENT);
		ck_assert_int_eq(mc_kv_lookup(x.kv, "from", &a), -ENOENT);
		ck_assert_int_eq(mc_kv_lookup(x.kv, "empty", &a), 0);
		ck_assert_int_eq(a.is_dir, true);
		kv_expect(x.kv, "d/replaced", 2000, 24);
		kv_expect(x.kv, "to", 100000, 22);
	}
	ck_assert_int_eq(mc_kv_rmdir(x.kv, "empty"), 0);
	restart(&x, true);
	expect_all(x.kv);
	ck_assert_int_eq(mc_kv_lookup(x.kv, "empty", &a), -ENOENT);
	ck_assert_int_eq(mc_kv_lookup(x.kv, "e", &a), 0);
	kv_fixture_close(&x);
}
END_TEST

/* What fsync acknowledged survives SIGKILL even when DRAM does not. */
START_TEST(what_was_synced_survives_the_loss_of_dram)
{
	struct kv_fixture x;
	int status;
	pid_t pid;

	kv_fixture_paths(&x, 128 * MIB);
	with_nvme(&x);
	pid = fork();
	if (pid == 0) {
		struct mc_kv_writer *w;
		struct timespec t = {0};

		kv_fixture_start(&x);
		kv_put(x.kv, "a", 3 * MIB, 1, 0);
		mc_kv_sync(x.kv, "a");
		kv_put(x.kv, "b", 100, 2, 0);
		mc_kv_sync(x.kv, "b");
		mc_kv_rename(x.kv, "b", "c", 0);
		mc_kv_create(x.kv, 0, &w);
		kv_fill_fd(mc_kv_writer_fd(w), 5000, 3);
		if (mc_kv_writer_sync(w, "d") == 0)
			mc_kv_publish(w, "d", &t, 0, false, NULL);
		mc_kv_unlink(x.kv, "a");
		kill(getpid(), SIGKILL);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	kv_fixture_forget_dram(&x);
	kv_fixture_start(&x);
	ck_assert_int_eq(mc_kv_sync(x.kv, "a"), -ENOENT);
	kv_expect(x.kv, "c", 100, 2);
	kv_expect(x.kv, "d", 5000, 3);
	ck_assert_int_eq(mc_kv_sync(x.kv, "b"), -ENOENT);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(another_node_reads_what_this_one_copied_to_the_remote)
{
	struct kv_fixture x, y;
	struct mc_kv_attr a, b;

	kv_fixture_paths(&x, 128 * MIB);
	with_nvme(&x);
	kv_fixture_remote(&x);
	x.opts.replicas = 1;
	x.opts.ack = MC_KV_ACK_REMOTE;
	kv_fixture_start(&x);
	kv_fixture_paths(&y, 128 * MIB);
	y.opts.remote = x.remote;
	y.opts.node = "0badcafe";
	kv_fixture_start(&y);
	put_all(x.kv);
	for (size_t i = 0; i < SIZES; i++) {
		char key[16];

		snprintf(key, sizeof(key), "k%zu", i);
		a = attr_of(x.kv, key);
		ck_assert_uint_eq(a.remotes, 1);
		ck_assert_int_eq(mc_kv_lookup(y.kv, key, &b), -ENOENT);
		ck_assert_int_eq(kv_ask(y.kv, key, &b), 0);
		ck_assert_mem_eq(a.version, b.version, 16);
		ck_assert_int_eq(a.mtime_s, b.mtime_s);
		ck_assert_uint_eq(a.mtime_ns, b.mtime_ns);
		ck_assert_uint_eq(a.ino, b.ino);
	}
	expect_all(y.kv);
	kv_fixture_close(&y);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(a_version_replaced_by_another_node_restarts_a_promotion_and_fails_a_range_reader)
{
	struct kv_fixture x, y;
	struct mc_kv_object *range;
	struct mc_kv_attr a;
	bool same;

	kv_fixture_paths(&x, 128 * MIB);
	kv_fixture_remote(&x);
	x.opts.ack = MC_KV_ACK_REMOTE;
	kv_fixture_start(&x);
	kv_fixture_paths(&y, 128 * MIB);
	y.opts.remote = x.remote;
	kv_fixture_start(&y);
	ck_assert_int_eq(kv_put(x.kv, "whole", 2 * MIB, 1, 0), 0);
	ck_assert_int_eq(kv_put(x.kv, "range", 12 * MIB, 2, 0), 0);
	ck_assert_int_eq(kv_ask(y.kv, "whole", &a), 0);
	ck_assert_int_eq(kv_ask(y.kv, "range", &a), 0);
	ck_assert_int_eq(kv_open_object(y.kv, "range", &range), 0);
	ck_assert_int_eq(kv_put(x.kv, "whole", 3 * MIB, 3, 0), 0);
	ck_assert_int_eq(kv_put(x.kv, "range", 12 * MIB, 4, 0), 0);
	kv_expect(y.kv, "whole", 3 * MIB, 3);
	ck_assert_int_eq(kv_check_object(range, 12 * MIB, 2, &same), -EIO);
	mc_kv_object_put(range);
	kv_fixture_close(&y);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(a_removed_key_leaves_the_remote_too_even_after_a_restart)
{
	struct kv_fixture x, y;
	struct mc_kv_attr a;
	struct mc_kv_stats s;

	for (int nvme = 0; nvme < 2; nvme++) {
		kv_fixture_paths(&x, 128 * MIB);
		if (nvme)
			with_nvme(&x);
		kv_fixture_remote(&x);
		x.opts.replicas = 1;
		x.opts.ack = MC_KV_ACK_REMOTE;
		kv_fixture_start(&x);
		ck_assert_int_eq(kv_put(x.kv, "a", 1000, 1, 0), 0);
		ck_assert_int_eq(kv_put(x.kv, "b", 1000, 2, 0), 0);
		ck_assert_int_eq(mc_kv_unlink(x.kv, "a"), 0);
		ck_assert_int_eq(kv_ask(x.kv, "a", &a), -ENOENT);
		ck_assert_int_eq(mc_kv_rename(x.kv, "b", "c", 0), 0);
		wait_remotes(x.kv, "c", 1);
		restart(&x, false);
		do {
			mc_kv_stats(x.kv, &s);
			usleep(200);
		} while (s.recovering);
		kv_fixture_paths(&y, 64 * MIB);
		y.opts.remote = x.remote;
		kv_fixture_start(&y);
		while (kv_ask(y.kv, "a", &a) == 0 || kv_ask(y.kv, "b", &a) == 0) {
			ck_assert_int_eq(mc_kv_close(y.kv, 0), 0);
			kv_fixture_start(&y);
		}
		ck_assert_int_eq(kv_ask(y.kv, "c", &a), 0);
		kv_expect(y.kv, "c", 1000, 2);
		kv_fixture_close(&y);
		kv_fixture_close(&x);
	}
}
END_TEST

START_TEST(damage_on_the_remote_is_an_error_and_never_wrong_bytes)
{
	struct kv_fixture x;
	struct mc_kv_object *obj;
	char path[256], hex[65];
	uint8_t digest[32];
	int fd;

	kv_fixture_paths(&x, 64 * MIB);
	kv_fixture_remote(&x);
	kv_fixture_start(&x);
	ck_assert_int_eq(kv_put(x.kv, "a", 2 * MIB, 1, 0), 0);
	ck_assert_int_eq(mc_kv_evict(x.kv, "a"), 0);
	mc_sha256("a", 1, digest);
	mc_hex_encode(digest, sizeof(digest), hex);
	snprintf(path, sizeof(path), "%s/kv/%.2s/%.2s/%s", x.remote_dir, hex, hex + 2, hex);
	fd = open(path, O_RDWR);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pwrite(fd, "wrong", 5, MIB + 7), 5);
	close(fd);
	ck_assert_int_eq(kv_open_object(x.kv, "a", &obj), -EIO);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(what_a_reader_still_maps_is_left_in_place)
{
	struct kv_fixture x;
	struct mc_kv_object *obj;
	struct mc_kv_attr a;
	char *map;
	int fd;

	kv_fixture_paths(&x, 64 * MIB);
	with_nvme(&x);
	kv_fixture_start(&x);
	ck_assert_int_eq(kv_put(x.kv, "a", MIB, 1, 0), 0);
	ck_assert_int_eq(mc_kv_sync(x.kv, "a"), 0);
	ck_assert_int_eq(kv_open_object(x.kv, "a", &obj), 0);
	ck_assert_int_eq(mc_kv_object_backing_get(obj, &fd), 0);
	ck_assert_int_eq(mc_kv_evict(x.kv, "a"), -EBUSY);
	map = mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	close(fd);
	mc_kv_object_backing_put(obj);
	mc_kv_object_put(obj);
	ck_assert_int_eq(mc_kv_evict(x.kv, "a"), -EBUSY); /* the mapping */
	/* Replaced: its file loses its name, the mapping keeps the bytes. */
	fd = map[4096];
	ck_assert_int_eq(kv_put(x.kv, "a", MIB, 2, 0), 0);
	ck_assert_int_eq(map[4096], fd);
	munmap(map, MIB);
	ck_assert_int_eq(mc_kv_evict(x.kv, "a"), 0);
	ck_assert_int_eq(mc_kv_lookup(x.kv, "a", &a), 0);
	ck_assert_uint_eq(a.dram, 0);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(a_pinned_object_stays_and_stays_pinned_after_a_restart)
{
	struct kv_fixture x;

	kv_fixture_paths(&x, 64 * MIB);
	with_nvme(&x);
	kv_fixture_start(&x);
	ck_assert_int_eq(kv_put(x.kv, "a", 1000, 1, 0), 0);
	ck_assert_int_eq(mc_kv_sync(x.kv, "a"), 0);
	ck_assert_int_eq(mc_kv_pin(x.kv, "a", true), 0);
	ck_assert_int_eq(mc_kv_evict(x.kv, "a"), -EBUSY);
	restart(&x, false);
	kv_expect(x.kv, "a", 1000, 1);
	ck_assert_int_eq(attr_of(x.kv, "a").pinned, true);
	ck_assert_int_eq(mc_kv_evict(x.kv, "a"), -EBUSY);
	ck_assert_int_eq(mc_kv_pin(x.kv, "a", false), 0);
	ck_assert_int_eq(mc_kv_evict(x.kv, "a"), 0);
	kv_fixture_close(&x);
}
END_TEST

SUITE_MAIN("kv-tiers", objects_go_to_nvme_and_come_back,
	without_nvme_objects_go_to_the_remote_and_come_back, the_last_copy_is_not_evicted,
	more_than_dram_holds_passes_through_it,
	what_was_removed_replaced_or_renamed_stays_so_after_a_restart,
	what_was_synced_survives_the_loss_of_dram,
	another_node_reads_what_this_one_copied_to_the_remote,
	a_version_replaced_by_another_node_restarts_a_promotion_and_fails_a_range_reader,
	a_removed_key_leaves_the_remote_too_even_after_a_restart,
	damage_on_the_remote_is_an_error_and_never_wrong_bytes,
	what_a_reader_still_maps_is_left_in_place,
	a_pinned_object_stays_and_stays_pinned_after_a_restart)
