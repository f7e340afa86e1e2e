/* The planner's properties: least bytes, egress bound, region counts, routes, order, exact cover.
 */
#include "manifest/planner.h"
#include "tests/random.h"
#include "tests/shard-list.h"
#include "tests/suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* shape cut into parts[d] equal parts; part number i (row-major) is at participant base + i. */
static void add_grid(
	struct list *l, const struct mc_box *shape, const uint32_t *parts, uint32_t base)
{
	uint32_t n = 1;

	for (unsigned d = 0; d < shape->rank; d++)
		n *= parts[d];
	for (uint32_t i = 0; i < n; i++) {
		struct mc_box b = *shape;
		uint32_t rest = i;

		for (unsigned d = shape->rank; d-- > 0;) {
			b.len[d] = shape->len[d] / parts[d];
			b.off[d] = rest % parts[d] * b.len[d];
			rest /= parts[d];
		}
		add(l, base + i, &b);
	}
}

static struct mc_reshard *plan(const char *const *names, uint32_t n, const struct mc_side *held,
	const struct mc_side *wanted, uint32_t participants)
{
	struct mc_reshard_in in = {.names = names,
		.n_tensors = n,
		.held = held,
		.wanted = wanted,
		.n_participants = participants};
	struct mc_reshard *p = NULL;
	struct mc_err err = {{0}};
	int r = mc_reshard_plan(&in, &p, &err);

	ck_assert_msg(r == 0, "%d: %s", r, err.text);
	return p;
}

/* One tensor on both sides. */
static struct mc_reshard *plan_one(struct mc_side *held, const struct list *h,
	struct mc_side *wanted, const struct list *w, uint32_t participants)
{
	static const char *const names[] = {"t"};

	ck_assert_int_eq(mc_side_init(held, 1), 0);
	ck_assert_int_eq(mc_side_init(wanted, 1), 0);
	ck_assert_int_eq(mc_side_set(held, 0, h->v, h->n, NULL), 0);
	ck_assert_int_eq(mc_side_set(wanted, 0, w->v, w->n, NULL), 0);
	return plan(names, 1, held, wanted, participants);
}

static struct list held_list, wanted_list;

static void reset_lists(void)
{
	held_list.n = 0;
	wanted_list.n = 0;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
	return b == 0 ? a : gcd(b, a % b);
}

START_TEST(even_p_to_q_has_p_plus_q_minus_gcd_regions)
{
	static const uint32_t sizes[] = {1, 2, 3, 4, 6, 8, 12, 16};

	for (size_t i = 0; i < 8; i++)
		for (size_t j = 0; j < 8; j++) {
			uint32_t p = sizes[i], q = sizes[j], ph[2] = {p, q}, qh[2] = {q, p};
			uint64_t k = p + q - gcd(p, q);
			struct mc_box shape = {.rank = 2, .len = {48, 96}};
			struct mc_side held, wanted;
			struct mc_reshard *r;

			reset_lists();
			add_grid(&held_list, &shape, ph, 0);
			add_grid(&wanted_list, &shape, qh, 0);
			r = plan_one(&held, &held_list, &wanted, &wanted_list, 512);
			ck_assert_uint_eq(r->overlaps, k * k);
			ck_assert_uint_eq(r->wanted_bytes, 48 * 96);
			mc_reshard_free(r);
			mc_side_done(&held);
			mc_side_done(&wanted);
		}
}
END_TEST

START_TEST(ep8_to_tp8_is_64_regions_of_8192_segments)
{
	struct mc_box shape = {.rank = 3, .len = {8, 8192, 8192 * 2}};
	uint32_t ep[3] = {8, 1, 1}, tp[3] = {1, 1, 8};
	struct mc_side held, wanted;
	struct mc_reshard *r;

	reset_lists();
	add_grid(&held_list, &shape, ep, 0);
	add_grid(&wanted_list, &shape, tp, 8);
	r = plan_one(&held, &held_list, &wanted, &wanted_list, 16);
	ck_assert_uint_eq(r->n_links, 64);
	ck_assert_uint_eq(r->overlaps, 64);
	for (uint32_t i = 0; i < r->n_links; i++) {
		struct mc_region g;

		mc_reshard_link_region(r, &r->link[i], &g);
		ck_assert_uint_eq(mc_region_runs(&g), 8192);
		ck_assert_uint_eq(g.inner, 2048);
		ck_assert_uint_eq(g.rank, 1);
	}
	mc_reshard_free(r);
	mc_side_done(&held);
	mc_side_done(&wanted);
}
END_TEST

/* dp × pp × ep × tp: layer l is on stage l·pp/4, experts on dim 0, columns on dim 1. */
static void place_4d(struct list *l, uint32_t layer, const uint32_t *n, uint32_t base)
{
	uint32_t dp = n[0], pp = n[1], ep = n[2], tp = n[3], stage = layer * pp / 4;
	struct mc_box shape = {.rank = 3, .len = {8, 8, 4}};
	uint32_t parts[3] = {ep, tp, 1};

	l->n = 0;
	for (uint32_t d = 0; d < dp; d++)
		add_grid(l, &shape, parts, base + (d * pp + stage) * ep * tp);
}

