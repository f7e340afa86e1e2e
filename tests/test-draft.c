/* Files being written in layouts/: what they hold, when they go, what is published of them. */
#include "fs/draft.h"
#include "manifest/layout.h"
#include "tests/suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct mc_drafts *opened(void)
{
	struct mc_drafts *ds = NULL;

	ck_assert_int_eq(mc_drafts_open(&ds), 0);
	return ds;
}

static uint32_t made(struct mc_drafts *ds, const char *name, const char *text)
{
	uint32_t n = 0;

	ck_assert_int_eq(mc_draft_create(ds, name, false, &n), 0);
	ck_assert_int_eq(mc_draft_write(ds, n, text, strlen(text), 0), 0);
	return n;
}

static int find(struct mc_drafts *ds, const char *name)
{
	uint32_t n;

	return mc_draft_find(ds, name, &n);
}

/* The text that a close would publish, "" = none; the result that it would repeat. */
static int wanted(struct mc_drafts *ds, uint32_t n, bool always, char out[64])
{
	struct mc_draft_copy c;
	int r = mc_draft_copy(ds, n, always, &c);

	out[0] = '\0';
	if (r == 0 && c.text != NULL)
		snprintf(out, 64, "%.*s", (int)c.len, c.text);
	free(c.text);
	return r < 0 ? r : c.last;
}

START_TEST(only_plain_names_of_layouts_are_published_by_a_close)
{
	static const struct {
		const char *name;
		bool want;
	} t[] = {{"a.json", true}, {".json", false}, {".a.json", false}, {"a.json.tmp", false},
		{"a", false}, {"", false}, {"a.b.json", true}, {"tp8.json", true}};

	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++)
		ck_assert_msg(mc_draft_publishes(t[i].name) == t[i].want, "%s", t[i].name);
}
END_TEST

START_TEST(bytes_are_those_written_and_gaps_are_zeros)
{
	struct mc_drafts *ds = opened();
	uint32_t n = made(ds, "x", "abc");
	struct mc_draft_attr a;
	char buf[16];

	ck_assert_int_eq(mc_draft_write(ds, n, "z", 1, 5), 0);
	ck_assert_int_eq(mc_draft_read(ds, n, buf, sizeof(buf), 1), 5);
	ck_assert_mem_eq(buf, "bc\0\0z", 5);
	ck_assert_int_eq(mc_draft_truncate(ds, n, 2), 0);
	ck_assert_int_eq(mc_draft_truncate(ds, n, 4), 0);
	ck_assert_int_eq(mc_draft_read(ds, n, buf, sizeof(buf), 0), 4);
	ck_assert_mem_eq(buf, "ab\0\0", 4);
	ck_assert_int_eq(mc_draft_read(ds, n, buf, sizeof(buf), 4), 0);
	ck_assert_int_eq(mc_draft_stat(ds, n, &a), 0);
	ck_assert_uint_eq(a.size, 4);
	mc_drafts_close(ds);
}
END_TEST

START_TEST(a_close_publishes_what_no_try_has_seen_and_repeats_its_result)
{
	struct mc_drafts *ds = opened();
	uint32_t n = made(ds, "x.json", ""), hidden = made(ds, ".x", "abc");
	char text[64];

	ck_assert_int_eq(wanted(ds, n, false, text), 0);
	ck_assert_str_eq(text, "");
	ck_assert_int_eq(mc_draft_write(ds, n, "bad", 3, 0), 0);
	ck_assert_int_eq(wanted(ds, n, false, text), 0);
	ck_assert_str_eq(text, "bad");
	mc_draft_settle(ds, n, "x.json", -EBADMSG, "line 1");
	ck_assert_int_eq(wanted(ds, n, false, text), -EBADMSG);
	ck_assert_str_eq(text, "");
	ck_assert_int_eq(wanted(ds, n, true, text), -EBADMSG);
	ck_assert_str_eq(text, "bad");
	ck_assert_int_eq(wanted(ds, hidden, false, text), 0);
	ck_assert_str_eq(text, "");
	mc_drafts_close(ds);
}
END_TEST

START_TEST(what_lacks_bytes_is_never_published)
{
	struct mc_drafts *ds = opened();
	uint32_t n = made(ds, "x.json", "good");
	char text[64];

	ck_assert_int_eq(mc_draft_write(ds, n, "y", 1, MC_LAYOUT_MAX_BYTES), -EFBIG);
	ck_assert_int_eq(mc_draft_write(ds, n, "y", 1, UINT64_MAX), -EFBIG);
	ck_assert_int_eq(mc_draft_truncate(ds, n, MC_LAYOUT_MAX_BYTES + 1), -EFBIG);
	ck_assert_int_eq(wanted(ds, n, false, text), -EFBIG);
	ck_assert_int_eq(wanted(ds, n, true, text), -EFBIG);
	ck_assert_int_eq(mc_draft_truncate(ds, n, 2), 0);
	ck_assert_int_eq(wanted(ds, n, false, text), 0);
	ck_assert_str_eq(text, "go");
	mc_drafts_close(ds);
}
END_TEST

