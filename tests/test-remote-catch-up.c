/* Writing to several remotes: what a member misses, and how that is made good. */
#include "tests/set-fixture.h"
#include "tests/suite.h"
#include "tier/remote-set-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT "the bytes of an object"
#define LEN (sizeof(TEXT) - 1)

static struct set_fixture x;

START_TEST(what_a_member_missed_is_brought_to_it)
{
	char path[80];

	set_fixture_open(&x, 2, 2);
	chunk_path(TEXT, LEN, path);
	put_text(&x, "checkpoints/o/m/latest", "old");
	put_text(&x, "layouts/gone", TEXT);
	member_fails(&x, 1, -ECONNREFUSED);
	put_text(&x, "checkpoints/o/m/latest", "new");
	put_text(&x, path, TEXT);
	ck_assert_int_eq(mc_remote_unlink(x.r, "layouts/gone", NULL), 0);
	ck_assert(member_has(&x, 1, "checkpoints/o/m/latest", "old", 3));
	ck_assert(!member_has(&x, 1, path, NULL, 0));
	member_fails(&x, 1, 0);
	await_up(&x, 1, true);
	await_no_notes(&x);
	ck_assert(member_has(&x, 1, "checkpoints/o/m/latest", "new", 3));
	ck_assert(member_has(&x, 1, path, TEXT, LEN));
	ck_assert(!member_has(&x, 1, "layouts/gone", NULL, 0));
	ck_assert_uint_eq(status_of(&x).members[1].caught_up, 3);
	set_fixture_done(&x);
}
END_TEST

static int count_name(void *ctx, const char *name, const struct mc_remote_attr *attr)
{
	(void)name;
	(void)attr;
	++*(int *)ctx;
	return 0;
}

/* Makes m1 miss the new value of a key and the removal of another. */
static void leave_behind(void)
{
	put_text(&x, "layouts/changed", "old");
	put_text(&x, "layouts/gone", "old");
	member_fails(&x, 1, -ECONNREFUSED);
	put_text(&x, "layouts/changed", "new");
	ck_assert_int_eq(mc_remote_unlink(x.r, "layouts/gone", NULL), 0);
}

START_TEST(another_process_does_not_read_what_is_old)
{
	struct mc_remote_attr attr;
	char buf[3];
	int names = 0;

	set_fixture_open(&x, 2, 2);
	leave_behind();
	x.opts.tend = false; /* nothing is mended */
	set_fixture_reopen(&x);
	for (int k = 0; k < 20; k++) {
		ck_assert_int_eq(set_read_at(x.r, "layouts/changed", buf, 3, 0, NULL), 0);
		ck_assert_mem_eq(buf, "new", 3);
		ck_assert_int_eq(set_read_at(x.r, "layouts/gone", buf, 3, 0, NULL), -ENOENT);
	}
	ck_assert_int_eq(mc_remote_stat(x.r, "layouts/gone", &attr, NULL), -ENOENT);
	ck_assert_int_eq(mc_remote_list(x.r, "layouts", count_name, &names, NULL), 0);
	ck_assert_int_eq(names, 1);
	/* With the only right copy out of reach there is an error, not an old value. */
	member_fails(&x, 0, -ECONNREFUSED);
	ck_assert_int_lt(set_read_at(x.r, "layouts/changed", buf, 3, 0, NULL), 0);
	member_fails(&x, 0, 0);
	set_fixture_done(&x);
}
END_TEST

START_TEST(another_process_catches_up_and_leaves_no_marker)
{
	int names = 0;

	set_fixture_open(&x, 2, 2);
	leave_behind();
	set_fixture_reopen(&x);
	await_member_has(&x, 1, "layouts/changed", "new", 3);
	await_no_notes(&x);
	ck_assert(!member_has(&x, 1, "layouts/gone", NULL, 0));
	ck_assert_int_eq(mc_remote_sync(x.r, NULL), 0);
	for (int left = 12000;; usleep(5000)) { /* the notes go before their markers */
		struct mc_set *s = (struct mc_set *)mc_remote_backend(x.r);
		char dir[64];
		int r;

		names = 0;
		snprintf(dir, sizeof(dir), "missed/%s", s->members[1].id);
		r = mc_remote_list(x.r, dir, count_name, &names, NULL);
		ck_assert(r == 0 || r == -ENOENT);
		if (names == 0)
			break;
		ck_assert_int_gt(left--, 0);
	}
	set_fixture_done(&x);
}
END_TEST

START_TEST(a_full_member_leaves_its_copies_to_others)
{
	unsigned homes[SET_MEMBERS];
	char path[80];

	set_fixture_open(&x, 3, 2);
	chunk_path(TEXT, LEN, path);
	set_homes(&x, path, homes);
	mc_fault_add(x.faults[homes[0]],
		&(struct mc_fault_rule){
			.op = MC_FAULT_PUT, .kind = MC_FAULT_FAIL, .error = -ENOSPC});
	put_text(&x, path, TEXT);
	ck_assert(member_has(&x, homes[1], path, TEXT, LEN));
	ck_assert(member_has(&x, homes[2], path, TEXT, LEN));
	ck_assert(status_of(&x).members[homes[0]].up);
	ck_assert_int_eq(read_chunk(&x, path, TEXT), 0);
	put_text(&x, "kv/00/00/k", TEXT); /* its home may be the full one: fewer copies then */
	ck_assert_uint_ge(count_copies(&x, "kv/00/00/k", TEXT), 1);
	mc_fault_clear(x.faults[homes[0]]);
	await_member_has(&x, homes[0], path, TEXT, LEN);
	set_fixture_done(&x);
}
END_TEST

