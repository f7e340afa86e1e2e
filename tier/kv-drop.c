/*
 * Copies that the administrator takes out of a tier, one object at a time. Each step leaves another
 * good copy: what is dirty is flushed first, what lies on NVMe or the device alone is copied to the
 * remote first, and the journal knows before the copy goes.
 */
#include "tier/kv-impl.h"
#include "tier/kv-remote.h"

#include <string.h>

#define HOLDS_MAX 65536 /* entries looked at for mc_kv_dir_holds */

int kv_drop_enter_locked(
	struct mc_kv *kv, const char *key, const struct kv_object *obj, struct kv_gate *ret_gate)
{
	struct kv_object *now;

	kv_gate_enter_locked(kv, key, NULL, ret_gate);
	now = kv_index_find(kv->index, key);
	if (now == NULL || now != obj) {
		kv_gate_leave_locked(kv, ret_gate);
		return -ENOENT;
	}
	kv_settle_locked(kv, now);
	return 0;
}

int kv_drop_record_locked(struct mc_kv *kv, const char *key, struct kv_object *obj)
{
	struct mc_kv_loc loc = kv_loc(obj);
	int r;

	mc_mutex_unlock(&kv->lock);
	r = mc_kv_log_evict(kv->log, key, obj->version, &loc);
	mc_mutex_lock(&kv->lock);
	if (r == -ENOENT) /* it moved or evicted the record, and has told */
		return obj->loc.segment == 0 ? 0 : -EAGAIN;
	if (r == 0) {
		obj->loc = (struct kv_place){0};
		kv_redirty_locked(kv, obj);
	}
	return r;
}

/* Whether some of it lies in a tier. */
static bool lies_locked(struct mc_kv *kv, const struct kv_object *obj, enum mc_tier tier)
	MC_REQUIRES(kv->lock)
{
	uint64_t block;

	return (kv_tiers_locked(kv, obj, &block) >> tier & 1) != 0;
}

/* From NVMe or the device; one in parts leaves both. The remote has a copy already, if it can have
 * one. */
static int drop_local(struct mc_kv *kv, const char *key, struct kv_object *obj, enum mc_tier tier,
	const char **ret_why)
{
	struct kv_gate gate;
	int r;

	mc_mutex_lock(&kv->lock);
	r = kv_drop_enter_locked(kv, key, obj, &gate);
	if (r < 0) {
		mc_mutex_unlock(&kv->lock);
		return r;
	}
	if (kv_is_kept(obj))
		kv_unkeep_locked(kv, obj);
	if (lies_locked(kv, obj, tier) && (obj->flags & KV_PINNED) != 0)
		*ret_why = "it is pinned";
	else if (lies_locked(kv, obj, tier) && obj->remotes == 0)
		*ret_why = "no other persistent tier has a copy";
	r = *ret_why != NULL ? -EBUSY : -EAGAIN;
	while (r == -EAGAIN)
		r = !lies_locked(kv, obj, tier) ? 0 : kv_drop_record_locked(kv, key, obj);
	kv_gate_leave_locked(kv, &gate);
	mc_mutex_unlock(&kv->lock);
	return r;
}

/* [blocks] Until a remote copy stands; 0 also when that is impossible, which drop_local tells. */
static int copy_to_remote(struct mc_kv *kv, const char *key, struct kv_object *obj,
	enum mc_tier tier, const char **ret_why)
{
	bool want;

	mc_mutex_lock(&kv->lock);
	want = kv->opts.remote != NULL && lies_locked(kv, obj, tier) && obj->remotes == 0 &&
		(obj->flags & KV_PINNED) == 0;
	if (want && kv_delete_held_locked(kv, key))
		*ret_why =
			"a client reads an older version from the remote, which it would replace";
	mc_mutex_unlock(&kv->lock);
	if (*ret_why != NULL)
		return -EBUSY;
	return want ? kv_copy_now(kv, obj) : 0;
}

