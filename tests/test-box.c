/* Boxes, their index, cells and strided regions, against brute force on small arrays. */
#include "manifest/box.h"
#include "manifest/region.h"
#include "tests/random.h"
#include "tests/suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SIDE 9 /* of the random arrays */

static struct mc_box random_box(unsigned rank)
{
	struct mc_box b = {.rank = (uint8_t)rank};

	for (unsigned d = 0; d < rank; d++) {
		b.off[d] = rnd(SIDE);
		b.len[d] = 1 + rnd(SIDE - (uint32_t)b.off[d]);
	}
	return b;
}

static int box_order(const void *a, const void *b)
{
	return mc_box_compare(a, b);
}

struct hits {
	uint32_t box[64];
	struct mc_box overlap[64];
	size_t n;
};

static int on_hit(void *arg, uint32_t box, const struct mc_box *overlap)
{
	struct hits *h = arg;

	h->box[h->n] = box;
	h->overlap[h->n++] = *overlap;
	return 0;
}

START_TEST(index_finds_exactly_the_overlapping_boxes_in_order)
{
	seed_state = 7;
	for (int round = 0; round < 3000; round++) {
		unsigned rank = 1 + rnd(3);
		struct mc_box boxes[64], q;
		struct mc_box_index *x;
		struct hits h = {.n = 0};
		size_t n = 1 + rnd(40), k = 0, at = 0;

		for (size_t i = 0; i < n; i++)
			boxes[i] = random_box(rank);
		qsort(boxes, n, sizeof(*boxes), box_order);
		for (size_t i = 0; i < n; i++)
			if (k == 0 || mc_box_compare(&boxes[k - 1], &boxes[i]) != 0)
				boxes[k++] = boxes[i];
		ck_assert_int_eq(mc_box_index_open(boxes, k, &x), 0);
		q = random_box(rank);
		ck_assert_int_eq(mc_box_index_query(x, &q, on_hit, &h), 0);
		for (size_t i = 0; i < k; i++) {
			struct mc_box o;

			if (!mc_box_overlap(&boxes[i], &q, &o))
				continue;
			ck_assert_uint_lt(at, h.n);
			ck_assert_uint_eq(h.box[at], i);
			ck_assert_int_eq(mc_box_compare(&h.overlap[at], &o), 0);
			at++;
		}
		ck_assert_uint_eq(at, h.n);
		mc_box_index_close(x);
	}
}
END_TEST

/* Marks the points of a box; returns how many were marked already. */
static unsigned mark(uint8_t *grid, const struct mc_box *b)
{
	unsigned twice = 0;

	for (uint64_t i = 0; i < mc_box_volume(b); i++) {
		uint64_t at = 0, rest = i, scale = 1;

		for (unsigned d = b->rank; d-- > 0;) {
			at += (b->off[d] + rest % b->len[d]) * scale;
			rest /= b->len[d];
			scale *= SIDE;
		}
		twice += grid[at]++ > 0;
	}
	return twice;
}

START_TEST(cells_are_disjoint_cover_the_union_and_know_their_boxes)
{
	seed_state = 11;
	for (int round = 0; round < 2000; round++) {
		unsigned rank = 1 + rnd(3);
		struct mc_box boxes[8];
		size_t n = 1 + rnd(8);
		struct mc_cells c;
		uint8_t all[SIDE * SIDE * SIDE] = {0}, cells[SIDE * SIDE * SIDE] = {0};

		for (size_t i = 0; i < n; i++) {
			boxes[i] =
				i > 0 && rnd(3) == 0 ? boxes[rnd((uint32_t)i)] : random_box(rank);
			mark(all, &boxes[i]);
		}
		ck_assert_int_eq(mc_cells_init(&c, boxes, n), 0);
		for (size_t i = 0; i < c.n; i++) {
			uint32_t m = c.first[i];

			ck_assert_uint_eq(mark(cells, &c.box[i]), 0);
			for (uint32_t k = 0; k < n; k++) {
				struct mc_box o;

				if (!mc_box_overlap(&c.box[i], &boxes[k], &o))
					continue;
				ck_assert(mc_box_inside(&c.box[i], &boxes[k]));
				ck_assert_uint_lt(m, c.first[i + 1]);
				ck_assert_uint_eq(c.member[m++], k);
			}
			ck_assert_uint_eq(m, c.first[i + 1]);
		}
		for (size_t i = 0; i < sizeof(all); i++)
			ck_assert_uint_eq(all[i] > 0, cells[i]);
		mc_cells_done(&c);
	}
}
END_TEST

