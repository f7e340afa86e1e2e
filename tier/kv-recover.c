/*
 * Recovery: the log's journal is replayed into an index of its own, beside the one that serves what
 * was adopted from DRAM; at the end the two are merged. Until then what changes names waits, reads
 * of adopted objects go on.
 */
#include "tier/kv-impl.h"
#include "tier/kv-remote.h"

#include "tier/block-cache.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static struct kv_object *find_version(
	struct kv_index *ix, const char *key, const uint8_t version[16])
{
	struct kv_object *obj = kv_index_find(ix, key);

	return obj != NULL && memcmp(obj->version, version, 16) == 0 ? obj : NULL;
}

/* A new struct in ix; what was there before is dropped. */
static struct kv_object *enter_locked(
	struct mc_kv *kv, struct kv_index *ix, const char *key, uint64_t size) MC_REQUIRES(kv->lock)
{
	const char *name;
	size_t len;
	struct kv_object *obj = NULL, *old;
	struct kv_dir *dir;

	if (kv_key_check(key) < 0 || kv_index_make_parents(ix, key) < 0)
		return NULL;
	dir = kv_index_parent(ix, key, &name, &len);
	obj = kv_object_new(name, len, size);
	if (obj == NULL)
		return NULL;
	if (kv_index_insert(dir, obj, &old) < 0)
		old = NULL;
	if (old != NULL)
		kv_object_drop_locked(kv, old);
	obj->state = MC_KV_CLEAN;
	obj->refs--; /* the index's alone; without it, the caller's */
	if (obj->dir == NULL) {
		obj->refs = 1;
		kv_object_drop_locked(kv, obj);
		return NULL;
	}
	return obj;
}

static void on_put(void *ctx, const struct mc_kv_meta *meta, const struct mc_kv_loc *loc)
{
	struct mc_kv *kv = ctx;
	struct kv_object *obj;

	if (mc_block_cache_owns(meta->key)) {
		mc_block_cache_found(kv->opts.blocks, meta);
		return;
	}
	mc_mutex_lock(&kv->lock);
	obj = enter_locked(kv, kv->replay, meta->key, meta->size);
	if (obj != NULL) {
		memcpy(obj->version, meta->version, sizeof(obj->version));
		obj->mtime_ns = kv_time_ns(meta->mtime_s, meta->mtime_ns);
		kv_loc_set(obj, loc);
		obj->warm = KV_WARM / 2;
		kv_crcs_copy(obj, meta->crc);
		obj->unsure = kv->opts.remote != NULL;
	}
	mc_mutex_unlock(&kv->lock);
	kv_reap(kv);
}

static void remove_dir_locked(struct mc_kv *kv, struct kv_index *ix, const char *key)
	MC_REQUIRES(kv->lock)
{
	struct kv_dir *d = kv_index_dir(ix, key, strlen(key));

	if (d == NULL || d->parent == NULL || d->live > 0)
		return;
	if (d->meta != 0)
		kv_meta_clear(kv, d->meta);
	kv_index_remove_dir(d);
}

static int make_dir_locked(struct kv_index *ix, const char *key, uint64_t meta)
{
	size_t len = strlen(key), n;
	struct kv_dir *d = kv_index_dir(ix, key, len);
	const char *name;
	int r = 0;

	if (d == NULL && kv_index_find(ix, key) != NULL)
		return -ENOTDIR;
	if (d == NULL)
		r = kv_index_make_parents(ix, key);
	if (d == NULL && r == 0) {
		struct kv_dir *parent = kv_index_parent(ix, key, &name, &n);

		r = kv_index_add_dir(parent, name, n, &d);
	}
	if (r == 0 && meta != 0)
		d->meta = meta;
	return r;
}

static void on_dir(void *ctx, const char *key, bool made)
{
	struct mc_kv *kv = ctx;

	if (kv_key_check(key) < 0)
		return;
	mc_mutex_lock(&kv->lock);
	if (made)
		make_dir_locked(kv->replay, key, 0);
	else
		remove_dir_locked(kv, kv->replay, key);
	if (!made)
		remove_dir_locked(kv, kv->index, key);
	mc_mutex_unlock(&kv->lock);
}

static void on_pin(void *ctx, const char *key, bool pinned)
{
	struct mc_kv *kv = ctx;
	struct kv_object *obj;

	mc_mutex_lock(&kv->lock);
	obj = kv_index_find(kv->replay, key);
	if (obj != NULL)
		kv_index_pin(obj, pinned);
	mc_mutex_unlock(&kv->lock);
}

