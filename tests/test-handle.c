/* Handles: numbers that name one use of a slot, and bounds. */
#include "fs/handle.h"
#include "fs/names.h"
#include "tests/suite.h"

#include <errno.h>
#include <string.h>

static struct mc_handles *table(void)
{
	struct mc_handles *t;

	ck_assert_int_eq(mc_handles_open(&t), 0);
	return t;
}

static int add_text(struct mc_handles *t, const char *text, uint64_t *ret_id)
{
	const struct mc_handle h = {.text = strdup(text), .len = strlen(text)};

	return mc_handles_add(t, &h, ret_id);
}

static void expect_text(struct mc_handles *t, uint64_t id, const char *want)
{
	struct mc_handle *h = mc_handles_find(t, id);

	ck_assert_ptr_nonnull(h);
	ck_assert_str_eq(h->text, want);
	mc_handle_put(h);
}

START_TEST(a_handle_is_found_until_it_is_removed)
{
	struct mc_handles *t = table();
	uint64_t a, b;

	ck_assert_int_eq(add_text(t, "a", &a), 0);
	ck_assert_int_eq(add_text(t, "b", &b), 0);
	expect_text(t, a, "a");
	expect_text(t, b, "b");
	ck_assert_uint_eq(mc_handles_count(t), 2);
	mc_handles_remove(t, a);
	ck_assert_ptr_null(mc_handles_find(t, a));
	expect_text(t, b, "b");
	ck_assert_uint_eq(mc_handles_count(t), 1);
	mc_handles_close(t);
}
END_TEST

START_TEST(a_number_of_an_earlier_use_is_recognised)
{
	struct mc_handles *t = table();
	uint64_t old, now;

	ck_assert_int_eq(add_text(t, "old", &old), 0);
	mc_handles_remove(t, old);
	ck_assert_int_eq(add_text(t, "now", &now), 0);
	ck_assert_uint_eq((uint32_t)now, (uint32_t)old);
	ck_assert_ptr_null(mc_handles_find(t, old));
	mc_handles_remove(t, old);
	expect_text(t, now, "now");
	mc_handles_close(t);
}
END_TEST

START_TEST(unknown_numbers_are_nothing)
{
	static const uint64_t numbers[] = {0, 1, 2, UINT64_MAX, UINT64_C(1) << 32, UINT32_MAX};
	struct mc_handles *t = table();

	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		ck_assert_ptr_null(mc_handles_find(t, numbers[i]));
		mc_handles_remove(t, numbers[i]);
	}
	ck_assert_uint_eq(mc_handles_count(t), 0);
	mc_handles_close(t);
}
END_TEST

START_TEST(of_too_many_texts_the_oldest_goes)
{
	struct mc_answer answer = {.refs = 1};
	struct mc_handles *t = table();
	struct mc_handle *held;
	uint64_t first, id, dir;

	ck_assert_int_eq(
		mc_handles_add(t, &(struct mc_handle){.answer = mc_answer_ref(&answer)}, &dir), 0);
	ck_assert_int_eq(add_text(t, "first", &first), 0);
	for (unsigned i = 1; i < MC_HANDLE_TEXTS_MAX; i++)
		ck_assert_int_eq(add_text(t, "x", &id), 0);
	held = mc_handles_find(t, first);
	ck_assert_ptr_nonnull(held);
	ck_assert_int_eq(add_text(t, "last", &id), 0);
	ck_assert_ptr_null(mc_handles_find(t, first));
	ck_assert_str_eq(held->text, "first"); /* who reads it goes on */
	mc_handle_put(held);
	expect_text(t, id, "last");
	mc_handles_remove(t, first); /* its RELEASE comes late */
	ck_assert_uint_eq(mc_handles_count(t), MC_HANDLE_TEXTS_MAX + 1);
	mc_handles_remove(t, dir);
	ck_assert_uint_eq(atomic_load(&answer.refs), 1);
	mc_handles_close(t);
}
END_TEST

START_TEST(directories_are_bounded)
{
	struct mc_answer answer = {.refs = 1};
	struct mc_handles *t = table();
	uint64_t id;

	for (unsigned i = 0; i < MC_HANDLES_MAX; i++)
		ck_assert_int_eq(
			mc_handles_add(
				t, &(struct mc_handle){.answer = mc_answer_ref(&answer)}, &id),
			0);
	ck_assert_int_eq(
		mc_handles_add(t, &(struct mc_handle){.answer = mc_answer_ref(&answer)}, &id),
		-ENFILE);
	ck_assert_uint_eq(atomic_load(&answer.refs), MC_HANDLES_MAX + 1);
	mc_handles_close(t);
	ck_assert_uint_eq(atomic_load(&answer.refs), 1);
}
END_TEST

SUITE_MAIN("handle", a_handle_is_found_until_it_is_removed,
	a_number_of_an_earlier_use_is_recognised, unknown_numbers_are_nothing,
	of_too_many_texts_the_oldest_goes, directories_are_bounded)
