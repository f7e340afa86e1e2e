/*
 * Nodes of kv/ in the table of takeover.h, and back.
 *
 * Invariants: 1. A record names a key's text that is in use from before it is published until after
 * it is cleared. 2. What an object has is written before its kind, mode and backing id before
 * opens.
 */
#include "fs/kv-state.h"

#include <errno.h>
#include <string.h>

#include "fs/mode.h"
#include "fs/texts.h"

/* So long clients wait at most for the end of recovery because files are open. */
#define BIND_NS UINT64_C(2000000000)
#define SEARCHES 64 /* open files that are looked for by all keys, at most */

static struct mc_takeover *table(const struct mc_kvfs *k)
{
	return k->fs->opts->takeover;
}

/* NULL: none is kept, which is so of kv/ itself, too. */
static struct mc_knode_record *of(const struct mc_kvfs *k, const struct mc_knode *n)
{
	return n->slot != 0 ? mc_takeover_knode(table(k), n->slot) : NULL;
}

static uint32_t add_key(struct mc_kvfs *k, const struct mc_knode *n)
{
	uint32_t ref = mc_texts_add(mc_takeover_texts(table(k)), n->key, strlen(n->key) + 1);

	if (ref == 0)
		mc_takeover_end(table(k), MC_TAKEOVER_FULL);
	return ref;
}

static void write_kind(struct mc_knode_record *r, const struct mc_knode *n)
{
	if (n->kind == MC_KNODE_OBJECT || n->kind == MC_KNODE_DIR) {
		memcpy(r->version, n->attr.version, sizeof(r->version));
		r->size = n->attr.size;
		r->mtime_s = n->attr.mtime_s;
		r->mtime_ns = n->attr.mtime_ns;
		r->ino = n->attr.ino;
	}
	atomic_store_explicit(&r->kind, n->kind, memory_order_release);
}

void mc_knode_record_add_locked(struct mc_kvfs *k, const struct mc_knode *n)
{
	struct mc_knode_record *r = of(k, n);
	uint32_t key = r != NULL ? add_key(k, n) : 0;

	if (key == 0)
		return;
	r->gen = n->gen;
	r->mode = MC_MODE_NONE;
	atomic_store_explicit(&r->key, key, memory_order_relaxed);
	atomic_store_explicit(&r->lookups, n->lookups, memory_order_relaxed);
	atomic_store_explicit(&r->opens, 0, memory_order_relaxed);
	atomic_store_explicit(&r->writing, 0, memory_order_relaxed);
	write_kind(r, n);
	atomic_store_explicit(&r->used, 1, memory_order_release);
}

void mc_knode_record_lookups_locked(struct mc_kvfs *k, const struct mc_knode *n)
{
	struct mc_knode_record *r = of(k, n);

	if (r != NULL)
		atomic_store_explicit(&r->lookups, n->lookups, memory_order_relaxed);
}

void mc_knode_record_key_locked(struct mc_kvfs *k, const struct mc_knode *n)
{
	struct mc_knode_record *r = of(k, n);
	uint32_t key = r != NULL ? add_key(k, n) : 0;

	if (key != 0)
		mc_texts_drop(mc_takeover_texts(table(k)), atomic_exchange(&r->key, key));
}

void mc_knode_record_kind_locked(struct mc_kvfs *k, const struct mc_knode *n)
{
	struct mc_knode_record *r = of(k, n);

	if (r != NULL)
		write_kind(r, n);
}

void mc_knode_record_drop_locked(struct mc_kvfs *k, const struct mc_knode *n)
{
	struct mc_knode_record *r = of(k, n);

	if (r == NULL)
		return;
	atomic_store_explicit(&r->used, 0, memory_order_release);
	mc_texts_drop(mc_takeover_texts(table(k)), atomic_exchange(&r->key, 0));
}

void mc_knode_record_opens_locked(struct mc_kvfs *k, const struct mc_knode *n)
{
	struct mc_knode_record *r = of(k, n);
	uint64_t opens = 0;
	int id = 0;

	if (r == NULL)
		return;
	if (n->stage != NULL) {
		r->mode = MC_MODE_NONE;
		id = n->stage->backing_id;
		opens = n->stage->opens;
	} else if (n->opened != NULL) {
		r->mode = (uint8_t)n->opened->mode;
		id = n->opened->backing_id;
		opens = n->opened->opens;
	}
	if (opens > 0)
		atomic_store_explicit(&r->backing_id, id, memory_order_relaxed);
	atomic_store_explicit(&r->writing, n->stage != NULL, memory_order_relaxed);
	atomic_store_explicit(&r->opens, (uint32_t)opens, memory_order_release);
}

