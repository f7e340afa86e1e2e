/*
 * The node table.
 *
 * Invariants:
 * 1. A node lies in exactly one slot; nodes never move, slots are reused with a higher generation.
 * 2. Every node that is not retired is in the hash chain of its hash; at most one of those per
 * spot.
 * 3. refs > 0 for every node in the table; the root has one that is never given back.
 * 4. A place is unreferenced only after the lock is released (dropping a manifest may take long).
 */
#include "fs/node.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/node-record.h"
#include "tier/lock.h"

#define SLAB_SHIFT 10 /* nodes allocated together */
#define SLAB_NODES (UINT32_C(1) << SLAB_SHIFT)
#define SLOT_NONE UINT32_MAX
#define GEN_MASK UINT32_C(0x1fffffff) /* the top three bits of an id mark other parts */

struct mc_nodes {
	struct mc_mutex lock;
	struct mc_node **slabs; /* owned arrays of SLAB_NODES */
	uint32_t n_slabs, cap_slabs;
	uint32_t next_slot; /* slots below have been used */
	uint32_t free_slot; /* head of the free list, linked through entry; SLOT_NONE = empty */
	struct mc_node **buckets; /* power of two */
	uint64_t n_buckets;
	uint64_t count;
	struct mc_takeover *takeover; /* borrowed; NULL = no records are kept */
};

static struct mc_node *slot_node(struct mc_nodes *t, uint32_t slot)
{
	return &t->slabs[slot >> SLAB_SHIFT][slot & (SLAB_NODES - 1)];
}

#define TIERS_BIT (UINT64_C(1) << 62)

uint64_t mc_node_id(const struct mc_node *n)
{
	return (n->at != MC_AT_TREE ? TIERS_BIT : 0) | (uint64_t)n->gen << 32 | (n->slot + 1u);
}

static uint64_t spot_hash(const struct mc_spot *s)
{
	uint64_t h = s->place != NULL ? s->place->hash : 0;

	if (s->key != NULL)
		h = mc_hash_bytes(MC_HASH_SEED, s->key, strlen(s->key));
	return mc_hash_mix(h ^
		((uint64_t)s->at << 40 | (uint64_t)s->kind << 32 | s->entry) *
			UINT64_C(0x9e3779b97f4a7c15));
}

static bool is_at(const struct mc_node *n, const struct mc_spot *s)
{
	return n->kind == s->kind && n->entry == s->entry && n->at == s->at &&
		mc_place_equal(n->place, s->place) &&
		(s->key == NULL || strcmp(n->key, s->key) == 0);
}

static int grow_slabs(struct mc_nodes *t)
{
	if (t->n_slabs == t->cap_slabs) {
		uint32_t cap = t->cap_slabs != 0 ? t->cap_slabs * 2 : 16;
		struct mc_node **p = realloc(t->slabs, cap * sizeof(struct mc_node *));

		if (p == NULL)
			return -ENOMEM;
		t->slabs = p;
		t->cap_slabs = cap;
	}
	t->slabs[t->n_slabs] = calloc(SLAB_NODES, sizeof(struct mc_node));
	if (t->slabs[t->n_slabs] == NULL)
		return -ENOMEM;
	t->n_slabs++;
	return 0;
}

/* Doubles the buckets when chains get long; failure only means longer chains. */
static void grow_buckets(struct mc_nodes *t)
{
	uint64_t n = t->n_buckets * 2;
	struct mc_node **b;

	if (t->count < t->n_buckets)
		return;
	b = calloc(n, sizeof(struct mc_node *));
	if (b == NULL)
		return;
	for (uint64_t i = 0; i < t->n_buckets; i++) {
		struct mc_node *node = t->buckets[i];

		while (node != NULL) {
			struct mc_node *next = node->next;

			node->next = b[node->hash & (n - 1)];
			b[node->hash & (n - 1)] = node;
			node = next;
		}
	}
	free(t->buckets);
	t->buckets = b;
	t->n_buckets = n;
}

static int take_slot(struct mc_nodes *t, struct mc_node **ret)
{
	struct mc_node *n;

	if (t->free_slot != SLOT_NONE) {
		n = slot_node(t, t->free_slot);
		n->slot = t->free_slot;
		t->free_slot = n->entry;
	} else {
		if (t->next_slot == SLOT_NONE - 1)
			return -ENFILE;
		if (t->next_slot == t->n_slabs << SLAB_SHIFT && grow_slabs(t) < 0)
			return -ENOMEM;
		n = slot_node(t, t->next_slot);
		n->slot = t->next_slot++;
	}
	*ret = n;
	return 0;
}

