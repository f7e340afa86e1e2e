/* The binder: pieces, rounds, exactly the plan's bytes, and the simulated makespan. */
#include "manifest/binder.h"
#include "tests/random.h"
#include "tests/suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct scene {
	struct mc_side held, wanted;
	struct mc_reshard *plan;
	uint32_t participants;
};

static struct mc_shard shard(uint32_t participant, const struct mc_box *box)
{
	struct mc_shard s;

	memset(&s, 0, sizeof(s));
	s.participant = participant;
	s.box = *box;
	mc_address_dense(box, 0, &s.place);
	return s;
}

/* tensors of rows × columns bytes: held cut p ways on rows (times copies), wanted cut q ways on
 * columns. */
static void scene_open(struct scene *s, uint32_t tensors, const uint64_t *rows, uint32_t p,
	uint32_t copies, uint32_t q)
{
	char text[64][8];
	const char *names[64];
	struct mc_reshard_in in = {
		.names = names, .n_tensors = tensors, .held = &s->held, .wanted = &s->wanted};
	struct mc_shard v[128];
	struct mc_err err;

	in.n_participants = s->participants = p * copies + q;
	ck_assert_int_eq(mc_side_init(&s->held, tensors), 0);
	ck_assert_int_eq(mc_side_init(&s->wanted, tensors), 0);
	for (uint32_t t = 0; t < tensors; t++) {
		struct mc_box b = {.rank = 2, .len = {rows[t] / p, 12288}};

		snprintf(text[t], sizeof(text[t]), "t%02u", t);
		names[t] = text[t];
		for (uint32_t i = 0; i < p * copies; i++) {
			b.off[0] = i % p * b.len[0];
			v[i] = shard(i, &b);
		}
		ck_assert_int_eq(mc_side_set(&s->held, t, v, p * copies, NULL), 0);
		b = (struct mc_box){.rank = 2, .len = {rows[t], 12288 / q}};
		for (uint32_t i = 0; i < q; i++) {
			b.off[1] = i * b.len[1];
			v[i] = shard(p * copies + i, &b);
		}
		ck_assert_int_eq(mc_side_set(&s->wanted, t, v, q, NULL), 0);
	}
	ck_assert_int_eq(mc_reshard_plan(&in, &s->plan, &err), 0);
}

static void scene_close(struct scene *s)
{
	mc_reshard_free(s->plan);
	mc_side_done(&s->held);
	mc_side_done(&s->wanted);
}

static struct mc_binding *bind(const struct scene *s, uint64_t max_piece)
{
	struct mc_binder_in in = {.plan = s->plan, .max_piece = max_piece};
	struct mc_binding *b = NULL;

	ck_assert_int_eq(mc_binding_make(&in, &b), 0);
	return b;
}

static void check_pieces(const struct scene *s, const struct mc_binding *b, uint64_t max_piece)
{
	uint32_t n = s->participants, degree[256] = {0}, most = 0;
	uint64_t *per_link = calloc(s->plan->n_links + 1, sizeof(*per_link));
	uint8_t *busy = calloc((size_t)b->n_rounds * n * 2 + 1, 1);

	ck_assert_ptr_nonnull(per_link);
	ck_assert_ptr_nonnull(busy);
	for (uint32_t i = 0; i < b->n_pieces; i++) {
		const struct mc_bound_piece *p = &b->piece[i];
		uint64_t bytes = 0;

		ck_assert_uint_le(p->bytes, max_piece);
		ck_assert_uint_lt(p->round, b->n_rounds);
		ck_assert_uint_eq(busy[p->round * n * 2 + p->src]++, 0);
		ck_assert_uint_eq(busy[p->round * n * 2 + n + p->dst]++, 0);
		degree[p->src]++;
		degree[128 + p->dst]++;
		for (uint32_t k = p->first; k < p->first + p->n; k++) {
			struct mc_box box;
			uint64_t v;

			mc_binding_span_box(b, s->plan, &b->span[k], &box);
			v = mc_box_volume(&box) * (b->span[k].to - b->span[k].from);
			bytes += v;
			per_link[b->span[k].link] += v;
		}
		ck_assert_uint_eq(bytes, p->bytes);
	}
	for (uint32_t i = 0; i < 256; i++)
		if (degree[i] > most)
			most = degree[i];
	ck_assert_uint_eq(b->n_rounds, most);
	for (uint32_t i = 0; i < s->plan->n_links; i++) {
		const struct mc_link *l = &s->plan->link[i];
		struct mc_box box;

		mc_reshard_link_box(s->plan, l, &box);
		ck_assert_uint_eq(per_link[i], mc_box_volume(&box) * (l->to - l->from));
	}
	free(per_link);
	free(busy);
}

static void check_makespan(const struct mc_binding *b)
{
	uint64_t bound = b->max_egress > b->max_ingress ? b->max_egress : b->max_ingress;

	ck_assert_uint_ge(b->makespan, bound);
	ck_assert_uint_le(b->makespan, 2 * bound);
}

START_TEST(rounds_use_a_channel_once_and_are_as_many_as_the_busiest_has_pieces)
{
	static const uint32_t ways[] = {1, 2, 3, 4, 6, 8};

	seed_state = 3;
	for (int round = 0; round < 60; round++) {
		uint64_t rows[64], max = (uint64_t)4096 << rnd(8);
		uint32_t tensors = 1 + rnd(20);
		struct scene s;
		struct mc_binding *b;

		for (uint32_t i = 0; i < tensors; i++)
			rows[i] = 24 * (1 + rnd(i % 3 == 0 ? 40 : 3));
		scene_open(&s, tensors, rows, ways[rnd(6)], 1 + rnd(3), ways[rnd(6)]);
		b = bind(&s, max);
		check_pieces(&s, b, max);
		check_makespan(b);
		mc_binding_free(b);
		scene_close(&s);
	}
}
END_TEST

START_TEST(even_reshard_of_large_tensors_is_within_a_tenth_of_its_bound)
{
	uint64_t rows[64];
	struct scene s;

	for (uint32_t i = 0; i < 64; i++)
		rows[i] = 48 * 1024;
	for (uint32_t q = 1; q <= 16; q *= 2)
		for (uint32_t p = 1; p <= 16; p *= 2) {
			struct mc_binding *b;
			uint64_t bound;

			scene_open(&s, 64, rows, p, 1, q);
			b = bind(&s, 0);
			bound = b->max_egress > b->max_ingress ? b->max_egress : b->max_ingress;
			check_pieces(&s, b, MC_PIECE_MAX);
			ck_assert_uint_le(b->makespan * 10, bound * 11);
			mc_binding_free(b);
			scene_close(&s);
		}
}
END_TEST

START_TEST(piece_limits_outside_4_kib_to_64_mib_are_refused)
{
	uint64_t rows[1] = {24};
	struct scene s;
	struct mc_binding *b = NULL;
	struct mc_binder_in in;

	scene_open(&s, 1, rows, 2, 1, 2);
	in = (struct mc_binder_in){.plan = s.plan, .max_piece = 4095};
	ck_assert_int_eq(mc_binding_make(&in, &b), -EINVAL);
	in.max_piece = MC_PIECE_MAX + 1;
	ck_assert_int_eq(mc_binding_make(&in, &b), -EINVAL);
	ck_assert_ptr_null(b);
	scene_close(&s);
}
END_TEST

SUITE_MAIN("binder", rounds_use_a_channel_once_and_are_as_many_as_the_busiest_has_pieces,
	even_reshard_of_large_tensors_is_within_a_tenth_of_its_bound,
	piece_limits_outside_4_kib_to_64_mib_are_refused)