void mc_knode_record_closed(struct mc_kvfs *k, const struct mc_knode *n, int backing_id)
{
	struct mc_knode_record *r = of(k, n);
	int32_t was = backing_id;

	if (r != NULL) /* the next open may have another one already */
		atomic_compare_exchange_strong(&r->backing_id, &was, 0);
}

void mc_knode_record_put_locked(struct mc_kvfs *k, const struct mc_knode *n)
{
	struct mc_knode_record *r = n->stage != NULL ? of(k, n) : NULL;
	const struct mc_kstage *s = n->stage;
	uint32_t put;

	if (r == NULL)
		return;
	put = (s->flushed ? MC_PUT_FLUSHED : 0) | (s->orphan ? MC_PUT_ORPHAN : 0) |
		(s->synced ? MC_PUT_SYNCED : 0);
	if (s->sealed) { /* nothing else changes any more */
		atomic_store_explicit(
			&r->put, put | MC_PUT_SEALABLE | MC_PUT_SEALED, memory_order_release);
		return;
	}
	atomic_store_explicit(&r->born, s->born, memory_order_relaxed);
	atomic_store_explicit(&r->failed, s->failed, memory_order_release);
	/* Whoever reads this half done gets the FLUSH again. */
	atomic_store_explicit(&r->put, put, memory_order_release);
	atomic_store_explicit(&r->file, mc_kv_writer_file(s->writer), memory_order_relaxed);
	r->sealed_size = s->size;
	r->sealed_mtime_s = s->mtime.tv_sec;
	r->sealed_mtime_ns = (uint32_t)s->mtime.tv_nsec;
	if (s->sealable)
		atomic_store_explicit(&r->put, put | MC_PUT_SEALABLE, memory_order_release);
}

/* ---- taking over */

static uint32_t n_slots(struct mc_kvfs *k)
{
	return k != NULL ? atomic_load(&mc_takeover_head(table(k))->knodes) : 0;
}

/* Whether the key is a string. */
static bool is_key(struct mc_kvfs *k, uint32_t ref)
{
	size_t len;
	const char *key = mc_texts_get(mc_takeover_texts(table(k)), ref, &len);

	return key != NULL && len > 0 && len <= MC_KEY_BYTES && key[len - 1] == '\0';
}

void mc_kvfs_claim(struct mc_kvfs *k)
{
	for (uint32_t slot = 1; slot < n_slots(k); slot++) {
		struct mc_knode_record *r = mc_takeover_knode(table(k), slot);
		uint32_t key = r != NULL ? atomic_load(&r->key) : 0;

		if (r == NULL)
			return;
		if (atomic_load(&r->used) != 0 &&
			(atomic_load(&r->lookups) > 0 || atomic_load(&r->writing) != 0) &&
			is_key(k, key) && mc_texts_claim(mc_takeover_texts(table(k)), key))
			continue;
		atomic_store(&r->used, 0);
		atomic_store(&r->key, 0);
	}
}

/* Goes on with the put of the record, whose file is still there; false: it is not. */
static bool restore_put(struct mc_kvfs *k, struct mc_knode *n, const struct mc_knode_record *r)
{
	struct stat want = {.st_size = (off_t)r->sealed_size,
		.st_mtim = {.tv_sec = r->sealed_mtime_s, .tv_nsec = r->sealed_mtime_ns}};
	struct mc_kv_writer *w;

	/* After the last RELEASE the file may be another put's already: that of a small object,
	 * which is copied. Sealing a large one changes its time. */
	if ((atomic_load(&r->put) & MC_PUT_SEALED) != 0 && r->sealed_size >= MC_KV_PASSTHROUGH_MIN)
		want.st_mtim.tv_nsec = UTIME_OMIT;
	if (mc_kv_writer_adopt(k->kv, atomic_load(&r->file),
		    atomic_load(&r->opens) == 0 ? &want : NULL, &w) < 0)
		return false;
	if (mc_kstage_restore(k, n, w, r) == 0)
		return true;
	mc_kv_discard(w);
	return false;
}

/* What a node is that was being written: promised still, going on, published, or lost. */
static void restore_staging(struct mc_kvfs *k, struct mc_knode *n, const struct mc_knode_record *r)
{
	struct mc_kv_attr a;

	if (atomic_load(&r->writing) == 0 || restore_put(k, n, r))
		return;
	n->kind = MC_KNODE_LOST;
	if (atomic_load(&r->opens) > 0 || mc_kv_lookup(k->kv, n->key, &a) < 0 || a.is_dir ||
		a.size != r->sealed_size || a.mtime_s != r->sealed_mtime_s ||
		a.mtime_ns != r->sealed_mtime_ns)
		return;
	n->kind = MC_KNODE_OBJECT;
	n->attr = a;
}

