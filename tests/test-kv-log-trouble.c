/*
 * The KV log in trouble: failed writes and syncs, a disk full from outside, a spent error budget,
 * flipped and misdirected bytes in every file.
 */
#include "tests/io-switch.h"
#include "tests/kv-log-fixture.h"
#include "tests/suite.h"

#define CAPACITY (32 * MIB)

static struct io_switch trouble;
static char *dir;
static struct kv_owner owner;

static struct mc_kv_log *open_log(void)
{
	struct mc_kv_log_opts o = {.dir = dir,
		.capacity = CAPACITY,
		.commit_ms = 1000000,
		.probe_ms = 20,
		.io = &trouble.io};

	return kv_open_with(&o, &owner, 0);
}

static struct mc_kv_log *start(void)
{
	io_switch_init(&trouble);
	dir = tier_dir_make("/var/tmp");
	return open_log();
}

static struct mc_kv_log *restart(struct mc_kv_log *log)
{
	mc_kv_log_close(log);
	kv_forget(&owner);
	return open_log();
}

static void stop(struct mc_kv_log *log)
{
	mc_kv_log_close(log);
	kv_forget(&owner);
	tier_dir_remove(dir);
}

START_TEST(after_a_failed_sync_the_items_are_written_to_another_segment)
{
	struct mc_kv_log *log = start();
	struct mc_kv_loc before;

	ck_assert_int_eq(kv_put(log, &owner, "a", 1, 5000), 0);
	before = kv_find_locked(&owner, "a")->loc;
	trouble.once = 1;
	ck_assert_int_eq(kv_put(log, &owner, "b", 2, 5000), 0);
	ck_assert_uint_eq(trouble.failed, 1);
	ck_assert_uint_ne(kv_find_locked(&owner, "b")->loc.segment, before.segment);
	ck_assert_uint_eq(kv_stats(log).errors, 1);
	ck_assert_int_eq(kv_check(log, &owner, "a", 1), 0);
	ck_assert_int_eq(kv_check(log, &owner, "b", 2), 0);
	/* The retired segment is never filled again. */
	ck_assert_int_eq(kv_put(log, &owner, "c", 3, 5000), 0);
	ck_assert_uint_ne(kv_find_locked(&owner, "c")->loc.segment, before.segment);
	log = restart(log);
	ck_assert_uint_eq(owner.puts, 3);
	ck_assert_int_eq(kv_check(log, &owner, "b", 2), 0);
	stop(log);
}
END_TEST

START_TEST(a_retired_segment_ends_as_a_removed_file)
{
	struct mc_kv_log *log = start();
	char path[4096];

	trouble.once = 1;
	ck_assert_int_eq(kv_put(log, &owner, "a", 1, 5000), 0);
	ck_assert_int_eq(mc_kv_log_seal(log), 0);
	snprintf(path, sizeof(path), "%s/segments/00000001", dir);
	ck_assert_int_eq(access(path, F_OK), -1);
	ck_assert_uint_eq(kv_stats(log).used, MIB);
	stop(log);
}
END_TEST

START_TEST(a_spent_error_budget_bypasses_until_a_probe_succeeds)
{
	struct mc_kv_log *log = start();
	unsigned n = 0;

	ck_assert_int_eq(kv_put(log, &owner, "a", 1, 5000), 0);
	trouble.syncs = -EIO;
	while (!kv_stats(log).bypassed && n++ < 100)
		ck_assert_int_eq(kv_put(log, &owner, "b", 2, 5000), -EIO);
	ck_assert(kv_stats(log).bypassed);
	ck_assert_int_eq(kv_check(log, &owner, "a", 1), 0);
	trouble.syncs = 0;
	while (kv_stats(log).bypassed)
		mc_kv_log_sync(log);
	ck_assert_int_eq(kv_put(log, &owner, "b", 3, 5000), 0);
	ck_assert_int_eq(kv_check(log, &owner, "b", 3), 0);
	log = restart(log);
	ck_assert_int_eq(kv_check(log, &owner, "a", 1), 0);
	ck_assert_int_eq(kv_check(log, &owner, "b", 3), 0);
	stop(log);
}
END_TEST

START_TEST(a_disk_full_from_outside_is_enospc_and_harmless)
{
	struct mc_kv_log *log = start();

	ck_assert_int_eq(kv_put(log, &owner, "a", 1, 200000), 0);
	trouble.space = -ENOSPC;
	ck_assert_int_eq(kv_put(log, &owner, "b", 2, 200000), 0); /* the open segment has room */
	ck_assert_int_eq(mc_kv_log_seal(log), 0);
	ck_assert_int_eq(kv_put(log, &owner, "c", 3, 200000), -ENOSPC);
	ck_assert_int_eq(kv_put(log, &owner, "image", 4, 2 * MIB), -ENOSPC);
	ck_assert_int_eq(kv_check(log, &owner, "a", 1), 0);
	ck_assert(!kv_stats(log).bypassed);
	trouble.space = 0;
	ck_assert_int_eq(kv_put(log, &owner, "c", 3, 200000), 0);
	ck_assert_int_eq(kv_put(log, &owner, "image", 4, 2 * MIB), 0);
	log = restart(log);
	ck_assert_uint_eq(owner.puts, 4);
	stop(log);
}
END_TEST

