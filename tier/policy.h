/*
 * The replacement policy of one cache tier: which entry leaves next. Only the order is decided
 * here; the owner says when to evict, moves the bytes and keeps the capacity.
 *
 * An entry is embedded in the owner's struct and belongs to the owner; between insert and evict or
 * remove it is linked here and its address must not change. Calls are O(1) amortised; they allocate
 * nothing, except that the history of evicted entries doubles when the tier outgrows it (without
 * memory it stays).
 *
 * Not thread-safe: the owner calls under the lock that guards its entries. Nothing here blocks.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mc_policy;

/* 40 bytes, all zero before the first insert. Fields are the policy's; key_hash and weight may be
 * read. */
struct mc_policy_entry {
	struct mc_policy_entry *prev, *next; /* NULL while not linked */
	uint64_t key_hash;
	uint64_t weight; /* bytes, > 0 */
	uint32_t stamp;  /* the policy's clock at the last use, or at the insert */
	uint16_t list;
	uint8_t uses; /* up to 255; 0 = fetched ahead and not used yet */
};

/* capacity: bytes the owner means to hold at most, > 0. 0, or -ENOMEM. */
int mc_policy_open(uint64_t capacity, struct mc_policy **ret);
/* The owner means to hold another amount from now on. */
void mc_policy_resize(struct mc_policy *p, uint64_t capacity);
/* Entries still linked are left to the owner; NULL allowed. */
void mc_policy_close(struct mc_policy *p);

/*
 * The entry came into the tier because it is used now. key_hash: the same each time this content
 * comes. A lower tier counts as used what was used in the tier above while it lies in both
 * (mc_policy_hit).
 */
void mc_policy_insert(
	struct mc_policy *p, struct mc_policy_entry *e, uint64_t key_hash, uint64_t weight);
/* It came ahead of its first use; until that use it is spared, within bounds. */
void mc_policy_insert_ahead(
	struct mc_policy *p, struct mc_policy_entry *e, uint64_t key_hash, uint64_t weight);
/* The entry was used. Uses in close succession (many small reads, ranks in step) count as one. */
void mc_policy_hit(struct mc_policy *p, struct mc_policy_entry *e);
/* The entry was evicted and is remembered: should it come back, its uses still count. */
void mc_policy_evict(struct mc_policy *p, struct mc_policy_entry *e);
/* The entry is gone for good (deleted, corrupt); nothing is remembered. */
void mc_policy_remove(struct mc_policy *p, struct mc_policy_entry *e);

/* Whether the owner could evict e now (not pinned, not leased, clean). Must not call back. */
typedef bool mc_policy_evictable(void *ctx, const struct mc_policy_entry *e);

/*
 * The entry that should leave next; it stays linked until evict or remove. At most max_scan (> 0)
 * entries are looked at; those refused are set aside for a while, so that the next call looks at
 * others first. NULL: none found among them.
 */
struct mc_policy_entry *mc_policy_victim(
	struct mc_policy *p, mc_policy_evictable *evictable, void *ctx, unsigned max_scan);

static inline bool mc_policy_linked(const struct mc_policy_entry *e)
{
	return e->next != NULL;
}

/* A linked entry that came ahead of its first use and still waits for it. */
static inline bool mc_policy_is_ahead(const struct mc_policy_entry *e)
{
	return e->uses == 0;
}

struct mc_policy_stats {
	uint64_t entries;
	uint64_t weight;        /* bytes, sum over the entries */
	uint64_t history_bytes; /* memory of the history: 256 KiB, or at most 32 bytes an entry */
};
void mc_policy_stats(const struct mc_policy *p, struct mc_policy_stats *ret);
