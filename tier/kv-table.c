/*
 * The table of what the KV log holds.
 *
 * Invariants:
 * 1. Each entry stands in one slot and in the chain of its bucket; a free slot in the chain of
 * those.
 * 2. A slot does not change while its entry lives, renamed or moved: who walks the slots sees every
 *    entry that lives throughout.
 */
#include "tier/kv-table.h"

#include "tier/digest.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_BUCKETS 1024
#define FIRST_HEADS 64

/* Two CRC32C of different starts, mixed: the low bits choose the bucket. */
uint64_t mc_kv_key_hash(const char *key)
{
	size_t len = strlen(key);
	uint64_t h = (uint64_t)mc_crc32c(0, key, len) << 32 | mc_crc32c(0x9e3779b9u, key, len);

	h *= UINT64_C(0xd6e8feb86659fd93);
	return h ^ h >> 32;
}

static uint32_t hash_of(enum mc_kv_kind kind, uint64_t key_hash)
{
	return (uint32_t)key_hash + (uint32_t)kind * 0x9e3779b9u;
}

int mc_kv_table_init(struct mc_kv_table *t)
{
	*t = (struct mc_kv_table){
		.n_slots = 1, .n_buckets = FIRST_BUCKETS, .n_head_buckets = FIRST_HEADS};
	t->buckets = calloc(t->n_buckets, sizeof(*t->buckets));
	t->heads = calloc(t->n_head_buckets, sizeof(*t->heads));
	if (t->buckets != NULL && t->heads != NULL)
		return 0;
	mc_kv_table_done(t);
	return -ENOMEM;
}

void mc_kv_table_clear(struct mc_kv_table *t)
{
	for (uint32_t i = 1; i < t->n_slots; i++)
		free(t->slots[i].entry);
	if (t->buckets != NULL)
		memset(t->buckets, 0, t->n_buckets * sizeof(*t->buckets));
	if (t->heads != NULL)
		memset(t->heads, 0, t->n_head_buckets * sizeof(*t->heads));
	t->n = t->n_heads = t->free_slot = 0;
	t->bytes = 0;
	t->n_slots = 1;
}

void mc_kv_table_done(struct mc_kv_table *t)
{
	mc_kv_table_clear(t);
	free(t->slots);
	free(t->buckets);
	free(t->heads);
	*t = (struct mc_kv_table){0};
}

struct mc_kv_entry *mc_kv_table_get(const struct mc_kv_table *t, uint32_t slot)
{
	return slot == 0 || slot >= t->n_slots ? NULL : t->slots[slot].entry;
}

static uint32_t find(
	const struct mc_kv_table *t, enum mc_kv_kind kind, uint32_t hash, const char *key)
{
	uint32_t slot = t->buckets[hash & (t->n_buckets - 1)];

	for (; slot != 0; slot = t->slots[slot].next) {
		const struct mc_kv_slot *s = &t->slots[slot];

		if (s->hash == hash && s->entry->kind == kind &&
			strcmp(mc_kv_entry_key(s->entry), key) == 0)
			break;
	}
	return slot;
}

uint32_t mc_kv_table_find(const struct mc_kv_table *t, enum mc_kv_kind kind, const char *key)
{
	return find(t, kind, hash_of(kind, mc_kv_key_hash(key)), key);
}

/* Each pass begins what the next one reads: the memory answers many of them at once. */
void mc_kv_table_expect(
	const struct mc_kv_table *t, enum mc_kv_kind kind, const uint64_t *key_hashes, size_t n)
{
	const uint32_t mask = t->n_buckets - 1;

	if (t->n == 0)
		return;
	for (size_t i = 0; i < n; i++)
		__builtin_prefetch(&t->buckets[hash_of(kind, key_hashes[i]) & mask]);
	for (size_t i = 0; i < n; i++)
		__builtin_prefetch(&t->slots[t->buckets[hash_of(kind, key_hashes[i]) & mask]]);
	for (size_t i = 0; i < n; i++) {
		uint32_t hash = hash_of(kind, key_hashes[i]), slot = t->buckets[hash & mask];

		if (slot != 0 && t->slots[slot].hash == hash)
			__builtin_prefetch(t->slots[slot].entry);
	}
}

static uint32_t *bucket_of(const struct mc_kv_table *t, uint32_t slot)
{
	return &t->buckets[t->slots[slot].hash & (t->n_buckets - 1)];
}

