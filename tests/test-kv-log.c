/* The KV log: puts, reads, replacing, renaming, removing, restarts, what it refuses. */
#include "tests/kv-log-fixture.h"
#include "tests/suite.h"
#include "tier/kv-log-check.h"

#define CAPACITY (32 * MIB)

static const uint64_t sizes[] = {
	0, 1, 4096, 4097, 65535, 65536, 100000, MIB, MIB + 1, 3 * MIB + 77};
#define N_SIZES (sizeof(sizes) / sizeof(*sizes))

static char *dir;
static struct kv_owner owner;

static struct mc_kv_log *open_log(void)
{
	/* Groups wait for a sync. */
	struct mc_kv_log_opts o = {.dir = dir, .capacity = CAPACITY, .commit_ms = 1000000};

	return kv_open_with(&o, &owner, 0);
}

static struct mc_kv_log *start(void)
{
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

static void put_sizes(struct mc_kv_log *log)
{
	char key[32];

	for (unsigned i = 0; i < N_SIZES; i++) {
		snprintf(key, sizeof(key), "a/%u", i);
		ck_assert_int_eq(kv_put(log, &owner, key, i, sizes[i]), 0);
	}
}

static void check_sizes(struct mc_kv_log *log)
{
	char key[32];

	for (unsigned i = 0; i < N_SIZES; i++) {
		snprintf(key, sizeof(key), "a/%u", i);
		ck_assert_int_eq(kv_check(log, &owner, key, i), 0);
	}
}

START_TEST(objects_of_every_size_read_back_before_and_after_restarts)
{
	struct mc_kv_log *log = start();

	put_sizes(log);
	check_sizes(log);
	for (int i = 0; i < 3; i++) {
		log = restart(log);
		ck_assert_uint_eq(owner.puts, N_SIZES);
		check_sizes(log);
	}
	stop(log);
}
END_TEST

START_TEST(a_range_reads_its_bytes_aligned_or_not)
{
	static const struct {
		uint64_t off;
		uint32_t len;
		unsigned shift; /* of the buffer */
	} ranges[] = {{0, 3 * MIB + 77, 0}, {0, 3 * MIB, 0}, {MIB, MIB, 0}, {2 * MIB, MIB + 77, 0},
		{2 * MIB, MIB + 77, 1}, {1, 5, 0}, {3 * MIB + 76, 1, 0}, {4095, 70000, 0},
		{4096, 70000, 0}, {0, 0, 0}};
	struct mc_kv_log *log = start();
	char *buf = aligned_alloc(4096, 4 * MIB);
	struct kv_known *k;

	ck_assert_int_eq(kv_put(log, &owner, "big", 7, 3 * MIB + 77), 0); /* in parts here */
	ck_assert_int_eq(kv_put(log, &owner, "small", 8, 300000), 0);
	for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++) {
		k = kv_find_locked(&owner, "big");
		ck_assert_int_eq(
			kv_read(log, k, ranges[i].off, ranges[i].len, buf + ranges[i].shift), 0);
		ck_assert(tier_matches(buf + ranges[i].shift, ranges[i].len, 7, ranges[i].off));
		k = kv_find_locked(&owner, "small");
		if (ranges[i].off + ranges[i].len > 300000)
			continue;
		ck_assert_int_eq(
			kv_read(log, k, ranges[i].off, ranges[i].len, buf + ranges[i].shift), 0);
		ck_assert(tier_matches(buf + ranges[i].shift, ranges[i].len, 8, ranges[i].off));
	}
	free(buf);
	stop(log);
}
END_TEST

START_TEST(a_replaced_key_has_only_the_new_version)
{
	struct mc_kv_log *log = start();
	struct kv_known old;

	ck_assert_int_eq(kv_put(log, &owner, "k", 1, 5000), 0);
	old = *kv_find_locked(&owner, "k");
	ck_assert_int_eq(kv_put(log, &owner, "k", 2, 6000), 0);
	ck_assert_int_eq(kv_check(log, &owner, "k", 2), 0);
	ck_assert_uint_eq(kv_stats(log).objects, 1);
	ck_assert_uint_eq(old.size, 5000);
	log = restart(log);
	ck_assert_uint_eq(owner.puts, 1);
	ck_assert_int_eq(kv_check(log, &owner, "k", 2), 0);
	stop(log);
}
END_TEST