START_TEST(all_members_full_is_enospc)
{
	set_fixture_open(&x, 2, 2);
	for (unsigned i = 0; i < 2; i++)
		mc_fault_add(x.faults[i],
			&(struct mc_fault_rule){
				.op = MC_FAULT_PUT, .kind = MC_FAULT_FAIL, .error = -ENOSPC});
	ck_assert_int_eq(mc_remote_put(x.r, "chunks/x", TEXT, LEN, 0, NULL), -ENOSPC);
	ck_assert_uint_eq(count_copies(&x, "chunks/x", TEXT), 0);
	set_fixture_done(&x);
}
END_TEST

START_TEST(a_read_only_member_is_read_from_and_not_written_to)
{
	char path[80];

	set_fixture_open_chunk(&x, 2, 2, TEXT, path);
	mc_fault_add(x.faults[0],
		&(struct mc_fault_rule){
			.op = MC_FAULT_PUT, .kind = MC_FAULT_FAIL, .error = -EROFS});
	put_text(&x, "checkpoints/o/m/latest", "new");
	ck_assert(member_has(&x, 1, "checkpoints/o/m/latest", "new", 3));
	member_fails(&x, 1, 0);
	member_remove(&x, 1, path);
	ck_assert_int_eq(read_chunk(&x, path, TEXT), 0);
	ck_assert(status_of(&x).members[0].up);
	set_fixture_done(&x);
}
END_TEST

START_TEST(of_two_exclusive_puts_the_first_home_decides)
{
	set_fixture_open(&x, 2, 2);
	ck_assert_int_eq(mc_remote_put(x.r, "checkpoints/a", "one", 3, MC_PUT_EXCL, NULL), 0);
	ck_assert_int_eq(mc_remote_put(x.r, "checkpoints/a", "two", 3, MC_PUT_EXCL, NULL), -EEXIST);
	ck_assert_uint_eq(count_copies(&x, "checkpoints/a", "one"), 2);
	set_fixture_done(&x);
}
END_TEST

START_TEST(a_touch_finds_missing_copies_and_a_sync_waits_for_them)
{
	char path[80];

	set_fixture_open_chunk(&x, 2, 2, TEXT, path);
	for (unsigned i = 0; i < 2; i++) {
		member_remove(&x, i, path);
		ck_assert_int_eq(mc_remote_touch(x.r, path, NULL), 0);
		ck_assert_int_eq(mc_remote_sync(x.r, NULL), 0);
		ck_assert_uint_eq(count_copies(&x, path, TEXT), 2);
	}
	set_fixture_done(&x);
}
END_TEST

START_TEST(of_the_times_of_copies_the_newest_counts)
{
	struct mc_remote_attr attr;
	char path[80], full[200], name[80];
	struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};

	set_fixture_open_chunk(&x, 2, 2, TEXT, path);
	ck_assert_int_eq(mc_remote_mkdir(x.r, "tmp/gc", NULL), 0);
	snprintf(name, sizeof(name), "tmp/gc/%s", strrchr(path, '/') + 1);
	for (unsigned i = 0; i < 2; i++) {
		snprintf(full, sizeof(full), "%s/m%u/%s", x.root, i, path);
		ck_assert_int_eq(utimensat(AT_FDCWD, full, old, 0), 0);
		ck_assert_int_eq(mc_remote_rename(x.r, path, name, NULL), 0);
		ck_assert_int_eq(mc_remote_stat(x.r, name, &attr, NULL), 0);
		ck_assert_int_gt(attr.mtime_s, 1000);
		ck_assert_int_eq(mc_remote_rename(x.r, name, path, NULL), 0);
		ck_assert_uint_eq(count_copies(&x, path, TEXT), 2);
		ck_assert_int_eq(mc_remote_touch(x.r, path, NULL), 0);
	}
	set_fixture_done(&x);
}
END_TEST

START_TEST(a_list_is_everybodys_and_never_silently_short)
{
	int names = 0;

	set_fixture_open(&x, 3, 1);
	for (char c = 'a'; c < 'k'; c++)
		put_text(&x, (char[]){'c', 'h', 'u', 'n', 'k', 's', '/', c, '\0'}, TEXT);
	ck_assert_int_eq(mc_remote_list(x.r, "chunks", count_name, &names, NULL), 0);
	ck_assert_int_eq(names, 10);
	ck_assert_int_eq(mc_remote_list(x.r, "kv", count_name, &names, NULL), -ENOENT);
	member_fails(&x, 0, -ECONNREFUSED);
	ck_assert_int_eq(mc_remote_list(x.r, "chunks", count_name, &names, NULL), -ECONNREFUSED);
	ck_assert_int_lt(mc_remote_list(x.r, "chunks", count_name, &names, NULL), 0);
	member_fails(&x, 0, 0);
	set_fixture_done(&x);
}
END_TEST

SUITE_MAIN("remote catch-up", what_a_member_missed_is_brought_to_it,
	another_process_does_not_read_what_is_old, another_process_catches_up_and_leaves_no_marker,
	a_full_member_leaves_its_copies_to_others, all_members_full_is_enospc,
	a_read_only_member_is_read_from_and_not_written_to,
	of_two_exclusive_puts_the_first_home_decides,
	a_touch_finds_missing_copies_and_a_sync_waits_for_them,
	of_the_times_of_copies_the_newest_counts, a_list_is_everybodys_and_never_silently_short)
