/*
 * Names: removing and moving them, and directories. The journal knows before anybody else does.
 */
#include "tier/kv-impl.h"
#include "tier/kv-remote.h"

#include <string.h>

/* ---- gates */

void kv_gate_enter_locked(struct mc_kv *kv, const char *key, const char *other, struct kv_gate *ret)
{
	ret->a = (uint8_t)(kv_key_hash(key) >> 40);
	ret->b = other != NULL ? (uint8_t)(kv_key_hash(other) >> 40) : ret->a;
	while (kv->gates[ret->a] || kv->gates[ret->b])
		mc_cond_wait(&kv->change, &kv->lock);
	kv->gates[ret->a] = kv->gates[ret->b] = 1;
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

	while (kv->recovering && !kv->closing)
		if (mc_cond_wait_until(&kv->change, &kv->lock, deadline) != 0)
			return -ETIMEDOUT;
	return kv->closing ? -ESHUTDOWN : 0;
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
	if (obj->res != NULL)
		kv_dirty_remove_locked(kv, obj->res); /* a replica is not wanted any more */
	if (obj->res != NULL && mc_policy_linked(&obj->res->policy))
		mc_policy_remove(kv->policy, &obj->res->policy);
	if (obj->res != NULL && obj->res->meta != 0) {
		kv_meta_clear(kv, obj->res->meta);
		obj->res->meta = 0;
	}
}

/* ---- unlink */

int mc_kv_unlink(struct mc_kv *kv, const char *key)
{
	struct kv_object *obj;
	struct kv_gate gate;
	int r = kv_key_check(key);

	if (r < 0)
		return r;
	mc_mutex_lock(&kv->lock);
	r = kv_ready_locked(kv);
	if (r < 0) {
		mc_mutex_unlock(&kv->lock);
		return r;
	}
	kv_gate_enter_locked(kv, key, NULL, &gate);
	obj = kv_index_find(kv->index, key);
	if (obj == NULL)
		r = kv_index_dir(kv->index, key, strlen(key)) != NULL ? -EISDIR : -ENOENT;
	if (r == 0) {
		kv_settle_locked(kv, obj);
		if (kv_has_copy(obj)) {
			mc_mutex_unlock(&kv->lock);
			r = kv_forget(kv, key, obj);
			mc_mutex_lock(&kv->lock);
		}
	}
	if (r == 0) {
		kv_settle_locked(kv, obj); /* it may have been asked for meanwhile */
		kv_index_remove(obj);
		kv_unlist_locked(kv, obj);
		kv_object_drop_locked(kv, obj);
	}
	kv_gate_leave_locked(kv, &gate);
	mc_mutex_unlock(&kv->lock);
	kv_reap(kv);
	return r;
}

/* ---- rename */

struct rename {
	struct mc_kv *kv;
	const char *from, *to;
	struct kv_object *obj; /* at from */
	struct kv_object *old; /* at to, or NULL */
	struct kv_object *moved;
	uint64_t meta; /* of the new name */
};

static int rename_check_locked(struct mc_kv *kv, struct rename *n, unsigned flags)
	MC_REQUIRES(kv->lock)
{
	struct kv_index *ix = kv->index;
	const char *name;
	size_t len;

	n->obj = kv_index_find(ix, n->from);
	if (n->obj == NULL)
		return kv_index_dir(ix, n->from, strlen(n->from)) != NULL ? -EXDEV : -ENOENT;
	if (kv_index_parent(ix, n->to, &name, &len) == NULL)
		return -ENOENT;
	if (kv_index_dir(ix, n->to, strlen(n->to)) != NULL)
		return -EISDIR;
	n->old = kv_index_find(ix, n->to);
	return n->old != NULL && (flags & MC_KV_NOREPLACE) != 0 ? -EEXIST : 0;
}

