/* The replacement policy against a plain model, and the facts a tier relies on. */
#include "tests/seed.h"
#include "tests/suite.h"
#include "tier/history.h"
#include "tier/policy.h"
#include "tier/worth.h"

#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

/* xorshift64*: the same sequence for the same seed everywhere. */
static uint64_t next_random(uint64_t *s)
{
	*s ^= *s >> 12;
	*s ^= *s << 25;
	*s ^= *s >> 27;
	return *s * UINT64_C(2685821657736338717);
}

/* A tier of equal objects 0 … n - 1: what a store does with the policy, without the bytes. */
struct object {
	struct mc_policy_entry entry; /* first: an entry's address is its object's */
	bool refuse;
};

struct cache {
	struct mc_policy *policy;
	struct object *objects;
	uint64_t used, capacity;
};

static bool may_evict(void *ctx, const struct mc_policy_entry *e)
{
	(void)ctx;
	return !((const struct object *)e)->refuse;
}

static void cache_open(struct cache *c, size_t n, uint64_t capacity)
{
	*c = (struct cache){.objects = calloc(n, sizeof(*c->objects)), .capacity = capacity};
	ck_assert_ptr_nonnull(c->objects);
	ck_assert_int_eq(mc_policy_open(capacity, &c->policy), 0);
}

static void cache_close(struct cache *c)
{
	mc_policy_close(c->policy);
	free(c->objects);
}

static bool cache_use(struct cache *c, size_t i, uint64_t weight)
{
	struct mc_policy_entry *e = &c->objects[i].entry;

	if (mc_policy_linked(e)) {
		mc_policy_hit(c->policy, e);
		return true;
	}
	while (c->used + weight > c->capacity) {
		struct mc_policy_entry *v = mc_policy_victim(c->policy, may_evict, NULL, 16);

		ck_assert_ptr_nonnull(v);
		c->used -= v->weight;
		mc_policy_evict(c->policy, v);
	}
	c->used += weight;
	mc_policy_insert(c->policy, e, i, weight);
	return false;
}

#define MODEL_N 300

struct model {
	struct cache c;
	bool linked[MODEL_N];
	uint64_t weight[MODEL_N], sum, count; /* of what is linked */
};

static void model_put(struct model *m, size_t i, uint64_t weight, bool ahead)
{
	(ahead ? mc_policy_insert_ahead : mc_policy_insert)(
		m->c.policy, &m->c.objects[i].entry, i, weight);
	m->linked[i] = true;
	m->weight[i] = weight;
	m->sum += weight;
	m->count++;
}

/* It is gone from the policy. */
static void model_drop(struct model *m, size_t i)
{
	m->linked[i] = false;
	m->sum -= m->weight[i];
	m->count--;
}

/* Evicts what the policy names; false when that is nothing. */
static bool model_evict(struct model *m, unsigned looks)
{
	struct mc_policy_entry *e = mc_policy_victim(m->c.policy, may_evict, NULL, looks);
	size_t i = e != NULL ? (size_t)((struct object *)e - m->c.objects) : 0;

	if (e == NULL)
		return false;
	ck_assert_uint_lt(i, MODEL_N);
	ck_assert(m->linked[i]);
	ck_assert(!m->c.objects[i].refuse);
	mc_policy_evict(m->c.policy, e);
	model_drop(m, i);
	return true;
}

static void model_step(struct model *m, uint64_t *seed)
{
	size_t i = next_random(seed) % MODEL_N;
	struct object *o = &m->c.objects[i];
	uint64_t weight;

	switch (next_random(seed) % 8) {
	case 0:
		model_evict(m, 1 + (unsigned)(next_random(seed) % 32));
		break;
	case 1:
		if (!m->linked[i])
			break;
		mc_policy_remove(m->c.policy, &o->entry);
		model_drop(m, i);
		break;
	case 2:
		o->refuse = next_random(seed) % 2;
		break;
	case 3:
	case 4:
		weight = 1 + next_random(seed) % (8 * MIB);
		if (!m->linked[i])
			model_put(m, i, weight, next_random(seed) % 4 == 0);
		break;
	default:
		if (m->linked[i])
			mc_policy_hit(m->c.policy, &o->entry);
	}
	ck_assert_int_eq(mc_policy_linked(&o->entry), m->linked[i]);
}

