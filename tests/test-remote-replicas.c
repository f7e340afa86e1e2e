/* Copies on several remotes: where they are, what readers get when members fail, and how what was
 * missed is made good. */
#include "tests/set-fixture.h"
#include "tests/suite.h"
#include "tier/lock.h"
#include "tier/remote-set-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT "the bytes of an object"
#define LEN (sizeof(TEXT) - 1)
#define MIB (1u << 20)

static struct set_fixture x;

static void put(const char *path, const char *text)
{
	ck_assert_int_eq(mc_remote_put(x.r, path, text, strlen(text), 0, NULL), 0);
}

/* A chunk with these bytes, as a caller reads it: bytes that do not match are asked for again. */
static int read_chunk(const char *path, const char *text)
{
	char buf[256];
	uint32_t avoid = 0, served;
	int r;

	do {
		r = set_read_at(x.r, path, buf, (uint32_t)strlen(text), avoid, &served);
		avoid |= served;
	} while (r == 0 && memcmp(buf, text, strlen(text)) != 0);
	return r;
}

static unsigned count_copies(const char *path, const char *text)
{
	unsigned n = 0;

	for (unsigned i = 0; i < x.n; i++)
		n += member_has(&x, i, path, text, strlen(text));
	return n;
}

static struct mc_set_status status(void)
{
	struct mc_set_status st;

	mc_remote_set_status(x.r, &st);
	return st;
}

/* ---- placement */

START_TEST(objects_are_shared_out_by_weight_and_only_move_to_who_is_new)
{
	static char names[3][3] = {"m0", "m1", "m2"};
	static struct set_member members[] = {{.url = {.name = names[0], .weight = 1}},
		{.url = {.name = names[1], .weight = 1}}, {.url = {.name = names[2], .weight = 2}}};
	static struct mc_set three = {.n = 3, .members = members, .opts = {.copies = 2}};
	static struct mc_set two = {.n = 2, .members = members, .opts = {.copies = 2}};
	unsigned first[SET_MEMBERS] = {0}, moved_elsewhere = 0, moved = 0;

	for (unsigned i = 0; i < 20000; i++) {
		struct set_order all, before;
		char path[80];

		snprintf(path, sizeof(path), "chunks/00/%u", i);
		ck_assert_int_eq(set_order(&three, path, &all), 0);
		ck_assert_int_eq(set_order(&two, path, &before), 0);
		first[all.at[0]]++;
		moved += all.at[0] != before.at[0];
		moved_elsewhere += all.at[0] != before.at[0] && all.at[0] != 2;
	}
	ck_assert_uint_eq(moved_elsewhere, 0);
	ck_assert_uint_eq(moved, first[2]);
	/* A quarter, a quarter, a half; five standard deviations. */
	ck_assert_int_lt(abs((int)first[0] - 5000), 310);
	ck_assert_int_lt(abs((int)first[1] - 5000), 310);
	ck_assert_int_lt(abs((int)first[2] - 10000), 360);
}
END_TEST

START_TEST(the_hash_is_the_one_that_the_format_describes)
{
	/* -ln((h + 0.5) / 2^53), h the upper 53 bits of the first 8 bytes, little endian, of
	 * SHA-256("m<i>" NUL "chunks/00/<k>"): computed by hand with Python's hashlib. */
	static const unsigned want[4][SET_MEMBERS] = {{2, 1, 0}, {0, 2, 1}, {1, 0, 2}, {2, 0, 1}};

	set_fixture_open(&x, 3, 2);
	for (unsigned k = 0; k < 4; k++) {
		unsigned is[SET_MEMBERS];
		char path[80];

		snprintf(path, sizeof(path), "chunks/00/%u", k);
		set_homes(&x, path, is);
		for (unsigned i = 0; i < 3; i++)
			ck_assert_uint_eq(is[i], want[k][i]);
	}
	set_fixture_done(&x);
}
END_TEST

