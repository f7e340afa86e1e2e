/*
 * Nodes of kv/.
 *
 * Invariants: 1. A node lies in one slot; a node id is top bit, generation, slot + 1. 2.
 * Directories are found by key, objects by version; at most one node of each; staging and dead
 * nodes are in no chain. 3. A node is freed with its last reference, when it is neither open nor
 * being written.
 * 4. Slot 0 is kv/ itself and has one reference that is never given back.
 */
#include "fs/kv-state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define GEN_MASK UINT32_C(0x7fffffff)

uint64_t mc_knode_id(const struct mc_knode *n)
{
	return UINT64_C(1) << 63 | (uint64_t)n->gen << 32 | (n->slot + 1u);
}

static uint64_t hash_dir(const char *key)
{
	return mc_hash_mix(mc_hash_bytes(MC_HASH_SEED, key, strlen(key)));
}

static uint64_t hash_version(const uint8_t version[16])
{
	return mc_hash_mix(mc_hash_bytes(MC_HASH_SEED, version, 16));
}

static struct mc_knode **bucket(struct mc_kvfs *k, uint64_t hash)
{
	return &k->buckets[hash & (k->n_buckets - 1)];
}

static void grow_buckets(struct mc_kvfs *k)
{
	uint64_t old = k->n_buckets;
	struct mc_knode **b, **was = k->buckets;

	if (k->n_nodes < old)
		return;
	b = calloc(old * 2, sizeof(struct mc_knode *));
	if (b == NULL)
		return; /* longer chains */
	k->buckets = b;
	k->n_buckets = old * 2;
	for (uint64_t i = 0; i < old; i++) {
		struct mc_knode *n = was[i];

		while (n != NULL) {
			struct mc_knode *next = n->next;

			n->next = *bucket(k, n->hash);
			*bucket(k, n->hash) = n;
			n = next;
		}
	}
	free(was);
}

static void chain_locked(struct mc_kvfs *k, struct mc_knode *n)
{
	grow_buckets(k);
	n->next = *bucket(k, n->hash);
	*bucket(k, n->hash) = n;
}

static void unchain_locked(struct mc_kvfs *k, struct mc_knode *n)
{
	struct mc_knode **p = bucket(k, n->hash);

	while (*p != n)
		p = &(*p)->next;
	*p = n->next;
}

static int grow_slots(struct mc_kvfs *k)
{
	uint32_t cap = k->cap_slots != 0 ? k->cap_slots * 2 : 1024;
	struct mc_kslot *p = realloc(k->slots, cap * sizeof(*p));

	if (p == NULL)
		return -ENOMEM;
	k->slots = p;
	k->cap_slots = cap;
	return 0;
}

static int slot_locked(struct mc_kvfs *k, struct mc_knode *n)
{
	uint32_t slot = k->free_slot;

	if (slot != NONE) {
		k->free_slot = k->slots[slot].next_free;
	} else {
		if (k->n_slots == k->cap_slots && grow_slots(k) < 0)
			return -ENOMEM;
		slot = k->n_slots++;
		k->slots[slot].gen = 0;
	}
	k->slots[slot].node = n;
	n->slot = slot;
	n->gen = k->slots[slot].gen;
	k->n_nodes++;
	mc_knode_record_add_locked(k, n);
	return 0;
}

/* A node with one reference, outside the table. */
struct mc_knode *mc_knode_alloc(const char *key, enum mc_knode_kind kind)
{
	struct mc_knode *n = calloc(1, sizeof(*n));

	if (n == NULL)
		return NULL;
	n->key = strdup(key);
	if (n->key == NULL) {
		free(n);
		return NULL;
	}
	n->kind = kind;
	n->refs = 1;
	return n;
}

void mc_knode_free(struct mc_knode *n)
{
	if (n == NULL)
		return;
	free(n->key);
	free(n);
}

struct mc_knode *mc_knode_of_version_locked(struct mc_kvfs *k, const uint8_t version[16])
{
	uint64_t hash = hash_version(version);
	struct mc_knode *n = *bucket(k, hash);

	while (n != NULL &&
		(n->hash != hash || n->kind != MC_KNODE_OBJECT ||
			memcmp(n->attr.version, version, 16) != 0))
		n = n->next;
	return n;
}

