/* A manifest's tensor table as the source of a layout and of a plan. */
#include "manifest/layout-source.h"
#include "manifest/planner.h"
#include "tests/layout-compile.h"
#include "tests/sample-manifest.h"

#include <errno.h>
#include <string.h>

START_TEST(parts_of_one_tensor_in_two_files_are_one_tensor_with_two_shards)
{
	struct mc_manifest *m = sample_manifest();
	struct mc_layout_source s;
	struct mc_err err = {{0}};
	struct mc_pattern p;

	ck_assert_msg(mc_layout_source_init(&s, m, 0, &err) == 0, "%s", err.text);
	ck_assert_uint_eq(s.n, 3);
	ck_assert_str_eq(s.name[0], "part");
	ck_assert_str_eq(s.name[1], "scalar");
	ck_assert_str_eq(s.name[2], "w.norm");
	ck_assert_uint_eq(s.tensor[0].shape[0], 2);
	ck_assert_uint_eq(s.tensor[0].shape[1], 3);
	p = s.side.pattern[s.side.of_tensor[0]];
	ck_assert_uint_eq(p.n, 2);
	for (uint32_t i = 0; i < 2; i++) {
		struct mc_tensor t;

		mc_manifest_tensor(m, (uint32_t)mc_side_tag(&s.side, 0, p.first + i), &t);
		ck_assert_str_eq(t.name, "part");
		ck_assert_uint_eq(t.box_off[0], i);
		ck_assert_uint_eq(s.side.shard[p.first + i].box.off[0], i);
	}
	mc_layout_source_done(&s);
	mc_manifest_unref(m);
}
END_TEST

START_TEST(a_plan_from_the_parts_covers_every_rank)
{
	struct mc_manifest *m = sample_manifest();
	struct mc_layout_source src;
	struct mc_layout *l;
	struct mc_sharding *s;
	struct mc_side wanted;
	struct mc_reshard *p;
	struct mc_err err = {{0}};
	struct mc_reshard_in in;

	ck_assert_int_eq(mc_layout_source_init(&src, m, 0, &err), 0);
	ck_assert_msg(
		compile("{" TP2
			"\"rules\":[{\"match\":\"w.norm\",\"split\":[{\"axis\":\"tp\",\"dim\":0}]},"
			"{\"match\":\"**\",\"replicate\":true}]}",
			src.tensor, src.n, &l, &s, &err) == 0,
		"%s", err.text);
	ck_assert_int_eq(mc_sharding_side(s, 1, &wanted, &err), 0);
	in = (struct mc_reshard_in){.names = src.name,
		.n_tensors = src.n,
		.held = &src.side,
		.wanted = &wanted,
		.n_participants = 3};
	ck_assert_msg(mc_reshard_plan(&in, &p, &err) == 0, "%s", err.text);
	/* Two ranks × (12 bytes of part + 1 of scalar) + the 24 bytes of w.norm once. */
	ck_assert_uint_eq(p->moved_bytes, 2 * 13 + 24);
	mc_reshard_free(p);
	mc_side_done(&wanted);
	mc_sharding_free(s);
	mc_layout_free(l);
	mc_layout_source_done(&src);
	mc_manifest_unref(m);
}
END_TEST

SUITE_MAIN("layout-source", parts_of_one_tensor_in_two_files_are_one_tensor_with_two_shards,
	a_plan_from_the_parts_covers_every_rank)
