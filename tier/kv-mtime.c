/*
 * Setting an object's mtime: tools that copy with times do so right after the close. On NVMe it is
 * a record of the journal. An object that is on the remote alone, where its mtime lies beside the
 * bytes, goes there once more if it is in DRAM or may be brought there; otherwise the new mtime is
 * kept in memory only.
 */
#include "tier/kv-impl.h"

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

static int set_locked(struct mc_kv *kv, const char *key, struct kv_object *obj, int64_t mtime_ns)
	MC_REQUIRES(kv->lock)
{
	bool cold;
	int r = 0;

	kv_settle_locked(kv, obj);
	cold = obj->res == NULL && obj->loc.segment == 0 && obj->size <= KV_WHOLE;
	mc_mutex_unlock(&kv->lock);
	if (cold)
		kv_bring(kv, key);
	if (obj->loc.segment != 0)
		r = mc_kv_log_set_mtime(kv->log, key, obj->version, kv_floor_s(mtime_ns),
			(uint32_t)(mtime_ns - kv_floor_s(mtime_ns) * INT64_C(1000000000)));
	mc_mutex_lock(&kv->lock);
	kv_settle_locked(kv, obj);
	if (r < 0)
		return r;
	obj->mtime_ns = mtime_ns;
	if (obj->loc.segment == 0)
		kv_dirty_again_locked(kv, obj);
	return rewrite_meta_locked(kv, key, obj);
}

int mc_kv_set_mtime(struct mc_kv *kv, const char *key, const struct timespec *mtime)
{
	struct kv_object *obj;
	struct kv_gate gate;
	int r = kv_change_begin(kv, key, NULL, &gate);

	obj = r == 0 ? kv_index_find(kv->index, key) : NULL;
	if (obj != NULL)
		r = set_locked(kv, key, obj, mtime->tv_sec * INT64_C(1000000000) + mtime->tv_nsec);
	else if (r == 0)
		r = kv_index_dir(kv->index, key, strlen(key)) != NULL ? -EISDIR : -ENOENT;
	kv_change_end(kv, &gate);
	return r;
}
