/*
 * Renaming: no data moves. The journal knows before anybody else does.
 *
 * Of what is durable one record ends the old name, gives the new one and ends what that named. What
 * is not durable yet takes its new name in memory; what that named stays below until it is.
 */
#include "tier/kv-impl.h"
#include "tier/kv-remote.h"

#include <string.h>

struct rename {
	struct mc_kv *kv;
	const char *from, *to;
	struct kv_object *obj; /* at from */
	struct kv_object *old; /* at to, or NULL */
	struct kv_object *moved;
	struct kv_parting part; /* of old */
	uint8_t flags;          /* for moved */
	int failed;             /* the journal did: it may have happened after a crash, or not */
	uint64_t meta;          /* of the new name */
	struct kv_delete *move; /* what the next daemon knows of it, if the remote's name changes */
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

/* The copy of an object that is on the remote alone, under its new name; the old one goes. */
static int copy_remote(struct rename *n)
{
	struct mc_kv *kv = n->kv;
	struct kv_object *obj = n->obj;
	struct mc_kv_meta meta = kv_meta_of(obj, n->to);
	char *map;
	int r = kv_res_map(kv, obj->res, obj->size, &map);

	if (r < 0)
		return r;
	r = kv_move_begin(kv, obj, n->from, n->to, &n->move);
	if (r == 0)
		r = kv_remote_put(kv, &meta, map, obj->res);
	kv_res_unmap(kv, obj->res, obj->size);
	if (r == 0)
		r = kv_unshadow(kv, n->to, obj);
	n->flags &= (uint8_t)~KV_SHADOWS;
	return r == 0 && n->move == NULL ? kv_delete_add(kv, n->from, obj->version) : r;
}

/* The remote's copy has the old name in it: it goes, a new one is made later. */
static int drop_remote(struct rename *n)
{
	struct mc_kv *kv = n->kv;
	int r = 0;

	mc_mutex_lock(&kv->lock);
	n->obj->remotes = 0;
	n->obj->unsure = 0;
	mc_mutex_unlock(&kv->lock);
	if (n->obj->loc.segment != 0)
		r = mc_kv_log_remote(kv->log, n->from, n->obj->version, 0);
	return r == 0 ? kv_delete_add(kv, n->from, n->obj->version) : r;
}

static int rename_in_log(struct rename *n)
{
	int r = kv_may_be_remote(n->obj) ? drop_remote(n) : 0;

	if (r < 0)
		return r;
	r = mc_kv_log_rename(n->kv->log, n->from, n->to);
	if (r < 0 && r != -ENOMEM) { /* the log has the new name all the same */
		n->failed = r;
		r = 0;
	}
	n->flags &= (uint8_t)~KV_SHADOWS;
	return r == 0 ? kv_delete_ripe(n->kv, n->to, false) : r;
}

/* The pin of what the log does not have yet: its record goes with the key. */
static void rename_pin(struct rename *n)
{
	struct mc_kv_log *log = n->kv->log;
	int r;

	if (log == NULL || (n->obj->flags & KV_PINNED) == 0)
		return;
	r = mc_kv_log_pin(log, n->to, true);
	if (r == 0)
		r = mc_kv_log_pin(log, n->from, false);
	n->failed = r;
}

/* The new struct and what is below; without the lock, the gates are closed. */
static int rename_prepare(struct rename *n)
{
	struct mc_kv *kv = n->kv;
	const char *slash = strrchr(n->to, '/'), *name = slash != NULL ? slash + 1 : n->to;
	struct kv_object *obj = n->obj;
	int r;

	n->moved = kv_object_new(name, strlen(name), obj->size);
	if (n->moved == NULL)
		return -ENOMEM;
	/* Nothing that obj has replaced may be found by the name that it loses. */
	r = kv_delete_ripe(kv, n->from, true);
	if (r == 0 && n->old != NULL) {
		kv_part(kv, n->to, n->old, &n->part);
		r = kv_replaced(kv, n->to, n->old, &n->flags);
	}
	if (r == 0 && obj->loc.segment != 0)
		r = rename_in_log(n);
	else if (r == 0 && obj->remotes > 0)
		r = copy_remote(n);
	else if (r == 0 && kv_may_be_remote(obj))
		r = drop_remote(n);
	if (r == 0 && obj->loc.segment == 0)
		rename_pin(n);
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
	moved->flags = obj->flags | n->flags;
	moved->remotes = obj->remotes;
	moved->warm = obj->warm;
	moved->was_nvme = obj->was_nvme;
	moved->kept = obj->kept;
	moved->lost = obj->lost;
	kv_crcs_copy(moved, kv_crcs(obj));
	r = kv_index_insert(dir, moved, &old);
	if (r < 0)
		return r;
	if (old != NULL) {
		kv_index_pin(moved, ((moved->flags | old->flags) & KV_PINNED) != 0);
		kv_parted_locked(kv, n->to, &n->part);
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
		kv_meta_note(kv, moved);
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

/* The end of kv_move_begin: the copy with the old name goes only now, when nothing here has that
 * name. */
static void rename_moved_locked(struct mc_kv *kv, struct rename *n, bool happened)
	MC_REQUIRES(kv->lock)
{
	int r;

	if (n->move == NULL)
		return;
	mc_mutex_unlock(&kv->lock);
	r = kv_move_end(kv, n->move, happened);
	mc_mutex_lock(&kv->lock);
	if (n->failed == 0)
		n->failed = r;
}

static int rename_locked(struct mc_kv *kv, struct rename *n) MC_REQUIRES(kv->lock)
{
	bool shadows;
	int r;

	kv_settle_locked(kv, n->obj);
	if (n->old != NULL)
		kv_settle_locked(kv, n->old);
	shadows = (n->obj->flags & KV_SHADOWS) != 0;
	/* On the remote alone, where its name is in it: to be copied, as between file systems. So
	 * is what shadows a record of itself that cannot be read: nobody waits for its end. */
	if (n->obj->loc.segment == 0 && (n->obj->res == NULL || (shadows && n->obj->lost)))
		return -EXDEV;
	if (shadows)
		return -EAGAIN;
	mc_mutex_unlock(&kv->lock);
	r = rename_prepare(n);
	mc_mutex_lock(&kv->lock);
	if (r == 0)
		r = rename_record_locked(kv, n);
	if (r == 0)
		r = rename_commit_locked(kv, n);
	if (r < 0) { /* their copies below may be gone already */
		kv_redirty_locked(kv, n->obj);
		if (n->old != NULL)
			kv_redirty_locked(kv, n->old);
	}
	if (r < 0 && n->moved != NULL)
		kv_object_drop_locked(kv, n->moved);
	if (n->meta != 0)
		kv_meta_clear(kv, n->meta);
	rename_moved_locked(kv, n, r == 0);
	return r < 0 ? r : n->failed;
}

/* [blocks] What is to lose its name is durable if an older version of the name lies below: that one
 * would come back after a crash, or both be lost. */
static int settle_shadow(struct mc_kv *kv, const char *from)
{
	struct kv_object *obj;
	int r = 0;

	mc_mutex_lock(&kv->lock);
	obj = kv_index_find(kv->index, from);
	if (obj != NULL && (obj->flags & KV_SHADOWS) == 0)
		obj = NULL;
	if (obj != NULL)
		obj->refs++;
	mc_mutex_unlock(&kv->lock);
	if (obj == NULL)
		return 0;
	r = kv_wait_safe(kv, obj, false);
	mc_mutex_lock(&kv->lock);
	kv_object_drop_locked(kv, obj);
	mc_mutex_unlock(&kv->lock);
	return r;
}

static int rename_once(struct mc_kv *kv, const char *from, const char *to, unsigned flags)
{
	struct rename n = {.kv = kv, .from = from, .to = to};
	struct kv_gate gate;
	int r = kv_change_begin(kv, from, to, &gate);

	if (r == 0)
		r = rename_check_locked(kv, &n, flags);
	if (r == 0 && n.obj != n.old)
		r = rename_locked(kv, &n);
	mc_cond_signal(&kv->wake);
	kv_change_end(kv, &gate);
	kv_part_end(kv, &n.part);
	return r;
}

int mc_kv_rename(struct mc_kv *kv, const char *from, const char *to, unsigned flags)
{
	int r = rename_once(kv, from, to, flags);

	while (r == -EAGAIN) {
		r = settle_shadow(kv, from);
		if (r == 0)
			r = rename_once(kv, from, to, flags);
	}
	return r;
}