START_TEST(random_operations_agree_with_a_plain_model)
{
	uint64_t seed = seed_choose() + UINT64_C(1);
	struct mc_policy_stats st;
	struct model m = {.count = 0};

	cache_open(&m.c, MODEL_N, 100 * MIB);
	for (unsigned step = 0; step < 200000; step++) {
		model_step(&m, &seed);
		mc_policy_stats(m.c.policy, &st);
		ck_assert_uint_eq(st.entries, m.count);
		ck_assert_uint_eq(st.weight, m.sum);
	}
	/* Nothing is lost: all that is linked comes out as a victim, once. */
	for (size_t i = 0; i < MODEL_N; i++)
		m.c.objects[i].refuse = false;
	while (m.count > 0)
		ck_assert(model_evict(&m, 1));
	ck_assert(!model_evict(&m, 1));
	cache_close(&m.c);
}
END_TEST

START_TEST(the_only_evictable_entry_is_found_within_one_look_at_each)
{
	enum { N = 1000 };
	struct cache c;

	cache_open(&c, N, N * MIB);
	for (size_t i = 0; i < N; i++)
		cache_use(&c, i, MIB);
	for (size_t i = 0; i < N; i += 3)
		cache_use(&c, i, MIB);
	for (size_t i = 0; i < N; i++)
		c.objects[i].refuse = i != 501;
	ck_assert_ptr_eq(mc_policy_victim(c.policy, may_evict, NULL, N), &c.objects[501].entry);
	c.objects[501].refuse = true;
	ck_assert_ptr_null(mc_policy_victim(c.policy, may_evict, NULL, 2 * N));
	cache_close(&c);
}
END_TEST

/* Uses the working set in random order; returns the hits. */
static unsigned work(struct cache *c, size_t set, unsigned uses, uint64_t *seed)
{
	unsigned hits = 0;

	for (unsigned i = 0; i < uses; i++)
		hits += cache_use(c, next_random(seed) % set, MIB);
	return hits;
}

START_TEST(a_scan_of_ten_times_the_tier_leaves_the_working_set)
{
	enum { TIER = 1000, SET = 800, USES = 8000 };
	uint64_t seed = seed_choose() + UINT64_C(1);
	unsigned before, after;
	struct cache c;

	cache_open(&c, 11 * TIER, TIER * MIB);
	work(&c, SET, USES, &seed);
	before = work(&c, SET, USES, &seed);
	for (size_t i = 0; i < 10 * TIER; i++)
		cache_use(&c, TIER + i, MIB);
	after = work(&c, SET, SET, &seed) * (USES / SET);
	printf("scan: hits before %u, after %u\n", before, after);
	ck_assert_uint_ge(before, USES * 95 / 100);
	ck_assert_uint_ge(after, before * 90 / 100);
	cache_close(&c);
}
END_TEST

START_TEST(a_new_working_set_replaces_the_old_one)
{
	enum { TIER = 1000, SET = 800, USES = 8000 };
	uint64_t seed = seed_choose() + UINT64_C(1);
	unsigned hits = 0;
	struct cache c;

	cache_open(&c, 2 * TIER, TIER * MIB);
	work(&c, SET, USES, &seed);
	for (unsigned i = 0; i < USES; i++)
		cache_use(&c, TIER + next_random(&seed) % SET, MIB);
	for (unsigned i = 0; i < USES; i++)
		hits += cache_use(&c, TIER + next_random(&seed) % SET, MIB);
	ck_assert_uint_ge(hits, USES * 90 / 100);
	cache_close(&c);
}
END_TEST

START_TEST(history_remembers_once_and_stays_within_its_slots)
{
	enum { SLOTS = 1024, N = 100 * SLOTS };
	struct mc_history h;
	uint32_t age, found = 0;
	uint8_t uses;

	ck_assert_int_eq(mc_history_init(&h, SLOTS), 0);
	ck_assert_uint_eq(mc_history_slots(&h), SLOTS);
	for (uint32_t i = 0; i < N; i++)
		mc_history_put(&h, i, i, (uint8_t)(1 + i % 7), i);
	for (uint32_t i = 0; i < N; i++) {
		if (!mc_history_take(&h, i, N, &age, &uses))
			continue;
		ck_assert_uint_eq(age, N - i);
		ck_assert_uint_eq(uses, 1 + i % 7);
		ck_assert(!mc_history_take(&h, i, N, &age, &uses));
		found++;
	}
	ck_assert_uint_ge(found, SLOTS * 99 / 100);
	ck_assert_uint_le(found, SLOTS);
	mc_history_done(&h);
}
END_TEST