static struct mc_node *find_spot_locked(struct mc_nodes *t, const struct mc_spot *s, uint64_t hash)
	MC_REQUIRES(t->lock)
{
	struct mc_node *n = t->buckets[hash & (t->n_buckets - 1)];

	while (n != NULL && (n->hash != hash || !is_at(n, s)))
		n = n->next;
	return n;
}

static void chain_locked(struct mc_nodes *t, struct mc_node *n) MC_REQUIRES(t->lock)
{
	grow_buckets(t);
	n->next = t->buckets[n->hash & (t->n_buckets - 1)];
	t->buckets[n->hash & (t->n_buckets - 1)] = n;
}

/* Makes n, in its slot, the node of s; takes key. */
static void fill_locked(struct mc_nodes *t, struct mc_node *n, const struct mc_spot *s, char *key)
	MC_REQUIRES(t->lock)
{
	n->kind = s->kind;
	n->entry = s->entry;
	n->at = s->at;
	n->key = key;
	n->place = mc_place_ref(s->place);
	n->hash = spot_hash(s);
	n->refs = 1;
	n->last_mode = MC_MODE_NONE;
	atomic_store_explicit(&n->looked_up, false, memory_order_relaxed);
	atomic_store_explicit(&n->was_looked_up, false, memory_order_relaxed);
	t->count++;
}

/* A new node of s; takes key. */
static int add_locked(struct mc_nodes *t, const struct mc_spot *s, char *key, struct mc_node **ret)
	MC_REQUIRES(t->lock)
{
	int r = take_slot(t, ret);

	if (r < 0)
		return r;
	fill_locked(t, *ret, s, key);
	chain_locked(t, *ret);
	mc_node_record_add(t->takeover, *ret);
	return 0;
}

int mc_nodes_get(struct mc_nodes *t, const struct mc_spot *s, struct mc_node **ret)
{
	uint64_t hash = spot_hash(s);
	char *key = s->key != NULL ? strdup(s->key) : NULL;
	struct mc_node *n;
	int r = 0;

	if (s->key != NULL && key == NULL)
		return -ENOMEM;
	mc_mutex_lock(&t->lock);
	n = find_spot_locked(t, s, hash);
	if (n != NULL) {
		n->refs++;
		mc_node_record_refs(t->takeover, n);
	} else {
		r = add_locked(t, s, key, &n);
		key = r == 0 ? NULL : key;
	}
	mc_mutex_unlock(&t->lock);
	free(key);
	if (r == 0)
		*ret = n;
	return r;
}

struct mc_node *mc_nodes_find(struct mc_nodes *t, uint64_t id)
{
	uint32_t slot = (uint32_t)id - 1;
	struct mc_node *n = NULL;

	mc_mutex_lock(&t->lock);
	if ((uint32_t)id != 0 && slot < t->next_slot) {
		n = slot_node(t, slot);
		if (n->refs == 0 || mc_node_id(n) != id)
			n = NULL;
	}
	mc_mutex_unlock(&t->lock);
	return n;
}

void mc_nodes_ref(struct mc_nodes *t, struct mc_node *n)
{
	mc_mutex_lock(&t->lock);
	assert(n->refs > 0);
	n->refs++;
	mc_node_record_refs(t->takeover, n);
	mc_mutex_unlock(&t->lock);
}

static void unlink_node(struct mc_nodes *t, struct mc_node *n)
{
	struct mc_node **p = &t->buckets[n->hash & (t->n_buckets - 1)];

	while (*p != n)
		p = &(*p)->next;
	*p = n->next;
}

bool mc_nodes_has(struct mc_nodes *t, const struct mc_spot *s)
{
	bool has;

	mc_mutex_lock(&t->lock);
	has = find_spot_locked(t, s, spot_hash(s)) != NULL;
	mc_mutex_unlock(&t->lock);
	return has;
}

void mc_nodes_retire(struct mc_nodes *t, const struct mc_spot *s)
{
	struct mc_node *n;

	mc_mutex_lock(&t->lock);
	n = find_spot_locked(t, s, spot_hash(s));
	if (n != NULL) {
		unlink_node(t, n);
		n->retired = true;
		mc_node_record_retire(t->takeover, n);
	}
	mc_mutex_unlock(&t->lock);
}