START_TEST(dp2_pp2_ep8_tp4_to_dp4_pp4_ep2_tp8_moves_4096_bytes_on_four_routes)
{
	static const char *const names[] = {"l0", "l1", "l2", "l3"};
	static const uint32_t from[4] = {2, 2, 8, 4}, to[4] = {4, 4, 2, 8};
	bool route[2][4] = {{false}},
	     want[2][4] = {{true, true, false, false}, {false, false, true, true}};
	struct mc_side held, wanted;
	struct mc_reshard *r;

	ck_assert_int_eq(mc_side_init(&held, 4), 0);
	ck_assert_int_eq(mc_side_init(&wanted, 4), 0);
	for (uint32_t i = 0; i < 4; i++) {
		place_4d(&held_list, i, from, 0);
		place_4d(&wanted_list, i, to, 128);
		ck_assert_int_eq(mc_side_set(&held, i, held_list.v, held_list.n, NULL), 0);
		ck_assert_int_eq(mc_side_set(&wanted, i, wanted_list.v, wanted_list.n, NULL), 0);
	}
	r = plan(names, 4, &held, &wanted, 128 + 256);
	ck_assert_uint_eq(r->moved_bytes, 4096);
	ck_assert_uint_eq(r->local_bytes, 0);
	for (uint32_t i = 0; i < r->n_links; i++) {
		uint32_t s = held.shard[r->link[i].src].participant,
			 t = wanted.shard[r->link[i].dst].participant;

		ck_assert_uint_lt(s, 128);
		ck_assert_uint_ge(t, 128);
		route[s / 32 % 2][(t - 128) / 16 % 4] = true;
	}
	ck_assert_mem_eq(route, want, sizeof(want));
	mc_reshard_free(r);
	mc_side_done(&held);
	mc_side_done(&wanted);
}
END_TEST

/* E* by enumerating every set of senders, as num / den. */
static void bound_by_enumeration(uint32_t senders, const uint32_t *mask, const uint64_t *bytes,
	uint32_t n, uint64_t *ret_num, uint64_t *ret_den)
{
	*ret_num = 0;
	*ret_den = 1;
	for (uint32_t set = 1; set < 1u << senders; set++) {
		uint64_t num = 0, den = (uint64_t)__builtin_popcount(set);

		for (uint32_t i = 0; i < n; i++)
			if ((mask[i] & ~set) == 0)
				num += bytes[i];
		if (num * *ret_den > *ret_num * den) {
			*ret_num = num;
			*ret_den = den;
		}
	}
}

/* One tensor of rows bytes × 64 per mask, each held whole by the senders of the mask, wanted by
 * one. */
static void check_bound(uint32_t senders, const uint32_t *mask, const uint32_t *rows, uint32_t n)
{
	char text[16][8];
	const char *names[16];
	uint64_t bytes[16], num, den, most = 0, total = 0;
	struct mc_side held, wanted;
	struct mc_reshard *r;

	ck_assert_int_eq(mc_side_init(&held, n), 0);
	ck_assert_int_eq(mc_side_init(&wanted, n), 0);
	for (uint32_t i = 0; i < n; i++) {
		struct mc_box shape = {.rank = 2, .len = {rows[i], 4096}};

		snprintf(text[i], sizeof(text[i]), "t%02u", i);
		names[i] = text[i];
		bytes[i] = mc_box_volume(&shape);
		total += bytes[i];
		reset_lists();
		for (uint32_t s = 0; s < senders; s++)
			if (mask[i] >> s & 1)
				add(&held_list, s, &shape);
		add(&wanted_list, senders, &shape);
		ck_assert_int_eq(mc_side_set(&held, i, held_list.v, held_list.n, NULL), 0);
		ck_assert_int_eq(mc_side_set(&wanted, i, wanted_list.v, wanted_list.n, NULL), 0);
	}
	r = plan(names, n, &held, &wanted, senders + 1);
	bound_by_enumeration(senders, mask, bytes, n, &num, &den);
	ck_assert_uint_eq(r->bound_num * den, num * r->bound_den);
	for (uint32_t s = 0; s < senders; s++)
		if (r->egress[s] > most)
			most = r->egress[s];
	ck_assert_uint_eq(r->moved_bytes, total);
	ck_assert_uint_ge(most * den + den, num);
	/* The tests' tensors are small, so the slack is asked to be a hundredth, not a MiB. */
	ck_assert_uint_le(most * den, num + num / 100 + 4096 * den);
	mc_reshard_free(r);
	mc_side_done(&held);
	mc_side_done(&wanted);
}

START_TEST(largest_egress_is_the_bound_found_by_enumeration)
{
	static const uint32_t triangle[] = {3, 6, 5}, rows[] = {100, 100, 100},
			      skew[] = {300, 10, 10};

	check_bound(3, triangle, rows, 3);
	check_bound(3, triangle, skew, 3);
	seed_state = 23;
	for (int round = 0; round < 300; round++) {
		uint32_t senders = 1 + rnd(10), n = 1 + rnd(12), mask[16], len[16];

		for (uint32_t i = 0; i < n; i++) {
			mask[i] = 1 + rnd((1u << senders) - 1);
			len[i] = 1 + rnd(200);
		}
		check_bound(senders, mask, len, n);
	}
}
END_TEST