START_TEST(each_class_has_its_number_of_copies)
{
	char chunk[80];

	set_fixture_open(&x, 3, 2);
	chunk_path(TEXT, LEN, chunk);
	put(chunk, TEXT);
	put("kv/00/00/k", TEXT);
	put("checkpoints/org/model/rev/manifest.json", TEXT);
	put("layouts/l.json", TEXT);
	ck_assert_uint_eq(count_copies(chunk, TEXT), 2);
	ck_assert_uint_eq(count_copies("kv/00/00/k", TEXT), 2);
	ck_assert_uint_eq(count_copies("checkpoints/org/model/rev/manifest.json", TEXT), 3);
	ck_assert_uint_eq(count_copies("layouts/l.json", TEXT), 3);
	set_fixture_done(&x);
}
END_TEST

START_TEST(names_and_weights_are_read_strictly)
{
	static const char *const bad[] = {"dir:/x#weight=", "dir:/x#weight=1x", "dir:/x#name=a,b=c",
		"dir:/x#name=a,weight=-1", "dir:/x#weight=nan"};
	struct mc_err err = {0};
	struct mc_set_url u[2];
	struct mc_remote *r = NULL;
	const struct mc_set_opts opts = {0};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		ck_assert_int_eq(mc_set_url_parse(bad[i], &u[0], &err), -EINVAL);
	ck_assert_int_eq(
		mc_set_url_parse("nfs://s/e?nfsport=1#name=east,weight=2.5", &u[0], NULL), 0);
	ck_assert_str_eq(u[0].url, "nfs://s/e?nfsport=1");
	ck_assert_str_eq(u[0].name, "east");
	ck_assert_double_eq(u[0].weight, 2.5);
	mc_set_url_done(&u[0]);
	ck_assert_int_eq(mc_set_url_parse("nfs://s/e?nfsport=1", &u[0], NULL), 0);
	ck_assert_str_eq(u[0].name, "nfs://s/e");
	ck_assert_int_eq(mc_set_url_parse("nfs://s/e?nfsport=2", &u[1], NULL), 0);
	err.text[0] = '\0';
	ck_assert_int_eq(mc_remote_set_open(u, 2, &opts, &r, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "#name=NAME"));
	mc_set_url_done(&u[0]);
	mc_set_url_done(&u[1]);
	ck_assert_int_eq(mc_set_url_parse("dir:/a#b", &u[0], NULL), 0);
	ck_assert_str_eq(u[0].url, "dir:/a#b");
	mc_set_url_done(&u[0]);
}
END_TEST

/* ---- reading */

START_TEST(one_member_down_is_read_around_and_comes_back)
{
	char path[80];
	unsigned homes[SET_MEMBERS];

	set_fixture_open(&x, 2, 2);
	chunk_path(TEXT, LEN, path);
	put(path, TEXT);
	set_homes(&x, path, homes);
	for (unsigned i = 0; i < 2; i++) {
		member_fails(&x, i, -ECONNREFUSED);
		for (int k = 0; k < 20; k++)
			ck_assert_int_eq(read_chunk(path, TEXT), 0);
		await_up(&x, i, false);
		member_fails(&x, i, 0);
		await_up(&x, i, true);
		ck_assert_int_eq(read_chunk(path, TEXT), 0);
	}
	ck_assert_uint_ge(status().members[0].fenced, 1);
	set_fixture_done(&x);
}
END_TEST

START_TEST(a_hung_member_does_not_hold_up_readers)
{
	struct mc_remote_attr attr;
	unsigned homes[SET_MEMBERS], hung;
	char path[80];

	set_fixture_open(&x, 2, 2);
	chunk_path(TEXT, LEN, path);
	put(path, TEXT);
	set_homes(&x, path, homes);
	hung = homes[0]; /* who is asked first */
	member_hangs(&x, hung, true);
	for (int k = 0; k < 50; k++)
		ck_assert_int_eq(read_chunk(path, TEXT), 0);
	await_up(&x, hung, false);
	ck_assert_int_eq(mc_remote_stat(x.r, path, &attr, NULL), 0);
	ck_assert_int_eq(mc_remote_stat(x.r, "not/there", &attr, NULL), -ENOENT);
	member_hangs(&x, hung, false);
	await_up(&x, hung, true);
	ck_assert_int_eq(read_chunk(path, TEXT), 0);
	set_fixture_done(&x);
}
END_TEST