static struct mc_knode *dir_locked(struct mc_kvfs *k, const char *key)
{
	uint64_t hash = hash_dir(key);
	struct mc_knode *n = *bucket(k, hash);

	while (n != NULL &&
		(n->hash != hash || n->kind != MC_KNODE_DIR || strcmp(n->key, key) != 0))
		n = n->next;
	return n;
}

/* The node there is, with one more reference, up to date; NULL: none. */
static struct mc_knode *known(struct mc_kvfs *k, const char *key, const struct mc_kv_attr *attr)
{
	struct mc_knode *n;
	char *old = NULL, *now = NULL;

	mc_mutex_lock(&k->lock);
	n = attr->is_dir ? dir_locked(k, key) : mc_knode_of_version_locked(k, attr->version);
	if (n != NULL) {
		n->refs++;
		n->attr = *attr;
		if (strcmp(n->key, key) != 0) /* renamed by another node */
			now = strdup(key);
		if (now != NULL) {
			old = n->key;
			n->key = now;
			mc_knode_record_key_locked(k, n);
		}
	}
	mc_mutex_unlock(&k->lock);
	free(old);
	return n;
}

static int enter(struct mc_kvfs *k, struct mc_knode *n)
{
	int r;

	mc_mutex_lock(&k->lock);
	r = slot_locked(k, n);
	if (r == 0 && n->kind != MC_KNODE_STAGING)
		chain_locked(k, n);
	mc_mutex_unlock(&k->lock);
	return r;
}

int mc_knode_get(
	struct mc_kvfs *k, const char *key, const struct mc_kv_attr *attr, struct mc_knode **ret)
{
	struct mc_knode *n = known(k, key, attr), *there;
	int r = 0;

	if (n != NULL) {
		*ret = n;
		return 0;
	}
	n = mc_knode_alloc(key, attr->is_dir ? MC_KNODE_DIR : MC_KNODE_OBJECT);
	if (n == NULL)
		return -ENOMEM;
	n->attr = *attr;
	n->hash = attr->is_dir ? hash_dir(key) : hash_version(attr->version);
	mc_mutex_lock(&k->lock);
	there = attr->is_dir ? dir_locked(k, key) : mc_knode_of_version_locked(k, attr->version);
	if (there != NULL) {
		there->refs++;
	} else {
		r = slot_locked(k, n);
		if (r == 0)
			chain_locked(k, n);
	}
	mc_mutex_unlock(&k->lock);
	if (there != NULL || r < 0)
		mc_knode_free(n);
	if (r == 0)
		*ret = there != NULL ? there : n;
	return r;
}

int mc_knode_new_staging(struct mc_kvfs *k, const char *key, struct mc_knode **ret)
{
	struct mc_knode *n = mc_knode_alloc(key, MC_KNODE_STAGING);
	int r = n != NULL ? enter(k, n) : -ENOMEM;

	if (r < 0)
		mc_knode_free(n);
	else
		*ret = n;
	return r;
}

struct mc_knode *mc_knode_find(struct mc_kvfs *k, fuse_ino_t ino)
{
	uint32_t slot = (uint32_t)ino - 1, gen = (uint32_t)(ino >> 32) & GEN_MASK;
	struct mc_knode *n = NULL;

	mc_mutex_lock(&k->lock);
	if ((uint32_t)ino != 0 && slot < k->n_slots && k->slots[slot].gen == gen)
		n = k->slots[slot].node;
	mc_mutex_unlock(&k->lock);
	return n;
}

void mc_knode_ref_locked(struct mc_knode *n)
{
	assert(n->refs > 0);
	n->refs++;
}

void mc_knode_put(struct mc_kvfs *k, struct mc_knode *n, uint64_t refs)
{
	struct mc_kslot *s;

	mc_mutex_lock(&k->lock);
	assert(n->refs >= refs);
	n->refs -= refs;
	if (n->refs > 0) {
		mc_mutex_unlock(&k->lock);
		return;
	}
	assert(n->opened == NULL && n->stage == NULL);
	if (n->kind == MC_KNODE_DIR || n->kind == MC_KNODE_OBJECT)
		unchain_locked(k, n);
	mc_knode_record_drop_locked(k, n);
	s = &k->slots[n->slot];
	s->node = NULL;
	s->gen = (s->gen + 1) & GEN_MASK;
	s->next_free = k->free_slot;
	k->free_slot = n->slot;
	k->n_nodes--;
	mc_mutex_unlock(&k->lock);
	mc_knode_free(n);
}

