/*
 * The table of keys: objects and directories, found by the hash of the whole path. An object knows
 * its directory and its own last component; the path is never stored twice.
 */
#include "tier/kv-impl.h"

#include <string.h>

#define FIRST_BUCKETS 1024
#define LOAD 2 /* objects to a bucket before the table doubles */

static uint64_t object_hash(const struct kv_object *obj)
{
	return kv_hash(obj->dir->hash, obj->name, obj->name_len);
}

static struct kv_object *find_in(
	struct kv_index *ix, const struct kv_dir *dir, const char *name, size_t len)
{
	uint64_t h = kv_hash(dir->hash, name, len);
	struct kv_object *o = ix->objects[h & (ix->n_buckets - 1)];

	while (o != NULL &&
		(o->dir != dir || o->name_len != len || memcmp(o->name, name, len) != 0))
		o = o->next;
	return o;
}

static struct kv_dir *find_dir_in(
	struct kv_index *ix, const struct kv_dir *dir, const char *name, size_t len)
{
	uint64_t h = kv_hash(dir->hash, name, len);
	struct kv_dir *d = ix->dirs[h & (ix->n_dir_buckets - 1)];

	while (d != NULL &&
		(d->parent != dir || d->name_len != len || memcmp(d->name, name, len) != 0))
		d = d->next;
	return d;
}

struct kv_dir *kv_index_dir(struct kv_index *ix, const char *key, size_t len)
{
	struct kv_dir *d = ix->root;

	while (len > 0 && d != NULL) {
		const char *slash = memchr(key, '/', len);
		size_t n = slash != NULL ? (size_t)(slash - key) : len;

		d = find_dir_in(ix, d, key, n);
		if (n == len)
			break;
		key += n + 1;
		len -= n + 1;
	}
	return d;
}

struct kv_dir *kv_index_parent(
	struct kv_index *ix, const char *key, const char **ret_name, size_t *ret_len)
{
	const char *slash = strrchr(key, '/');

	*ret_name = slash != NULL ? slash + 1 : key;
	*ret_len = strlen(*ret_name);
	return slash != NULL ? kv_index_dir(ix, key, (size_t)(slash - key)) : ix->root;
}

struct kv_object *kv_index_find(struct kv_index *ix, const char *key)
{
	const char *name;
	size_t len;
	struct kv_dir *d = kv_index_parent(ix, key, &name, &len);

	return d != NULL ? find_in(ix, d, name, len) : NULL;
}

/* ---- children of a directory */

uint64_t kv_child_seq(uintptr_t c)
{
	if ((c & 2) != 0)
		return c >> 2;
	if ((c & 1) != 0)
		return ((struct kv_dir *)(c & ~(uintptr_t)3))->seq;
	return ((struct kv_object *)c)->seq;
}