static void chain(struct mc_kv_table *t, uint32_t slot)
{
	uint32_t *bucket = bucket_of(t, slot);

	t->slots[slot].next = *bucket;
	*bucket = slot;
}

static void unchain(struct mc_kv_table *t, uint32_t slot)
{
	uint32_t *at = bucket_of(t, slot);

	while (*at != slot)
		at = &t->slots[*at].next;
	*at = t->slots[slot].next;
}

/* Failing to grow only makes chains longer. */
static void grow_buckets(struct mc_kv_table *t)
{
	uint32_t n = t->n_buckets * 2, *grown;

	if (t->n < t->n_buckets || n == 0)
		return;
	grown = calloc(n, sizeof(*grown));
	if (grown == NULL)
		return;
	free(t->buckets);
	t->buckets = grown;
	t->n_buckets = n;
	for (uint32_t i = 1; i < t->n_slots; i++)
		if (t->slots[i].entry != NULL)
			chain(t, i);
}

static int take_slot(struct mc_kv_table *t, uint32_t *ret)
{
	if (t->free_slot != 0) {
		*ret = t->free_slot;
		t->free_slot = t->slots[*ret].next;
		return 0;
	}
	if (t->n_slots >= t->cap_slots) {
		uint32_t cap = t->cap_slots != 0 ? t->cap_slots + t->cap_slots / 8 : 1024;
		struct mc_kv_slot *grown = reallocarray(t->slots, cap, sizeof(*grown));

		if (grown == NULL)
			return -ENOMEM;
		t->slots = grown;
		t->cap_slots = cap;
	}
	*ret = t->n_slots++;
	return 0;
}

static struct mc_kv_entry *make_entry(
	enum mc_kv_kind kind, const struct mc_kv_meta *m, const struct mc_kv_loc *loc)
{
	size_t key_len = strlen(m->key), crc_len = m->n_crc * sizeof(uint32_t);
	struct mc_kv_entry *e = malloc(sizeof(*e) + crc_len + key_len + 1);

	if (e == NULL)
		return NULL;
	*e = (struct mc_kv_entry){.segment = loc->segment,
		.generation = loc->generation,
		.off = loc->off,
		.size = m->size,
		.mtime_s = m->mtime_s,
		.mtime_ns = m->mtime_ns,
		.n_crc = m->n_crc,
		.copies = m->copies,
		.key_len = (uint16_t)key_len,
		.kind = (uint8_t)kind};
	memcpy(e->version, m->version, sizeof(e->version));
	if (crc_len > 0)
		memcpy(e->crc, m->crc, crc_len);
	memcpy((char *)(e->crc + e->n_crc), m->key, key_len + 1);
	return e;
}

static uint64_t bytes_of(const struct mc_kv_entry *e)
{
	return sizeof(*e) + 4 * (uint64_t)e->n_crc + e->key_len;
}

int mc_kv_table_enter(struct mc_kv_table *t, enum mc_kv_kind kind, const struct mc_kv_meta *meta,
	const struct mc_kv_loc *loc, uint32_t *ret_slot, uint32_t *ret_old)
{
	uint32_t hash = hash_of(kind, mc_kv_key_hash(meta->key)), slot;
	struct mc_kv_entry *e = make_entry(kind, meta, loc);

	if (e == NULL)
		return -ENOMEM;
	if (take_slot(t, &slot) != 0) {
		free(e);
		return -ENOMEM;
	}
	*ret_old = find(t, kind, hash, meta->key);
	t->slots[slot] = (struct mc_kv_slot){.entry = e, .hash = hash};
	t->bytes += bytes_of(e);
	t->n++;
	chain(t, slot);
	grow_buckets(t);
	*ret_slot = slot;
	return 0;
}

int mc_kv_table_add(struct mc_kv_table *t, enum mc_kv_kind kind, const struct mc_kv_meta *meta,
	const struct mc_kv_loc *loc, uint32_t *ret_slot)
{
	uint32_t old;
	int r = mc_kv_table_enter(t, kind, meta, loc, ret_slot, &old);

	assert(r != 0 || old == 0);
	return r;
}

void mc_kv_table_remove(struct mc_kv_table *t, uint32_t slot)
{
	unchain(t, slot);
	t->bytes -= bytes_of(t->slots[slot].entry);
	free(t->slots[slot].entry);
	t->slots[slot] = (struct mc_kv_slot){.next = t->free_slot};
	t->free_slot = slot;
	t->n--;
}

