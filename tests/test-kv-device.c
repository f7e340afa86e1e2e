/* The KV log on a device: here a file, through the real system calls; test-kv-log-crash has the
 * crashes. */
#include "tests/kv-log-fixture.h"
#include "tests/io-switch.h"
#include "tests/suite.h"
#include "tier/block-super.h"
#include "tier/io.h"

#include <fcntl.h>

#define DEVICE_BYTES (48 * MIB)

static char *dir, path[4096];
static struct kv_owner owner;

static int format(uint64_t bytes, bool force, struct mc_err *err)
{
	const struct mc_block_format f = {.path = path, .bytes = bytes, .force = force};

	return mc_block_format(&f, err);
}

static void make(void)
{
	struct mc_err err = {0};

	dir = tier_dir_make("/dev/shm");
	snprintf(path, sizeof(path), "%s/device", dir);
	ck_assert_msg(format(DEVICE_BYTES, false, &err) == 0, "%s", err.text);
}

static int try_start(const uint8_t *uuid, struct mc_kv_log **ret, struct mc_err *err)
{
	const struct mc_kv_log_opts o = {.device = path, .device_uuid = uuid, .commit_ms = 1000000};

	return mc_kv_log_open(&o, NULL, ret, err);
}

static struct mc_kv_log *start(void)
{
	const struct mc_kv_log_opts o = {.device = path, .commit_ms = 1000000};
	struct mc_kv_log *log;

	ck_assert_int_eq(kv_try_open(&o, &owner, &log), 0);
	return log;
}

static void stop(struct mc_kv_log *log)
{
	mc_kv_log_close(log);
	kv_forget(&owner);
}

static void write_at(uint64_t at, const void *bytes, size_t len)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pwrite(fd, bytes, len, (off_t)at), (ssize_t)len);
	close(fd);
}

static void finish(void)
{
	tier_dir_remove(dir);
}

START_TEST(objects_of_every_size_read_back_before_and_after_restarts)
{
	static const uint64_t sizes[] = {1, 4096, 70000, 300000, MIB + 5, 5 * MIB, 9 * MIB + 77};
	struct mc_kv_log *log;
	char key[32];

	make();
	log = start();
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(kv_put(log, &owner, key, i + 1, sizes[i]), 0);
		ck_assert_int_eq(kv_check(log, &owner, key, i + 1), 0);
	}
	for (int round = 0; round < 2; round++) {
		stop(log);
		log = start();
		for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
			snprintf(key, sizeof(key), "k%u", i);
			ck_assert_int_eq(kv_check(log, &owner, key, i + 1), 0);
		}
	}
	stop(log);
	finish();
}
END_TEST

/* Payloads of which some are written from where they lie, across the ends of writes and segments.
 */
START_TEST(objects_put_together_read_back_whichever_way_they_were_written)
{
	enum { N = 60 };
	struct kv_put *puts[N];
	struct mc_kv_item *items[N];
	struct mc_kv_log *log;

	make();
	log = start();
	for (unsigned i = 0; i < N; i++) {
		uint64_t size = i % 7 == 0 ? 100 + i : 65536 * (1 + i * 5 % 13) + (i % 3) * 1000;
		char key[32];

		snprintf(key, sizeof(key), "k%u", i);
		puts[i] = kv_put_make(&owner, key, i + 1, size);
		items[i] = &puts[i]->item;
	}
	mc_kv_log_put(log, items, N);
	ck_assert_int_eq(mc_kv_log_sync(log), 0);
	for (unsigned i = 0; i < N; i++)
		ck_assert_int_eq(kv_put_free(puts[i]), 0);
	for (int life = 0; life < 2; life++) {
		for (unsigned i = 0; i < N; i++) {
			char key[32];

			snprintf(key, sizeof(key), "k%u", i);
			ck_assert_int_eq(kv_check(log, &owner, key, i + 1), 0);
		}
		stop(log);
		log = start();
	}
	stop(log);
	finish();
}
END_TEST

