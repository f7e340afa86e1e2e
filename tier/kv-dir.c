/* Looking at the index from outside: attributes, and directories entry by entry. */
#include "tier/kv-impl.h"
#include "tier/kv-remote.h"

#include <string.h>

#define BATCH 128 /* entries copied in one go */
#define SCAN 8192 /* entries looked at in one go */

bool mc_kv_has(const struct mc_kv *kv, enum mc_tier tier)
{
	return tier == MC_TIER_NVME     ? kv->opts.nvme_dir != NULL
		: tier == MC_TIER_BLOCK ? kv->opts.device != NULL
					: true;
}

/* Of an object in parts some may lie on one floor of the log, some on the other. */
unsigned kv_tiers_locked(struct mc_kv *kv, const struct kv_object *obj, uint64_t *ret_block)
{
	const struct mc_kv_loc loc = kv_loc(obj);
	unsigned tiers = (unsigned)(obj->res != NULL && obj->res->ready) << MC_TIER_DRAM |
		(unsigned)(obj->remotes > 0) << MC_TIER_REMOTE;
	bool nvme = false, block = false;

	*ret_block = 0;
	if (loc.segment != 0 && kv->opts.nvme_dir == NULL) {
		block = true;
		*ret_block = obj->size;
	} else if (loc.segment != 0 && kv->opts.device == NULL) {
		nvme = true;
	} else if (loc.segment != 0) {
		*ret_block = mc_kv_log_below(kv->log, obj->version, &loc, obj->size, &block);
		nvme = !block || *ret_block < obj->size;
	}
	return tiers | (unsigned)nvme << MC_TIER_NVME | (unsigned)block << MC_TIER_BLOCK;
}

void kv_attr_locked(struct mc_kv *kv, const struct kv_object *obj, struct mc_kv_attr *ret)
{
	uint64_t ino, block;
	unsigned tiers = kv_tiers_locked(kv, obj, &block);

	memcpy(&ino, obj->version, sizeof(ino));
	*ret = (struct mc_kv_attr){
		.size = obj->size,
		.mtime_s = kv_floor_s(obj->mtime_ns),
		.mtime_ns =
			(uint32_t)(obj->mtime_ns - kv_floor_s(obj->mtime_ns) * INT64_C(1000000000)),
		.ino = ino != 0 ? ino : 2,
		.state = kv_is_kept(obj) ? MC_KV_CLEAN : obj->state,
		.dram = obj->res != NULL && obj->res->ready ? obj->size : 0,
		.nvme = (tiers >> MC_TIER_NVME & 1) != 0 ? obj->size - block : 0,
		.block = block,
		.tiers = tiers,
		.remotes = obj->remotes,
		.hits = obj->hits,
		.pinned = (obj->flags & KV_PINNED) != 0,
	};
	memcpy(ret->version, obj->version, sizeof(ret->version));
}

void kv_dir_attr_locked(const struct kv_dir *d, struct mc_kv_attr *ret)
{
	*ret = (struct mc_kv_attr){.is_dir = true, .ino = d->hash | 1, .state = MC_KV_CLEAN};
}

int mc_kv_lookup(struct mc_kv *kv, const char *key, struct mc_kv_attr *ret)
{
	struct kv_object *obj;
	struct kv_dir *d = NULL;

	if (*key != '\0' && kv_key_check(key) < 0)
		return -ENOENT;
	mc_mutex_lock(&kv->lock);
	if (kv_moving_locked(kv, key)) {
		mc_mutex_unlock(&kv->lock);
		return -EIO; /* mc_kv_ask waits for the answer */
	}
	obj = *key != '\0' ? kv_index_find(kv->index, key) : NULL;
	if (obj != NULL) {
		kv_attr_locked(kv, obj, ret);
		ret->ask = kv_ask_due_locked(kv, obj);
	} else {
		d = kv_index_dir(kv->index, key, strlen(key));
	}
	if (d != NULL)
		kv_dir_attr_locked(d, ret);
	mc_mutex_unlock(&kv->lock);
	return obj != NULL || d != NULL ? 0 : -ENOENT;
}

int mc_kv_find(struct mc_kv *kv, const char *key, struct mc_kv_attr *ret)
{
	int r = kv_key_check(key) < 0 ? -ENOENT : 0;

	if (r < 0)
		return r;
	mc_mutex_lock(&kv->lock);
	if (kv->recovering && kv_index_find(kv->index, key) == NULL)
		r = kv_ready_locked(kv);
	if (r == 0)
		r = kv_moves_wait_locked(kv, key, NULL);
	mc_mutex_unlock(&kv->lock);
	return r < 0 ? r : mc_kv_lookup(kv, key, ret);
}

bool mc_kv_is_whole(struct mc_kv *kv)
{
	bool whole;

	mc_mutex_lock(&kv->lock);
	whole = !kv->recovering && kv->n_moves == 0;
	mc_mutex_unlock(&kv->lock);
	return whole;
}

void mc_kv_wait_whole(struct mc_kv *kv)
{
	mc_mutex_lock(&kv->lock);
	if (kv_ready_locked(kv) == 0)
		kv_moves_wait_locked(kv, NULL, NULL);
	mc_mutex_unlock(&kv->lock);
}

struct entry {
	struct mc_kv_attr attr;
	uint64_t next;
	char name[256];
};

/* A directory being listed. */
struct listing {
	const char *key;
	unsigned tiers; /* only objects that lie in one of these, bits as in mc_kv_attr; 0 = all */
	uint64_t seq;   /* where to go on */
	bool more;
	struct entry entries[BATCH];
};