static void on_remote(void *ctx, const char *key, const uint8_t version[16], unsigned copies)
{
	struct mc_kv *kv = ctx;
	struct kv_object *obj;

	mc_mutex_lock(&kv->lock);
	obj = find_version(kv->replay, key, version);
	if (obj != NULL)
		obj->remotes = (uint8_t)(copies < 255 ? copies : 255);
	mc_mutex_unlock(&kv->lock);
}

/* The log keeps its record, for a daemon that can read it, and is told of changes. */
static void on_unreadable(void *ctx, const char *key, const uint8_t version[16])
{
	struct mc_kv *kv = ctx;
	struct kv_object *obj;

	mc_mutex_lock(&kv->lock);
	obj = find_version(kv->replay, key, version);
	if (obj != NULL)
		obj->lost = 1;
	if (obj != NULL && obj->remotes > 0) {
		obj->loc = (struct kv_place){0};
		obj->flags |= KV_SHADOWS;
	}
	mc_mutex_unlock(&kv->lock);
}

static void on_aside(void *ctx, const struct mc_kv_log_aside *what)
{
	char text[PATH_MAX + 400];

	snprintf(text, sizeof(text),
		"tier=nvme file=\"%s\" cannot be opened (%s): of its %" PRIu64 " objects %" PRIu64
		" are read from the remote, the others are EIO; mend the file and mount again, or "
		"remove it to give them up",
		what->file, strerror(-what->error), what->objects, what->copied);
	kv_event(ctx, "kv-segment-unreadable", text);
}

/* ---- merging */

/* The adopted object is what the log has: it is clean, unless the log cannot read it, and has one
 * struct. */
static void unite_locked(struct mc_kv *kv, struct kv_object *adopted, struct kv_object *cold)
	MC_REQUIRES(kv->lock)
{
	struct kv_res *res = adopted->res;

	if (adopted->state == MC_KV_DIRTY) {
		kv_dirty_remove_locked(kv, res);
		kv->dirty -= adopted->size;
	}
	cold->res = res;
	res->obj = cold;
	cold->hits = adopted->hits;
	kv_index_pin(cold, ((cold->flags | adopted->flags) & KV_PINNED) != 0);
	adopted->res = NULL;
	adopted->flags = KV_MOVED;
	adopted->next = cold;
	cold->refs++;
	kv_object_drop_locked(kv, adopted);
	if (!cold->lost)
		return;
	cold->lost = 0;
	cold->loc = (struct kv_place){0};
	cold->flags |= KV_SHADOWS;
	kv_dirty_again_locked(kv, cold);
}

/* Versions that were adopted, and that the log does not have under their key: open addressing. */
struct strays {
	struct kv_object **slots; /* borrowed; NULL = empty */
	size_t n_slots, n;        /* a power of two, above twice n */
};

static size_t stray_slot(const struct strays *t, const uint8_t version[16])
{
	uint64_t at;

	memcpy(&at, version, sizeof(at)); /* random */
	at &= t->n_slots - 1;
	while (t->slots[at] != NULL && memcmp(t->slots[at]->version, version, 16) != 0)
		at = (at + 1) & (t->n_slots - 1);
	return at;
}

static bool is_stray_locked(struct mc_kv *kv, const struct kv_object *obj) MC_REQUIRES(kv->lock)
{
	char key[KV_KEY_MAX + 1];

	kv_key_of(obj, key);
	return find_version(kv->replay, key, obj->version) == NULL;
}

static void find_strays_locked(struct mc_kv *kv, struct strays *t) MC_REQUIRES(kv->lock)
{
	for (uint64_t b = 0; b < kv->index->n_buckets; b++)
		for (struct kv_object *o = kv->index->objects[b]; o != NULL; o = o->next)
			t->n += is_stray_locked(kv, o);
	for (t->n_slots = 16; t->n_slots <= 2 * t->n;)
		t->n_slots *= 2;
	t->slots = t->n > 0 ? calloc(t->n_slots, sizeof(struct kv_object *)) : NULL;
	if (t->slots == NULL)
		return;
	for (uint64_t b = 0; b < kv->index->n_buckets; b++)
		for (struct kv_object *o = kv->index->objects[b]; o != NULL; o = o->next)
			if (is_stray_locked(kv, o))
				t->slots[stray_slot(t, o->version)] = o;
}

/* The log knows a version by another key than DRAM: the crash came after a rename was journalled
 * and before its record in DRAM was written anew. */
