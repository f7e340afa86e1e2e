/* The replacement policy against a plain model, and the facts a tier relies on. */
#include "tests/suite.h"
#include "tier/history.h"
#include "tier/policy.h"
#include "tier/worth.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define MIB (UINT64_C(1) << 20)

/* xorshift64*: the same sequence for the same seed everywhere. */
static uint64_t next_random(uint64_t *s)
{
	*s ^= *s >> 12;
	*s ^= *s << 25;
	*s ^= *s >> 27;
	return *s * UINT64_C(2685821657736338717);
}

static uint64_t new_seed(const char *test)
{
	const char *given = getenv("MC_TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : ((uint64_t)time(NULL) << 8 | 1);

	printf("%s: MC_TEST_SEED=%llu\n", test, (unsigned long long)seed);
	fflush(stdout);
	return seed;
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

START_TEST(random_operations_agree_with_a_plain_model)
{
	enum { N = 300, STEPS = 200000 };
	uint64_t seed = new_seed("model");
	struct mc_policy_stats st;
	struct cache c;
	bool linked[N] = {false};
	uint64_t weight[N] = {0}, sum = 0, count = 0;

	cache_open(&c, N, 100 * MIB);
	for (unsigned step = 0; step < STEPS; step++) {
		size_t i = next_random(&seed) % N;
		struct mc_policy_entry *e = &c.objects[i].entry;

		switch (next_random(&seed) % 8) {
		case 0: /* evict what the policy names */
			e = mc_policy_victim(
				c.policy, may_evict, NULL, 1 + (unsigned)(next_random(&seed) % 32));
			if (e == NULL)
				continue;
			i = (size_t)((struct object *)e - c.objects);
			ck_assert_uint_lt(i, N);
			ck_assert(linked[i]);
			ck_assert(!c.objects[i].refuse);
			mc_policy_evict(c.policy, e);
			linked[i] = false;
			sum -= weight[i];
			count--;
			break;
		case 1:
			if (!linked[i])
				break;
			mc_policy_remove(c.policy, e);
			linked[i] = false;
			sum -= weight[i];
			count--;
			break;
		case 2:
			c.objects[i].refuse = next_random(&seed) % 2;
			break;
		case 3:
		case 4:
			if (linked[i])
				break;
			weight[i] = 1 + next_random(&seed) % (8 * MIB);
			if (next_random(&seed) % 4 == 0)
				mc_policy_insert_ahead(c.policy, e, i, weight[i]);
			else
				mc_policy_insert(c.policy, e, i, weight[i]);
			linked[i] = true;
			sum += weight[i];
			count++;
			break;
		default:
			if (linked[i])
				mc_policy_hit(c.policy, e);
		}
		ck_assert_int_eq(mc_policy_linked(e), linked[i]);
		mc_policy_stats(c.policy, &st);
		ck_assert_uint_eq(st.entries, count);
		ck_assert_uint_eq(st.weight, sum);
	}
	/* Nothing is lost: all that is linked comes out as a victim, once. */
	for (size_t i = 0; i < N; i++)
		c.objects[i].refuse = false;
	for (; count > 0; count--) {
		struct mc_policy_entry *v = mc_policy_victim(c.policy, may_evict, NULL, 1);

		ck_assert_ptr_nonnull(v);
		ck_assert(linked[(struct object *)v - c.objects]);
		linked[(struct object *)v - c.objects] = false;
		mc_policy_evict(c.policy, v);
	}
	ck_assert_ptr_null(mc_policy_victim(c.policy, may_evict, NULL, 1));
	cache_close(&c);
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
	uint64_t seed = new_seed("scan");
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
	uint64_t seed = new_seed("shift");
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
	uint64_t seed = new_seed("ahead"), hits = 0;
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
