/*
 * Names: one change of a key at a time, removing keys, directories. The journal knows before
 * anybody else does.
 */
#include "tier/kv-impl.h"
#include "tier/kv-remote.h"

#include <string.h>

/* ---- gates */

void kv_gate_enter_locked(struct mc_kv *kv, const char *key, const char *other, struct kv_gate *ret)
{
	ret->a = kv_gate_of(key);
	ret->b = other != NULL ? kv_gate_of(other) : ret->a;
	while (kv->gates[ret->a] || kv->gates[ret->b])
		mc_cond_wait(&kv->change, &kv->lock);
	kv->gates[ret->a] = kv->gates[ret->b] = 1;
	ret->closed = true;
}

void kv_gate_leave_locked(struct mc_kv *kv, const struct kv_gate *g)
{
	kv->gates[g->a] = kv->gates[g->b] = 0;
	mc_cond_broadcast(&kv->change);
}

bool kv_gate_closed_locked(struct mc_kv *kv, const struct kv_object *obj)
{
	return obj->dir != NULL &&
		kv->gates[(uint8_t)(kv_hash(obj->dir->hash, obj->name, obj->name_len) >> 40)] != 0;
}

void kv_settle_locked(struct mc_kv *kv, struct kv_object *obj)
{
	while (obj->state == MC_KV_FLUSHING || obj->state == MC_KV_EVICTING ||
		(obj->flags & KV_BUSY) != 0 || (obj->res != NULL && !obj->res->ready))
		mc_cond_wait(&kv->change, &kv->lock);
}

int kv_ready_locked(struct mc_kv *kv)
{
	uint64_t deadline = mc_now_ns() + kv->deadline_ns;

	while (kv->recovering && !kv->closing && kv->unread == 0)
		if (mc_cond_wait_until(&kv->change, &kv->lock, deadline) != 0)
			return -ETIMEDOUT;
	return kv->closing ? -ESHUTDOWN : kv->unread;
}

void kv_unlist_locked(struct mc_kv *kv, struct kv_object *obj)
{
	if (obj->state == MC_KV_DIRTY) {
		assert(kv->dirty >= obj->size);
		kv->dirty -= obj->size;
		kv_dirty_remove_locked(kv, obj->res);
		obj->state = MC_KV_CLEAN;
		kv_room_changed_locked(kv);
	}
	obj->flags |= KV_DEAD;
	kv_blocks_forget_locked(kv, obj);
	if (obj->res != NULL)
		kv_dirty_remove_locked(kv, obj->res); /* a replica is not wanted any more */
	if (obj->res != NULL && mc_policy_linked(&obj->res->policy))
		mc_policy_remove(kv->policy, &obj->res->policy);
	if (obj->res != NULL && obj->res->meta != 0) {
		kv_meta_clear(kv, obj->res->meta);
		obj->res->meta = 0;
	}
}

int kv_change_begin(struct mc_kv *kv, const char *key, const char *other, struct kv_gate *ret)
{
	int r = kv_key_check(key);

	if (r == 0 && other != NULL)
		r = kv_key_check(other);
	ret->closed = false;
	mc_mutex_lock(&kv->lock);
	if (r == 0)
		r = kv_ready_locked(kv);
	if (r == 0)
		r = kv_moves_wait_locked(kv, key, other);
	if (r == 0)
		kv_gate_enter_locked(kv, key, other, ret);
	return r;
}

void kv_change_end(struct mc_kv *kv, const struct kv_gate *g)
{
	if (g->closed)
		kv_gate_leave_locked(kv, g);
	mc_mutex_unlock(&kv->lock);
	kv_reap(kv);
}

/* ---- unlink */

static int unlink_locked(struct mc_kv *kv, const char *key, struct kv_object *obj,
	struct kv_parting *p) MC_REQUIRES(kv->lock)
{
	bool pinned;
	int r = 0;