START_TEST(dp4_to_1_takes_a_quarter_from_each)
{
	struct mc_box shape = {.rank = 2, .len = {4096, 8192}};
	struct mc_side held, wanted;
	struct mc_reshard *r;

	reset_lists();
	for (uint32_t i = 0; i < 4; i++)
		add(&held_list, i, &shape);
	add(&wanted_list, 4, &shape);
	r = plan_one(&held, &held_list, &wanted, &wanted_list, 5);
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_uint_eq(r->egress[i], 4096 * 8192 / 4);
	ck_assert_uint_eq(r->n_links, 4);
	mc_reshard_free(r);
	mc_side_done(&held);
	mc_side_done(&wanted);
}
END_TEST

START_TEST(what_nobody_holds_is_an_error_naming_tensor_and_participant)
{
	struct mc_box half = {.rank = 2, .len = {4, 8}}, whole = {.rank = 2, .len = {8, 8}};
	static const char *const names[] = {"model.norm.weight"};
	struct mc_side held, wanted;
	struct mc_reshard_in in = {.names = names,
		.n_tensors = 1,
		.held = &held,
		.wanted = &wanted,
		.n_participants = 4};
	struct mc_reshard *p = NULL;
	struct mc_err err = {{0}};

	reset_lists();
	add(&held_list, 0, &half);
	add(&wanted_list, 3, &whole);
	ck_assert_int_eq(mc_side_init(&held, 1), 0);
	ck_assert_int_eq(mc_side_init(&wanted, 1), 0);
	ck_assert_int_eq(mc_side_set(&held, 0, held_list.v, 1, NULL), 0);
	ck_assert_int_eq(mc_side_set(&wanted, 0, wanted_list.v, 1, NULL), 0);
	ck_assert_int_eq(mc_reshard_plan(&in, &p, &err), -EINVAL);
	ck_assert_ptr_null(p);
	ck_assert_ptr_nonnull(strstr(err.text, "model.norm.weight"));
	ck_assert_ptr_nonnull(strstr(err.text, "participant 3"));
	ck_assert_ptr_nonnull(strstr(err.text, "32 of 64"));
	in.n_participants = 2;
	err.text[0] = 0;
	ck_assert_int_eq(mc_reshard_plan(&in, &p, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "participant 3 of 2"));
	mc_side_done(&held);
	mc_side_done(&wanted);
}
END_TEST

START_TEST(a_thousand_by_a_thousand_boxes_are_1024_or_1048576_links)
{
	struct mc_box shape = {.rank = 2, .len = {4096, 4096}};
	uint32_t rows[2] = {1024, 1}, columns[2] = {1, 1024};
	struct mc_side held, wanted;

	for (int crossing = 0; crossing < 2; crossing++) {
		struct mc_reshard *r;

		reset_lists();
		add_grid(&held_list, &shape, rows, 0);
		add_grid(&wanted_list, &shape, crossing ? columns : rows, 1024);
		r = plan_one(&held, &held_list, &wanted, &wanted_list, 2048);
		ck_assert_uint_eq(r->n_links, crossing ? 1048576 : 1024);
		mc_reshard_free(r);
		mc_side_done(&held);
		mc_side_done(&wanted);
	}
}
END_TEST

START_TEST(boxes_beyond_62_bits_and_mixed_ranks_are_refused)
{
	struct mc_box big = {.rank = 2, .len = {UINT64_C(1) << 40, UINT64_C(1) << 40}},
		      one = {.rank = 1, .len = {8}};
	struct mc_side s;

	ck_assert_int_eq(mc_side_init(&s, 2), 0);
	reset_lists();
	add(&held_list, 0, &big);
	ck_assert_int_eq(mc_side_set(&s, 0, held_list.v, 1, NULL), -EOVERFLOW);
	big.len[0] = 1;
	reset_lists();
	add(&held_list, 0, &big);
	add(&held_list, 1, &one);
	ck_assert_int_eq(mc_side_set(&s, 0, held_list.v, 2, NULL), -EINVAL);
	ck_assert_int_eq(mc_side_set(&s, 0, held_list.v, 1, NULL), 0);
	ck_assert_int_eq(mc_side_set(&s, 0, held_list.v, 1, NULL), -EEXIST);
	mc_side_done(&s);
}
END_TEST

SUITE_MAIN("planner", even_p_to_q_has_p_plus_q_minus_gcd_regions,
	ep8_to_tp8_is_64_regions_of_8192_segments,
	dp2_pp2_ep8_tp4_to_dp4_pp4_ep2_tp8_moves_4096_bytes_on_four_routes,
	largest_egress_is_the_bound_found_by_enumeration, dp4_to_1_takes_a_quarter_from_each,
	what_nobody_holds_is_an_error_naming_tensor_and_participant,
	a_thousand_by_a_thousand_boxes_are_1024_or_1048576_links,
	boxes_beyond_62_bits_and_mixed_ranks_are_refused)
