/*
 * The table of the KV log: keys through growth, renames and removals; what finding an object in
 * parts costs does not grow with their number.
 */
#include "tests/suite.h"
#include "tier/kv-table.h"

#include <stdio.h>
#include <string.h>

#define HEADS 20000u
#define LONGEST 16u /* of a chain: eight times what is expected */

static void version_of(unsigned i, uint8_t ret[16])
{
	uint64_t x = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);

	x ^= x >> 29;
	memset(ret, 0, 16);
	memcpy(ret, &x, sizeof(x));
}

static uint32_t add(struct mc_kv_table *t, unsigned i)
{
	const struct mc_kv_loc loc = {MC_KV_SPLIT, i, 1 << 20};
	struct mc_kv_meta m = {.size = 1};
	char key[16];
	uint32_t slot;

	snprintf(key, sizeof(key), "k%u", i);
	m.key = key;
	version_of(i / 2, m.version); /* two numbers of each version */
	ck_assert_int_eq(mc_kv_table_add(t, MC_KV_OBJECT, &m, &loc, &slot), 0);
	mc_kv_table_link_head(t, slot);
	return slot;
}

static uint32_t find(const struct mc_kv_table *t, unsigned i)
{
	uint8_t version[16];

	version_of(i / 2, version);
	return mc_kv_table_find_head(t, version, i);
}

static unsigned longest_chain(const struct mc_kv_table *t)
{
	unsigned most = 0;

	for (uint32_t b = 0; b < t->n_head_buckets; b++) {
		unsigned n = 0;

		for (uint32_t s = t->heads[b]; s != 0; s = mc_kv_table_get(t, s)->seg_next)
			n++;
		most = n > most ? n : most;
	}
	return most;
}

static unsigned count(const struct mc_kv_table *t)
{
	unsigned n = 0;

	for (uint32_t s = mc_kv_table_next_head(t, 0); s != 0; s = mc_kv_table_next_head(t, s))
		n++;
	return n;
}

START_TEST(an_object_in_parts_is_found_at_the_same_cost_however_many_there_are)
{
	static uint32_t slots[HEADS];
	struct mc_kv_table t;

	ck_assert_int_eq(mc_kv_table_init(&t), 0);
	ck_assert_uint_eq(mc_kv_table_next_head(&t, 0), 0);
	for (unsigned i = 0; i < HEADS; i++)
		slots[i] = add(&t, i);
	ck_assert_uint_le(longest_chain(&t), LONGEST);
	ck_assert_uint_eq(count(&t), HEADS);
	for (unsigned i = 0; i < HEADS; i++)
		ck_assert_uint_eq(find(&t, i), slots[i]);
	for (unsigned i = 0; i < HEADS; i += 2) {
		mc_kv_table_unlink_head(&t, slots[i]);
		mc_kv_table_remove(&t, slots[i]);
	}
	ck_assert_uint_eq(count(&t), HEADS / 2);
	for (unsigned i = 0; i < HEADS; i++)
		ck_assert_uint_eq(find(&t, i), i % 2 == 0 ? 0 : slots[i]);
	mc_kv_table_clear(&t);
	ck_assert_uint_eq(mc_kv_table_next_head(&t, 0), 0);
	ck_assert_uint_eq(find(&t, 1), 0);
	mc_kv_table_done(&t);
}
END_TEST

/* A recovery that is tried again begins with it: what a device has room for is told by bytes. */
START_TEST(a_table_that_was_cleared_counts_nothing)
{
	struct mc_kv_table t;
	uint64_t bytes;

	ck_assert_int_eq(mc_kv_table_init(&t), 0);
	add(&t, 0);
	bytes = t.bytes;
	ck_assert_uint_gt(bytes, 0);
	mc_kv_table_clear(&t);
	ck_assert_uint_eq(t.bytes, 0);
	add(&t, 0);
	ck_assert_uint_eq(t.bytes, bytes);
	mc_kv_table_done(&t);
}
END_TEST

static uint32_t slot_of(
	const struct mc_kv_table *t, enum mc_kv_kind kind, const char *name, unsigned i)
{
	char key[32];

	snprintf(key, sizeof(key), "%s%u", name, i);
	return mc_kv_table_find(t, kind, key);
}

static void rekey(struct mc_kv_table *t, uint32_t slot, unsigned i)
{
	char key[32];

	snprintf(key, sizeof(key), "renamed%u", i);
	ck_assert_int_eq(mc_kv_table_rekey(t, slot, key), 0);
}

START_TEST(a_key_has_its_slot_until_it_is_renamed_or_removed)
{
	enum { KEYS = 5000 };
	static uint32_t slots[KEYS];
	struct mc_kv_table t;

	ck_assert_int_eq(mc_kv_table_init(&t), 0);
	for (unsigned i = 0; i < KEYS; i++)
		slots[i] = add(&t, i);
	for (unsigned i = 0; i < KEYS; i++) {
		ck_assert_uint_eq(slot_of(&t, MC_KV_OBJECT, "k", i), slots[i]);
		ck_assert_uint_eq(slot_of(&t, MC_KV_PIN, "k", i), 0);
		mc_kv_table_unlink_head(&t, slots[i]);
		if (i % 3 == 0)
			rekey(&t, slots[i], i);
		if (i % 3 == 1)
			mc_kv_table_remove(&t, slots[i]);
	}
	for (unsigned i = 0; i < KEYS; i++) {
		ck_assert_uint_eq(slot_of(&t, MC_KV_OBJECT, "k", i), i % 3 == 2 ? slots[i] : 0);
		ck_assert_uint_eq(
			slot_of(&t, MC_KV_OBJECT, "renamed", i), i % 3 == 0 ? slots[i] : 0);
	}
	mc_kv_table_done(&t);
}
END_TEST

START_TEST(what_enters_under_a_key_tells_who_had_it)
{
	const struct mc_kv_loc loc = {1, 1, 0};
	const struct mc_kv_meta m = {.key = "k", .size = 1};
	const uint64_t hashes[] = {mc_kv_key_hash("k"), mc_kv_key_hash("other")};
	struct mc_kv_table t;
	uint32_t first, second, old;

	ck_assert_int_eq(mc_kv_table_init(&t), 0);
	mc_kv_table_expect(&t, MC_KV_OBJECT, hashes, 2); /* of an empty table */
	ck_assert_int_eq(mc_kv_table_enter(&t, MC_KV_OBJECT, &m, &loc, &first, &old), 0);
	ck_assert_uint_eq(old, 0);
	ck_assert_int_eq(mc_kv_table_enter(&t, MC_KV_DIR, &m, &loc, &second, &old), 0);
	ck_assert_uint_eq(old, 0);
	mc_kv_table_expect(&t, MC_KV_OBJECT, hashes, 2);
	ck_assert_int_eq(mc_kv_table_enter(&t, MC_KV_OBJECT, &m, &loc, &second, &old), 0);
	ck_assert_uint_eq(old, first);
	mc_kv_table_remove(&t, first);
	ck_assert_uint_eq(mc_kv_table_find(&t, MC_KV_OBJECT, "k"), second);
	mc_kv_table_done(&t);
}
END_TEST

SUITE_MAIN("kv-table", a_key_has_its_slot_until_it_is_renamed_or_removed,
	what_enters_under_a_key_tells_who_had_it, a_table_that_was_cleared_counts_nothing,
	an_object_in_parts_is_found_at_the_same_cost_however_many_there_are)
