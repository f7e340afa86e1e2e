/* Why something did not happen: the last failures, by what they were about. */
#include "fs/reason.h"
#include "tests/suite.h"

#include <stdio.h>
#include <string.h>

static void expect(struct mc_reasons *rs, uint64_t about, const char *want)
{
	char text[MC_REASON_BYTES];

	mc_reasons_get(rs, about, text);
	ck_assert_str_eq(text, want);
}

START_TEST(the_last_failure_stands_until_something_goes_well)
{
	struct mc_reasons *rs;

	ck_assert_int_eq(mc_reasons_open(&rs), 0);
	expect(rs, 10, "");
	mc_reasons_set(rs, 10, "first");
	mc_reasons_set(rs, 20, "other");
	mc_reasons_set(rs, 10, "second");
	expect(rs, 10, "second");
	expect(rs, 20, "other");
	mc_reasons_set(rs, 10, "");
	expect(rs, 10, "");
	mc_reasons_set(rs, 20, NULL);
	expect(rs, 20, "");
	mc_reasons_close(rs);
}
END_TEST

START_TEST(a_long_text_is_cut)
{
	char text[1000] = "", want[MC_REASON_BYTES];
	struct mc_reasons *rs;

	ck_assert_int_eq(mc_reasons_open(&rs), 0);
	memset(text, 'x', sizeof(text) - 1);
	snprintf(want, sizeof(want), "%.*s", MC_REASON_BYTES - 1, text);
	mc_reasons_set(rs, 1, text);
	expect(rs, 1, want);
	mc_reasons_close(rs);
}
END_TEST

START_TEST(of_too_many_the_oldest_is_forgotten)
{
	struct mc_reasons *rs;
	char text[32];

	ck_assert_int_eq(mc_reasons_open(&rs), 0);
	for (uint64_t i = 1; i <= 1025; i++) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)i);
		mc_reasons_set(rs, 2 * i, text);
	}
	expect(rs, 2, "");
	expect(rs, 4, "2");
	expect(rs, 2050, "1025");
	mc_reasons_close(rs);
}
END_TEST

SUITE_MAIN("reason", the_last_failure_stands_until_something_goes_well, a_long_text_is_cut,
	of_too_many_the_oldest_is_forgotten)