int mc_kv_table_rekey(struct mc_kv_table *t, uint32_t slot, const char *key)
{
	struct mc_kv_entry *old = t->slots[slot].entry;
	struct mc_kv_meta m = mc_kv_entry_meta(old);
	struct mc_kv_loc loc = mc_kv_entry_loc(old);
	struct mc_kv_entry *e;

	m.key = key;
	e = make_entry(old->kind, &m, &loc);
	if (e == NULL)
		return -ENOMEM;
	e->copies = old->copies;
	e->unreadable = old->unreadable;
	e->seg_prev = old->seg_prev;
	e->seg_next = old->seg_next;
	unchain(t, slot);
	t->bytes += bytes_of(e);
	t->bytes -= bytes_of(old);
	free(old);
	t->slots[slot] =
		(struct mc_kv_slot){.entry = e, .hash = hash_of(e->kind, mc_kv_key_hash(key))};
	chain(t, slot);
	return 0;
}

void mc_kv_table_link(struct mc_kv_table *t, uint32_t *head, uint32_t slot)
{
	struct mc_kv_entry *e = t->slots[slot].entry;

	e->seg_prev = 0;
	e->seg_next = *head;
	if (*head != 0)
		t->slots[*head].entry->seg_prev = slot;
	*head = slot;
}

void mc_kv_table_unlink(struct mc_kv_table *t, uint32_t *head, uint32_t slot)
{
	struct mc_kv_entry *e = t->slots[slot].entry;

	if (e->seg_prev != 0)
		t->slots[e->seg_prev].entry->seg_next = e->seg_next;
	else
		*head = e->seg_next;
	if (e->seg_next != 0)
		t->slots[e->seg_next].entry->seg_prev = e->seg_prev;
	e->seg_prev = 0;
	e->seg_next = 0;
}

/* ---- objects in parts */

/* Versions are random. */
static uint32_t *head_bucket(
	const struct mc_kv_table *t, const uint8_t version[16], uint32_t number)
{
	uint32_t h;

	memcpy(&h, version, sizeof(h));
	return &t->heads[(h ^ number * 0x9e3779b9u) & (t->n_head_buckets - 1)];
}

static uint32_t *bucket_of_head(const struct mc_kv_table *t, uint32_t slot)
{
	return head_bucket(t, t->slots[slot].entry->version, t->slots[slot].entry->generation);
}

/* Failing to grow only makes chains longer. */
static void grow_heads(struct mc_kv_table *t)
{
	uint32_t n = t->n_head_buckets, *old = t->heads, *grown;

	if (t->n_heads < n || 2 * n == 0)
		return;
	grown = calloc(2 * (size_t)n, sizeof(*grown));
	if (grown == NULL)
		return;
	t->heads = grown;
	t->n_head_buckets = 2 * n;
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t slot = old[i], next; slot != 0; slot = next) {
			next = t->slots[slot].entry->seg_next;
			mc_kv_table_link(t, bucket_of_head(t, slot), slot);
		}
	free(old);
}

void mc_kv_table_link_head(struct mc_kv_table *t, uint32_t slot)
{
	grow_heads(t);
	mc_kv_table_link(t, bucket_of_head(t, slot), slot);
	t->n_heads++;
}

void mc_kv_table_unlink_head(struct mc_kv_table *t, uint32_t slot)
{
	mc_kv_table_unlink(t, bucket_of_head(t, slot), slot);
	t->n_heads--;
}

uint32_t mc_kv_table_find_head(
	const struct mc_kv_table *t, const uint8_t version[16], uint32_t number)
{
	uint32_t slot = *head_bucket(t, version, number);

	while (slot != 0 &&
		(t->slots[slot].entry->generation != number ||
			memcmp(t->slots[slot].entry->version, version, 16) != 0))
		slot = t->slots[slot].entry->seg_next;
	return slot;
}

uint32_t mc_kv_table_next_head(const struct mc_kv_table *t, uint32_t slot)
{
	const uint32_t *at = t->heads;

	if (slot != 0 && t->slots[slot].entry->seg_next != 0)
		return t->slots[slot].entry->seg_next;
	if (slot != 0)
		at = bucket_of_head(t, slot) + 1;
	while (at < t->heads + t->n_head_buckets && *at == 0)
		at++;
	return at < t->heads + t->n_head_buckets ? *at : 0;
}