START_TEST(history_that_grows_forgets_nothing)
{
	enum { N = 500 };
	struct mc_history h;
	uint32_t age, kept = 0;
	uint8_t uses;

	ck_assert_int_eq(mc_history_init(&h, 1024), 0);
	for (uint32_t i = 0; i < N; i++)
		mc_history_put(&h, i, i, 3, i);
	mc_history_grow(&h);
	mc_history_grow(&h);
	ck_assert_uint_eq(mc_history_slots(&h), 4096);
	for (uint32_t i = 0; i < N; i++)
		kept += mc_history_take(&h, i, N, &age, &uses) && age == N - i && uses == 3;
	ck_assert_uint_ge(kept, N * 99 / 100);
	mc_history_done(&h);
}
END_TEST

START_TEST(memory_of_the_history_follows_the_entries)
{
	enum { N = 200000 };
	struct mc_policy_stats st;
	struct cache c;

	cache_open(&c, N, (uint64_t)N * MIB);
	mc_policy_stats(c.policy, &st);
	ck_assert_uint_le(st.history_bytes, MIB / 2);
	for (size_t i = 0; i < N; i++)
		cache_use(&c, i, MIB);
	mc_policy_stats(c.policy, &st);
	ck_assert_uint_le(st.history_bytes, UINT64_C(32) * N);
	ck_assert_uint_le(sizeof(struct mc_policy_entry), 40);
	cache_close(&c);
}
END_TEST

START_TEST(bands_and_classes_have_no_gaps)
{
	ck_assert_uint_eq(mc_worth_band(0), 0);
	for (unsigned b = 0; b + 1 < MC_WORTH_BANDS; b++) {
		ck_assert_uint_lt(mc_worth_band_end(b), mc_worth_band_end(b + 1));
		ck_assert_uint_eq(mc_worth_band(mc_worth_band_end(b) - 1), b);
		ck_assert_uint_eq(mc_worth_band(mc_worth_band_end(b)), b + 1);
	}
	ck_assert_uint_eq(mc_worth_band(UINT32_MAX), MC_WORTH_BANDS - 1);
	ck_assert_uint_eq(mc_worth_class(1), 0);
	ck_assert_uint_eq(mc_worth_class(2), 1);
	ck_assert_uint_eq(mc_worth_class(4), 2);
	ck_assert_uint_eq(mc_worth_class(5), 3);
	ck_assert_uint_eq(mc_worth_class(255), MC_WORTH_CLASSES - 1);
}
END_TEST

START_TEST(worth_is_the_best_rate_of_hits_ahead)
{
	enum { STEP = 65536 };
	struct mc_worth w;
	unsigned at = mc_worth_band(1000), late = at + 5; /* counts are smoothed */

	mc_worth_init(&w);
	for (unsigned i = 0; i < 100; i++) {
		mc_worth_start(&w, 0);
		if (i < 50)
			mc_worth_hit(&w, 0, at);
	}
	mc_worth_learn(&w, STEP, 0.5f);
	/* Half come back at about 1000: worth more the nearer that is, nothing afterwards. */
	ck_assert_float_gt(w.value[0][0], 0.5f / 1500);
	ck_assert_float_lt(w.value[0][0], 0.5f / 800);
	ck_assert_float_gt(w.value[0][at], 1.5f * w.value[0][0]);
	ck_assert_float_lt(w.value[0][late], 1e-6f);
	ck_assert(w.starts[0] == 50 && w.hits[0][at] == 25);
}
END_TEST

START_TEST(a_class_of_few_starts_is_worth_what_the_one_below_is)
{
	enum { STEP = 65536, N = 1000 };
	struct mc_worth w;
	unsigned at = mc_worth_band(1000);

	mc_worth_init(&w);
	w.starts[0] = N;
	w.hits[0][at] = N / 2.0f;
	mc_worth_learn(&w, STEP, 1);
	for (unsigned b = 0; b <= at; b++)
		ck_assert_float_eq_tol(
			w.value[1][b] / w.value[0][b], 1, 0.02f); /* UNLEARNED is added */
	/* Its own starts tell otherwise: one in ten of its entries comes back. */
	w.starts[1] = N;
	w.hits[1][at] = N / 10.0f;
	mc_worth_learn(&w, STEP, 1);
	ck_assert_float_lt(w.value[1][at], w.value[0][at] / 3);
}
END_TEST