static int drop_remote(
	struct mc_kv *kv, const char *key, struct kv_object *obj, const char **ret_why)
{
	struct kv_gate gate;
	int r;

	mc_mutex_lock(&kv->lock);
	r = kv_drop_enter_locked(kv, key, obj, &gate);
	if (r < 0) {
		mc_mutex_unlock(&kv->lock);
		return r;
	}
	if (obj->remotes > 0 && (obj->loc.segment == 0 || (obj->flags & KV_PINNED) != 0)) {
		*ret_why = obj->loc.segment == 0 ? "it is the last good copy" : "it is pinned";
		r = -EBUSY;
	} else if (obj->remotes > 0) {
		mc_mutex_unlock(&kv->lock);
		r = mc_kv_log_remote(kv->log, key, obj->version, 0);
		if (r == 0)
			r = kv_delete_add(kv, key, obj->version);
		mc_mutex_lock(&kv->lock);
		if (r == 0) {
			obj->remotes = 0;
			kv_meta_note(kv, obj);
		}
	}
	kv_gate_leave_locked(kv, &gate);
	mc_mutex_unlock(&kv->lock);
	return r;
}

int mc_kv_evict_from(struct mc_kv *kv, const char *key, enum mc_tier tier, const char **ret_why)
{
	struct kv_object *obj = NULL;
	int r = kv_key_check(key) < 0 ? -ENOENT : 0;

	*ret_why = NULL;
	if (r < 0)
		return r;
	mc_mutex_lock(&kv->lock);
	r = kv_ready_locked(kv);
	if (r == 0)
		r = kv_moves_wait_locked(kv, key, NULL);
	if (r == 0)
		obj = kv_index_find(kv->index, key);
	if (obj != NULL)
		obj->refs++;
	mc_mutex_unlock(&kv->lock);
	if (obj == NULL)
		return r < 0 ? r : -ENOENT;
	if (tier == MC_TIER_DRAM) {
		r = kv_evict_dram(kv, obj, ret_why);
	} else if (tier == MC_TIER_REMOTE) {
		r = drop_remote(kv, key, obj, ret_why);
	} else {
		r = copy_to_remote(kv, key, obj, tier, ret_why);
		if (r == 0)
			r = drop_local(kv, key, obj, tier, ret_why);
	}
	mc_mutex_lock(&kv->lock);
	kv_object_drop_locked(kv, obj);
	kv_room_changed_locked(kv);
	mc_mutex_unlock(&kv->lock);
	kv_reap(kv);
	return r;
}

/* ---- what a directory holds */

struct looking {
	enum mc_tier tier;
	unsigned left; /* entries to look at */
};

/* Recursion is as deep as a key has components, 2,048 at most. */
static bool dir_holds(struct mc_kv *kv, const struct kv_dir *d, struct looking *l)
	MC_REQUIRES(kv->lock)
{
	uint64_t block;

	for (uint32_t i = 0; i < d->n; i++) {
		uintptr_t c = d->child[i];

		if (l->left == 0)
			return true;
		l->left--;
		if ((c & 2) != 0)
			continue;
		if ((c & 1) != 0 ? dir_holds(kv, (const struct kv_dir *)(c & ~(uintptr_t)3), l)
				 : (kv_tiers_locked(kv, (const struct kv_object *)c, &block) >>
						   l->tier &
					   1) != 0)
			return true;
	}
	return false;
}

bool mc_kv_dir_holds(struct mc_kv *kv, const char *key, enum mc_tier tier)
{
	struct looking l = {.tier = tier, .left = HOLDS_MAX};
	struct kv_dir *d;
	bool holds;

	mc_mutex_lock(&kv->lock);
	d = kv_index_dir(kv->index, key, strlen(key));
	holds = d != NULL && dir_holds(kv, d, &l);
	mc_mutex_unlock(&kv->lock);
	return holds;
}