/* Nothing small is put that would look at the disk again. */
START_TEST(an_object_in_parts_finds_the_room_that_a_full_disk_has_again)
{
	struct mc_kv_log *log = start();

	ck_assert_int_eq(kv_put(log, &owner, "a", 1, 200000), 0);
	trouble.space = -ENOSPC;
	ck_assert_int_eq(mc_kv_log_seal(log), 0);
	ck_assert_int_eq(kv_put(log, &owner, "image", 2, 2 * MIB), -ENOSPC);
	ck_assert_int_eq(kv_put(log, &owner, "image", 2, 2 * MIB), -ENOSPC);
	trouble.space = 0;
	ck_assert_int_eq(kv_put(log, &owner, "image", 2, 2 * MIB), 0);
	ck_assert_int_eq(kv_check(log, &owner, "image", 2), 0);
	stop(log);
}
END_TEST

/* Changes one byte of a file in dir. */
static void flip(const char *name, uint64_t off)
{
	char path[4096];
	unsigned char b;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, &b, 1, (off_t)off), 1);
	b ^= 0x40;
	ck_assert_int_eq(pwrite(fd, &b, 1, (off_t)off), 1);
	ck_assert_int_eq(fsync(fd), 0);
	close(fd);
}

START_TEST(a_damaged_header_is_found_by_reading_and_a_damaged_payload_by_reclaim)
{
	struct mc_kv_log *log = start();
	struct kv_known k;
	char name[64];

	ck_assert_int_eq(kv_put(log, &owner, "a", 1, 5000), 0);
	ck_assert_int_eq(kv_put(log, &owner, "b", 2, 5000), 0);
	ck_assert_int_eq(kv_put(log, &owner, "c", 3, 5000), 0);
	ck_assert_int_eq(mc_kv_log_seal(log), 0);
	k = *kv_find_locked(&owner, "a");
	snprintf(name, sizeof(name), "segments/%08x", k.loc.segment);
	mc_kv_log_close(log);
	flip(name, k.loc.off + 20);
	flip(name, kv_find_locked(&owner, "b")->loc.off + 128 + 4000);
	kv_forget(&owner);
	log = open_log();
	ck_assert_int_eq(kv_check(log, &owner, "a", 1), -EBADMSG);
	ck_assert_uint_eq(kv_stats(log).bad, 1);
	ck_assert_int_eq(mc_kv_log_reclaim(log), 0);
	ck_assert_uint_eq(kv_stats(log).bad, 3);
	ck_assert_uint_eq(owner.evicted, 2);
	ck_assert_int_eq(kv_check(log, &owner, "c", 3), 0);
	stop(log);
}
END_TEST

START_TEST(a_record_from_another_place_is_not_taken_for_the_one_asked_for)
{
	struct mc_kv_log *log = start();
	struct kv_known a, b;
	char *buf = malloc(5000);

	ck_assert_int_eq(kv_put(log, &owner, "a", 1, 5000), 0);
	ck_assert_int_eq(kv_put(log, &owner, "b", 2, 5000), 0);
	a = *kv_find_locked(&owner, "a");
	b = *kv_find_locked(&owner, "b");
	a.loc.off = b.loc.off;
	ck_assert_int_eq(kv_read(log, &a, 0, 5000, buf), -ESTALE);
	a.loc.off = b.loc.off + 64;
	ck_assert_int_eq(kv_read(log, &a, 0, 5000, buf), -EBADMSG);
	a.loc.segment += 100;
	ck_assert_int_eq(kv_read(log, &a, 0, 5000, buf), -ESTALE);
	free(buf);
	stop(log);
}
END_TEST

START_TEST(lost_files_lose_their_objects_only)
{
	struct mc_kv_log *log = start();
	char path[4096];

	ck_assert_int_eq(kv_put(log, &owner, "a", 1, 5000), 0);
	ck_assert_int_eq(mc_kv_log_seal(log), 0);
	ck_assert_int_eq(kv_put(log, &owner, "b", 2, 5000), 0);
	ck_assert_int_eq(kv_put(log, &owner, "image", 4, 2 * MIB), 0);
	snprintf(path, sizeof(path), "%s/segments/%08x", dir,
		kv_find_locked(&owner, "a")->loc.segment);
	mc_kv_log_close(log);
	kv_forget(&owner);
	ck_assert_int_eq(unlink(path), 0);
	/* Strangers in our folders are removed. */
	snprintf(path, sizeof(path), "%s/segments/stranger", dir);
	close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	log = open_log();
	ck_assert_int_eq(access(path, F_OK), -1);
	ck_assert_uint_eq(owner.puts, 2);
	ck_assert_int_eq(kv_check(log, &owner, "b", 2), 0);
	ck_assert_int_eq(kv_check(log, &owner, "image", 4), 0);
	stop(log);
}
END_TEST