struct mc_opened *mc_nodes_forget(struct mc_nodes *t, struct mc_node *n, uint64_t refs)
{
	struct mc_opened *opened = NULL;
	struct mc_place *place = NULL;
	char *key = NULL;

	mc_mutex_lock(&t->lock);
	assert(n->refs >= refs);
	n->refs -= refs;
	if (n->refs > 0) {
		mc_node_record_refs(t->takeover, n);
	} else {
		mc_node_record_drop(t->takeover, n);
		opened = atomic_exchange(&n->opened, NULL);
		if (!n->retired)
			unlink_node(t, n);
		n->retired = false;
		place = n->place;
		n->place = NULL;
		key = n->key;
		n->key = NULL;
		n->gen = (n->gen + 1) & GEN_MASK;
		n->entry = t->free_slot;
		t->free_slot = n->slot;
		t->count--;
	}
	mc_mutex_unlock(&t->lock);
	mc_place_unref(place);
	free(key);
	return opened;
}

void mc_nodes_put(struct mc_nodes *t, struct mc_node *n, uint64_t refs)
{
	struct mc_opened *opened = mc_nodes_forget(t, n, refs);

	assert(opened == NULL);
	(void)opened;
}

void mc_nodes_record(struct mc_nodes *t, struct mc_takeover *takeover)
{
	t->takeover = takeover;
}

int mc_nodes_restore(struct mc_nodes *t, const struct mc_node_was *was, struct mc_node **ret)
{
	char *key = was->spot.key != NULL ? strdup(was->spot.key) : NULL;
	struct mc_node *n;
	int r = was->spot.key != NULL && key == NULL ? -ENOMEM : 0;

	*ret = NULL;
	mc_mutex_lock(&t->lock);
	assert(was->slot == t->next_slot);
	if (r == 0 && t->next_slot == t->n_slabs << SLAB_SHIFT)
		r = grow_slabs(t);
	if (r < 0) {
		mc_mutex_unlock(&t->lock);
		free(key);
		return r;
	}
	n = slot_node(t, was->slot);
	n->slot = t->next_slot++;
	n->gen = was->gen & GEN_MASK;
	if (was->refs > 0) {
		fill_locked(t, n, &was->spot, key);
		n->refs = was->refs;
		n->retired = was->retired;
		if (!n->retired)
			chain_locked(t, n);
		*ret = n;
	} else {
		n->entry = t->free_slot;
		t->free_slot = n->slot;
	}
	mc_mutex_unlock(&t->lock);
	return 0;
}

uint64_t mc_nodes_count(struct mc_nodes *t)
{
	uint64_t count;

	mc_mutex_lock(&t->lock);
	count = t->count;
	mc_mutex_unlock(&t->lock);
	return count;
}

void mc_nodes_each(struct mc_nodes *t, void (*each)(void *ctx, struct mc_node *n), void *ctx)
{
	for (uint32_t i = 0; i < t->next_slot; i++) {
		struct mc_node *n = slot_node(t, i);

		if (n->refs > 0)
			each(ctx, n);
	}
}

int mc_nodes_open(struct mc_nodes **ret)
{
	struct mc_nodes *t = calloc(1, sizeof(*t));
	struct mc_node *root;
	int r;

	if (t == NULL)
		return -ENOMEM;
	mc_mutex_init(&t->lock);
	t->free_slot = SLOT_NONE;
	t->n_buckets = 1024;
	t->buckets = calloc(t->n_buckets, sizeof(struct mc_node *));
	r = t->buckets != NULL ? mc_nodes_get(t, &(struct mc_spot){.kind = MC_NODE_ROOT}, &root)
			       : -ENOMEM;
	if (r < 0) {
		mc_nodes_close(t);
		return r;
	}
	assert(mc_node_id(root) == MC_NODE_ROOT_ID);
	*ret = t;
	return 0;
}

void mc_nodes_close(struct mc_nodes *t)
{
	if (t == NULL)
		return;
	for (uint32_t i = 0; i < t->next_slot; i++) {
		mc_place_unref(slot_node(t, i)->place);
		free(slot_node(t, i)->key);
	}
	for (uint32_t i = 0; i < t->n_slabs; i++)
		free(t->slabs[i]);
	free(t->slabs);
	free(t->buckets);
	mc_mutex_done(&t->lock);
	free(t);
}