START_TEST(a_rename_moves_the_name_and_replaces_the_target)
{
	struct mc_kv_log *log = start();
	uint64_t written;

	ck_assert_int_eq(kv_put(log, &owner, "from", 1, 5000), 0);
	ck_assert_int_eq(kv_put(log, &owner, "to", 2, 6000), 0);
	written = kv_stats(log).written;
	ck_assert_int_eq(mc_kv_log_rename(log, "from", "to"), 0);
	ck_assert_int_eq(mc_kv_log_rename(log, "nobody", "to"), 0);
	ck_assert_uint_eq(kv_stats(log).written, written);
	log = restart(log);
	ck_assert_uint_eq(owner.puts, 1);
	ck_assert_int_eq(kv_check(log, &owner, "to", 1), 0);
	ck_assert_int_eq(kv_check(log, &owner, "from", 1), -ENOENT);
	stop(log);
}
END_TEST

START_TEST(a_queued_put_follows_a_rename_and_a_removed_one_is_cancelled)
{
	struct mc_kv_log *log = start();
	struct kv_put *a = kv_put_make(NULL, "a", 1, 5000), *b = kv_put_make(NULL, "b", 2, 5000);
	struct mc_kv_item *items[] = {&a->item, &b->item};
	uint8_t version[16];

	kv_version(2, version);
	mc_kv_log_put(log, items, 2);
	ck_assert_int_eq(mc_kv_log_rename(log, "a", "c"), 0);
	ck_assert_int_eq(mc_kv_log_remove(log, "b", version, NULL), 0);
	ck_assert_int_eq(mc_kv_log_sync(log), 0);
	ck_assert_int_eq(kv_put_free(a), 0);
	ck_assert_int_eq(kv_put_free(b), -ECANCELED);
	log = restart(log);
	ck_assert_uint_eq(owner.puts, 1);
	ck_assert_int_eq(kv_check(log, &owner, "c", 1), 0);
	stop(log);
}
END_TEST

START_TEST(what_was_removed_or_evicted_stays_away)
{
	struct mc_kv_log *log = start();
	struct kv_known k;

	ck_assert_int_eq(kv_put(log, &owner, "a", 1, 5000), 0);
	ck_assert_int_eq(kv_put(log, &owner, "b", 2, 3 * MIB), 0);
	ck_assert_int_eq(kv_put(log, &owner, "c", 3, 5000), 0);
	k = *kv_find_locked(&owner, "a");
	ck_assert_int_eq(mc_kv_log_remove(log, "a", k.version, &k.loc), 0);
	k = *kv_find_locked(&owner, "b");
	ck_assert_int_eq(mc_kv_log_evict(log, "b", k.version, &k.loc), 0);
	ck_assert_int_eq(mc_kv_log_evict(log, "b", k.version, &k.loc), -ENOENT);
	k = *kv_find_locked(&owner, "c");
	/* Removing another version than the one that is there. */
	ck_assert_int_eq(mc_kv_log_remove(log, "c", (uint8_t[16]){9}, &k.loc), 0);
	log = restart(log);
	ck_assert_uint_eq(owner.puts, 1);
	ck_assert_int_eq(kv_check(log, &owner, "c", 3), 0);
	ck_assert_int_eq(mc_kv_log_remove(log, "c", (uint8_t[16]){9}, NULL), 0);
	log = restart(log);
	ck_assert_uint_eq(owner.puts, 0);
	ck_assert_uint_eq(kv_stats(log).live, 0);
	stop(log);
}
END_TEST

START_TEST(directories_pins_and_remote_copies_are_remembered)
{
	struct mc_kv_log *log = start();
	uint8_t version[16];

	kv_version(1, version);
	ck_assert_int_eq(kv_put(log, &owner, "d/a", 1, 5000), 0);
	ck_assert_int_eq(mc_kv_log_dir(log, "d", true), 0);
	ck_assert_int_eq(mc_kv_log_dir(log, "e", true), 0);
	ck_assert_int_eq(mc_kv_log_dir(log, "e", false), 0);
	ck_assert_int_eq(mc_kv_log_pin(log, "d/a", true), 0);
	ck_assert_int_eq(mc_kv_log_pin(log, "d/b", true), 0);
	ck_assert_int_eq(mc_kv_log_pin(log, "d/b", false), 0);
	ck_assert_int_eq(mc_kv_log_remote(log, "d/a", version, 3), 0);
	for (int i = 0; i < 2; i++) {
		log = restart(log);
		ck_assert_uint_eq(owner.dirs, 1);
		ck_assert_uint_eq(owner.pins, 1);
		ck_assert_uint_eq(owner.copies, 3);
	}
	stop(log);
}
END_TEST

START_TEST(a_second_log_on_the_directory_is_refused)
{
	struct mc_kv_log *log = start(), *second;
	struct mc_kv_log_opts o = {.dir = dir, .capacity = CAPACITY};
	struct mc_err err = {0};
	char want[32];

	ck_assert_int_eq(mc_kv_log_open(&o, NULL, &second, &err), -EBUSY);
	snprintf(want, sizeof(want), "process %d", (int)getpid());
	ck_assert_ptr_nonnull(strstr(err.text, want));
	stop(log);
}
END_TEST

