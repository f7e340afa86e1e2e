/* The node table: numbers, references, reuse, and many threads at once. */
#include "fs/node.h"
#include "tests/seed.h"
#include "tests/suite.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

static struct mc_place *place(const char *org, const char *model, const char *rev)
{
	struct mc_place *p;

	ck_assert_int_eq(mc_place_open(org, model, rev, NULL, &p), 0);
	return p;
}

static struct mc_node *get(
	struct mc_nodes *t, enum mc_node_kind kind, struct mc_place *p, uint32_t entry)
{
	struct mc_node *n;

	ck_assert_int_eq(
		mc_nodes_get(t, &(struct mc_spot){.kind = kind, .place = p, .entry = entry}, &n),
		0);
	return n;
}

START_TEST(the_root_is_number_one_and_stays)
{
	struct mc_nodes *t;

	ck_assert_int_eq(mc_nodes_open(&t), 0);
	ck_assert_ptr_nonnull(mc_nodes_find(t, MC_NODE_ROOT_ID));
	ck_assert_int_eq(mc_nodes_find(t, MC_NODE_ROOT_ID)->kind, MC_NODE_ROOT);
	ck_assert_uint_eq(mc_nodes_count(t), 1);
	mc_nodes_close(t);
}
END_TEST

START_TEST(one_key_has_one_node_until_its_last_reference)
{
	struct mc_place *a = place("o", "m", "r"), *same = place("o", "m", "r");
	struct mc_node *n, *again;
	struct mc_nodes *t;
	uint64_t id;

	ck_assert_int_eq(mc_nodes_open(&t), 0);
	n = get(t, MC_NODE_ORG, a, 7);
	id = mc_node_id(n);
	again = get(t, MC_NODE_ORG, same, 7);
	ck_assert_ptr_eq(n, again);
	ck_assert_uint_eq(atomic_load(&same->refs), 1);
	mc_nodes_put(t, n, 1);
	ck_assert_ptr_eq(mc_nodes_find(t, id), n);
	mc_nodes_put(t, n, 1);
	ck_assert_ptr_null(mc_nodes_find(t, id));
	ck_assert_uint_eq(atomic_load(&a->refs), 1);
	mc_place_unref(a);
	mc_place_unref(same);
	mc_nodes_close(t);
}
END_TEST

START_TEST(kind_place_and_entry_tell_nodes_apart)
{
	struct mc_place *a = place("o", "m", NULL), *b = place("om", NULL, NULL);
	struct mc_nodes *t;
	struct mc_node *n[4];

	ck_assert_int_eq(mc_nodes_open(&t), 0);
	n[0] = get(t, MC_NODE_ORG, a, 0);
	n[1] = get(t, MC_NODE_LATEST, a, 0);
	n[2] = get(t, MC_NODE_ORG, a, 1);
	n[3] = get(t, MC_NODE_ORG, b, 0);
	for (int i = 0; i < 4; i++) {
		for (int j = 0; j < i; j++)
			ck_assert_uint_ne(mc_node_id(n[i]), mc_node_id(n[j]));
	}
	ck_assert_uint_eq(mc_nodes_count(t), 5);
	mc_nodes_close(t);
	ck_assert_uint_eq(atomic_load(&a->refs), 1);
	mc_place_unref(a);
	mc_place_unref(b);
}
END_TEST

START_TEST(a_reused_slot_has_another_number)
{
	struct mc_nodes *t;
	struct mc_node *n, *m;
	uint64_t old;

	ck_assert_int_eq(mc_nodes_open(&t), 0);
	n = get(t, MC_NODE_CHECKPOINTS, NULL, 0);
	old = mc_node_id(n);
	mc_nodes_put(t, n, 1);
	m = get(t, MC_NODE_CHECKPOINTS, NULL, 1);
	ck_assert_uint_eq((uint32_t)mc_node_id(m), (uint32_t)old);
	ck_assert_uint_ne(mc_node_id(m), old);
	ck_assert_ptr_null(mc_nodes_find(t, old));
	ck_assert_ptr_eq(mc_nodes_find(t, mc_node_id(m)), m);
	mc_nodes_close(t);
}
END_TEST

START_TEST(numbers_that_were_never_given_are_unknown)
{
	const uint64_t ids[] = {
		0, 2, 3, UINT32_MAX, UINT64_C(1) << 32, (UINT64_C(1) << 32) + 1, UINT64_MAX};
	struct mc_nodes *t;

	ck_assert_int_eq(mc_nodes_open(&t), 0);
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
		ck_assert_ptr_null(mc_nodes_find(t, ids[i]));
	mc_nodes_close(t);
}
END_TEST

START_TEST(fifty_thousand_nodes_are_all_found)
{
	enum { N = 50000 };
	struct mc_place *p = place("o", "m", "r");
	uint64_t *ids = calloc(N, sizeof(*ids));
	struct mc_nodes *t;

	ck_assert_ptr_nonnull(ids);
	ck_assert_int_eq(mc_nodes_open(&t), 0);
	for (uint32_t i = 0; i < N; i++)
		ids[i] = mc_node_id(get(t, MC_NODE_ORG, p, i));
	for (uint32_t i = 0; i < N; i++) {
		ck_assert_ptr_nonnull(mc_nodes_find(t, ids[i]));
		ck_assert_uint_eq(mc_nodes_find(t, ids[i])->entry, i);
	}
	for (uint32_t i = 0; i < N; i += 2)
		mc_nodes_put(t, mc_nodes_find(t, ids[i]), 1);
	ck_assert_uint_eq(mc_nodes_count(t), 1 + N / 2);
	for (uint32_t i = 1; i < N; i += 2)
		ck_assert_uint_eq(mc_nodes_find(t, ids[i])->entry, i);
	mc_nodes_close(t);
	mc_place_unref(p);
	free(ids);
}
END_TEST

