/* Chunks cover a file exactly, start at large tensors, and leave holes out. */
#include "manifest/chunker.h"
#include "tests/seed.h"
#include "tests/suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define KIB UINT64_C(1024)

static void expect(const struct mc_chunk_input *in, const struct mc_chunk_span *want, size_t n)
{
	struct mc_chunk_plan p;

	ck_assert_int_eq(mc_chunk_plan(in, &p), 0);
	for (size_t i = 0; i < n && i < p.n; i++) {
		ck_assert_msg(p.spans[i].off == want[i].off && p.spans[i].len == want[i].len &&
				p.spans[i].hole == want[i].hole,
			"span %zu: %llu + %llu %s", i, (unsigned long long)p.spans[i].off,
			(unsigned long long)p.spans[i].len, p.spans[i].hole ? "hole" : "data");
	}
	ck_assert_uint_eq(p.n, n);
	mc_chunk_plan_done(&p);
}

START_TEST(an_opaque_file_is_cut_every_eight_mib)
{
	const struct mc_extent all = {0, 20 * MIB + 5};
	const struct mc_chunk_span want[] = {
		{0, 8 * MIB, false}, {8 * MIB, 8 * MIB, false}, {16 * MIB, 4 * MIB + 5, false}};

	expect(&(struct mc_chunk_input){.size = all.len, .data = &all, .n_data = 1}, want, 3);
}
END_TEST

START_TEST(an_empty_file_has_no_chunk)
{
	expect(&(struct mc_chunk_input){.size = 0}, NULL, 0);
}
END_TEST

START_TEST(a_file_without_data_is_one_hole)
{
	const struct mc_chunk_span want[] = {{0, UINT64_C(1) << 40, true}};

	expect(&(struct mc_chunk_input){.size = UINT64_C(1) << 40}, want, 1);
}
END_TEST

START_TEST(chunks_start_at_anchors)
{
	/* header 1000, a 14 MiB matrix, 3584 bytes of scales, a 14 MiB matrix, scales */
	const uint64_t a = 1000, b = a + 14 * MIB + 3584;
	const uint64_t anchors[] = {a, b};
	const struct mc_extent all = {0, b + 14 * MIB + 3584};
	const struct mc_chunk_span want[] = {{0, a, false}, {a, 8 * MIB, false},
		{a + 8 * MIB, 6 * MIB + 3584, false}, {b, 8 * MIB, false},
		{b + 8 * MIB, 6 * MIB + 3584, false}};

	expect(&(struct mc_chunk_input){.size = all.len,
		       .anchors = anchors,
		       .n_anchors = 2,
		       .data = &all,
		       .n_data = 1},
		want, 5);
}
END_TEST

START_TEST(holes_shrink_to_pages_and_small_ones_are_data)
{
	const struct mc_extent data[] = {{0, 100}, {128 * KIB + 1, 10}, {192 * KIB, 4096}};
	const struct mc_chunk_span want[] = {{0, 4096, false}, {4096, 124 * KIB, true},
		{128 * KIB, 68 * KIB, false}, {196 * KIB, 64 * KIB + 1, true}};

	expect(&(struct mc_chunk_input){.size = 260 * KIB + 1, .data = data, .n_data = 3}, want, 4);
}
END_TEST

START_TEST(a_hole_at_either_end_is_kept)
{
	const struct mc_extent data[] = {{MIB, 5}};
	const struct mc_chunk_span want[] = {
		{0, MIB, true}, {MIB, 4096, false}, {MIB + 4096, MIB - 4096 + 7, true}};

	expect(&(struct mc_chunk_input){.size = 2 * MIB + 7, .data = data, .n_data = 1}, want, 3);
}
END_TEST

