/* Map from path to entry with an order of use: chained buckets, one circular list. */
#include "tier/remote-lru.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* FNV-1a 64 with a last mix. */
uint64_t mc_lru_hash(const void *bytes, size_t len)
{
	const uint8_t *b = bytes;
	uint64_t h = UINT64_C(14695981039346656037);

	for (size_t i = 0; i < len; i++)
		h = (h ^ b[i]) * UINT64_C(1099511628211);
	return h ^ h >> 29;
}

int mc_lru_init(struct mc_lru *l, size_t expected)
{
	size_t n = 16;

	while (n < expected)
		n *= 2;
	l->buckets = calloc(n, sizeof(struct mc_lru_node *));
	if (l->buckets == NULL)
		return -ENOMEM;
	l->n_buckets = n;
	l->n = 0;
	l->ends.prev = l->ends.next = &l->ends;
	return 0;
}

void mc_lru_done(struct mc_lru *l)
{
	assert(l->n == 0);
	free(l->buckets);
	l->buckets = NULL;
}

static void link_newest(struct mc_lru *l, struct mc_lru_node *node)
{
	node->prev = &l->ends;
	node->next = l->ends.next;
	node->next->prev = node;
	l->ends.next = node;
}

static void unlink_node(struct mc_lru_node *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
}

void *mc_lru_find(struct mc_lru *l, const char *key)
{
	uint64_t h = mc_lru_hash(key, strlen(key));
	struct mc_lru_node *node = l->buckets[h & (l->n_buckets - 1)];

	while (node != NULL && (node->hash != h || strcmp(node->key, key) != 0))
		node = node->chain;
	if (node != NULL) {
		unlink_node(node);
		link_newest(l, node);
	}
	return node;
}

int mc_lru_insert(struct mc_lru *l, struct mc_lru_node *node, const char *key)
{
	struct mc_lru_node **bucket;

	node->key = strdup(key);
	if (node->key == NULL)
		return -ENOMEM;
	node->hash = mc_lru_hash(key, strlen(key));
	bucket = &l->buckets[node->hash & (l->n_buckets - 1)];
	node->chain = *bucket;
	*bucket = node;
	link_newest(l, node);
	l->n++;
	return 0;
}

char *mc_lru_take(struct mc_lru *l, struct mc_lru_node *node)
{
	struct mc_lru_node **at = &l->buckets[node->hash & (l->n_buckets - 1)];
	char *key = node->key;

	while (*at != node)
		at = &(*at)->chain;
	*at = node->chain;
	unlink_node(node);
	node->key = NULL;
	l->n--;
	return key;
}

void mc_lru_remove(struct mc_lru *l, struct mc_lru_node *node)
{
	free(mc_lru_take(l, node));
}

void *mc_lru_oldest(struct mc_lru *l)
{
	return l->n == 0 ? NULL : l->ends.prev;
}