START_TEST(a_published_draft_is_not_found_and_goes_with_its_last_close)
{
	struct mc_drafts *ds = opened();
	uint32_t n = made(ds, ".x", "a"), other = made(ds, "x.json", "b");
	struct mc_draft_attr a;

	mc_draft_settle(ds, n, "x.json", 0, "");
	ck_assert_int_eq(find(ds, ".x"), -ENOENT);
	ck_assert_int_eq(find(ds, "x.json"), -ENOENT); /* the other one lost the name */
	ck_assert_int_eq(mc_draft_stat(ds, n, &a), 0);
	ck_assert_int_eq(mc_draft_release(ds, n), false);
	ck_assert_int_eq(mc_draft_stat(ds, n, &a), -ESTALE);
	ck_assert_int_eq(mc_draft_stat(ds, other, &a), 0);
	mc_drafts_close(ds);
}
END_TEST

START_TEST(refused_and_empty_drafts_go_with_their_last_close_temporary_ones_stay)
{
	struct mc_drafts *ds = opened();
	uint32_t bad = made(ds, "bad.json", "x"), empty = made(ds, "empty.json", "");
	uint32_t tmp = made(ds, "tmp", "x");

	mc_draft_settle(ds, bad, "bad.json", -EBADMSG, "line 1");
	ck_assert_int_eq(mc_draft_open(ds, bad, false), 0);
	ck_assert_int_eq(mc_draft_release(ds, bad), false);
	ck_assert_int_eq(find(ds, "bad.json"), 0);
	ck_assert_int_eq(mc_draft_release(ds, bad), false);
	ck_assert_int_eq(find(ds, "bad.json"), -ENOENT);
	ck_assert_int_eq(mc_draft_release(ds, empty), true);
	ck_assert_int_eq(find(ds, "empty.json"), -ENOENT);
	ck_assert_int_eq(mc_draft_release(ds, tmp), false);
	ck_assert_int_eq(find(ds, "tmp"), 0);
	ck_assert_int_eq(mc_draft_unlink(ds, "tmp"), 0);
	ck_assert_int_eq(mc_draft_unlink(ds, "tmp"), -ENOENT);
	mc_drafts_close(ds);
}
END_TEST

START_TEST(the_oldest_closed_draft_makes_room_and_open_ones_do_not)
{
	struct mc_drafts *ds = opened();
	uint32_t n[MC_DRAFTS], more;
	char name[16];

	for (unsigned i = 0; i < MC_DRAFTS; i++) {
		snprintf(name, sizeof(name), "t%u", i);
		n[i] = made(ds, name, "x");
	}
	ck_assert_int_eq(mc_draft_create(ds, "more", false, &more), -ENOSPC);
	ck_assert_int_eq(mc_draft_create(ds, "t3", true, &more), -EEXIST);
	mc_draft_release(ds, n[5]);
	mc_draft_release(ds, n[2]);
	ck_assert_int_eq(mc_draft_create(ds, "more", true, &more), 0);
	ck_assert_int_eq(find(ds, "t2"), -ENOENT);
	ck_assert_int_eq(find(ds, "t5"), 0);
	ck_assert_int_eq(mc_draft_rename(ds, n[5], "t6"), 0);
	ck_assert_int_eq(find(ds, "t5"), -ENOENT);
	mc_drafts_close(ds);
}
END_TEST

START_TEST(the_reason_of_a_refusal_is_told_by_directory_and_draft)
{
	struct mc_drafts *ds = opened();
	uint32_t n = made(ds, "a", "x"), m = made(ds, "b", "x");
	char why[MC_DRAFT_ERROR_BYTES];

	mc_draft_settle(ds, n, "a.json", -EBADMSG, "line 1");
	mc_drafts_error(ds, why);
	ck_assert_str_eq(why, "line 1");
	ck_assert_int_eq(mc_draft_error(ds, n, why), 0);
	ck_assert_str_eq(why, "line 1");
	ck_assert_int_eq(mc_draft_error(ds, m, why), 0);
	ck_assert_str_eq(why, "");
	mc_drafts_fail(ds, "too many");
	mc_drafts_error(ds, why);
	ck_assert_str_eq(why, "too many");
	ck_assert_int_eq(mc_draft_error(ds, 99, why), -ESTALE);
	mc_drafts_close(ds);
}
END_TEST

SUITE_MAIN("draft", only_plain_names_of_layouts_are_published_by_a_close,
	bytes_are_those_written_and_gaps_are_zeros,
	a_close_publishes_what_no_try_has_seen_and_repeats_its_result,
	what_lacks_bytes_is_never_published,
	a_published_draft_is_not_found_and_goes_with_its_last_close,
	refused_and_empty_drafts_go_with_their_last_close_temporary_ones_stay,
	the_oldest_closed_draft_makes_room_and_open_ones_do_not,
	the_reason_of_a_refusal_is_told_by_directory_and_draft)