START_TEST(a_cut_takes_what_was_asked_within_the_grain)
{
	seed_state = 13;
	for (int round = 0; round < 5000; round++) {
		unsigned rank = 1 + rnd(3);
		struct mc_box b = random_box(rank);
		struct mc_box_cut c;
		uint64_t volume = mc_box_volume(&b), want = rnd((uint32_t)volume + 1),
			 grain = 1 + rnd(4), got;
		uint8_t grid[SIDE * SIDE * SIDE] = {0};
		uint64_t sum = 0;

		got = mc_box_cut(&b, want, grain, &c);
		ck_assert_uint_ge(got, want);
		ck_assert_uint_lt(got, want + grain);
		for (size_t i = 0; i < c.n_first; i++) {
			ck_assert_uint_eq(mark(grid, &c.first[i]), 0);
			sum += mc_box_volume(&c.first[i]);
		}
		ck_assert_uint_eq(sum, got);
		for (size_t i = 0; i < c.n_rest; i++) {
			ck_assert_uint_eq(mark(grid, &c.rest[i]), 0);
			sum += mc_box_volume(&c.rest[i]);
		}
		ck_assert_uint_eq(sum, volume);
	}
}
END_TEST

START_TEST(region_runs_copy_the_box_from_one_array_to_another)
{
	seed_state = 17;
	for (int round = 0; round < 3000; round++) {
		unsigned rank = 1 + rnd(3);
		struct mc_box src = random_box(rank), dst = random_box(rank), part;
		struct mc_address sp, dp;
		struct mc_region r;
		uint8_t from[SIDE * SIDE * SIDE], to[SIDE * SIDE * SIDE] = {0},
								   want[sizeof(to)] = {0};

		if (!mc_box_overlap(&src, &dst, &part))
			continue;
		mc_address_dense(&src, 0, &sp);
		mc_address_dense(&dst, 0, &dp);
		for (size_t i = 0; i < sizeof(from); i++)
			from[i] = (uint8_t)(1 + i % 251);
		for (uint64_t i = 0; i < mc_box_volume(&part); i++) {
			uint64_t rest = i, s = 0, t = 0;

			for (unsigned d = rank; d-- > 0;) {
				uint64_t x = part.off[d] + rest % part.len[d];

				s += (x - src.off[d]) * sp.stride[d];
				t += (x - dst.off[d]) * dp.stride[d];
				rest /= part.len[d];
			}
			want[t] = from[s];
		}
		mc_region_make(&part, &src, &sp, &dst, &dp, &r);
		ck_assert_uint_eq(mc_region_bytes(&r), mc_box_volume(&part));
		for (uint64_t i = 0; i < mc_region_runs(&r); i++) {
			uint64_t s, t;

			mc_region_run(&r, i, &s, &t);
			memcpy(to + t, from + s, r.inner);
		}
		ck_assert_mem_eq(to, want, sizeof(to));
	}
}
END_TEST

START_TEST(contiguous_dimensions_become_one_run)
{
	struct mc_box whole = {.rank = 3, .len = {4, 6, 8}},
		      part = {.rank = 3, .off = {1}, .len = {2, 6, 8}};
	struct mc_address wp, pp;
	struct mc_region r;

	mc_address_dense(&whole, 0, &wp);
	mc_address_dense(&part, 0, &pp);
	mc_region_make(&part, &whole, &wp, &part, &pp, &r);
	ck_assert_uint_eq(r.rank, 0);
	ck_assert_uint_eq(r.inner, 96);
	ck_assert_uint_eq(r.src, 48);
	ck_assert_uint_eq(r.dst, 0);
}
END_TEST

START_TEST(bytes_of_half_byte_elements_need_even_edges)
{
	struct mc_box b = {.rank = 2, .off = {1, 2}, .len = {3, 6}}, r;

	ck_assert_int_eq(mc_box_to_bytes(&b, 4, &r), 0);
	ck_assert_uint_eq(r.off[1], 1);
	ck_assert_uint_eq(r.len[1], 3);
	b.len[1] = 5;
	ck_assert_int_eq(mc_box_to_bytes(&b, 4, &r), -EINVAL);
	b.len[1] = UINT64_MAX / 2;
	ck_assert_int_eq(mc_box_to_bytes(&b, 64, &r), -EOVERFLOW);
	b = (struct mc_box){.rank = 0};
	ck_assert_int_eq(mc_box_to_bytes(&b, 32, &r), 0);
	ck_assert_uint_eq(r.rank, 1);
	ck_assert_uint_eq(r.len[0], 4);
}
END_TEST

SUITE_MAIN("box", index_finds_exactly_the_overlapping_boxes_in_order,
	cells_are_disjoint_cover_the_union_and_know_their_boxes,
	a_cut_takes_what_was_asked_within_the_grain,
	region_runs_copy_the_box_from_one_array_to_another, contiguous_dimensions_become_one_run,
	bytes_of_half_byte_elements_need_even_edges)