/* The new struct, record and journal entries; without the lock, the gates are closed. */
static int rename_prepare(struct rename *n)
{
	struct mc_kv *kv = n->kv;
	const char *slash = strrchr(n->to, '/'), *name = slash != NULL ? slash + 1 : n->to;
	struct kv_object *obj = n->obj;
	int r = 0;

	n->moved = kv_object_new(name, strlen(name), obj->size);
	if (n->moved == NULL)
		return -ENOMEM;
	/* The remote's copy has the old name in it: it goes, a new one is made later. */
	if (obj->remotes > 0) {
		if (obj->loc.segment != 0)
			r = mc_kv_log_remote(kv->log, n->from, obj->version, 0);
		if (r == 0)
			r = kv_delete_add(kv, n->from, obj->version);
		if (r < 0)
			return r;
		mc_mutex_lock(&kv->lock);
		obj->remotes = 0;
		mc_mutex_unlock(&kv->lock);
	}
	if (r == 0 && n->old != NULL && kv_has_copy(n->old))
		r = obj->loc.segment != 0 ? kv_forget_beside_log(kv, n->to, n->old)
					  : kv_forget(kv, n->to, n->old);
	if (r == 0 && obj->loc.segment != 0)
		r = mc_kv_log_rename(kv->log, n->from, n->to);
	return r;
}

/* The record of the new name in DRAM. A promotion may have begun, or ended, meanwhile. */
static int rename_record_locked(struct mc_kv *kv, struct rename *n) MC_REQUIRES(kv->lock)
{
	int r = 0;

	for (;;) {
		const struct kv_res *res;

		kv_settle_locked(kv, n->obj);
		if (n->old != NULL)
			kv_settle_locked(kv, n->old);
		res = n->obj->res;
		if (r < 0 || res == NULL || n->meta != 0)
			break;
		if (!res->ready)
			continue;
		mc_mutex_unlock(&kv->lock);
		r = kv_meta_write(kv, n->obj, n->to, res, &n->meta);
		if (r == -ENOSPC) {
			kv_make_room(kv, MC_SLAB_PIECE);
			r = kv_meta_write(kv, n->obj, n->to, res, &n->meta);
		}
		mc_mutex_lock(&kv->lock);
	}
	/* Without a record the next daemon does not find it in DRAM; the journal has been written,
	 * there is no way back. */
	return 0;
}

static int rename_commit_locked(struct mc_kv *kv, struct rename *n) MC_REQUIRES(kv->lock)
{
	struct kv_object *obj = n->obj, *moved = n->moved, *old;
	const char *name;
	size_t len;
	struct kv_dir *dir = kv_index_parent(kv->index, n->to, &name, &len);
	int r;

	if (dir == NULL)
		return -ENOENT;
	memcpy(moved->version, obj->version, sizeof(moved->version));
	moved->mtime_ns = obj->mtime_ns;
	moved->loc = obj->loc;
	moved->hits = obj->hits;
	moved->state = obj->state;
	moved->flags = obj->flags;
	moved->remotes = obj->remotes;
	moved->warm = obj->warm;
	kv_crcs_copy(moved, kv_crcs(obj));
	r = kv_index_insert(dir, moved, &old);
	if (r < 0)
		return r;
	if (old != NULL) {
		kv_unlist_locked(kv, old);
		kv_object_drop_locked(kv, old);
	}
	kv_index_remove(obj);
	moved->res = obj->res;
	obj->res = NULL;
	if (moved->res != NULL) {
		moved->res->obj = moved;
		moved->res->dirty_ns = mc_now_ns();
		if (mc_policy_linked(&moved->res->policy)) { /* known by its new name from now on */
			mc_policy_remove(kv->policy, &moved->res->policy);
			mc_policy_insert(kv->policy, &moved->res->policy, kv_key_hash(n->to),
				moved->size + 1);
		}
		if (moved->res->meta != 0)
			kv_meta_clear(kv, moved->res->meta);
		moved->res->meta = n->meta;
	}
	n->meta = 0;
	obj->flags = KV_MOVED;
	obj->state = MC_KV_CLEAN;
	obj->next = moved; /* the reference of kv_object_new */
	kv_object_drop_locked(kv, obj);
	kv_redirty_locked(kv, moved);
	if (moved->state == MC_KV_CLEAN && moved->res != NULL && moved->res->next == NULL)
		kv_replica_want_locked(kv, moved->res);
	return 0;
}