START_TEST(one_hung_request_of_a_healthy_member_is_asked_of_another)
{
	const struct mc_fault_rule rule = {.op = MC_FAULT_READ, .kind = MC_FAULT_HANG, .count = 1};
	char path[80];

	set_fixture_open(&x, 2, 2);
	chunk_path(TEXT, LEN, path);
	put(path, TEXT);
	mc_fault_add(x.faults[0], &rule);
	for (int k = 0; k < 50; k++)
		ck_assert_int_eq(read_chunk(path, TEXT), 0);
	set_fixture_done(&x);
}
END_TEST

START_TEST(all_members_down_is_an_error_by_the_deadline_and_then_right_bytes)
{
	struct mc_remote_stats st;
	struct mc_remote_attr attr;
	char path[80];

	set_fixture_open(&x, 2, 2);
	x.remote_opts.deadline_ms = 600;
	set_fixture_reopen(&x);
	chunk_path(TEXT, LEN, path);
	put(path, TEXT);
	member_hangs(&x, 0, true);
	member_hangs(&x, 1, true);
	ck_assert_int_eq(read_chunk(path, TEXT), -ETIMEDOUT);
	ck_assert_int_eq(mc_remote_stat(x.r, path, &attr, NULL), -ETIMEDOUT);
	ck_assert_int_lt(mc_remote_put(x.r, path, TEXT, LEN, 0, NULL), 0);
	await_up(&x, 0, false);
	await_up(&x, 1, false);
	mc_remote_stats(x.r, &st);
	ck_assert_int_eq(st.connected, false);
	member_hangs(&x, 0, false);
	member_hangs(&x, 1, false);
	await_up(&x, 0, true);
	mc_remote_stats(x.r, &st);
	ck_assert_int_eq(st.connected, true);
	ck_assert_int_eq(read_chunk(path, TEXT), 0);
	set_fixture_done(&x);
}
END_TEST

START_TEST(a_bad_copy_is_not_asked_again_and_is_mended)
{
	char path[80], bad[LEN + 1] = TEXT, buf[LEN];
	uint32_t served;

	set_fixture_open(&x, 2, 2);
	chunk_path(TEXT, LEN, path);
	put(path, TEXT);
	bad[3] ^= 4;
	for (unsigned i = 0; i < 2; i++) {
		member_write(&x, i, path, bad, LEN);
		/* As one does who got them from there. */
		ck_assert_int_eq(set_read_at(x.r, path, buf, LEN, 1u << i, &served), 0);
		ck_assert_mem_eq(buf, TEXT, LEN);
		ck_assert_uint_eq(served, 1u << (1 - i));
		await_member_has(&x, i, path, TEXT, LEN);
		await_no_notes(&x);
	}
	set_fixture_done(&x);
}
END_TEST

START_TEST(when_all_copies_are_bad_the_reader_is_told)
{
	char path[80], bad[LEN + 1] = TEXT;

	set_fixture_open(&x, 2, 2);
	chunk_path(TEXT, LEN, path);
	put(path, TEXT);
	bad[3] ^= 4;
	member_write(&x, 0, path, bad, LEN);
	member_write(&x, 1, path, bad, LEN);
	ck_assert_int_eq(read_chunk(path, TEXT), -EBADMSG);
	ck_assert_uint_eq(count_copies(path, bad), 2);
	set_fixture_done(&x);
}
END_TEST

START_TEST(a_missing_copy_is_served_by_another_and_mended)
{
	unsigned homes[SET_MEMBERS];
	char path[80];

	set_fixture_open(&x, 3, 2);
	chunk_path(TEXT, LEN, path);
	put(path, TEXT);
	set_homes(&x, path, homes);
	member_remove(&x, homes[0], path);
	while (!member_has(&x, homes[0], path, TEXT, LEN))
		ck_assert_int_eq(read_chunk(path, TEXT), 0); /* until that home was asked */
	/* Where no home has it, whoever does. */
	await_no_notes(&x);
	member_write(&x, homes[2], "chunks/stray", TEXT, LEN);
	ck_assert_int_eq(read_chunk("chunks/stray", TEXT), 0);
	set_fixture_done(&x);
}
END_TEST

