/* The pace of a scrub: its rate, and that it yields to others. Time is an argument. */
#include "tests/suite.h"
#include "tier/pace.h"

#define MIB (UINT64_C(1) << 20)
#define SECOND UINT64_C(1000000000)

START_TEST(a_pace_holds_its_rate_and_saves_nothing_up)
{
	struct mc_pace p = {0};
	uint64_t now = 5 * SECOND, began = now;

	for (unsigned i = 0; i < 64; i++) /* reads of 1 ms */
		now = mc_pace_read(&p, now + SECOND / 1000, 16 * MIB, MIB, SECOND / 1000, false);
	ck_assert_uint_ge(now - began, 4 * SECOND);
	ck_assert_uint_le(now - began, 4 * SECOND + SECOND / 100);
	/* After an hour of nothing the next piece costs its time again. */
	now += 3600 * SECOND;
	ck_assert_uint_ge(
		mc_pace_read(&p, now, 16 * MIB, MIB, SECOND / 1000, false) - now, SECOND / 20);
	ck_assert_uint_eq(mc_pace_read(&p, now, 0, MIB, SECOND, true), now);
}
END_TEST

START_TEST(a_pace_yields_to_others_and_comes_back)
{
	struct mc_pace p = {0};
	uint64_t now = SECOND, next, cost = SECOND / 16;

	next = mc_pace_read(&p, now, 16 * MIB, MIB, SECOND / 1000, true); /* told */
	ck_assert_uint_ge(next, now + MC_PACE_YIELD * cost - SECOND / 1000);
	now = next;
	next = mc_pace_read(&p, now, 16 * MIB, MIB, SECOND / 100, false); /* felt */
	ck_assert_uint_ge(next, now + MC_PACE_YIELD * cost - SECOND / 100);
	now = next;
	next = mc_pace_read(&p, now, 16 * MIB, MIB, SECOND / 1000, false);
	ck_assert_uint_le(next, now + cost);
}

SUITE_MAIN(
	"pace", a_pace_holds_its_rate_and_saves_nothing_up, a_pace_yields_to_others_and_comes_back)