static void follow_renames_locked(struct mc_kv *kv) MC_REQUIRES(kv->lock)
{
	struct strays t = {0};
	char key[KV_KEY_MAX + 1];

	find_strays_locked(kv, &t);
	for (uint64_t b = 0; t.slots != NULL && b < kv->replay->n_buckets; b++)
		for (struct kv_object *cold = kv->replay->objects[b]; cold != NULL;
			cold = cold->next) {
			struct kv_object *obj = t.slots[stray_slot(&t, cold->version)];
			uint64_t meta;

			if (obj == NULL)
				continue;
			kv_key_of(cold, key);
			if (kv_meta_write(kv, obj, key, obj->res, &meta) == 0) {
				kv_meta_clear(kv, obj->res->meta);
				obj->res->meta = meta;
			}
			kv_index_remove(obj);
			unite_locked(kv, obj, cold);
		}
	free(t.slots);
}

static void merge_object_locked(struct mc_kv *kv, struct kv_object *obj) MC_REQUIRES(kv->lock)
{
	char key[KV_KEY_MAX + 1];
	struct kv_object *cold, *old = NULL;
	const char *name;
	size_t len;

	kv_key_of(obj, key);
	cold = kv_index_find(kv->replay, key);
	kv_index_remove(obj);
	if (cold != NULL && memcmp(cold->version, obj->version, 16) == 0) {
		unite_locked(kv, obj, cold);
		return;
	}
	if (cold != NULL && cold->res != NULL) { /* a rename took its place */
		kv_unlist_locked(kv, obj);
		kv_object_drop_locked(kv, obj);
		return;
	}
	/* The log has a version that this one replaced; it goes when this one is there. */
	if (cold != NULL) {
		obj->flags |= KV_SHADOWS;
		kv_dirty_again_locked(kv, obj);
	}
	if (kv_index_make_parents(kv->replay, key) == 0 &&
		kv_index_insert(kv_index_parent(kv->replay, key, &name, &len), obj, &old) == 0 &&
		old != NULL)
		kv_object_drop_locked(kv, old);
	kv_object_drop_locked(kv, obj);
}

static void merge_locked(struct mc_kv *kv) MC_REQUIRES(kv->lock)
{
	struct kv_index *adopted = kv->index;
	char key[KV_KEY_MAX + 1];

	for (uint64_t b = 0; b < adopted->n_dir_buckets; b++)
		for (struct kv_dir *d = adopted->dirs[b]; d != NULL; d = d->next) {
			kv_dir_key_of(d, key);
			make_dir_locked(kv->replay, key, d->meta);
		}
	follow_renames_locked(kv);
	for (uint64_t b = 0; b < adopted->n_buckets; b++)
		while (adopted->objects[b] != NULL)
			merge_object_locked(kv, adopted->objects[b]);
	kv->index = kv->replay;
	kv->replay = NULL;
	kv_index_close(adopted);
	kv_deletes_settle_locked(kv);
}

/* What it holds may be there: nobody is told that it is not. */
static void on_unread(void *ctx, int res)
{
	struct mc_kv *kv = ctx;

	mc_mutex_lock(&kv->lock);
	kv->unread = kv_caller_error(res);
	kv_trouble_locked(kv, KV_NVME, kv->unread == -EIO ? KV_UNREAD : kv->unread);
	mc_cond_broadcast(&kv->change);
	mc_mutex_unlock(&kv->lock);
}

static void on_done(void *ctx, int res)
{
	struct mc_kv *kv = ctx;

	mc_mutex_lock(&kv->lock);
	merge_locked(kv);
	if (res < 0 || kv->unread != 0)
		kv_trouble_locked(kv, KV_NVME, res);
	kv->unread = 0;
	mc_mutex_unlock(&kv->lock);
	kv_deletes_note(kv);
	mc_mutex_lock(&kv->lock);
	kv->recovering = false;
	mc_cond_broadcast(&kv->change);
	mc_cond_signal(&kv->flush);
	mc_cond_signal(&kv->wake);
	mc_mutex_unlock(&kv->lock);
	kv_reap(kv);
}

void kv_replay_ops(struct mc_kv *kv, struct mc_kv_log_replay *ret)
{
	*ret = (struct mc_kv_log_replay){
		.put = on_put,
		.dir = on_dir,
		.pin = on_pin,
		.remote = on_remote,
		.unreadable = on_unreadable,
		.aside = on_aside,
		.unread = on_unread,
		.done = on_done,
		.ctx = kv,
	};
}
