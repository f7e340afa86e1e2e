/*
 * The end of a version: its key is removed, or names another one now.
 *
 * Invariants
 * 1. What was durable leaves NVMe and the remote with the record that removes its key, or after the
 * version that replaced it is durable itself: until then that one SHADOWS it.
 * 2. Whoever has the version open goes on reading it: from DRAM, or from its place on NVMe, which
 * is held until the last reference is dropped.
 */
#include "tier/kv-impl.h"
#include "tier/kv-remote.h"

#include <string.h>

static bool same_loc(const struct mc_kv_loc *a, const struct mc_kv_loc *b)
{
	return a->segment == b->segment && a->generation == b->generation && a->off == b->off;
}

/* Its place now, unless it is in DRAM; segment 0: nothing to hold. */
static struct mc_kv_loc cold_place(struct mc_kv *kv, const struct kv_object *obj)
{
	struct mc_kv_loc loc = {0};

	mc_mutex_lock(&kv->lock);
	if (obj->res == NULL || !obj->res->ready)
		loc = kv_loc(obj);
	mc_mutex_unlock(&kv->lock);
	return loc;
}

/* Reclaim may move the record meanwhile: then its new place is held. */
static void hold(struct mc_kv *kv, const struct kv_object *obj, struct kv_parting *p)
{
	for (;;) {
		struct mc_kv_loc loc = cold_place(kv, obj), now;

		if (loc.segment == 0)
			return;
		if (mc_kv_log_hold(kv->log, obj->version, &loc) == 0) {
			p->held = loc;
			return;
		}
		now = cold_place(kv, obj);
		if (same_loc(&now, &loc))
			return;
	}
}

/* Into DRAM, for those who have it open: its copies below are about to go. */
static void bring_for_readers(struct mc_kv *kv, const char *key, const struct kv_object *obj)
{
	bool bring;

	mc_mutex_lock(&kv->lock);
	bring = obj->refs > 1 && obj->res == NULL && obj->size <= KV_WHOLE;
	mc_mutex_unlock(&kv->lock);
	if (bring)
		kv_bring(kv, key);
}

void kv_part(struct mc_kv *kv, const char *key, struct kv_object *obj, struct kv_parting *ret)
{
	*ret = (struct kv_parting){.obj = obj};
	memcpy(ret->version, obj->version, sizeof(ret->version));
	bring_for_readers(kv, key, obj);
	hold(kv, obj, ret);
}

void kv_parted_locked(struct mc_kv *kv, const char *key, struct kv_parting *p)
{
	const struct kv_object *obj = p->obj;

	if (obj != NULL && obj->refs > 1 && obj->res == NULL && obj->loc.segment == 0)
		kv_delete_hold_locked(kv, key, p->obj);
	if (p->held.segment == 0)
		return;
	/* Wherever the record went since, the version is read from where it is held. */
	kv_loc_set(p->obj, &p->held);
	p->obj->flags |= KV_HELD;
	p->held.segment = 0;
}

void kv_part_end(struct mc_kv *kv, const struct kv_parting *p)
{
	if (p->held.segment != 0)
		mc_kv_log_release(kv->log, p->version, &p->held);
}

void kv_release_place(struct mc_kv *kv, const struct kv_object *obj)
{
	struct mc_kv_loc loc = kv_loc(obj);

	if ((obj->flags & KV_HELD) != 0)
		mc_kv_log_release(kv->log, obj->version, &loc);
	if ((obj->flags & KV_HELD_REMOTE) != 0)
		kv_delete_unhold(kv, obj->version);
}

int kv_forget(struct mc_kv *kv, const char *key, const struct kv_object *obj)
{
	int r = kv_delete_ripe(kv, key, true);

	if (r == 0 && kv_may_be_remote(obj))
		r = kv_delete_add(kv, key, obj->version);
	if (r == 0 && kv->log != NULL && (obj->loc.segment != 0 || (obj->flags & KV_SHADOWS) != 0))
		r = mc_kv_log_remove(kv->log, key, obj->version, NULL);
	return r;
}

int kv_replaced(struct mc_kv *kv, const char *key, const struct kv_object *old, uint8_t *ret_flags)
{
	if (kv_has_copy(old) || (old->flags & KV_SHADOWS) != 0)
		*ret_flags |= KV_SHADOWS;
	return kv_may_be_remote(old) ? kv_delete_later(kv, key, old->version) : 0;
}

int kv_unshadow(struct mc_kv *kv, const char *key, const struct kv_object *obj)
{
	if (kv->log == NULL)
		return 0;
	return mc_kv_log_remove(kv->log, key, obj->version, NULL);
}

bool kv_shadowed_locked(struct mc_kv *kv, const char *key)
{
	const struct kv_object *obj = kv_index_find(kv->index, key);

	return obj != NULL && (obj->flags & KV_SHADOWS) != 0;
}