/* What is read through the daemon is held from now on, before anybody replaces or removes it. */
static struct mc_kv_object *bind_object(struct mc_kvfs *k, const struct mc_knode *n)
{
	struct mc_kv_object *obj;
	bool search = k->restoring.searches < SEARCHES;
	uint64_t begun = mc_now_ns();
	int r;

	if (k->restoring.until_ns == 0)
		k->restoring.until_ns = begun + BIND_NS;
	r = mc_kv_bind(k->kv, n->key, n->attr.version, k->restoring.until_ns, search, &obj);
	k->restoring.searches += r < 0;
	return r == 0 ? obj : NULL;
}

static int restore_open(struct mc_kvfs *k, struct mc_knode *n, const struct mc_knode_record *r)
{
	struct mc_kopen *o = calloc(1, sizeof(*o));

	if (o == NULL)
		return -ENOMEM;
	*o = (struct mc_kopen){.mode = (enum mc_open_mode)r->mode,
		.size = r->size,
		.backing_id = atomic_load(&r->backing_id),
		.opens = atomic_load(&r->opens)};
	if (o->mode == MC_MODE_CACHED)
		o->obj = bind_object(k, n);
	n->opened = o;
	return 0;
}

/* The record says what the node is now. NULL: there is none. */
static void settle(struct mc_kvfs *k, struct mc_knode *n, struct mc_knode_record *r)
{
	if (n == NULL || (n->opened == NULL && n->stage == NULL)) {
		mc_mode_backing_close(k->fs, atomic_exchange(&r->backing_id, 0));
		atomic_store(&r->opens, 0);
	}
	if (n == NULL) {
		atomic_store(&r->used, 0);
		mc_texts_drop(mc_takeover_texts(table(k)), atomic_exchange(&r->key, 0));
		return;
	}
	if (n->stage == NULL)
		atomic_store(&r->writing, 0);
	write_kind(r, n);
}

static int restore_node(struct mc_kvfs *k, struct mc_knode_record *r)
{
	size_t len;
	const char *key = mc_texts_get(mc_takeover_texts(table(k)), atomic_load(&r->key), &len);
	struct mc_knode *n = mc_knode_alloc(key, (enum mc_knode_kind)atomic_load(&r->kind));
	int res = n != NULL ? 0 : -ENOMEM;

	if (res < 0)
		return res;
	n->refs = n->lookups = atomic_load(&r->lookups);
	n->attr = (struct mc_kv_attr){.is_dir = n->kind == MC_KNODE_DIR,
		.size = r->size,
		.mtime_s = r->mtime_s,
		.mtime_ns = r->mtime_ns,
		.ino = r->ino};
	memcpy(n->attr.version, r->version, sizeof(r->version));
	if (n->kind == MC_KNODE_STAGING)
		restore_staging(k, n, r);
	else if (n->kind == MC_KNODE_OBJECT && atomic_load(&r->writing) == 0 &&
		atomic_load(&r->opens) > 0)
		res = restore_open(k, n, r);
	if (res == 0 && n->refs == 0) {
		mc_knode_free(n); /* nobody knows it, and its put has ended */
		n = NULL;
	}
	if (res == 0)
		res = mc_knode_restore(k, n, n != NULL ? r->gen : r->gen + 1);
	if (res < 0) {
		if (n->opened != NULL && n->opened->obj != NULL)
			mc_kv_object_put(n->opened->obj);
		free(n->opened);
		mc_knode_free(n);
		return res;
	}
	settle(k, n, r);
	return 0;
}

/* Ends those whose last RELEASE has come already; no slots are added any more. */
static void end_puts(struct mc_kvfs *k)
{
	mc_kv_adopted(k->kv);
	for (uint32_t slot = 1; slot < n_slots(k); slot++) {
		struct mc_knode *n;

		mc_mutex_lock(&k->lock);
		n = k->slots[slot].node;
		if (n != NULL && n->stage != NULL && atomic_load(&of(k, n)->opens) == 0)
			mc_knode_ref_locked(n);
		else
			n = NULL;
		mc_mutex_unlock(&k->lock);
		if (n == NULL)
			continue;
		mc_kstage_leave(k, n);
		mc_knode_put(k, n, 1);
	}
}

int mc_kvfs_restore(struct mc_kvfs *k)
{
	int r = 0;

	for (uint32_t slot = 1; slot < n_slots(k) && r == 0; slot++) {
		struct mc_knode_record *was = mc_takeover_knode(table(k), slot);

		if (was == NULL)
			return -ENOMEM;
		if (atomic_load(&was->used) != 0) {
			r = restore_node(k, was);
		} else {
			mc_mode_backing_close(k->fs, atomic_exchange(&was->backing_id, 0));
			r = mc_knode_restore(k, NULL, was->gen + 1);
		}
	}
	if (k != NULL && r == 0)
		end_puts(k);
	return r;
}