/* A life that cannot open its segments; what it told its owner first is -EMFILE. */
static struct mc_kv_log *start_unread(void)
{
	struct mc_kv_log *log = start();
	struct mc_kv_log_opts o = {.dir = dir,
		.capacity = CAPACITY,
		.commit_ms = 1000000,
		.probe_ms = 20,
		.io = &trouble.io};

	ck_assert_int_eq(kv_put(log, &owner, "a", 1, 5000), 0);
	ck_assert_int_eq(kv_put(log, &owner, "large", 2, 2 * MIB), 0);
	ck_assert_int_eq(mc_kv_log_dir(log, "d", true), 0);
	mc_kv_log_close(log);
	kv_forget(&owner);
	trouble.segment_opens = -EMFILE;
	ck_assert_int_eq(kv_try_open(&o, &owner, &log), -EMFILE);
	ck_assert_uint_eq(owner.puts, 0);
	ck_assert(kv_stats(log).recovering);
	ck_assert_int_eq(mc_kv_log_remove(log, "a", (uint8_t[16]){0}, NULL), -EIO);
	ck_assert_int_eq(mc_kv_log_dir(log, "d", false), -EIO);
	return log;
}

START_TEST(what_cannot_be_read_at_the_start_is_tried_again_and_nothing_is_said_of_it)
{
	struct mc_kv_log *log = start_unread();
	struct kv_put *p = kv_put_make(&owner, "b", 3, 5000);
	struct mc_kv_item *item = &p->item;

	mc_kv_log_put(log, &item, 1);
	trouble.segment_opens = -EIO;
	mc_mutex_lock(&owner.lock);
	while (owner.done != -EIO)
		mc_cond_wait(&owner.told, &owner.lock);
	trouble.segment_opens = 0;
	while (owner.done != 0)
		mc_cond_wait(&owner.told, &owner.lock);
	mc_mutex_unlock(&owner.lock);
	ck_assert_int_eq(mc_kv_log_sync(log), 0); /* what was put meanwhile is */
	ck_assert_int_eq(kv_put_free(p), 0);
	ck_assert_uint_eq(owner.puts, 2);
	ck_assert_uint_eq(owner.dirs, 1);
	ck_assert_uint_eq(kv_stats(log).objects, 3);
	ck_assert_int_eq(kv_check(log, &owner, "a", 1), 0);
	ck_assert_int_eq(kv_check(log, &owner, "large", 2), 0);
	ck_assert_int_eq(kv_check(log, &owner, "b", 3), 0);
	log = restart(log);
	ck_assert_uint_eq(owner.puts, 3);
	ck_assert_uint_eq(kv_stats(log).bad, 0);
	stop(log);
}
END_TEST

START_TEST(a_log_that_could_not_be_read_can_be_closed_and_is_whole_at_the_next_start)
{
	struct mc_kv_log *log = start_unread();
	struct kv_put *p = kv_put_make(&owner, "b", 3, 5000);
	struct mc_kv_item *item = &p->item;

	mc_kv_log_put(log, &item, 1);
	mc_kv_log_close(log);
	ck_assert_int_eq(kv_put_free(p), -EIO);
	kv_forget(&owner);
	trouble.segment_opens = 0;
	log = open_log();
	ck_assert_uint_eq(owner.puts, 2);
	ck_assert_int_eq(kv_check(log, &owner, "a", 1), 0);
	ck_assert_int_eq(kv_check(log, &owner, "large", 2), 0);
	stop(log);
}
END_TEST

SUITE_MAIN("kv-log-trouble", after_a_failed_sync_the_items_are_written_to_another_segment,
	a_retired_segment_ends_as_a_removed_file,
	a_spent_error_budget_bypasses_until_a_probe_succeeds,
	a_disk_full_from_outside_is_enospc_and_harmless,
	an_object_in_parts_finds_the_room_that_a_full_disk_has_again,
	a_damaged_header_is_found_by_reading_and_a_damaged_payload_by_reclaim,
	a_record_from_another_place_is_not_taken_for_the_one_asked_for,
	lost_files_lose_their_objects_only,
	what_cannot_be_read_at_the_start_is_tried_again_and_nothing_is_said_of_it,
	a_log_that_could_not_be_read_can_be_closed_and_is_whole_at_the_next_start)