static uint64_t wait_reclaimed(struct mc_kv_log *log, uint64_t at_least)
{
	while (kv_stats(log).reclaimed < at_least)
		mc_kv_log_sync(log);
	return kv_stats(log).reclaimed;
}

START_TEST(a_segment_without_live_records_is_reused_and_its_old_places_are_stale)
{
	struct mc_kv_log *log = start();
	struct kv_known old;
	char *buf = malloc(100000);

	ck_assert_int_eq(kv_put(log, &owner, "a", 1, 100000), 0);
	old = *kv_find_locked(&owner, "a");
	ck_assert_int_eq(mc_kv_log_seal(log), 0);
	ck_assert_int_eq(mc_kv_log_remove(log, "a", old.version, &old.loc), 0);
	wait_reclaimed(log, 1);
	ck_assert_int_eq(kv_read(log, &old, 0, 100000, buf), -ESTALE);
	ck_assert_int_eq(kv_put(log, &owner, "a", 2, 100000), 0);
	ck_assert_uint_eq(kv_find_locked(&owner, "a")->loc.segment, old.loc.segment);
	ck_assert_uint_gt(kv_find_locked(&owner, "a")->loc.generation, old.loc.generation);
	ck_assert_int_eq(kv_read(log, &old, 0, 100000, buf), -ESTALE);
	ck_assert_int_eq(kv_check(log, &owner, "a", 2), 0);
	free(buf);
	stop(log);
}
END_TEST

static bool keep_even(const char *key)
{
	return (key[strlen(key) - 1] - '0') % 2 == 0;
}

START_TEST(reclaim_copies_what_the_owner_keeps_and_evicts_the_rest)
{
	struct mc_kv_log *log = start();
	char key[32];

	owner.keep = keep_even;
	for (unsigned i = 0; i < 10; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(kv_put(log, &owner, key, i, 50000), 0);
	}
	ck_assert_int_eq(mc_kv_log_seal(log), 0);
	ck_assert_int_eq(mc_kv_log_rename(log, "k2", "renamed4"), 0);
	kv_set(&owner, "renamed4", kv_find_locked(&owner, "k2")->version, 50000,
		&kv_find_locked(&owner, "k2")->loc);
	kv_find_locked(&owner, "k2")->there = false;
	ck_assert_int_eq(mc_kv_log_reclaim(log), 0);
	ck_assert_uint_eq(owner.evicted, 5);
	ck_assert_uint_eq(owner.moved, 5);
	ck_assert_uint_ge(wait_reclaimed(log, 1), 1);
	for (int round = 0; round < 2; round++) {
		for (unsigned i = 0; i < 10; i++) {
			snprintf(key, sizeof(key), "k%u", i);
			ck_assert_int_eq(
				kv_check(log, &owner, key, i), i % 2 == 0 && i != 2 ? 0 : -ENOENT);
		}
		ck_assert_int_eq(kv_check(log, &owner, "renamed4", 2), 0);
		log = restart(log);
		ck_assert_uint_eq(owner.puts, 5);
	}
	owner.keep = NULL;
	stop(log);
}
END_TEST

static bool keep_nothing(const char *key)
{
	(void)key;
	return false;
}

START_TEST(a_full_log_is_enospc_and_changes_nothing_until_there_is_room)
{
	struct mc_kv_log *log = start();
	unsigned n = 0;
	char key[32];
	int r = 0;

	owner.keep = NULL; /* everything */
	for (; n < 1000 && r == 0; n++) {
		snprintf(key, sizeof(key), "k%u", n);
		r = kv_put(log, &owner, key, n, 300000);
	}
	ck_assert_int_eq(r, -ENOSPC);
	ck_assert_uint_le(kv_stats(log).used, CAPACITY);
	ck_assert_uint_gt(kv_stats(log).live, CAPACITY / 2);
	for (unsigned i = 0; i < n - 1; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(kv_check(log, &owner, key, i), 0);
	}
	owner.keep = keep_nothing;
	while (kv_put(log, &owner, "more", 5000, 300000) != 0)
		; /* hopelessness lasts a moment */
	ck_assert_int_eq(kv_check(log, &owner, "more", 5000), 0);
	ck_assert_uint_gt(owner.evicted, 0);
	owner.keep = NULL;
	stop(log);
}
END_TEST

