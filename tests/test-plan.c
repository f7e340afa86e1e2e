/* Plans own what they are given and merge adjacent holes. */
#include "tests/suite.h"
#include "tier/plan.h"

#include <string.h>

START_TEST(pieces_are_copied_and_holes_merge)
{
	struct mc_plan p;
	char path[] = "chunks/aa/bb";

	mc_plan_init(&p);
	ck_assert_int_eq(mc_plan_add_hole(&p, 10), 0);
	ck_assert_int_eq(mc_plan_add_hole(&p, 5), 0);
	ck_assert(mc_plan_is_hole(&p));
	for (int i = 0; i < 9; i++)
		ck_assert_int_eq(mc_plan_add_object(&p, path, 100, 7, NULL), 0);
	ck_assert_int_eq(mc_plan_add_inline(&p, "xyz", 3), 0);
	path[0] = 'X';
	ck_assert_uint_eq(p.n, 11);
	ck_assert_uint_eq(p.pieces[0].len, 15);
	ck_assert_str_eq(p.pieces[1].path, "chunks/aa/bb");
	ck_assert_mem_eq(p.pieces[10].data, "xyz", 3);
	ck_assert_uint_eq(mc_plan_len(&p), 15 + 9 * 7 + 3);
	ck_assert(!mc_plan_is_hole(&p));
	mc_plan_done(&p);
}
END_TEST

START_TEST(block_arithmetic_at_the_edges)
{
	static const struct {
		uint64_t size, blocks;
		uint32_t last;
	} t[] = {{1, 1, 1}, {MC_BLOCK_SIZE, 1, MC_BLOCK_SIZE}, {MC_BLOCK_SIZE + 1, 2, 1},
		{UINT64_MAX, UINT64_C(1) << 44, MC_BLOCK_SIZE - 1}};

	ck_assert_uint_eq(mc_block_count(0), 0);
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		ck_assert_uint_eq(mc_block_count(t[i].size), t[i].blocks);
		ck_assert_uint_eq(mc_block_len(t[i].size, t[i].blocks - 1), t[i].last);
	}
}
END_TEST

SUITE_MAIN("plan", pieces_are_copied_and_holes_merge, block_arithmetic_at_the_edges)
