/*
 * The replacement policy of one cache tier: which entry leaves next. Only the order is decided
 * here; the owner says when to evict, moves the bytes and keeps the capacity.
 *
 * An entry is embedded in the owner's struct and belongs to the owner; between insert and evict or
 * remove it is linked here and its address must not change. Every call but open and close is O(1)
 * amortised and allocates nothing but (rarely, and harmlessly when it fails) history.
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
	uint32_t stamp;
	uint8_t uses;
	uint8_t list;
};

/* Whether the owner could evict e now (not pinned, not leased, clean). Must not call back. */
typedef bool mc_policy_evictable(void *ctx, const struct mc_policy_entry *e);

/* capacity: bytes the owner means to hold at most, > 0. 0, or -ENOMEM. */
int mc_policy_open(uint64_t capacity, struct mc_policy **ret);
/* Entries still linked are left to the owner; NULL allowed. */
void mc_policy_close(struct mc_policy *p);

/* The entry came into the tier. key_hash: the same for the same content each time it comes back. */
void mc_policy_insert(
	struct mc_policy *p, struct mc_policy_entry *e, uint64_t key_hash, uint64_t weight);
/* The entry was used. A burst of uses with nothing else in between counts once. */
void mc_policy_hit(struct mc_policy *p, struct mc_policy_entry *e);
/* The entry was evicted and is remembered: should it come back, its uses still count. */
void mc_policy_evict(struct mc_policy *p, struct mc_policy_entry *e);
/* The entry is gone for good (deleted, corrupt); nothing is remembered. */
void mc_policy_remove(struct mc_policy *p, struct mc_policy_entry *e);

/*
 * The entry that should leave next; it stays linked until evict or remove. At most max_scan (> 0)
 * entries are looked at; those refused count as in use now, so that the next call looks at others.
 * NULL: none.
 */
struct mc_policy_entry *mc_policy_victim(
	struct mc_policy *p, mc_policy_evictable *evictable, void *ctx, unsigned max_scan);

static inline bool mc_policy_linked(const struct mc_policy_entry *e)
{
	return e->next != NULL;
}

struct mc_policy_stats {
	uint64_t entries;
	uint64_t weight;        /* bytes, sum over the entries */
	uint64_t history_bytes; /* memory of the history of evicted entries */
};
void mc_policy_stats(const struct mc_policy *p, struct mc_policy_stats *ret);
