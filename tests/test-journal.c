/* The journal: what was committed is replayed, in order, through torn pages, snapshots and
 * failures. */
#include "tests/suite.h"
#include "tests/tier-dir.h"
#include "tier/io.h"
#include "tier/journal-page.h"
#include "tier/journal.h"

#include <errno.h>
#include <pthread.h>

struct log {
	uint8_t types[4096];
	size_t lens[4096];
	unsigned char first[4096]; /* first payload byte */
	unsigned n;
};

static char *dir;    /* of the test's journal */
static struct log l; /* what the last opening replayed */

static int remember(void *ctx, uint8_t type, const void *rec, size_t len, struct mc_err *err)
{
	(void)ctx;
	if (type == 99)
		return mc_err_set(err, -EPROTONOSUPPORT, "record type %u is unknown", type);
	ck_assert_uint_lt(l.n, 4096);
	l.types[l.n] = type;
	l.lens[l.n] = len;
	l.first[l.n] = len > 0 ? *(const unsigned char *)rec : 0;
	l.n++;
	return 0;
}

static int open_journal(
	const struct mc_io *io, struct mc_journal **ret, unsigned *ret_damaged, struct mc_err *err)
{
	struct mc_journal_opts o = {
		.io = io != NULL ? io : mc_io_real(),
		.dir = dir,
		.uuid = "fifteen bytes..",
		.max_bytes = 64 * 1024,
		.apply = remember,
	};

	l.n = 0;
	return mc_journal_open(&o, ret, ret_damaged, err);
}

static int emit_nothing(void *ctx, struct mc_journal *j)
{
	(void)ctx;
	(void)j;
	return 0;
}

/* The state of these tests: a number of records of type 7 with payload "s". */
static int emit_count(void *ctx, struct mc_journal *j)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < *(unsigned *)ctx; i++)
		r = mc_journal_snapshot_add(j, 7, "s", 1);
	return r;
}

static struct mc_journal *must_open(void)
{
	struct mc_err err = {0};
	struct mc_journal *j;
	unsigned damaged;
	int r = open_journal(NULL, &j, &damaged, &err);

	ck_assert_msg(r == 0, "%d %s", r, err.text);
	ck_assert_uint_eq(damaged, 0);
	ck_assert(mc_journal_snapshot_due(j));
	return j;
}

/* A new one, after its first snapshot. */
static struct mc_journal *begin(const struct mc_io *io)
{
	struct mc_err err = {0};
	struct mc_journal *j;
	unsigned damaged;

	dir = tier_dir_make("/tmp");
	ck_assert_int_eq(open_journal(io, &j, &damaged, &err), 0);
	ck_assert_uint_eq(l.n, 0);
	ck_assert_int_eq(mc_journal_snapshot(j, emit_nothing, NULL), 0);
	return j;
}

static struct mc_journal *restart(struct mc_journal *j)
{
	mc_journal_close(j);
	return must_open();
}

/* A durable record of one byte. */
static void say(struct mc_journal *j, uint8_t type, char byte)
{
	ck_assert_int_eq(mc_journal_append(j, type, &byte, 1), 0);
	ck_assert_int_eq(mc_journal_commit(j), 0);
}

static void end(struct mc_journal *j)
{
	mc_journal_close(j);
	tier_dir_remove(dir);
}

static char *log_file(void)
{
	char *path = NULL;

	for (unsigned g = 1; g < 100; g++) {
		free(path);
		ck_assert_int_gt(asprintf(&path, "%s/log.%u", dir, g), 0);
		if (access(path, F_OK) == 0)
			return path;
	}
	ck_abort_msg("no log");
}

START_TEST(committed_records_are_replayed_in_order_and_uncommitted_ones_are_not)
{
	struct mc_journal *j = begin(NULL);
	static char big[30000] = "B";

	ck_assert_uint_eq(l.n, 0);
	ck_assert(!mc_journal_snapshot_due(j));
	ck_assert_int_eq(mc_journal_append(j, 1, "a", 1), 0);
	ck_assert_int_eq(mc_journal_append(j, 2, NULL, 0), 0);
	ck_assert_int_eq(mc_journal_commit(j), 0);
	ck_assert_int_eq(mc_journal_append(j, 3, big, sizeof(big)), 0);
	ck_assert_int_eq(mc_journal_commit(j), 0);
	ck_assert_uint_eq(mc_journal_log_bytes(j), 9 * MC_JOURNAL_PAGE);
	ck_assert_int_eq(mc_journal_append(j, 4, "lost", 4), 0);
	j = restart(j);
	ck_assert_uint_eq(l.n, 3);
	ck_assert_uint_eq(l.types[0], 1);
	ck_assert_uint_eq(l.first[0], 'a');
	ck_assert_uint_eq(l.types[1], 2);
	ck_assert_uint_eq(l.lens[2], sizeof(big));
	ck_assert_uint_eq(l.first[2], 'B');
	end(j);
}
END_TEST