START_TEST(space_is_used_again_and_a_full_device_is_enospc)
{
	struct mc_kv_log *log;
	uint64_t capacity;
	unsigned n = 0;
	char key[32];

	make();
	log = start();
	capacity = kv_stats(log).capacity;
	ck_assert_uint_lt(capacity, DEVICE_BYTES);
	ck_assert_uint_gt(capacity, DEVICE_BYTES - 8 * MIB);
	for (int round = 0; round < 3; round++) {
		int r = 0;

		for (n = 0; r == 0; n++) {
			snprintf(key, sizeof(key), "k%u", n);
			r = kv_put(log, &owner, key, n + 1, 200000);
		}
		ck_assert_int_eq(r, -ENOSPC);
		ck_assert_uint_le(kv_stats(log).used, capacity);
		ck_assert_uint_gt(kv_stats(log).live, capacity / 2);
		for (unsigned i = 0; i < n - 1; i++) {
			struct kv_known k;

			snprintf(key, sizeof(key), "k%u", i);
			ck_assert_int_eq(kv_check(log, &owner, key, i + 1), 0);
			k = *kv_find_locked(&owner, key);
			ck_assert_int_eq(mc_kv_log_remove(log, key, k.version, &k.loc), 0);
		}
	}
	stop(log);
	finish();
}
END_TEST