START_TEST(large_and_small_objects_share_the_capacity)
{
	struct mc_kv_log *log = start();
	unsigned n = 0;
	char key[32];
	int r = 0;

	for (; n < 100 && r == 0; n++) {
		snprintf(key, sizeof(key), "k%u", n);
		r = kv_put(log, &owner, key, n, 5 * MIB);
	}
	ck_assert_int_eq(r, -ENOSPC);
	ck_assert_uint_eq(n, 6); /* 21 parts each, four a segment, one segment spare */
	ck_assert_uint_le(kv_stats(log).used, CAPACITY);
	ck_assert_int_eq(kv_put(log, &owner, "small", 1000, 4096), 0);
	ck_assert_int_eq(kv_check(log, &owner, "small", 1000), 0);
	for (unsigned i = 0; i < n - 1; i++) {
		struct kv_known k;

		snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(kv_check(log, &owner, key, i), 0);
		k = *kv_find_locked(&owner, key);
		ck_assert_int_eq(mc_kv_log_remove(log, key, k.version, &k.loc), 0);
	}
	while (kv_stats(log).parts > 0)
		mc_kv_log_sync(log);
	for (unsigned i = 0; i < n - 1; i++) {
		snprintf(key, sizeof(key), "again%u", i);
		ck_assert_int_eq(kv_put(log, &owner, key, i, 5 * MIB), 0);
	}
	stop(log);
}
END_TEST

static void count_bad(void *ctx, const struct mc_kv_meta *meta, const struct mc_kv_loc *loc)
{
	(void)meta;
	(void)loc;
	++*(unsigned *)ctx;
}

/* In segments large enough parts are whole MiB, and have their checksums from the object. */
START_TEST(the_checksums_of_parts_are_those_of_their_bytes)
{
	static const uint64_t segments[] = {MIB, 16 * MIB};

	for (unsigned i = 0; i < 2; i++) {
		struct mc_kv_log_opts o = {
			.capacity = 64 * MIB, .segment_bytes = segments[i], .commit_ms = 1000000};
		struct mc_kv_log_checked sum = {0};
		struct mc_kv_log_check *check;
		struct mc_kv_log *log;
		unsigned bad = 0;
		int r;

		dir = tier_dir_make("/var/tmp");
		o.dir = dir;
		log = kv_open_with(&o, &owner, 0);
		ck_assert_int_eq(kv_put(log, &owner, "large", 1 + i, 9 * MIB + 77), 0);
		ck_assert_int_eq(mc_kv_log_check_open(log, NULL, count_bad, &bad, &check), 0);
		while ((r = mc_kv_log_check_next(check, &sum)) == 0)
			;
		ck_assert_int_eq(r, -ENOENT);
		mc_kv_log_check_close(check);
		ck_assert_uint_gt(sum.records, 2);
		ck_assert_uint_gt(sum.bytes, 9 * MIB);
		ck_assert_uint_eq(sum.failed + bad, 0);
		stop(log);
	}
}
END_TEST

START_TEST(what_is_gone_cannot_be_held_and_what_is_held_is_not_gone)
{
	struct mc_kv_log *log = start();
	char *buf = aligned_alloc(4096, 4 * MIB);
	struct kv_known k;

	ck_assert_int_eq(kv_put(log, &owner, "large", 1, 3 * MIB), 0);
	k = *kv_find_locked(&owner, "large");
	ck_assert_int_eq(mc_kv_log_hold(log, k.version, &k.loc), 0);
	ck_assert_int_eq(mc_kv_log_remove(log, "large", k.version, &k.loc), 0);
	ck_assert_int_eq(mc_kv_log_seal(log), 0);
	ck_assert_int_eq(kv_read(log, &k, 0, 3 * MIB, buf), 0);
	ck_assert(tier_matches(buf, 3 * MIB, 1, 0));
	mc_kv_log_release(log, k.version, &k.loc);
	while (kv_stats(log).parts > 0)
		mc_kv_log_seal(log);
	ck_assert_int_eq(mc_kv_log_hold(log, k.version, &k.loc), -ESTALE);
	free(buf);
	stop(log);
}
END_TEST

SUITE_MAIN("kv-log", objects_of_every_size_read_back_before_and_after_restarts,
	a_range_reads_its_bytes_aligned_or_not, a_replaced_key_has_only_the_new_version,
	a_rename_moves_the_name_and_replaces_the_target,
	a_queued_put_follows_a_rename_and_a_removed_one_is_cancelled,
	what_was_removed_or_evicted_stays_away, directories_pins_and_remote_copies_are_remembered,
	a_second_log_on_the_directory_is_refused,
	a_segment_without_live_records_is_reused_and_its_old_places_are_stale,
	reclaim_copies_what_the_owner_keeps_and_evicts_the_rest,
	a_full_log_is_enospc_and_changes_nothing_until_there_is_room,
	large_and_small_objects_share_the_capacity, the_checksums_of_parts_are_those_of_their_bytes,
	what_is_gone_cannot_be_held_and_what_is_held_is_not_gone)