START_TEST(absent_is_only_what_a_holder_would_have_denied)
{
	struct mc_remote_attr attr;
	unsigned homes[SET_MEMBERS];
	char path[80], buf[LEN];

	set_fixture_open(&x, 3, 1);
	x.remote_opts.deadline_ms = 600;
	set_fixture_reopen(&x);
	chunk_path(TEXT, LEN, path);
	put(path, TEXT);
	set_homes(&x, path, homes);
	member_fails(&x, homes[0], -ECONNREFUSED);
	ck_assert_int_eq(set_read_at(x.r, path, buf, LEN, 0, NULL), -ECONNREFUSED);
	ck_assert_int_eq(mc_remote_stat(x.r, path, &attr, NULL), -ETIMEDOUT);
	member_fails(&x, homes[0], 0);
	await_up(&x, homes[0], true);
	ck_assert_int_eq(read_chunk(path, TEXT), 0);
	ck_assert_int_eq(mc_remote_stat(x.r, "chunks/other", &attr, NULL), -ENOENT);
	set_fixture_done(&x);
}
END_TEST

START_TEST(stale_handles_at_one_member_are_read_around)
{
	char path[80];

	set_fixture_open(&x, 2, 2);
	chunk_path(TEXT, LEN, path);
	put(path, TEXT);
	member_fails(&x, 0, -ESTALE);
	for (int k = 0; k < 50; k++)
		ck_assert_int_eq(read_chunk(path, TEXT), 0);
	member_fails(&x, 0, 0);
	await_up(&x, 0, true);
	set_fixture_done(&x);
}
END_TEST

START_TEST(a_slow_member_gets_few_of_the_reads)
{
	const struct mc_fault_rule slow = {
		.op = MC_FAULT_READ, .kind = MC_FAULT_DELAY, .value = 200};
	struct mc_set_status st;
	char path[80];

	set_fixture_open(&x, 2, 2);
	chunk_path(TEXT, LEN, path);
	put(path, TEXT);
	mc_fault_add(x.faults[0], &slow);
	for (int k = 0; k < 400; k++)
		ck_assert_int_eq(read_chunk(path, TEXT), 0);
	st = status();
	ck_assert_uint_lt(st.members[0].reads, 40);
	ck_assert_uint_gt(st.members[1].reads, 360);
	set_fixture_done(&x);
}
END_TEST

START_TEST(hedges_are_a_small_share_of_reads)
{
	const struct mc_fault_rule slow = {.op = MC_FAULT_READ, .kind = MC_FAULT_DELAY, .value = 8};
	char path[80];

	set_fixture_open(&x, 2, 2);
	chunk_path(TEXT, LEN, path);
	put(path, TEXT);
	for (int k = 0; k < 64; k++)
		ck_assert_int_eq(read_chunk(path, TEXT), 0);
	/* From now on every read takes longer than what nearly all took. */
	mc_fault_add(x.faults[0], &slow);
	mc_fault_add(x.faults[1], &slow);
	for (int k = 0; k < 100; k++)
		ck_assert_int_eq(read_chunk(path, TEXT), 0);
	ck_assert_uint_le(status().hedges, SET_TOKENS_FIRST / 25 + 164 / 25 + 1);
	set_fixture_done(&x);
}
END_TEST

/* ---- writing */

START_TEST(what_a_member_missed_is_brought_to_it)
{
	char path[80];

	set_fixture_open(&x, 2, 2);
	chunk_path(TEXT, LEN, path);
	put("checkpoints/o/m/latest", "old");
	put("layouts/gone", TEXT);
	member_fails(&x, 1, -ECONNREFUSED);
	put("checkpoints/o/m/latest", "new");
	put(path, TEXT);
	ck_assert_int_eq(mc_remote_unlink(x.r, "layouts/gone", NULL), 0);
	ck_assert(member_has(&x, 1, "checkpoints/o/m/latest", "old", 3));
	ck_assert(!member_has(&x, 1, path, NULL, 0));
	member_fails(&x, 1, 0);
	await_up(&x, 1, true);
	await_no_notes(&x);
	ck_assert(member_has(&x, 1, "checkpoints/o/m/latest", "new", 3));
	ck_assert(member_has(&x, 1, path, TEXT, LEN));
	ck_assert(!member_has(&x, 1, "layouts/gone", NULL, 0));
	ck_assert_uint_eq(status().members[1].caught_up, 3);
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
	put("layouts/changed", "old");
	put("layouts/gone", "old");
	member_fails(&x, 1, -ECONNREFUSED);
	put("layouts/changed", "new");
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
	put(path, TEXT);
	ck_assert(member_has(&x, homes[1], path, TEXT, LEN));
	ck_assert(member_has(&x, homes[2], path, TEXT, LEN));
	ck_assert(status().members[homes[0]].up);
	ck_assert_int_eq(read_chunk(path, TEXT), 0);
	put("kv/00/00/k", TEXT); /* its home may be the full one: fewer copies then */
	ck_assert_uint_ge(count_copies("kv/00/00/k", TEXT), 1);
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
	ck_assert_uint_eq(count_copies("chunks/x", TEXT), 0);
	set_fixture_done(&x);
}
END_TEST