static uint64_t file_takes(void)
{
	struct stat st;

	ck_assert_int_eq(stat(path, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

START_TEST(the_room_of_what_was_removed_is_discarded)
{
	uint64_t before, full;
	struct mc_kv_log *log;
	struct kv_known k;

	make();
	log = start();
	before = file_takes();
	ck_assert_int_eq(kv_put(log, &owner, "large", 1, 20 * MIB), 0);
	ck_assert_int_eq(kv_put(log, &owner, "small", 2, 1000), 0);
	ck_assert_int_eq(mc_kv_log_seal(log), 0);
	full = file_takes();
	ck_assert_uint_ge(full, before + 20 * MIB);
	k = *kv_find_locked(&owner, "large");
	ck_assert_int_eq(mc_kv_log_remove(log, "large", k.version, &k.loc), 0);
	while (file_takes() > full - 16 * MIB)
		ck_assert_int_eq(mc_kv_log_sync(log), 0);
	ck_assert_int_eq(kv_check(log, &owner, "small", 2), 0);
	stop(log);
	finish();
}
END_TEST

START_TEST(more_objects_than_the_journal_has_room_for_are_enospc)
{
	struct mc_kv_log *log;
	unsigned n = 0, batch = 0;
	struct kv_known k;
	char key[32];
	int r = 0;

	make();
	log = start();
	for (; r == 0; n++) {
		snprintf(key, sizeof(key), "k%u", n);
		r = kv_put(log, &owner, key, n + 1, 100);
		ck_assert_uint_lt(n, 20000);
	}
	ck_assert_int_eq(r, -ENOSPC);
	stop(log);
	log = start();
	ck_assert_uint_eq(kv_stats(log).objects, n - 1);
	for (; batch < 500; batch++) {
		snprintf(key, sizeof(key), "k%u", batch);
		ck_assert_int_eq(kv_check(log, &owner, key, batch + 1), 0);
		k = *kv_find_locked(&owner, key);
		ck_assert_int_eq(mc_kv_log_remove(log, key, k.version, &k.loc), 0);
	}
	ck_assert_int_eq(kv_put(log, &owner, "more", 1, 100), 0);
	stop(log);
	finish();
}
END_TEST

START_TEST(what_holds_no_block_tier_is_refused)
{
	struct mc_err err = {0};
	struct mc_kv_log *log;
	char *zeros = calloc(1, MIB);

	make();
	write_at(0, zeros, MIB);
	ck_assert_int_eq(try_start(NULL, &log, &err), -EMEDIUMTYPE);
	ck_assert_ptr_nonnull(strstr(err.text, "--format"));
	free(zeros);
	finish();
}
END_TEST

START_TEST(one_damaged_superblock_of_two_is_mended)
{
	static const uint64_t copies[2] = {0, 512 * 1024};
	struct mc_kv_log *log;

	make();
	for (unsigned i = 0; i < 4; i++) {
		write_at(copies[i % 2] + 100, "damage", 6);
		log = start();
		ck_assert_int_eq(kv_put(log, &owner, "k", i + 1, 5000), 0);
		stop(log);
	}
	log = start();
	ck_assert_int_eq(kv_check(log, &owner, "k", 4), 0);
	stop(log);
	finish();
}
END_TEST

START_TEST(another_store_or_a_shrunk_device_is_refused)
{
	static const uint8_t other[16] = "another one";
	struct mc_err err = {0}, short_err = {0};
	struct mc_kv_log *log;

	make();
	ck_assert_int_eq(try_start(other, &log, &err), -ESTALE);
	ck_assert_int_eq(truncate(path, (off_t)(DEVICE_BYTES - MIB)), 0);
	ck_assert_int_eq(try_start(NULL, &log, &short_err), -ENOSPC);
	finish();
}
END_TEST

START_TEST(a_device_in_use_is_refused_also_for_a_format)
{
	struct mc_err err = {0}, format_err = {0};
	struct mc_kv_log *log, *second;

	make();
	log = start();
	ck_assert_int_eq(try_start(NULL, &second, &err), -EBUSY);
	ck_assert_int_eq(format(0, true, &format_err), -EBUSY);
	stop(log);
	finish();
}
END_TEST

START_TEST(a_format_spares_what_has_a_signature_unless_forced)
{
	/* Swap space: version and last page, and the magic at the end of the first page. */
	static const uint32_t head[2] = {1, 1000};
	struct mc_err err = {0}, ours = {0}, none = {0};
	char *zeros = calloc(1, MIB);
	struct mc_kv_log *log;

	make();
	ck_assert_int_eq(format(0, false, &ours), -EEXIST);
	ck_assert_ptr_nonnull(strstr(ours.text, "block tier"));
	write_at(0, zeros, MIB);
	write_at(1024, head, sizeof(head));
	write_at(4086, "SWAPSPACE2", 10);
	ck_assert_int_eq(format(0, false, &err), -EEXIST);
	ck_assert_ptr_nonnull(strstr(err.text, "swap"));
	ck_assert_int_eq(format(0, true, &none), 0);
	log = start();
	ck_assert_int_eq(kv_put(log, &owner, "k", 1, 5000), 0);
	stop(log);
	free(zeros);
	finish();
}
END_TEST

START_TEST(a_formatted_device_holds_nothing_of_its_earlier_life)
{
	struct mc_err err = {0};
	struct mc_kv_log *log;
	char key[32];

	make();
	for (int life = 0; life < 3; life++) {
		log = start();
		ck_assert_uint_eq(kv_stats(log).objects, 0);
		for (unsigned i = 0; i < 40; i++) {
			snprintf(key, sizeof(key), "k%u", i);
			ck_assert_int_eq(kv_put(log, &owner, key, i + 1, 3000), 0);
		}
		stop(log);
		ck_assert_msg(format(0, true, &err) == 0, "%s", err.text);
	}
	finish();
}
END_TEST

START_TEST(a_device_that_is_lost_fails_puts_and_is_used_again_when_it_is_back)
{
	struct mc_kv_log_opts o = {.device = path, .commit_ms = 1000000, .probe_ms = 10};
	struct io_switch disk;
	struct mc_kv_log *log;
	char key[32];

	make();
	io_switch_init(&disk);
	o.io = &disk.io;
	ck_assert_int_eq(kv_try_open(&o, &owner, &log), 0);
	ck_assert_int_eq(kv_put(log, &owner, "before", 1, 9 * MIB), 0);
	disk.syncs = disk.writes = disk.reads = -EIO;
	for (unsigned i = 0; !kv_stats(log).bypassed; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(kv_put(log, &owner, key, 2, 5000), -EIO);
	}
	ck_assert_int_eq(kv_check(log, &owner, "before", 1), -EIO);
	disk.syncs = disk.writes = disk.reads = 0;
	while (kv_stats(log).bypassed)
		usleep(1000);
	ck_assert_int_eq(kv_check(log, &owner, "before", 1), 0);
	ck_assert_int_eq(kv_put(log, &owner, "after", 3, 5000), 0);
	stop(log);
	log = start();
	ck_assert_int_eq(kv_check(log, &owner, "before", 1), 0);
	ck_assert_int_eq(kv_check(log, &owner, "after", 3), 0);
	stop(log);
	finish();
}
END_TEST

SUITE_MAIN("kv-device", objects_of_every_size_read_back_before_and_after_restarts,
	objects_put_together_read_back_whichever_way_they_were_written,
	space_is_used_again_and_a_full_device_is_enospc, the_room_of_what_was_removed_is_discarded,
	more_objects_than_the_journal_has_room_for_are_enospc, what_holds_no_block_tier_is_refused,
	one_damaged_superblock_of_two_is_mended, another_store_or_a_shrunk_device_is_refused,
	a_device_in_use_is_refused_also_for_a_format,
	a_format_spares_what_has_a_signature_unless_forced,
	a_formatted_device_holds_nothing_of_its_earlier_life,
	a_device_that_is_lost_fails_puts_and_is_used_again_when_it_is_back)
