/* Looking at the index from outside: attributes, and directories entry by entry. */
#include "tier/kv-impl.h"
#include "tier/kv-remote.h"

#include <string.h>

#define BATCH 128

void kv_attr_locked(const struct kv_object *obj, struct mc_kv_attr *ret)
{
	uint64_t ino;

	memcpy(&ino, obj->version, sizeof(ino));
	*ret = (struct mc_kv_attr){
		.size = obj->size,
		.mtime_s = kv_floor_s(obj->mtime_ns),
		.mtime_ns =
			(uint32_t)(obj->mtime_ns - kv_floor_s(obj->mtime_ns) * INT64_C(1000000000)),
		.ino = ino != 0 ? ino : 2,
		.state = obj->state,
		.dram = obj->res != NULL && obj->res->ready ? obj->size : 0,
		.nvme = obj->loc.segment != 0 ? obj->size : 0,
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
	obj = *key != '\0' ? kv_index_find(kv->index, key) : NULL;
	if (obj != NULL) {
		kv_attr_locked(obj, ret);
		ret->ask = kv_ask_due_locked(kv, obj);
	} else {
		d = kv_index_dir(kv->index, key, strlen(key));
	}
	if (d != NULL)
		kv_dir_attr_locked(d, ret);
	mc_mutex_unlock(&kv->lock);
	return obj != NULL || d != NULL ? 0 : -ENOENT;
}

struct entry {
	struct mc_kv_attr attr;
	uint64_t next;
	char name[256];
};

/* The next entries of a directory from seq on, copied: no call out under the lock. */
static int64_t copy_entries(struct mc_kv *kv, const char *key, uint64_t seq, struct entry *out)
{
	struct kv_dir *d;
	int64_t n = 0;

	mc_mutex_lock(&kv->lock);
	d = kv_index_dir(kv->index, key, strlen(key));
	if (d == NULL)
		n = *key != '\0' && kv_index_find(kv->index, key) != NULL ? -ENOTDIR : -ENOENT;
	for (uint32_t i = d != NULL ? kv_dir_from(d, seq) : 0; d != NULL && i < d->n && n < BATCH;
		i++) {
		uintptr_t c = d->child[i];

		if ((c & 2) != 0)
			continue;
		if ((c & 1) != 0) {
			const struct kv_dir *sub = (const struct kv_dir *)(c & ~(uintptr_t)3);

			kv_dir_attr_locked(sub, &out[n].attr);
			memcpy(out[n].name, sub->name, sub->name_len + 1u);
			out[n].next = sub->seq + 1;
		} else {
			const struct kv_object *obj = (const struct kv_object *)c;

			kv_attr_locked(obj, &out[n].attr);
			memcpy(out[n].name, obj->name, obj->name_len + 1u);
			out[n].next = obj->seq + 1;
		}
		n++;
	}
	mc_mutex_unlock(&kv->lock);
	return n;
}

int mc_kv_list(struct mc_kv *kv, const char *key, uint64_t *cursor,
	int (*each)(void *ctx, const char *name, const struct mc_kv_attr *attr, uint64_t next),
	void *ctx)
{
	struct entry *entries;
	int64_t n;
	int r = 0;

	if (*key != '\0' && kv_key_check(key) < 0)
		return -ENOENT;
	entries = malloc(BATCH * sizeof(*entries));
	if (entries == NULL)
		return -ENOMEM;
	do {
		n = copy_entries(kv, key, *cursor, entries);
		for (int64_t i = 0; i < n && r == 0; i++) {
			r = each(ctx, entries[i].name, &entries[i].attr, entries[i].next);
			if (r == 0)
				*cursor = entries[i].next;
		}
	} while (n == BATCH && r == 0);
	free(entries);
	return n < 0 ? (int)n : 0;
}

int mc_kv_pin(struct mc_kv *kv, const char *key, bool pinned)
{
	struct kv_object *obj;
	struct kv_gate gate;
	int r = kv_change_begin(kv, key, NULL, &gate);

	obj = r == 0 ? kv_index_find(kv->index, key) : NULL;
	if (r == 0 && obj == NULL)
		r = -ENOENT;
	if (r == 0 && kv->log != NULL) {
		mc_mutex_unlock(&kv->lock);
		r = mc_kv_log_pin(kv->log, key, pinned);
		mc_mutex_lock(&kv->lock);
	}
	if (r == 0) {
		obj->flags = (uint8_t)(pinned ? obj->flags | KV_PINNED : obj->flags & ~KV_PINNED);
		kv_meta_note(kv, obj);
	}
	kv_change_end(kv, &gate);
	return r;
}