START_TEST(a_snapshot_replaces_the_log_and_old_generations_are_removed)
{
	char path[4096];
	struct mc_journal *j = begin(NULL);
	unsigned count = 3000;

	while (!mc_journal_snapshot_due(j)) {
		say(j, 1, 'a');
	}
	ck_assert_uint_eq(mc_journal_log_bytes(j), 64 * 1024);
	ck_assert_int_eq(mc_journal_snapshot(j, emit_count, &count), 0);
	ck_assert_uint_eq(mc_journal_log_bytes(j), 0);
	snprintf(path, sizeof(path), "%s/log.1", dir);
	ck_assert_int_eq(access(path, F_OK), -1);
	say(j, 1, 'z');
	j = restart(j);
	ck_assert_uint_eq(l.n, 3001);
	ck_assert_uint_eq(l.types[2999], 7);
	ck_assert_uint_eq(l.first[3000], 'z');
	end(j);
}
END_TEST

/* The state, and a record that somebody appends meanwhile. */
static int emit_and_append(void *ctx, struct mc_journal *j)
{
	int r = mc_journal_append(j, 2, "b", 1);

	return r == 0 ? emit_count(ctx, j) : r;
}

static int emit_and_fail(void *ctx, struct mc_journal *j)
{
	int r = emit_and_append(ctx, j);

	return r == 0 ? -EIO : r;
}

START_TEST(what_was_appended_before_a_snapshot_ended_stands_at_its_end_and_not_in_the_log)
{
	struct mc_journal *j = begin(NULL);
	unsigned count = 2;

	ck_assert_int_eq(mc_journal_append(j, 1, "a", 1), 0);
	ck_assert_int_eq(mc_journal_snapshot(j, emit_and_append, &count), 0);
	ck_assert_int_eq(mc_journal_commit(j), 0);
	ck_assert_uint_eq(mc_journal_log_bytes(j), 0);
	j = restart(j);
	ck_assert_uint_eq(l.n, 4);
	ck_assert_uint_eq(l.types[1], 7);
	ck_assert_uint_eq(l.types[2], 1);
	ck_assert_uint_eq(l.types[3], 2);
	end(j);
}
END_TEST

START_TEST(a_snapshot_that_fails_leaves_what_was_appended_to_the_log)
{
	struct mc_journal *j = begin(NULL);
	unsigned count = 2;

	ck_assert_int_eq(mc_journal_append(j, 1, "a", 1), 0);
	ck_assert_int_eq(mc_journal_snapshot(j, emit_and_fail, &count), -EIO);
	ck_assert_int_eq(mc_journal_commit(j), 0);
	j = restart(j);
	ck_assert_uint_eq(l.n, 2);
	ck_assert_uint_eq(l.types[0], 1);
	ck_assert_uint_eq(l.types[1], 2);
	end(j);
}
END_TEST

/* Five commits of one page each, damaged at each byte class of the third. */
START_TEST(reading_stops_before_a_torn_page)
{
	static const off_t at[] = {0, 4, 8, 16, 24, 40, 4095};

	for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++) {
		char *path;
		struct mc_journal *j = begin(NULL);
		unsigned char byte;
		int fd;

		for (unsigned k = 0; k < 5; k++) {
			say(j, 1, "abcde"[k]);
		}
		mc_journal_close(j);
		path = log_file();
		fd = open(path, O_RDWR | O_CLOEXEC);
		ck_assert_int_eq(pread(fd, &byte, 1, 2 * MC_JOURNAL_PAGE + at[i]), 1);
		byte ^= 0x10;
		ck_assert_int_eq(pwrite(fd, &byte, 1, 2 * MC_JOURNAL_PAGE + at[i]), 1);
		close(fd);
		free(path);
		j = must_open();
		ck_assert_uint_eq(l.n, 2);
		end(j);
	}
}
END_TEST