void mc_knode_seal_locked(struct mc_kvfs *k, struct mc_knode *n, const struct mc_kv_attr *attr)
{
	assert(n->kind == MC_KNODE_STAGING);
	n->kind = MC_KNODE_OBJECT;
	n->attr = *attr;
	n->hash = hash_version(attr->version);
	chain_locked(k, n);
	mc_knode_record_kind_locked(k, n);
}

void mc_knode_given(struct mc_kvfs *k, struct mc_knode *n)
{
	mc_mutex_lock(&k->lock);
	n->lookups++;
	mc_knode_record_lookups_locked(k, n);
	mc_mutex_unlock(&k->lock);
}

void mc_knode_forget(struct mc_kvfs *k, struct mc_knode *n, uint64_t lookups)
{
	bool last;

	mc_mutex_lock(&k->lock);
	assert(n->lookups >= lookups);
	n->lookups -= lookups;
	mc_knode_record_lookups_locked(k, n);
	last = n->lookups == 0 && n->slot != 0;
	mc_mutex_unlock(&k->lock);
	if (last)
		mc_kopen_end(k, n);
	mc_knode_put(k, n, lookups);
}

void mc_knode_rename_locked(struct mc_kvfs *k, struct mc_knode *n, char *key)
{
	free(n->key);
	n->key = key;
	mc_knode_record_key_locked(k, n);
}

char *mc_knode_key(struct mc_kvfs *k, const struct mc_knode *n)
{
	char *key;

	mc_mutex_lock(&k->lock);
	key = strdup(n->key);
	mc_mutex_unlock(&k->lock);
	return key;
}

int mc_knode_child_key(struct mc_kvfs *k, fuse_ino_t ino, const char *name, char **ret)
{
	struct mc_knode *dir = mc_knode_find(k, ino);
	size_t len, name_len = strlen(name);
	char *key;

	if (dir == NULL)
		return -ESTALE;
	if (dir->kind != MC_KNODE_DIR)
		return -ENOTDIR;
	/* A directory keeps its key for ever. */
	len = strlen(dir->key);
	if (name_len > 255 || len + name_len + 2 > MC_KEY_BYTES)
		return -ENAMETOOLONG;
	key = malloc(len + name_len + 2);
	if (key == NULL)
		return -ENOMEM;
	if (len > 0) {
		memcpy(key, dir->key, len);
		key[len++] = '/';
	}
	memcpy(key + len, name, name_len + 1);
	*ret = key;
	return 0;
}

int mc_knode_restore(struct mc_kvfs *k, struct mc_knode *n, uint32_t gen)
{
	struct mc_kslot *s;
	uint32_t slot;

	if (k->n_slots == k->cap_slots && grow_slots(k) < 0)
		return -ENOMEM;
	slot = k->n_slots++;
	s = &k->slots[slot];
	*s = (struct mc_kslot){.node = n, .gen = gen & GEN_MASK};
	if (n == NULL) {
		s->next_free = k->free_slot;
		k->free_slot = slot;
		return 0;
	}
	n->slot = slot;
	n->gen = s->gen;
	n->hash = n->kind == MC_KNODE_DIR ? hash_dir(n->key) : hash_version(n->attr.version);
	k->n_nodes++;
	if (n->kind == MC_KNODE_DIR || n->kind == MC_KNODE_OBJECT)
		chain_locked(k, n);
	return 0;
}

int mc_knodes_open(struct mc_kvfs *k)
{
	static const struct mc_kv_attr attr = {.is_dir = true};
	struct mc_knode *root;

	k->free_slot = NONE;
	k->n_buckets = 1024;
	k->buckets = calloc(k->n_buckets, sizeof(struct mc_knode *));
	if (k->buckets == NULL)
		return -ENOMEM;
	return mc_knode_get(k, "", &attr, &root);
}

void mc_knodes_close(struct mc_kvfs *k)
{
	for (uint32_t i = 0; i < k->n_slots; i++)
		mc_knode_free(k->slots[i].node);
	free(k->slots);
	free(k->buckets);
}