START_TEST(a_read_only_member_is_read_from_and_not_written_to)
{
	char path[80];

	set_fixture_open(&x, 2, 2);
	chunk_path(TEXT, LEN, path);
	put(path, TEXT);
	mc_fault_add(x.faults[0],
		&(struct mc_fault_rule){
			.op = MC_FAULT_PUT, .kind = MC_FAULT_FAIL, .error = -EROFS});
	put("checkpoints/o/m/latest", "new");
	ck_assert(member_has(&x, 1, "checkpoints/o/m/latest", "new", 3));
	member_fails(&x, 1, 0);
	member_remove(&x, 1, path);
	ck_assert_int_eq(read_chunk(path, TEXT), 0);
	ck_assert(status().members[0].up);
	set_fixture_done(&x);
}
END_TEST

START_TEST(of_two_exclusive_puts_the_first_home_decides)
{
	set_fixture_open(&x, 2, 2);
	ck_assert_int_eq(mc_remote_put(x.r, "checkpoints/a", "one", 3, MC_PUT_EXCL, NULL), 0);
	ck_assert_int_eq(mc_remote_put(x.r, "checkpoints/a", "two", 3, MC_PUT_EXCL, NULL), -EEXIST);
	ck_assert_uint_eq(count_copies("checkpoints/a", "one"), 2);
	set_fixture_done(&x);
}
END_TEST

START_TEST(a_touch_finds_missing_copies_and_a_sync_waits_for_them)
{
	char path[80];

	set_fixture_open(&x, 2, 2);
	chunk_path(TEXT, LEN, path);
	put(path, TEXT);
	for (unsigned i = 0; i < 2; i++) {
		member_remove(&x, i, path);
		ck_assert_int_eq(mc_remote_touch(x.r, path, NULL), 0);
		ck_assert_int_eq(mc_remote_sync(x.r, NULL), 0);
		ck_assert_uint_eq(count_copies(path, TEXT), 2);
	}
	set_fixture_done(&x);
}
END_TEST