START_TEST(bad_input_is_einval)
{
	const struct mc_extent past = {5, 6}, empty = {0, 0}, overlap[] = {{0, 5}, {4, 2}};
	const uint64_t end[] = {10}, unsorted[] = {5, 4};
	const struct mc_chunk_input rows[] = {{.size = 10, .data = &past, .n_data = 1},
		{.size = 10, .data = &empty, .n_data = 1},
		{.size = 10, .data = overlap, .n_data = 2},
		{.size = 10, .anchors = end, .n_anchors = 1},
		{.size = 10, .anchors = unsorted, .n_anchors = 2}};
	struct mc_chunk_plan p;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		ck_assert_int_eq(mc_chunk_plan(&rows[i], &p), -EINVAL);
}
END_TEST

static bool is_anchor(const struct mc_chunk_input *in, uint64_t off)
{
	for (size_t i = 0; i < in->n_anchors; i++)
		if (in->anchors[i] == off)
			return true;
	return false;
}

/* The file system calls [off, off + len) hole. */
static bool is_gap(const struct mc_chunk_input *in, uint64_t off, uint64_t len)
{
	for (size_t i = 0; i < in->n_data; i++)
		if (in->data[i].off < off + len && off < in->data[i].off + in->data[i].len)
			return false;
	return true;
}

static void check_plan(const struct mc_chunk_input *in, const struct mc_chunk_plan *p)
{
	uint64_t at = 0;

	for (size_t i = 0; i < p->n; i++) {
		const struct mc_chunk_span *s = &p->spans[i];

		ck_assert_uint_eq(s->off, at);
		ck_assert_uint_gt(s->len, 0);
		at += s->len;
		if (s->hole) {
			ck_assert(is_gap(in, s->off, s->len));
			ck_assert_uint_ge(s->len, MC_HOLE_MIN);
			ck_assert_uint_eq(s->off % MC_HOLE_ALIGN, 0);
			ck_assert(at % MC_HOLE_ALIGN == 0 || at == in->size);
			continue;
		}
		ck_assert_uint_le(s->len, MC_CHUNK_MAX);
		/* A chunk ends early only at an anchor, a hole or the end. */
		ck_assert(s->len == MC_CHUNK_MAX || at == in->size || is_anchor(in, at) ||
			p->spans[i + 1].hole);
		for (size_t k = 0; k < in->n_anchors; k++)
			ck_assert(in->anchors[k] <= s->off || in->anchors[k] >= at);
	}
	ck_assert_uint_eq(at, in->size);
}

START_TEST(random_files_are_covered_exactly)
{
	unsigned seed = seed_choose();

	for (int round = 0; round < 3000; round++) {
		struct mc_extent data[6];
		uint64_t anchors[5], at = 0;
		struct mc_chunk_input in = {.data = data, .anchors = anchors};
		struct mc_chunk_plan p;

		while (in.n_data < 6 && rand_r(&seed) % 4 != 0) {
			at += (uint64_t)rand_r(&seed) % (300 * KIB);
			data[in.n_data].off = at;
			data[in.n_data].len = 1 + (uint64_t)rand_r(&seed) % (20 * MIB);
			at += data[in.n_data++].len;
		}
		in.size = at + (uint64_t)rand_r(&seed) % (200 * KIB);
		for (at = 0; in.n_anchors < 5; in.n_anchors++) {
			at += (uint64_t)rand_r(&seed) % (12 * MIB);
			if (at >= in.size)
				break;
			anchors[in.n_anchors] = at;
		}
		ck_assert_int_eq(mc_chunk_plan(&in, &p), 0);
		check_plan(&in, &p);
		mc_chunk_plan_done(&p);
	}
}
END_TEST

SUITE_MAIN("chunker", an_opaque_file_is_cut_every_eight_mib, an_empty_file_has_no_chunk,
	a_file_without_data_is_one_hole, chunks_start_at_anchors,
	holes_shrink_to_pages_and_small_ones_are_data, a_hole_at_either_end_is_kept,
	bad_input_is_einval, random_files_are_covered_exactly)