START_TEST(superblock_pages_may_be_lost_and_both_lost_is_damage)
{
	char path[4096];
	struct mc_journal *j = begin(NULL);
	struct mc_err err = {0};
	unsigned damaged, count = 2;
	int fd;

	ck_assert_int_eq(mc_journal_snapshot(j, emit_count, &count), 0);
	mc_journal_close(j);
	snprintf(path, sizeof(path), "%s/SUPER", dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	/* Sequence 1 stands in page 1, 2 in page 0. */
	ck_assert_int_eq(pwrite(fd, "garbage", 7, MC_JOURNAL_PAGE), 7);
	j = must_open();
	ck_assert_uint_eq(l.n, 2);
	ck_assert_int_eq(mc_journal_snapshot(j, emit_count, &count), 0);
	mc_journal_close(j);
	ck_assert_int_eq(pwrite(fd, "garbage", 7, 0), 7);
	j = must_open();
	ck_assert_uint_eq(l.n, 2);
	mc_journal_close(j);
	ck_assert_int_eq(pwrite(fd, "garbage", 7, MC_JOURNAL_PAGE), 7);
	close(fd);
	ck_assert_int_eq(open_journal(NULL, &j, &damaged, &err), 0);
	ck_assert_uint_eq(damaged, 1);
	ck_assert_uint_eq(l.n, 2); /* of the newest snapshot that is complete */
	ck_assert_int_eq(mc_journal_snapshot(j, emit_count, &count), 0);
	j = restart(j);
	ck_assert_uint_eq(l.n, 2);
	end(j);
}
END_TEST

START_TEST(unknown_record_and_foreign_store_are_refused_with_a_text)
{
	struct mc_journal *j = begin(NULL);
	struct mc_err err = {0}, err2 = {0};
	struct mc_journal_opts other = {
		.io = mc_io_real(), .dir = dir, .uuid = "another store..", .apply = remember};
	unsigned damaged;

	ck_assert_int_eq(mc_journal_append(j, 99, NULL, 0), 0);
	ck_assert_int_eq(mc_journal_commit(j), 0);
	mc_journal_close(j);
	ck_assert_int_eq(open_journal(NULL, &j, &damaged, &err), -EPROTONOSUPPORT);
	ck_assert_str_eq(err.text, "record type 99 is unknown");
	ck_assert_int_eq(mc_journal_open(&other, &j, &damaged, &err2), -ESTALE);
	ck_assert_ptr_nonnull(strstr(err2.text, "another store"));
	tier_dir_remove(dir);
}
END_TEST

static bool sync_fails;

static int failing_fdatasync(const struct mc_io *io, int fd)
{
	(void)io;
	return sync_fails ? -EIO : mc_io_real()->fdatasync(mc_io_real(), fd);
}

START_TEST(after_a_failed_sync_only_a_new_generation_takes_records)
{
	struct mc_io io = *mc_io_real();
	struct mc_journal *j;
	unsigned count = 1;

	io.fdatasync = failing_fdatasync;
	j = begin(&io);
	sync_fails = true;
	ck_assert_int_eq(mc_journal_append(j, 1, "a", 1), 0);
	ck_assert_int_eq(mc_journal_commit(j), -EIO);
	sync_fails = false;
	ck_assert_int_eq(mc_journal_append(j, 1, "b", 1), 0);
	ck_assert_int_eq(mc_journal_commit(j), -EIO);
	ck_assert(mc_journal_snapshot_due(j));
	ck_assert_int_eq(mc_journal_snapshot(j, emit_count, &count), 0);
	ck_assert_int_eq(mc_journal_commit(j), 0);
	j = restart(j);
	/* The snapshot, and "b", which waited in memory. */
	ck_assert_uint_eq(l.n, 2);
	ck_assert_uint_eq(l.types[0], 7);
	ck_assert_uint_eq(l.first[1], 'b');
	end(j);
}
END_TEST

/* In the place of mc_journal_buf_add, by the linker. */
static unsigned no_memory; /* so many records find none */
int __real_mc_journal_buf_add(struct mc_journal_buf *b, uint8_t type, const void *rec, size_t len);
int __wrap_mc_journal_buf_add(struct mc_journal_buf *b, uint8_t type, const void *rec, size_t len);
int __wrap_mc_journal_buf_add(struct mc_journal_buf *b, uint8_t type, const void *rec, size_t len)
{
	if (no_memory == 0)
		return __real_mc_journal_buf_add(b, type, rec, len);
	no_memory--;
	return -ENOMEM;
}

START_TEST(what_follows_a_record_without_memory_is_durable_by_a_snapshot_only)
{
	struct mc_journal *j = begin(NULL);
	unsigned count = 1;

	say(j, 1, 'a');
	no_memory = 1;
	ck_assert_int_eq(mc_journal_append(j, 2, "b", 1), -ENOMEM);
	ck_assert_int_eq(mc_journal_commit(j), -ENOMEM);
	ck_assert_int_eq(mc_journal_append(j, 3, "c", 1), 0);
	ck_assert_int_eq(mc_journal_commit(j), -ENOMEM);
	ck_assert(mc_journal_snapshot_due(j));
	j = restart(j);
	ck_assert_uint_eq(l.n, 1); /* neither of them */
	ck_assert_int_eq(mc_journal_snapshot(j, emit_nothing, NULL), 0);
	no_memory = 1;
	ck_assert_int_eq(mc_journal_append(j, 2, "b", 1), -ENOMEM);
	ck_assert_int_eq(mc_journal_snapshot(j, emit_count, &count), 0);
	ck_assert_int_eq(mc_journal_commit(j), 0);
	ck_assert(mc_journal_usable(j));
	end(j);
}
END_TEST

/* A record that somebody says meanwhile finds no memory: the state that is emitted may be older. */
static int emit_and_lose(void *ctx, struct mc_journal *j)
{
	int r = emit_count(ctx, j);

	no_memory = 1;
	ck_assert_int_eq(mc_journal_append(j, 2, "b", 1), -ENOMEM);
	return r;
}

START_TEST(a_snapshot_during_which_a_record_found_no_memory_does_not_count)
{
	struct mc_journal *j = begin(NULL);
	unsigned count = 3;

	ck_assert_int_eq(mc_journal_snapshot(j, emit_and_lose, &count), -ENOMEM);
	ck_assert(!mc_journal_usable(j));
	ck_assert_int_ne(mc_journal_commit(j), 0);
	ck_assert_int_eq(mc_journal_snapshot(j, emit_count, &count), 0);
	ck_assert_int_eq(mc_journal_commit(j), 0);
	j = restart(j);
	ck_assert_uint_eq(l.n, 3);
	end(j);
}
END_TEST

static bool logs_fail;

static int failing_fallocate(const struct mc_io *io, int fd, int mode, uint64_t off, uint64_t len)
{
	(void)io;
	return logs_fail ? -ENOSPC : mc_io_real()->fallocate(mc_io_real(), fd, mode, off, len);
}

START_TEST(a_snapshot_whose_log_could_not_be_made_is_not_taken_for_the_one_in_force)
{
	char path[4096];
	struct mc_io io = *mc_io_real();
	struct mc_err err = {0};
	struct mc_journal *j;
	unsigned damaged, count = 1;
	int fd;

	io.fallocate = failing_fallocate;
	j = begin(&io);
	logs_fail = true;
	ck_assert_int_eq(mc_journal_snapshot(j, emit_count, &count), -ENOSPC);
	logs_fail = false;
	/* The log in force goes on. */
	say(j, 1, 'a');
	mc_journal_close(j);
	snprintf(path, sizeof(path), "%s/SUPER", dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(pwrite(fd, "garbage", 7, 0), 7);
	ck_assert_int_eq(pwrite(fd, "garbage", 7, MC_JOURNAL_PAGE), 7);
	close(fd);
	ck_assert_int_eq(open_journal(NULL, &j, &damaged, &err), 0);
	ck_assert_uint_eq(l.n, 1);
	ck_assert_uint_eq(l.first[0], 'a');
	end(j);
}
END_TEST

static void *commit_many(void *arg)
{
	for (int i = 0; i < 50; i++) {
		ck_assert_int_eq(mc_journal_append(arg, 5, "t", 1), 0);
		ck_assert_int_eq(mc_journal_commit(arg), 0);
	}
	return NULL;
}

START_TEST(concurrent_commits_share_groups_and_lose_nothing)
{
	struct mc_journal *j = begin(NULL);
	pthread_t t[8];

	for (unsigned i = 0; i < 8; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, commit_many, j), 0);
	for (unsigned i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	ck_assert_uint_le(mc_journal_log_bytes(j), 400 * MC_JOURNAL_PAGE);
	j = restart(j);
	ck_assert_uint_eq(l.n, 400);
	end(j);
}
END_TEST

SUITE_MAIN("journal", committed_records_are_replayed_in_order_and_uncommitted_ones_are_not,
	a_snapshot_replaces_the_log_and_old_generations_are_removed,
	what_was_appended_before_a_snapshot_ended_stands_at_its_end_and_not_in_the_log,
	a_snapshot_that_fails_leaves_what_was_appended_to_the_log, reading_stops_before_a_torn_page,
	superblock_pages_may_be_lost_and_both_lost_is_damage,
	unknown_record_and_foreign_store_are_refused_with_a_text,
	after_a_failed_sync_only_a_new_generation_takes_records,
	what_follows_a_record_without_memory_is_durable_by_a_snapshot_only,
	a_snapshot_during_which_a_record_found_no_memory_does_not_count,
	a_snapshot_whose_log_could_not_be_made_is_not_taken_for_the_one_in_force,
	concurrent_commits_share_groups_and_lose_nothing)