struct churn {
	struct mc_nodes *t;
	struct mc_place *p;
	unsigned seed;
};

/* Every reference taken is given back, in another order. */
static void *churn(void *arg)
{
	struct churn *c = arg;
	struct mc_node *held[64] = {NULL};

	for (int i = 0; i < 20000; i++) {
		unsigned k = (unsigned)rand_r(&c->seed) % 64;

		if (held[k] != NULL) {
			ck_assert_ptr_eq(mc_nodes_find(c->t, mc_node_id(held[k])), held[k]);
			mc_nodes_put(c->t, held[k], 1);
			held[k] = NULL;
		} else {
			uint32_t entry = (uint32_t)rand_r(&c->seed) % 100;

			held[k] = get(c->t, MC_NODE_ORG, c->p, entry);
			ck_assert_uint_eq(held[k]->entry, entry);
		}
	}
	for (int k = 0; k < 64; k++) {
		if (held[k] != NULL)
			mc_nodes_put(c->t, held[k], 1);
	}
	return NULL;
}

START_TEST(threads_leave_nothing_behind)
{
	struct mc_place *p = place("o", "m", "r");
	unsigned seed = seed_choose();
	struct churn c[4];
	pthread_t th[4];
	struct mc_nodes *t;

	ck_assert_int_eq(mc_nodes_open(&t), 0);
	for (unsigned i = 0; i < 4; i++) {
		c[i] = (struct churn){.t = t, .p = p, .seed = seed + i};
		ck_assert_int_eq(pthread_create(&th[i], NULL, churn, &c[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++)
		pthread_join(th[i], NULL);
	ck_assert_uint_eq(mc_nodes_count(t), 1);
	ck_assert_uint_eq(atomic_load(&p->refs), 1);
	mc_nodes_close(t);
	mc_place_unref(p);
}
END_TEST

START_TEST(nodes_below_tiers_are_told_apart_by_tier_and_key)
{
	static const struct mc_spot spots[] = {
		{.kind = MC_NODE_KV_FILE, .at = MC_AT_DRAM, .key = "a"},
		{.kind = MC_NODE_KV_FILE, .at = MC_AT_NVME, .key = "a"},
		{.kind = MC_NODE_KV_FILE, .at = MC_AT_DRAM, .key = "b"},
		{.kind = MC_NODE_KV_DIR, .at = MC_AT_DRAM, .key = "a"},
		{.kind = MC_NODE_TIER, .at = MC_AT_DRAM},
	};
	struct mc_node *n[5], *again;
	struct mc_nodes *t;

	ck_assert_int_eq(mc_nodes_open(&t), 0);
	for (size_t i = 0; i < 5; i++) {
		ck_assert_int_eq(mc_nodes_get(t, &spots[i], &n[i]), 0);
		ck_assert_uint_eq(mc_node_id(n[i]) >> 62, 1);
		for (size_t j = 0; j < i; j++)
			ck_assert_ptr_ne(n[i], n[j]);
	}
	ck_assert_int_eq(mc_nodes_get(t, &spots[0], &again), 0);
	ck_assert_ptr_eq(again, n[0]);
	ck_assert_ptr_eq(mc_nodes_find(t, mc_node_id(n[0])), n[0]);
	ck_assert_ptr_null(mc_nodes_find(t, mc_node_id(n[0]) & UINT64_C(0x1fffffffffffffff)));
	mc_nodes_close(t);
}
END_TEST

START_TEST(a_retired_spot_gets_another_node)
{
	static const struct mc_spot dir = {.kind = MC_NODE_KV_DIR, .at = MC_AT_DRAM, .key = "d"};
	struct mc_node *old, *now;
	struct mc_nodes *t;
	uint64_t id;

	ck_assert_int_eq(mc_nodes_open(&t), 0);
	mc_nodes_retire(t, &dir); /* unknown: nothing */
	ck_assert_int_eq(mc_nodes_get(t, &dir, &old), 0);
	ck_assert(mc_nodes_has(t, &dir));
	id = mc_node_id(old);
	mc_nodes_retire(t, &dir);
	ck_assert(!mc_nodes_has(t, &dir));
	ck_assert_ptr_eq(mc_nodes_find(t, id), old);
	ck_assert_int_eq(mc_nodes_get(t, &dir, &now), 0);
	ck_assert_uint_ne(mc_node_id(now), id);
	mc_nodes_put(t, old, 1);
	ck_assert_ptr_null(mc_nodes_find(t, id));
	ck_assert(mc_nodes_has(t, &dir));
	mc_nodes_put(t, now, 1);
	ck_assert(!mc_nodes_has(t, &dir));
	ck_assert_uint_eq(mc_nodes_count(t), 1);
	mc_nodes_close(t);
}
END_TEST

SUITE_MAIN("node", nodes_below_tiers_are_told_apart_by_tier_and_key,
	a_retired_spot_gets_another_node, the_root_is_number_one_and_stays,
	one_key_has_one_node_until_its_last_reference, kind_place_and_entry_tell_nodes_apart,
	a_reused_slot_has_another_number, numbers_that_were_never_given_are_unknown,
	fifty_thousand_nodes_are_all_found, threads_leave_nothing_behind)
