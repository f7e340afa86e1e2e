/*
 * A map from path to an entry that embeds a node, in order of last use. For what a remote keeps per
 * path: open descriptors, file handles, directories known to exist. Not thread-safe: the owner
 * locks.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* First member of an entry. */
struct mc_lru_node {
	struct mc_lru_node *chain;       /* same bucket */
	struct mc_lru_node *prev, *next; /* order of use: next is older */
	uint64_t hash;
	char *key; /* owned by the map while the node is in it */
};

struct mc_lru {
	struct mc_lru_node **buckets; /* owned */
	size_t n_buckets;             /* a power of two, fixed */
	size_t n;
	struct mc_lru_node ends; /* ends.next newest, ends.prev oldest */
};

/* A well-mixed number from bytes; not against an adversary. */
uint64_t mc_lru_hash(const void *bytes, size_t len);

/* expected: entries, rounded up for the buckets. 0 or -ENOMEM. */
int mc_lru_init(struct mc_lru *l, size_t expected);
/* The map must be empty. */
void mc_lru_done(struct mc_lru *l);
/* The entry of that key, now the newest, or NULL. */
void *mc_lru_find(struct mc_lru *l, const char *key);
/* The key must not be there; it is copied. 0 or -ENOMEM. */
int mc_lru_insert(struct mc_lru *l, struct mc_lru_node *node, const char *key);
/* Takes the node out and frees its key; the entry stays the caller's. */
void mc_lru_remove(struct mc_lru *l, struct mc_lru_node *node);
/* The same, but the key becomes the caller's (free()). */
char *mc_lru_take(struct mc_lru *l, struct mc_lru_node *node);
/* The least recently used entry, or NULL. */
void *mc_lru_oldest(struct mc_lru *l);