	kv_settle_locked(kv, obj);
	pinned = (obj->flags & KV_PINNED) != 0;
	mc_mutex_unlock(&kv->lock);
	if (pinned && kv->log != NULL) /* what comes under this key later is not */
		r = mc_kv_log_pin(kv->log, key, false);
	kv_part(kv, key, obj, p);
	if (r == 0)
		r = kv_forget(kv, key, obj);
	mc_mutex_lock(&kv->lock);
	/* Where the journal failed the log has let go of it all the same. */
	if (r < 0 && obj->loc.segment == 0)
		return r;
	kv_settle_locked(kv, obj); /* it may have been asked for meanwhile */
	kv_index_remove(obj);
	kv_parted_locked(kv, key, p);
	kv_unlist_locked(kv, obj);
	kv_object_drop_locked(kv, obj);
	return r;
}

int mc_kv_unlink(struct mc_kv *kv, const char *key)
{
	struct kv_parting p = {0};
	struct kv_object *obj;
	struct kv_gate gate;
	int r = kv_change_begin(kv, key, NULL, &gate);

	obj = r == 0 ? kv_index_find(kv->index, key) : NULL;
	if (obj != NULL)
		r = unlink_locked(kv, key, obj, &p);
	else if (r == 0)
		r = kv_index_dir(kv->index, key, strlen(key)) != NULL ? -EISDIR : -ENOENT;
	kv_change_end(kv, &gate);
	kv_part_end(kv, &p);
	return r;
}

/* ---- directories */

static int mkdir_locked(struct mc_kv *kv, const char *key) MC_REQUIRES(kv->lock)
{
	struct kv_dir *parent, *d;
	uint64_t meta = 0;
	const char *name;
	size_t len;
	int r;

	mc_mutex_unlock(&kv->lock);
	r = kv_meta_write_dir(kv, key, &meta);
	if (r == 0 && kv->log != NULL)
		r = mc_kv_log_dir(kv->log, key, true);
	mc_mutex_lock(&kv->lock);
	parent = kv_index_parent(kv->index, key, &name, &len);
	if (r == 0)
		r = parent != NULL ? kv_index_add_dir(parent, name, len, &d) : -ENOENT;
	if (r == 0)
		d->meta = meta;
	else if (meta != 0)
		kv_meta_clear(kv, meta);
	return r;
}

int mc_kv_mkdir(struct mc_kv *kv, const char *key)
{
	struct kv_gate gate;
	const char *name;
	size_t len;
	int r = kv_change_begin(kv, key, NULL, &gate);

	if (r == 0 && kv_index_parent(kv->index, key, &name, &len) == NULL)
		r = -ENOENT;
	if (r == 0 &&
		(kv_index_find(kv->index, key) != NULL ||
			kv_index_dir(kv->index, key, strlen(key)) != NULL))
		r = -EEXIST;
	if (r == 0)
		r = mkdir_locked(kv, key);
	kv_change_end(kv, &gate);
	return r;
}

int mc_kv_rmdir(struct mc_kv *kv, const char *key)
{
	struct kv_dir *d;
	struct kv_gate gate;
	int r = kv_change_begin(kv, key, NULL, &gate);

	d = r == 0 ? kv_index_dir(kv->index, key, strlen(key)) : NULL;
	if (r == 0 && d == NULL)
		r = kv_index_find(kv->index, key) != NULL ? -ENOTDIR : -ENOENT;
	else if (r == 0 && d->live > 0)
		r = -ENOTEMPTY;
	if (r == 0 && (kv->log != NULL || kv->opts.remote != NULL)) {
		mc_mutex_unlock(&kv->lock);
		r = kv_delete_add(kv, key, kv_dir_version);
		if (r == 0 && kv->log != NULL)
			r = mc_kv_log_dir(kv->log, key, false);
		mc_mutex_lock(&kv->lock);
		d = kv_index_dir(kv->index, key, strlen(key));
		d->on_remote = false;
		if (r == 0 && d->live > 0) /* filled meanwhile: it stays, and says so again */
			r = -ENOTEMPTY;
	}
	if (r == 0) {
		if (d->meta != 0)
			kv_meta_clear(kv, d->meta);
		kv_index_remove_dir(d);
	}
	kv_change_end(kv, &gate);
	return r;
}