static void copy_child(struct mc_kv *kv, uintptr_t child, struct entry *out) MC_REQUIRES(kv->lock)
{
	if ((child & 1) != 0) {
		const struct kv_dir *sub = (const struct kv_dir *)(child & ~(uintptr_t)3);

		kv_dir_attr_locked(sub, &out->attr);
		memcpy(out->name, sub->name, sub->name_len + 1u);
		out->next = sub->seq + 1;
	} else {
		const struct kv_object *obj = (const struct kv_object *)child;

		kv_attr_locked(kv, obj, &out->attr);
		memcpy(out->name, obj->name, obj->name_len + 1u);
		out->next = obj->seq + 1;
	}
}

static bool is_listed(struct mc_kv *kv, const struct listing *l, uintptr_t child)
	MC_REQUIRES(kv->lock)
{
	char key[KV_KEY_MAX + 1];
	uint64_t block;

	if ((child & 3) != 0)
		return (child & 2) == 0;
	if (kv->n_moves > 0) {
		kv_key_of((const struct kv_object *)child, key);
		if (kv_moving_locked(kv, key))
			return false;
	}
	return l->tiers == 0 ||
		(kv_tiers_locked(kv, (const struct kv_object *)child, &block) & l->tiers) != 0;
}

/* The next entries, copied: no call out under the lock, and not too long under it. */
static int64_t copy_entries(struct mc_kv *kv, struct listing *l)
{
	struct kv_dir *d;
	int64_t n = 0;
	uint32_t i, end;

	mc_mutex_lock(&kv->lock);
	d = kv_index_dir(kv->index, l->key, strlen(l->key));
	if (d == NULL) {
		n = *l->key != '\0' && kv_index_find(kv->index, l->key) != NULL ? -ENOTDIR
										: -ENOENT;
		l->more = false;
		mc_mutex_unlock(&kv->lock);
		return n;
	}
	i = kv_dir_from(d, l->seq);
	end = d->n - i > SCAN ? i + SCAN : d->n;
	for (; i < end && n < BATCH; i++) {
		if (is_listed(kv, l, d->child[i]))
			copy_child(kv, d->child[i], &l->entries[n++]);
		l->seq = kv_child_seq(d->child[i]) + 1;
	}
	l->more = i < d->n;
	mc_mutex_unlock(&kv->lock);
	return n;
}

static int list(struct mc_kv *kv, struct listing *l, uint64_t *cursor,
	int (*each)(void *ctx, const char *name, const struct mc_kv_attr *attr, uint64_t next),
	void *ctx)
{
	int64_t n;
	int r = 0;

	do {
		n = copy_entries(kv, l);
		for (int64_t i = 0; i < n && r == 0; i++) {
			const struct entry *e = &l->entries[i];

			r = each(ctx, e->name, &e->attr, e->next);
			if (r == 0)
				*cursor = e->next;
		}
	} while (l->more && r == 0);
	return n < 0 ? (int)n : 0;
}

static int list_key(struct mc_kv *kv, const char *key, unsigned tiers, uint64_t *cursor,
	int (*each)(void *ctx, const char *name, const struct mc_kv_attr *attr, uint64_t next),
	void *ctx)
{
	struct listing *l;
	int r;

	if (*key != '\0' && kv_key_check(key) < 0)
		return -ENOENT;
	l = malloc(sizeof(*l));
	if (l == NULL)
		return -ENOMEM;
	l->key = key;
	l->tiers = tiers;
	l->seq = *cursor;
	r = list(kv, l, cursor, each, ctx);
	free(l);
	return r;
}

int mc_kv_list(struct mc_kv *kv, const char *key, uint64_t *cursor,
	int (*each)(void *ctx, const char *name, const struct mc_kv_attr *attr, uint64_t next),
	void *ctx)
{
	return list_key(kv, key, 0, cursor, each, ctx);
}

int mc_kv_list_in(struct mc_kv *kv, const char *key, enum mc_tier tier, uint64_t *cursor,
	int (*each)(void *ctx, const char *name, const struct mc_kv_attr *attr, uint64_t next),
	void *ctx)
{
	return list_key(kv, key, 1u << tier, cursor, each, ctx);
}

static int pin_locked(struct mc_kv *kv, const char *key, struct kv_object *obj, bool pinned)
	MC_REQUIRES(kv->lock)
{
	bool before = (obj->flags & KV_PINNED) != 0;
	int r = 0;

	/* Counted before the lock is let go of: others are about to pin, too. */
	kv_index_pin(obj, pinned || before);
	if (kv->log != NULL) {
		mc_mutex_unlock(&kv->lock);
		r = mc_kv_log_pin(kv->log, key, pinned);
		mc_mutex_lock(&kv->lock);
	}
	kv_index_pin(obj, r == 0 ? pinned : before);
	if (r == 0)
		kv_meta_note(kv, obj);
	return r;
}

int mc_kv_pin(struct mc_kv *kv, const char *key, bool pinned)
{
	struct kv_object *obj;
	struct mc_kv_stats s;
	struct kv_gate gate;
	int r;

	mc_kv_stats(kv, &s);
	r = kv_change_begin(kv, key, NULL, &gate);
	obj = r == 0 ? kv_index_find(kv->index, key) : NULL;
	if (r == 0 && obj == NULL)
		r = -ENOENT;
	if (r == 0 && pinned && (obj->flags & KV_PINNED) == 0 &&
		kv->index->pinned_bytes + obj->size >
			(s.nvme_capacity > 0 ? s.nvme_capacity : s.dram_capacity) / 2)
		r = -ENOSPC;
	if (r == 0)
		r = pin_locked(kv, key, obj, pinned);
	kv_change_end(kv, &gate);
	return r;
}
