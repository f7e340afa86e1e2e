/* Where the copies of several remotes lie, and bringing them there after members come and go. */
#include "tests/set-fixture.h"
#include "tests/suite.h"
#include "tier/remote-set-impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TEXT "the bytes of an object"
#define LEN (sizeof(TEXT) - 1)

static struct set_fixture x;

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
	put_text(&x, chunk, TEXT);
	put_text(&x, "kv/00/00/k", TEXT);
	put_text(&x, "checkpoints/org/model/rev/manifest.json", TEXT);
	put_text(&x, "layouts/l.json", TEXT);
	ck_assert_uint_eq(count_copies(&x, chunk, TEXT), 2);
	ck_assert_uint_eq(count_copies(&x, "kv/00/00/k", TEXT), 2);
	ck_assert_uint_eq(count_copies(&x, "checkpoints/org/model/rev/manifest.json", TEXT), 3);
	ck_assert_uint_eq(count_copies(&x, "layouts/l.json", TEXT), 3);
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
		put_text(&x, paths[i], texts[i]);
	}
	put_text(&x, "checkpoints/o/m/latest", "r1");
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
	ck_assert_uint_eq(count_copies(&x, "checkpoints/o/m/latest", "r1"), 3);
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
		ck_assert_uint_eq(count_copies(&x, paths[i], texts[i]), 2);
	}
	ck_assert(!member_has(&x, 0, "checkpoints/o/m/latest", NULL, 0));
	ck_assert_uint_eq(count_copies(&x, "checkpoints/o/m/latest", "r1"), 2);
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
	ck_assert_uint_eq(count_copies(&x, path, bad), 2);
	set_fixture_done(&x);
}
END_TEST

START_TEST(a_rebalance_needs_every_member)
{
	set_fixture_open(&x, 2, 1);
	put_text(&x, "chunks/a", TEXT);
	member_fails(&x, 1, -ECONNREFUSED);
	ck_assert_int_lt(settle("chunks"), 0);
	ck_assert_int_eq(settle("chunks"), -ENOTCONN);
	member_fails(&x, 1, 0);
	set_fixture_done(&x);
}
END_TEST

SUITE_MAIN("remote place", objects_are_shared_out_by_weight_and_only_move_to_who_is_new,
	the_hash_is_the_one_that_the_format_describes, each_class_has_its_number_of_copies,
	names_and_weights_are_read_strictly,
	after_a_member_is_added_everything_goes_to_its_homes_and_nowhere_else,
	a_member_without_weight_is_emptied, the_last_good_copy_is_never_removed,
	a_rebalance_needs_every_member)
