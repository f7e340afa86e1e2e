/* Reading from several remotes whose members fail, hang, lie or are away. */
#include "tests/set-fixture.h"
#include "tests/suite.h"
#include "tier/lock.h"
#include "tier/remote-set-impl.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define TEXT "the bytes of an object"
#define LEN (sizeof(TEXT) - 1)

static struct set_fixture x;

/* ---- reading */

START_TEST(one_member_down_is_read_around_and_comes_back)
{
	char path[80];
	unsigned homes[SET_MEMBERS];

	set_fixture_open_chunk(&x, 2, 2, TEXT, path);
	set_homes(&x, path, homes);
	for (unsigned i = 0; i < 2; i++) {
		member_fails(&x, i, -ECONNREFUSED);
		for (int k = 0; k < 20; k++)
			ck_assert_int_eq(read_chunk(&x, path, TEXT), 0);
		await_up(&x, i, false);
		member_fails(&x, i, 0);
		await_up(&x, i, true);
		ck_assert_int_eq(read_chunk(&x, path, TEXT), 0);
	}
	ck_assert_uint_ge(status_of(&x).members[0].fenced, 1);
	set_fixture_done(&x);
}
END_TEST

START_TEST(a_hung_member_does_not_hold_up_readers)
{
	struct mc_remote_attr attr;
	unsigned homes[SET_MEMBERS], hung;
	char path[80];

	set_fixture_open_chunk(&x, 2, 2, TEXT, path);
	set_homes(&x, path, homes);
	hung = homes[0]; /* who is asked first */
	member_hangs(&x, hung, true);
	for (int k = 0; k < 50; k++)
		ck_assert_int_eq(read_chunk(&x, path, TEXT), 0);
	await_up(&x, hung, false);
	ck_assert_int_eq(mc_remote_stat(x.r, path, &attr, NULL), 0);
	ck_assert_int_eq(mc_remote_stat(x.r, "not/there", &attr, NULL), -ENOENT);
	member_hangs(&x, hung, false);
	await_up(&x, hung, true);
	ck_assert_int_eq(read_chunk(&x, path, TEXT), 0);
	set_fixture_done(&x);
}
END_TEST

START_TEST(one_hung_request_of_a_healthy_member_is_asked_of_another)
{
	const struct mc_fault_rule rule = {.op = MC_FAULT_READ, .kind = MC_FAULT_HANG, .count = 1};
	char path[80];

	set_fixture_open_chunk(&x, 2, 2, TEXT, path);
	mc_fault_add(x.faults[0], &rule);
	for (int k = 0; k < 50; k++)
		ck_assert_int_eq(read_chunk(&x, path, TEXT), 0);
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
	put_text(&x, path, TEXT);
	member_hangs(&x, 0, true);
	member_hangs(&x, 1, true);
	ck_assert_int_eq(read_chunk(&x, path, TEXT), -ETIMEDOUT);
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
	ck_assert_int_eq(read_chunk(&x, path, TEXT), 0);
	set_fixture_done(&x);
}
END_TEST

START_TEST(a_bad_copy_is_not_asked_again_and_is_mended)
{
	char path[80], bad[LEN + 1] = TEXT, buf[LEN];
	uint32_t served;

	set_fixture_open_chunk(&x, 2, 2, TEXT, path);
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

	set_fixture_open_chunk(&x, 2, 2, TEXT, path);
	bad[3] ^= 4;
	member_write(&x, 0, path, bad, LEN);
	member_write(&x, 1, path, bad, LEN);
	ck_assert_int_eq(read_chunk(&x, path, TEXT), -EBADMSG);
	ck_assert_uint_eq(count_copies(&x, path, bad), 2);
	set_fixture_done(&x);
}
END_TEST