START_TEST(starts_too_young_to_come_back_do_not_count)
{
	enum { STEP = 100, N = 1000 };
	struct mc_worth w;
	unsigned at = mc_worth_band(1000);
	float before;

	mc_worth_init(&w);
	w.starts[0] = N;
	for (unsigned i = 0; i < 10; i++)
		mc_worth_learn(&w, STEP, 1);
	w.hits[0][at] = N / 2.0f;
	mc_worth_learn(&w, STEP, 1);
	before = w.value[0][at];
	w.starts[0] += 10 * N;
	mc_worth_learn(&w, STEP, 1);
	ck_assert_float_eq_tol(w.value[0][at], before, before / 100);
	for (unsigned i = 0; i < 10; i++)
		mc_worth_learn(&w, STEP, 1);
	ck_assert(w.value[0][at] < before / 5);
}
END_TEST

START_TEST(what_was_fetched_ahead_outlives_a_scan_until_its_use)
{
	enum { TIER = 1000, N = 5000, AHEAD = 100 };
	struct cache c;

	cache_open(&c, N, TIER * MIB);
	for (size_t i = 0; i < TIER - AHEAD; i++)
		cache_use(&c, i, MIB);
	for (size_t i = N - AHEAD; i < N; i++)
		mc_policy_insert_ahead(c.policy, &c.objects[i].entry, i, MIB);
	c.used += AHEAD * MIB;
	for (size_t i = TIER; i < TIER + 500; i++)
		cache_use(&c, i, MIB);
	for (size_t i = N - AHEAD; i < N; i++)
		ck_assert(cache_use(&c, i, MIB));
	cache_close(&c);
}
END_TEST

START_TEST(useless_fetching_ahead_cannot_take_the_tier)
{
	enum { TIER = 1000, SET = 500, USES = 20000 };
	uint64_t seed = seed_choose() + UINT64_C(1), hits = 0;
	struct cache c;

	cache_open(&c, SET + USES, TIER * MIB);
	work(&c, SET, USES, &seed);
	for (size_t i = SET; i < SET + USES; i++) {
		while (c.used + MIB > c.capacity) {
			struct mc_policy_entry *v = mc_policy_victim(c.policy, may_evict, NULL, 16);

			ck_assert_ptr_nonnull(v);
			c.used -= v->weight;
			mc_policy_evict(c.policy, v);
		}
		mc_policy_insert_ahead(c.policy, &c.objects[i].entry, i, MIB);
		c.used += MIB;
		hits += cache_use(&c, next_random(&seed) % SET, MIB);
	}
	ck_assert_uint_ge(hits, USES * 90 / 100);
	cache_close(&c);
}
END_TEST

START_TEST(many_refused_entries_do_not_hide_the_others)
{
	enum { TIER = 10000, HELD = 9000, SCAN = 64 };
	unsigned calls = 0;
	struct cache c;

	cache_open(&c, TIER, TIER * MIB);
	for (size_t i = 0; i < TIER; i++) {
		cache_use(&c, i, MIB);
		c.objects[i].refuse = i >= TIER - HELD;
	}
	for (unsigned freed = 0; freed < TIER - HELD; calls++) {
		struct mc_policy_entry *v = mc_policy_victim(c.policy, may_evict, NULL, SCAN);

		if (v == NULL)
			continue;
		mc_policy_evict(c.policy, v);
		freed++;
	}
	ck_assert_uint_le(calls, TIER - HELD + HELD / SCAN + 1);
	cache_close(&c);
}
END_TEST

SUITE_MAIN("policy", random_operations_agree_with_a_plain_model,
	the_only_evictable_entry_is_found_within_one_look_at_each,
	a_scan_of_ten_times_the_tier_leaves_the_working_set, a_new_working_set_replaces_the_old_one,
	history_remembers_once_and_stays_within_its_slots, history_that_grows_forgets_nothing,
	memory_of_the_history_follows_the_entries, bands_and_classes_have_no_gaps,
	worth_is_the_best_rate_of_hits_ahead, a_class_of_few_starts_is_worth_what_the_one_below_is,
	starts_too_young_to_come_back_do_not_count,
	what_was_fetched_ahead_outlives_a_scan_until_its_use,
	useless_fetching_ahead_cannot_take_the_tier, many_refused_entries_do_not_hide_the_others)
