/*
 * Power fails after something the KV log had to say was lost: a record that found no memory, the
 * sync of a name that an earlier life owed. What was acknowledged is there all the same.
 */
#include "tests/io-fault.h"
#include "tests/kv-log-fixture.h"
#include "tests/suite.h"
#include "tier/journal-page.h"
#include "tier/kv-log-journal.h"

#define SEGMENT 65536u
#define SEEDS 8u /* of what a crash keeps of the names */

/* The next record of this type finds no memory. */
static unsigned no_memory;
int __real_mc_journal_buf_add(struct mc_journal_buf *b, uint8_t type, const void *rec, size_t len);
int __wrap_mc_journal_buf_add(struct mc_journal_buf *b, uint8_t type, const void *rec, size_t len);
int __wrap_mc_journal_buf_add(struct mc_journal_buf *b, uint8_t type, const void *rec, size_t len)
{
	unsigned wanted = type;

	if (type == 0 ||
		!__atomic_compare_exchange_n(
			&no_memory, &wanted, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return __real_mc_journal_buf_add(b, type, rec, len);
	return -ENOMEM;
}

/* A life that ends before it has synced the name of any segment. */
static bool names_unsynced;
int __real_mc_io_sync_dir(const struct mc_io *io, const char *path);
int __wrap_mc_io_sync_dir(const struct mc_io *io, const char *path);
int __wrap_mc_io_sync_dir(const struct mc_io *io, const char *path)
{
	bool segments = strcmp(strrchr(path, '/'), "/segments") == 0;

	return names_unsynced && segments ? 0 : __real_mc_io_sync_dir(io, path);
}

static struct io_fault *fault;
static char *dir;
static struct kv_owner owner;

static struct mc_kv_log *open_log(void)
{
	struct mc_kv_log_opts o = {.dir = dir,
		.capacity = 8 * SEGMENT,
		.segment_bytes = SEGMENT,
		.io = io_fault_table(fault),
		.commit_ms = 1000000,
		.probe_ms = 1000000};

	return kv_open_with(&o, &owner, 0);
}

static struct mc_kv_log *start(void)
{
	no_memory = 0;
	dir = tier_dir_make("/dev/shm");
	fault = io_fault_open(dir);
	io_fault_arm(fault, IO_FAULT_NONE, 0, 1);
	return open_log();
}

/* Before close can do anything. */
static struct mc_kv_log *crash(struct mc_kv_log *log, unsigned seed)
{
	io_fault_arm(fault, IO_FAULT_CRASH, 1, seed);
	mc_kv_log_close(log);
	kv_forget(&owner);
	io_fault_restart(fault);
	return open_log();
}

static void stop(struct mc_kv_log *log)
{
	mc_kv_log_close(log);
	kv_forget(&owner);
	io_fault_close(fault);
	tier_dir_remove(dir);
}

START_TEST(a_copy_whose_record_found_no_memory_outlives_its_segment)
{
	struct mc_kv_log *log = start();

	ck_assert_int_eq(kv_put(log, &owner, "a", 1, 5000), 0);
	ck_assert_int_eq(mc_kv_log_seal(log), 0);
	no_memory = MC_JOURNAL_KV_PUT;
	ck_assert_int_eq(mc_kv_log_reclaim(log), 0);
	ck_assert_int_eq(mc_kv_log_sync(log), 0);
	ck_assert_int_eq(mc_kv_log_seal(log), 0);
	ck_assert_uint_eq(no_memory, 0);
	ck_assert_uint_eq(owner.moved, 1);
	ck_assert_uint_eq(kv_stats(log).reclaimed, 1);
	log = crash(log, 1);
	ck_assert_int_eq(kv_check(log, &owner, "a", 1), 0);
	stop(log);
}
END_TEST

START_TEST(a_put_whose_record_found_no_memory_loses_neither_version)
{
	struct mc_kv_log *log = start();

	ck_assert_int_eq(kv_put(log, &owner, "a", 1, 5000), 0);
	ck_assert_int_eq(mc_kv_log_seal(log), 0);
	no_memory = MC_JOURNAL_KV_PUT;
	ck_assert_int_eq(kv_put(log, &owner, "a", 3, 5000), 0); /* a snapshot says so */
	ck_assert_uint_eq(no_memory, 0);
	ck_assert_int_eq(mc_kv_log_seal(log), 0);
	ck_assert_uint_eq(kv_stats(log).reclaimed, 1);
	ck_assert_uint_eq(kv_stats(log).errors, 0); /* the disk is not to blame */
	log = crash(log, 1);
	ck_assert_int_eq(kv_check(log, &owner, "a", 3), 0);
	stop(log);
}
END_TEST

START_TEST(an_object_in_parts_whose_record_found_no_memory_keeps_its_parts)
{
	struct mc_kv_log *log = start();

	ck_assert_int_eq(kv_put(log, &owner, "b", 1, 5000), 0);
	no_memory = MC_JOURNAL_KV_PUT;
	ck_assert_int_eq(kv_put(log, &owner, "a", 2, 40000), 0);
	ck_assert_uint_eq(no_memory, 0);
	ck_assert_int_eq(mc_kv_log_seal(log), 0);
	ck_assert_int_eq(kv_check(log, &owner, "a", 2), 0);
	log = crash(log, 1);
	ck_assert_int_eq(kv_check(log, &owner, "a", 2), 0);
	ck_assert_int_eq(kv_check(log, &owner, "b", 1), 0);
	stop(log);
}
END_TEST

START_TEST(a_rename_whose_record_found_no_memory_is_durable_when_it_returns)
{
	struct mc_kv_log *log = start();

	ck_assert_int_eq(kv_put(log, &owner, "a", 1, 5000), 0);
	ck_assert_int_eq(kv_put(log, &owner, "b", 3, 5000), 0);
	no_memory = MC_JOURNAL_KV_RENAME;
	ck_assert_int_eq(mc_kv_log_rename(log, "a", "b"), 0);
	no_memory = MC_JOURNAL_KV_MARK;
	ck_assert_int_eq(mc_kv_log_dir(log, "d", true), 0);
	no_memory = MC_JOURNAL_KV_REMOTE;
	ck_assert_int_eq(mc_kv_log_remote(log, "b", kv_find_locked(&owner, "a")->version, 2), 0);
	ck_assert_uint_eq(no_memory, 0);
	log = crash(log, 1);
	ck_assert_uint_eq(owner.puts, 1);
	ck_assert_uint_eq(owner.dirs, 1);
	ck_assert_uint_eq(owner.copies, 2);
	ck_assert_int_eq(kv_check(log, &owner, "b", 1), 0);
	no_memory = MC_JOURNAL_KV_REMOVE;
	ck_assert_int_eq(mc_kv_log_remove(log, "b", (uint8_t[16]){0}, NULL), 0);
	ck_assert_uint_eq(no_memory, 0);
	log = crash(log, 1);
	ck_assert_uint_eq(owner.puts, 0);
	stop(log);
}
END_TEST

START_TEST(a_segment_that_is_found_has_its_name_synced_before_what_it_holds_is_acknowledged)
{
	for (unsigned seed = 1; seed <= SEEDS; seed++) {
		struct mc_kv_log *log = start();

		names_unsynced = true;
		ck_assert_int_eq(kv_put(log, &owner, "a", 1, 5000), 0);
		ck_assert_int_eq(mc_kv_log_remove(log, "a", (uint8_t[16]){0}, NULL), 0);
		ck_assert_int_eq(mc_kv_log_seal(log), 0);
		mc_kv_log_close(log);
		kv_forget(&owner);
		names_unsynced = false;
		log = open_log();
		ck_assert_int_eq(kv_put(log, &owner, "b", 3, 5000), 0);
		ck_assert_uint_eq(kv_find_locked(&owner, "b")->loc.segment, 1);
		log = crash(log, seed);
		ck_assert_int_eq(kv_check(log, &owner, "b", 3), 0);
		stop(log);
	}
}
END_TEST

START_TEST(the_directory_of_a_new_store_is_there_after_a_crash)
{
	for (unsigned seed = 1; seed <= SEEDS; seed++) {
		struct mc_kv_log *log;
		char *root = tier_dir_make("/dev/shm");

		no_memory = 0;
		fault = io_fault_open(root);
		io_fault_arm(fault, IO_FAULT_NONE, 0, 1);
		ck_assert_int_gt(asprintf(&dir, "%s/store", root), 0);
		log = open_log();
		ck_assert_int_eq(kv_put(log, &owner, "a", 1, 5000), 0);
		log = crash(log, seed);
		ck_assert_int_eq(kv_check(log, &owner, "a", 1), 0);
		free(dir);
		dir = root;
		stop(log);
	}
}
END_TEST

static int pass_over(void *ctx, uint8_t type, const void *rec, size_t len, struct mc_err *err)
{
	return 0;
}

static int emit_absurd(void *ctx, struct mc_journal *j)
{
	const struct mc_kv_put_front *put = ctx;
	unsigned char rec[sizeof(*put) + 1];

	memcpy(rec, put, sizeof(*put));
	rec[sizeof(*put)] = 'x';
	return mc_journal_snapshot_add(j, MC_JOURNAL_KV_PUT, rec, sizeof(rec));
}

START_TEST(a_head_whose_parts_could_not_be_counted_is_passed_over)
{
	static const struct mc_kv_put_front absurd[] = {
		{.segment = MC_KV_SPLIT, .off = 1, .size = UINT64_MAX},
		{.segment = MC_KV_SPLIT, .off = UINT64_C(1) << 63, .size = UINT64_MAX},
		{.segment = MC_KV_SPLIT, .off = 0, .size = 1},
		{.segment = MC_KV_SPLIT, .off = 8192, .size = UINT64_C(1) << 62}};

	for (size_t i = 0; i < sizeof(absurd) / sizeof(*absurd); i++) {
		struct mc_kv_log *log = start();
		char path[4096];
		struct mc_journal_opts o = {
			.io = io_fault_table(fault), .dir = path, .apply = pass_over};
		struct mc_journal *j;
		unsigned damaged;

		snprintf(path, sizeof(path), "%s/kvjournal", dir);
		memcpy(o.uuid, log->floors[0].store->uuid, sizeof(o.uuid));
		mc_kv_log_close(log);
		kv_forget(&owner);
		ck_assert_int_eq(mc_journal_open(&o, &j, &damaged, NULL), 0);
		ck_assert_int_eq(
			mc_journal_snapshot(j, emit_absurd, (void *)(uintptr_t)&absurd[i]), 0);
		mc_journal_close(j);
		log = open_log();
		ck_assert_uint_eq(owner.puts, 0);
		ck_assert_int_eq(kv_put(log, &owner, "a", 2, 40000), 0);
		ck_assert_int_eq(kv_check(log, &owner, "a", 2), 0);
		stop(log);
	}
}
END_TEST

SUITE_MAIN("kv-log-lost", a_copy_whose_record_found_no_memory_outlives_its_segment,
	a_put_whose_record_found_no_memory_loses_neither_version,
	an_object_in_parts_whose_record_found_no_memory_keeps_its_parts,
	a_rename_whose_record_found_no_memory_is_durable_when_it_returns,
	a_segment_that_is_found_has_its_name_synced_before_what_it_holds_is_acknowledged,
	the_directory_of_a_new_store_is_there_after_a_crash,
	a_head_whose_parts_could_not_be_counted_is_passed_over)