START_TEST(a_missing_copy_is_served_by_another_and_mended)
{
	unsigned homes[SET_MEMBERS];
	char path[80];

	set_fixture_open_chunk(&x, 3, 2, TEXT, path);
	set_homes(&x, path, homes);
	member_remove(&x, homes[0], path);
	while (!member_has(&x, homes[0], path, TEXT, LEN))
		ck_assert_int_eq(read_chunk(&x, path, TEXT), 0); /* until that home was asked */
	/* Where no home has it, whoever does. */
	await_no_notes(&x);
	member_write(&x, homes[2], "chunks/stray", TEXT, LEN);
	ck_assert_int_eq(read_chunk(&x, "chunks/stray", TEXT), 0);
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
	put_text(&x, path, TEXT);
	set_homes(&x, path, homes);
	member_fails(&x, homes[0], -ECONNREFUSED);
	ck_assert_int_eq(set_read_at(x.r, path, buf, LEN, 0, NULL), -ECONNREFUSED);
	ck_assert_int_eq(mc_remote_stat(x.r, path, &attr, NULL), -ETIMEDOUT);
	member_fails(&x, homes[0], 0);
	await_up(&x, homes[0], true);
	ck_assert_int_eq(read_chunk(&x, path, TEXT), 0);
	ck_assert_int_eq(mc_remote_stat(x.r, "chunks/other", &attr, NULL), -ENOENT);
	set_fixture_done(&x);
}
END_TEST

START_TEST(stale_handles_at_one_member_are_read_around)
{
	char path[80];

	set_fixture_open_chunk(&x, 2, 2, TEXT, path);
	member_fails(&x, 0, -ESTALE);
	for (int k = 0; k < 50; k++)
		ck_assert_int_eq(read_chunk(&x, path, TEXT), 0);
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

	set_fixture_open_chunk(&x, 2, 2, TEXT, path);
	mc_fault_add(x.faults[0], &slow);
	for (int k = 0; k < 400; k++)
		ck_assert_int_eq(read_chunk(&x, path, TEXT), 0);
	st = status_of(&x);
	ck_assert_uint_lt(st.members[0].reads, 40);
	ck_assert_uint_gt(st.members[1].reads, 360);
	set_fixture_done(&x);
}
END_TEST

START_TEST(hedges_are_a_small_share_of_reads)
{
	const struct mc_fault_rule slow = {.op = MC_FAULT_READ, .kind = MC_FAULT_DELAY, .value = 8};
	char path[80];

	set_fixture_open_chunk(&x, 2, 2, TEXT, path);
	for (int k = 0; k < 64; k++)
		ck_assert_int_eq(read_chunk(&x, path, TEXT), 0);
	/* From now on every read takes longer than what nearly all took. */
	mc_fault_add(x.faults[0], &slow);
	mc_fault_add(x.faults[1], &slow);
	for (int k = 0; k < 100; k++)
		ck_assert_int_eq(read_chunk(&x, path, TEXT), 0);
	ck_assert_uint_le(status_of(&x).hedges, SET_TOKENS_FIRST / 25 + 164 / 25 + 1);
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
	put_text(&x, path, TEXT);
	ck_assert_int_eq(read_chunk(&x, path, TEXT), 0);
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

	set_fixture_open_chunk(&x, 2, 2, TEXT, path);
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

SUITE_MAIN("remote replicas", one_member_down_is_read_around_and_comes_back,
	a_hung_member_does_not_hold_up_readers,
	one_hung_request_of_a_healthy_member_is_asked_of_another,
	all_members_down_is_an_error_by_the_deadline_and_then_right_bytes,
	a_bad_copy_is_not_asked_again_and_is_mended, when_all_copies_are_bad_the_reader_is_told,
	a_missing_copy_is_served_by_another_and_mended,
	absent_is_only_what_a_holder_would_have_denied, stale_handles_at_one_member_are_read_around,
	a_slow_member_gets_few_of_the_reads, hedges_are_a_small_share_of_reads,
	a_member_that_is_away_at_the_start_joins_later, with_no_member_there_opening_says_why,
	close_ends_reads_that_hang_exactly_once)