uint32_t kv_dir_from(const struct kv_dir *d, uint64_t seq)
{
	uint32_t lo = 0, hi = d->n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (kv_child_seq(d->child[mid]) < seq)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int add_child(struct kv_dir *d, uintptr_t c)
{
	if (d->n == d->cap) {
		uint32_t cap = d->cap < 8 ? d->cap + 4 : d->cap + d->cap / 8;
		uintptr_t *grown = reallocarray(d->child, cap, sizeof(*grown));

		if (grown == NULL)
			return -ENOMEM;
		d->index->memory += (cap - d->cap) * sizeof(*grown);
		d->child = grown;
		d->cap = cap;
	}
	d->child[d->n++] = c;
	d->live++;
	return 0;
}

static void remove_child(struct kv_dir *d, uint64_t seq)
{
	uint32_t at = kv_dir_from(d, seq), n = 0;

	assert(at < d->n && kv_child_seq(d->child[at]) == seq);
	d->child[at] = seq << 2 | 2;
	d->live--;
	if (d->n < 64 || d->live > d->n / 2)
		return;
	for (uint32_t i = 0; i < d->n; i++)
		if ((d->child[i] & 2) == 0)
			d->child[n++] = d->child[i];
	d->n = n;
}

/* ---- directories */

static struct kv_dir *dir_new(struct kv_index *ix, const char *name, size_t len)
{
	struct kv_dir *d = calloc(1, sizeof(*d) + len + 1);

	if (d == NULL)
		return NULL;
	d->index = ix;
	d->next_seq = 1;
	d->name_len = (uint16_t)len;
	memcpy(d->name, name, len);
	return d;
}

static void dir_free(struct kv_dir *d)
{
	free(d->child);
	free(d);
}

static int grow_dirs(struct kv_index *ix)
{
	uint64_t n = 2 * ix->n_dir_buckets;
	struct kv_dir **grown = calloc(n, sizeof(*grown));

	if (grown == NULL)
		return -ENOMEM;
	for (uint64_t b = 0; b < ix->n_dir_buckets; b++) {
		for (struct kv_dir *d = ix->dirs[b], *next; d != NULL; d = next) {
			next = d->next;
			d->next = grown[d->hash & (n - 1)];
			grown[d->hash & (n - 1)] = d;
		}
	}
	free(ix->dirs);
	ix->dirs = grown;
	ix->memory += (n - ix->n_dir_buckets) * sizeof(*grown);
	ix->n_dir_buckets = n;
	return 0;
}

int kv_index_add_dir(struct kv_dir *parent, const char *name, size_t len, struct kv_dir **ret)
{
	struct kv_index *ix = parent->index;
	struct kv_dir *d;
	int r = ix->n_dirs >= LOAD * ix->n_dir_buckets ? grow_dirs(ix) : 0;

	if (r < 0)
		return r;
	d = dir_new(ix, name, len);
	if (d == NULL)
		return -ENOMEM;
	d->parent = parent;
	d->hash = kv_hash(parent->hash, name, len);
	d->seq = parent->next_seq;
	r = add_child(parent, (uintptr_t)d | 1);
	if (r < 0) {
		dir_free(d);
		return r;
	}
	parent->next_seq++;
	d->next = ix->dirs[d->hash & (ix->n_dir_buckets - 1)];
	ix->dirs[d->hash & (ix->n_dir_buckets - 1)] = d;
	ix->n_dirs++;
	ix->memory += sizeof(*d) + len + 1;
	*ret = d;
	return 0;
}

void kv_index_remove_dir(struct kv_dir *d)
{
	struct kv_index *ix = d->index;
	struct kv_dir **at = &ix->dirs[d->hash & (ix->n_dir_buckets - 1)];

	assert(d->live == 0 && d->parent != NULL);
	while (*at != d)
		at = &(*at)->next;
	*at = d->next;
	remove_child(d->parent, d->seq);
	ix->n_dirs--;
	ix->memory -= sizeof(*d) + d->name_len + 1u + d->cap * sizeof(*d->child);
	dir_free(d);
}

int kv_index_make_parents(struct kv_index *ix, const char *key)
{
	struct kv_dir *d = ix->root;

	for (const char *slash; (slash = strchr(key, '/')) != NULL; key = slash + 1) {
		size_t len = (size_t)(slash - key);
		struct kv_dir *child = find_dir_in(ix, d, key, len);
		int r;

		if (child == NULL && find_in(ix, d, key, len) != NULL)
			return -ENOTDIR;
		r = child == NULL ? kv_index_add_dir(d, key, len, &child) : 0;
		if (r < 0)
			return r;
		d = child;
	}
	return 0;
}

/* ---- objects */

static int grow_objects(struct kv_index *ix)
{
	uint64_t n = 2 * ix->n_buckets;
	struct kv_object **grown = calloc(n, sizeof(*grown));

	if (grown == NULL)
		return -ENOMEM;
	for (uint64_t b = 0; b < ix->n_buckets; b++) {
		for (struct kv_object *o = ix->objects[b], *next; o != NULL; o = next) {
			uint64_t to = object_hash(o) & (n - 1);

			next = o->next;
			o->next = grown[to];
			grown[to] = o;
		}
	}
	free(ix->objects);
	ix->objects = grown;
	ix->memory += (n - ix->n_buckets) * sizeof(*grown);
	ix->n_buckets = n;
	return 0;
}

struct kv_object *kv_object_new(const char *name, size_t len, uint64_t size)
{
	uint64_t n_crc = mc_block_count(size);
	struct kv_object *o = calloc(1, offsetof(struct kv_object, name) + len + 1);

	if (o == NULL)
		return NULL;
	if (n_crc > 1) {
		o->crc.many = calloc(n_crc, sizeof(uint32_t));
		if (o->crc.many == NULL) {
			free(o);
			return NULL;
		}
	}
	o->size = size;
	o->refs = 1;
	o->name_len = (uint8_t)len;
	memcpy(o->name, name, len);
	return o;
}

/* Memory of an object, malloc's own 8 bytes and its rounding included. */
static uint64_t object_memory(const struct kv_object *o)
{
	uint64_t n_crc = mc_block_count(o->size);

	return (offsetof(struct kv_object, name) + o->name_len + 1u + 8 + 15) / 16 * 16 +
		(n_crc > 1 ? 8 + n_crc * sizeof(uint32_t) : 0);
}

static uint64_t pinned_bytes(const struct kv_object *o)
{
	return (o->flags & KV_PINNED) != 0 ? o->size : 0;
}

void kv_index_pin(struct kv_object *obj, bool pinned)
{
	struct kv_index *ix = obj->dir->index;

	ix->pinned_bytes -= pinned_bytes(obj);
	obj->flags = (uint8_t)(pinned ? obj->flags | KV_PINNED : obj->flags & ~KV_PINNED);
	ix->pinned_bytes += pinned_bytes(obj);
}

static void unchain(struct kv_index *ix, struct kv_object *o)
{
	struct kv_object **at = &ix->objects[object_hash(o) & (ix->n_buckets - 1)];

	while (*at != o)
		at = &(*at)->next;
	*at = o->next;
	o->next = NULL;
	ix->n_objects--;
	ix->bytes -= o->size;
	ix->pinned_bytes -= pinned_bytes(o);
	ix->memory -= object_memory(o);
}

static void chain(struct kv_index *ix, struct kv_dir *dir, struct kv_object *o)
{
	uint64_t at;

	o->dir = dir;
	at = object_hash(o) & (ix->n_buckets - 1);
	o->next = ix->objects[at];
	ix->objects[at] = o;
	o->refs++;
	ix->n_objects++;
	ix->bytes += o->size;
	ix->pinned_bytes += pinned_bytes(o);
	ix->memory += object_memory(o);
}

int kv_index_insert(struct kv_dir *dir, struct kv_object *obj, struct kv_object **ret_old)
{
	struct kv_index *ix = dir->index;
	struct kv_object *old = find_in(ix, dir, obj->name, obj->name_len);
	int r = 0;

	*ret_old = NULL;
	if (old == NULL && find_dir_in(ix, dir, obj->name, obj->name_len) != NULL)
		return -EISDIR;
	if (old == NULL && ix->n_objects >= LOAD * ix->n_buckets)
		r = grow_objects(ix);
	if (r < 0)
		return r;
	if (old != NULL) {
		unchain(ix, old);
		old->dir = NULL;
		obj->seq = old->seq;
		dir->child[kv_dir_from(dir, obj->seq)] = (uintptr_t)obj;
	} else {
		obj->seq = dir->next_seq;
		r = add_child(dir, (uintptr_t)obj);
		if (r < 0)
			return r;
		dir->next_seq++;
	}
	chain(ix, dir, obj);
	*ret_old = old;
	return 0;
}

void kv_index_remove(struct kv_object *obj)
{
	struct kv_dir *dir = obj->dir;

	unchain(dir->index, obj);
	remove_child(dir, obj->seq);
	obj->dir = NULL;
}

/* ---- the table itself */

struct kv_index *kv_index_open(struct mc_kv *kv)
{
	struct kv_index *ix = calloc(1, sizeof(*ix));

	if (ix == NULL)
		return NULL;
	ix->kv = kv;
	ix->n_buckets = ix->n_dir_buckets = FIRST_BUCKETS;
	ix->objects = calloc(ix->n_buckets, sizeof(*ix->objects));
	ix->dirs = calloc(ix->n_dir_buckets, sizeof(*ix->dirs));
	ix->root = dir_new(ix, "", 0);
	if (ix->objects == NULL || ix->dirs == NULL || ix->root == NULL) {
		kv_index_close(ix);
		return NULL;
	}
	ix->memory = ix->n_buckets * (sizeof(*ix->objects) + sizeof(*ix->dirs));
	return ix;
}

void kv_index_close(struct kv_index *ix)
{
	if (ix == NULL)
		return;
	for (uint64_t b = 0; ix->dirs != NULL && b < ix->n_dir_buckets; b++)
		for (struct kv_dir *d = ix->dirs[b], *next; d != NULL; d = next) {
			next = d->next;
			dir_free(d);
		}
	free(ix->objects);
	free(ix->dirs);
	if (ix->root != NULL)
		dir_free(ix->root);
	free(ix);
}
