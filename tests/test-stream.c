/* Streams: what is fetched ahead, and that random readers cost nothing extra. */
#include "tests/suite.h"
#include "tier/plan.h"
#include "tier/stream.h"

#include <stdio.h>

#define MIB MC_BLOCK_SIZE

START_TEST(a_sequential_reader_gets_a_window_that_doubles_to_its_bound)
{
	static const uint32_t want[] = {0, 0, 4, 5, 9, 17, 1, 1};
	struct mc_streams t = {0};
	uint64_t first, expect = 0;

	for (unsigned i = 0; i < sizeof(want) / sizeof(*want); i++) {
		uint32_t n = mc_streams_note(&t, i * MIB, MIB, 32, &first);

		ck_assert_uint_eq(n, want[i]);
		if (n == 0)
			continue;
		ck_assert_uint_eq(first, expect == 0 ? i + 1 : expect);
		expect = first + n;
	}
}
END_TEST

START_TEST(random_small_reads_never_fetch_ahead)
{
	struct mc_streams t = {0};
	unsigned seed = 7;
	uint64_t first;

	for (int i = 0; i < 100000; i++) {
		uint64_t off = ((uint64_t)(rand_r(&seed) & 0xffff) * 37 % 65536) * 8192;

		ck_assert_uint_eq(mc_streams_note(&t, off, 4096, 32, &first), 0);
	}
}
END_TEST

START_TEST(eight_interleaved_readers_are_eight_streams)
{
	struct mc_streams t = {0};
	uint64_t first;
	uint32_t ahead[8] = {0};

	for (uint64_t i = 0; i < 16; i++)
		for (uint64_t k = 0; k < 8; k++)
			ahead[k] += mc_streams_note(&t, k * 1000 * MIB + i * MIB, MIB, 8, &first);
	for (int k = 0; k < 8; k++)
		ck_assert_uint_eq(ahead[k], 16 - 3 + 8);
}
END_TEST

START_TEST(large_reads_may_arrive_a_little_out_of_order)
{
	static const uint64_t order[] = {0, 2, 1, 3, 5, 4, 6};
	struct mc_streams t = {0};
	uint64_t first = 0, total = 0;

	for (unsigned i = 0; i < sizeof(order) / sizeof(*order); i++)
		total += mc_streams_note(&t, order[i] * MIB, MIB, 4, &first);
	ck_assert_uint_eq(total, 6 + 4 - 2);
}
END_TEST

SUITE_MAIN("stream", a_sequential_reader_gets_a_window_that_doubles_to_its_bound,
	random_small_reads_never_fetch_ahead, eight_interleaved_readers_are_eight_streams,
	large_reads_may_arrive_a_little_out_of_order)
