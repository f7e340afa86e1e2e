/*
 * Setting an object's mtime: tools that copy with times do so right after the close. On NVMe it is
 * a record of the journal. On the remote it lies beside the bytes, so the copy there does not count
 * any more: another one takes its place before the object leaves NVMe, or soon where copies are
 * wanted. What is on the remote alone comes into DRAM, whole, and goes down again.
 */
#include "tier/kv-impl.h"
#include "tier/kv-remote.h"

#include <string.h>

/* The record in DRAM, written anew. */
static int rewrite_meta_locked(struct mc_kv *kv, const char *key, struct kv_object *obj)
	MC_REQUIRES(kv->lock)
{
	const struct kv_res *res = obj->res; /* stays: the gate is closed */
	uint64_t old, fresh;
	int r;

	if (res == NULL || res->meta == 0)
		return 0;
	mc_mutex_unlock(&kv->lock);
	r = kv_meta_write(kv, obj, key, res, &fresh);
	mc_mutex_lock(&kv->lock);
	if (r < 0)
		return r;
	old = obj->res->meta;
	obj->res->meta = fresh;
	kv_meta_clear(kv, old);
	return 0;
}

/* [blocks] The journal knows of the new mtime, and that the remote's copy has the old one. */
static int set_in_log(
	struct mc_kv *kv, const char *key, const struct kv_object *obj, int64_t mtime_ns)
{
	int64_t s = kv_floor_s(mtime_ns);
	int r = obj->remotes > 0 ? mc_kv_log_remote(kv->log, key, obj->version, 0) : 0;

	return r < 0 ? r
		     : mc_kv_log_set_mtime(kv->log, key, obj->version, s,
			       (uint32_t)(mtime_ns - s * INT64_C(1000000000)));
}

/* It goes down once more, with its new mtime. */
static void set_locked(struct mc_kv *kv, struct kv_object *obj, int64_t mtime_ns)
	MC_REQUIRES(kv->lock)
{
	obj->mtime_ns = mtime_ns;
	if (obj->remotes > 0) {
		obj->remotes = 0;
		obj->unsure = 1;
	}
	kv_redirty_locked(kv, obj);
	if (obj->state == MC_KV_CLEAN && obj->res != NULL && obj->res->next == NULL)
		kv_replica_want_locked(kv, obj->res);
}

static int set(struct mc_kv *kv, const char *key, struct kv_object *obj, int64_t mtime_ns)
	MC_REQUIRES(kv->lock)
{
	bool logged = false, brought = false;
	int r = 0;

	while (r == 0) {
		bool below;

		kv_settle_locked(kv, obj);
		below = obj->loc.segment != 0; /* it may leave while nobody holds the lock */
		if (below ? logged : obj->res != NULL)
			break;
		if (!below && brought)
			return -ENOSPC;
		mc_mutex_unlock(&kv->lock);
		r = below ? set_in_log(kv, key, obj, mtime_ns) : kv_bring(kv, key);
		mc_mutex_lock(&kv->lock);
		logged |= below;
		brought |= !below;
	}
	if (r < 0)
		return r;
	set_locked(kv, obj, mtime_ns);
	return rewrite_meta_locked(kv, key, obj);
}

int mc_kv_set_mtime(struct mc_kv *kv, const char *key, const struct timespec *mtime)
{
	struct kv_object *obj;
	struct kv_gate gate;
	int r = kv_change_begin(kv, key, NULL, &gate);

	obj = r == 0 ? kv_index_find(kv->index, key) : NULL;
	if (obj != NULL)
		r = set(kv, key, obj, kv_time_ns(mtime->tv_sec, mtime->tv_nsec));
	else if (r == 0)
		r = kv_index_dir(kv->index, key, strlen(key)) != NULL ? -EISDIR : -ENOENT;
	kv_change_end(kv, &gate);
	return r;
}