START_TEST(of_the_times_of_copies_the_newest_counts)
{
	struct mc_remote_attr attr;
	char path[80], full[200], name[80];
	struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};

	set_fixture_open(&x, 2, 2);
	chunk_path(TEXT, LEN, path);
	put(path, TEXT);
	ck_assert_int_eq(mc_remote_mkdir(x.r, "tmp/gc", NULL), 0);
	snprintf(name, sizeof(name), "tmp/gc/%s", strrchr(path, '/') + 1);
	for (unsigned i = 0; i < 2; i++) {
		snprintf(full, sizeof(full), "%s/m%u/%s", x.root, i, path);
		ck_assert_int_eq(utimensat(AT_FDCWD, full, old, 0), 0);
		ck_assert_int_eq(mc_remote_rename(x.r, path, name, NULL), 0);
		ck_assert_int_eq(mc_remote_stat(x.r, name, &attr, NULL), 0);
		ck_assert_int_gt(attr.mtime_s, 1000);
		ck_assert_int_eq(mc_remote_rename(x.r, name, path, NULL), 0);
		ck_assert_uint_eq(count_copies(path, TEXT), 2);
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
		put((char[]){'c', 'h', 'u', 'n', 'k', 's', '/', c, '\0'}, TEXT);
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

/* ---- rebalancing */

static struct mc_set_moved moved;
static int settle_res;

static int count_settled(void *ctx, const char *path, int res, const struct mc_set_moved *m)
{
	(void)ctx;
	(void)path;
	if (res < 0)
		settle_res = res;
	moved.copied += m->copied;
	moved.removed += m->removed;
	return 0;
}

static int settle_dir(void *ctx, const char *path)
{
	struct mc_set_settle how = {.file = count_settled, .dir = settle_dir};

	(void)ctx;
	return mc_remote_set_settle(x.r, path, &how);
}

static int settle(const char *dir)
{
	moved = (struct mc_set_moved){0};
	settle_res = 0;
	return settle_dir(NULL, dir);
}

/* Ten chunks as they were placed when m2 was not there. */
static void fill_two_of_three(char paths[10][80], char texts[10][32])
{
	set_fixture_open(&x, 3, 2);
	x.n = 2;
	set_fixture_reopen(&x);
	for (int i = 0; i < 10; i++) {
		snprintf(texts[i], 32, "chunk %d", i);
		chunk_path(texts[i], strlen(texts[i]), paths[i]);
		put(paths[i], texts[i]);
	}
	put("checkpoints/o/m/latest", "r1");
	x.n = 3;
	set_fixture_reopen(&x);
}

START_TEST(after_a_member_is_added_everything_goes_to_its_homes_and_nowhere_else)
{
	char paths[10][80], texts[10][32];

	fill_two_of_three(paths, texts);
	ck_assert_int_eq(settle("chunks"), 0);
	ck_assert_int_eq(settle_res, 0);
	ck_assert_uint_gt(moved.copied, 0);
	ck_assert_uint_eq(moved.copied, moved.removed);
	for (int i = 0; i < 10; i++) {
		unsigned homes[SET_MEMBERS];

		set_homes(&x, paths[i], homes);
		ck_assert(member_has(&x, homes[0], paths[i], texts[i], strlen(texts[i])));
		ck_assert(member_has(&x, homes[1], paths[i], texts[i], strlen(texts[i])));
		ck_assert(!member_has(&x, homes[2], paths[i], NULL, 0));
	}
	ck_assert_int_eq(settle("checkpoints"), 0);
	ck_assert_uint_eq(count_copies("checkpoints/o/m/latest", "r1"), 3);
	ck_assert_int_eq(settle("chunks"), 0);
	ck_assert_uint_eq(moved.copied + moved.removed, 0);
	set_fixture_done(&x);
}
END_TEST

START_TEST(a_member_without_weight_is_emptied)
{
	char paths[10][80], texts[10][32];

	fill_two_of_three(paths, texts);
	x.urls[0].weight = 0;
	set_fixture_reopen(&x);
	ck_assert_int_eq(settle("chunks"), 0);
	ck_assert_int_eq(settle("checkpoints"), 0);
	ck_assert_int_eq(settle_res, 0);
	for (int i = 0; i < 10; i++) {
		ck_assert(!member_has(&x, 0, paths[i], NULL, 0));
		ck_assert_uint_eq(count_copies(paths[i], texts[i]), 2);
	}
	ck_assert(!member_has(&x, 0, "checkpoints/o/m/latest", NULL, 0));
	ck_assert_uint_eq(count_copies("checkpoints/o/m/latest", "r1"), 2);
	set_fixture_done(&x);
}
END_TEST

START_TEST(the_last_good_copy_is_never_removed)
{
	char path[80], bad[LEN + 1] = TEXT;
	unsigned homes[SET_MEMBERS];

	set_fixture_open(&x, 3, 1);
	chunk_path(TEXT, LEN, path);
	set_homes(&x, path, homes);
	bad[3] ^= 4;
	member_write(&x, homes[0], path, bad, LEN);
	member_write(&x, homes[1], path, TEXT, LEN);
	ck_assert_int_eq(settle("chunks"), 0);
	ck_assert_int_eq(settle_res, 0);
	ck_assert(member_has(&x, homes[0], path, TEXT, LEN));
	ck_assert(!member_has(&x, homes[1], path, NULL, 0));
	/* With no good copy nothing is touched, and it is told. */
	member_write(&x, homes[0], path, bad, LEN);
	member_write(&x, homes[1], path, bad, LEN);
	ck_assert_int_eq(settle("chunks"), 0);
	ck_assert_int_eq(settle_res, -EBADMSG);
	ck_assert_uint_eq(count_copies(path, bad), 2);
	set_fixture_done(&x);
}
END_TEST

START_TEST(a_rebalance_needs_every_member)
{
	set_fixture_open(&x, 2, 1);
	put("chunks/a", TEXT);
	member_fails(&x, 1, -ECONNREFUSED);
	ck_assert_int_lt(settle("chunks"), 0);
	ck_assert_int_eq(settle("chunks"), -ENOTCONN);
	member_fails(&x, 1, 0);
	set_fixture_done(&x);
}
END_TEST

/* ---- opening and closing */

START_TEST(a_member_that_is_away_at_the_start_joins_later)
{
	char path[80];

	set_fixture_open(&x, 2, 2);
	chunk_path(TEXT, LEN, path);
	x.away[1] = true;
	set_fixture_reopen(&x);
	put(path, TEXT);
	ck_assert_int_eq(read_chunk(path, TEXT), 0);
	__atomic_store_n(&x.away[1], false, __ATOMIC_SEQ_CST);
	await_up(&x, 1, true);
	await_member_has(&x, 1, path, TEXT, LEN);
	set_fixture_done(&x);
}
END_TEST

START_TEST(with_no_member_there_opening_says_why)
{
	struct mc_err err = {0};
	struct mc_remote *none = NULL;

	set_fixture_open(&x, 2, 2);
	x.away[0] = x.away[1] = true;
	ck_assert_int_eq(mc_remote_set_open(x.urls, 2, &x.opts, &none, &err), -ECONNREFUSED);
	ck_assert_ptr_nonnull(strstr(err.text, "m0 is away"));
	set_fixture_done(&x);
}
END_TEST

static int n_ended;

static void ended(struct mc_remote_read *req, int res)
{
	(void)req;
	ck_assert_int_eq(res, -ESHUTDOWN);
	__atomic_add_fetch(&n_ended, 1, __ATOMIC_SEQ_CST);
}

START_TEST(close_ends_reads_that_hang_exactly_once)
{
	static struct mc_remote_read reqs[32];
	static char buf[32][16];
	char path[80];

	set_fixture_open(&x, 2, 2);
	chunk_path(TEXT, LEN, path);
	put(path, TEXT);
	member_hangs(&x, 0, true);
	member_hangs(&x, 1, true);
	for (int i = 0; i < 32; i++) {
		reqs[i] = (struct mc_remote_read){
			.path = path, .len = 16, .buf = buf[i], .done = ended};
		mc_remote_read(x.r, &reqs[i]);
	}
	mc_fault_wait_held(x.faults[0], 1);
	mc_fault_wait_held(x.faults[1], 1);
	set_fixture_done(&x);
	ck_assert_int_eq(n_ended, 32);
}
END_TEST

SUITE_MAIN("remote replicas", objects_are_shared_out_by_weight_and_only_move_to_who_is_new,
	the_hash_is_the_one_that_the_format_describes, each_class_has_its_number_of_copies,
	names_and_weights_are_read_strictly, one_member_down_is_read_around_and_comes_back,
	a_hung_member_does_not_hold_up_readers,
	one_hung_request_of_a_healthy_member_is_asked_of_another,
	all_members_down_is_an_error_by_the_deadline_and_then_right_bytes,
	a_bad_copy_is_not_asked_again_and_is_mended, when_all_copies_are_bad_the_reader_is_told,
	a_missing_copy_is_served_by_another_and_mended,
	absent_is_only_what_a_holder_would_have_denied, stale_handles_at_one_member_are_read_around,
	a_slow_member_gets_few_of_the_reads, hedges_are_a_small_share_of_reads,
	what_a_member_missed_is_brought_to_it, another_process_does_not_read_what_is_old,
	another_process_catches_up_and_leaves_no_marker, a_full_member_leaves_its_copies_to_others,
	all_members_full_is_enospc, a_read_only_member_is_read_from_and_not_written_to,
	of_two_exclusive_puts_the_first_home_decides,
	a_touch_finds_missing_copies_and_a_sync_waits_for_them,
	of_the_times_of_copies_the_newest_counts, a_list_is_everybodys_and_never_silently_short,
	after_a_member_is_added_everything_goes_to_its_homes_and_nowhere_else,
	a_member_without_weight_is_emptied, the_last_good_copy_is_never_removed,
	a_rebalance_needs_every_member, a_member_that_is_away_at_the_start_joins_later,
	with_no_member_there_opening_says_why, close_ends_reads_that_hang_exactly_once)