int mc_kv_rename(struct mc_kv *kv, const char *from, const char *to, unsigned flags)
{
	struct rename n = {.kv = kv, .from = from, .to = to};
	struct kv_gate gate;
	int r = kv_key_check(from);

	if (r == 0)
		r = kv_key_check(to);
	if (r < 0)
		return r;
	mc_mutex_lock(&kv->lock);
	r = kv_ready_locked(kv);
	if (r < 0) {
		mc_mutex_unlock(&kv->lock);
		return r;
	}
	kv_gate_enter_locked(kv, from, to, &gate);
	r = rename_check_locked(kv, &n, flags);
	if (r == 0 && n.obj != n.old)
		kv_settle_locked(kv, n.obj);
	/* On the remote alone, where its name is in it: to be copied, as between file systems. */
	if (r == 0 && n.obj != n.old && n.obj->res == NULL && n.obj->loc.segment == 0)
		r = -EXDEV;
	if (r == 0 && n.obj != n.old) {
		if (n.old != NULL)
			kv_settle_locked(kv, n.old);
		mc_mutex_unlock(&kv->lock);
		r = rename_prepare(&n);
		mc_mutex_lock(&kv->lock);
		if (r == 0)
			r = rename_record_locked(kv, &n);
		if (r == 0)
			r = rename_commit_locked(kv, &n);
		if (r < 0) { /* their copies below may be gone already */
			kv_redirty_locked(kv, n.obj);
			if (n.old != NULL)
				kv_redirty_locked(kv, n.old);
		}
		if (r < 0 && n.moved != NULL)
			kv_object_drop_locked(kv, n.moved);
		if (n.meta != 0)
			kv_meta_clear(kv, n.meta);
	}
	kv_gate_leave_locked(kv, &gate);
	mc_cond_signal(&kv->wake);
	mc_mutex_unlock(&kv->lock);
	kv_reap(kv);
	return r;
}

/* ---- directories */

int mc_kv_mkdir(struct mc_kv *kv, const char *key)
{
	struct kv_dir *parent, *d;
	struct kv_gate gate;
	uint64_t meta = 0;
	const char *name;
	size_t len;
	int r = kv_key_check(key);

	if (r < 0)
		return r;
	mc_mutex_lock(&kv->lock);
	r = kv_ready_locked(kv);
	if (r < 0) {
		mc_mutex_unlock(&kv->lock);
		return r;
	}
	kv_gate_enter_locked(kv, key, NULL, &gate);
	if (kv_index_parent(kv->index, key, &name, &len) == NULL)
		r = -ENOENT;
	else if (kv_index_find(kv->index, key) != NULL ||
		kv_index_dir(kv->index, key, strlen(key)) != NULL)
		r = -EEXIST;
	if (r == 0) {
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
	}
	kv_gate_leave_locked(kv, &gate);
	mc_mutex_unlock(&kv->lock);
	return r;
}

int mc_kv_rmdir(struct mc_kv *kv, const char *key)
{
	struct kv_dir *d;
	struct kv_gate gate;
	int r = kv_key_check(key);

	if (r < 0)
		return r;
	mc_mutex_lock(&kv->lock);
	r = kv_ready_locked(kv);
	if (r < 0) {
		mc_mutex_unlock(&kv->lock);
		return r;
	}
	kv_gate_enter_locked(kv, key, NULL, &gate);
	d = kv_index_dir(kv->index, key, strlen(key));
	if (d == NULL)
		r = kv_index_find(kv->index, key) != NULL ? -ENOTDIR : -ENOENT;
	else if (d->live > 0)
		r = -ENOTEMPTY;
	if (r == 0 && kv->log != NULL) {
		mc_mutex_unlock(&kv->lock);
		r = mc_kv_log_dir(kv->log, key, false);
		mc_mutex_lock(&kv->lock);
		d = kv_index_dir(kv->index, key, strlen(key));
		if (r == 0 && d->live > 0) /* filled meanwhile: it stays, and says so again */
			r = -ENOTEMPTY;
	}
	if (r == 0) {
		if (d->meta != 0)
			kv_meta_clear(kv, d->meta);
		kv_index_remove_dir(d);
	}
	kv_gate_leave_locked(kv, &gate);
	mc_mutex_unlock(&kv->lock);
	return r;
}
