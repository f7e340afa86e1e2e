/*
 * Setting an object's mtime: tools that copy with times do so right after the close. An object that
 * went down already goes down once more, if it still lies in DRAM; otherwise the new mtime is kept
 * in memory only.
 */
#include "tier/kv-impl.h"

#include <string.h>

int mc_kv_set_mtime(struct mc_kv *kv, const char *key, const struct timespec *mtime)
{
	struct kv_object *obj;
	struct kv_gate gate;
	uint64_t meta = 0, fresh;
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
	else
		kv_settle_locked(kv, obj);
	if (r == 0 && obj->state == MC_KV_CLEAN && kv_has_copy(obj) && obj->res != NULL &&
		obj->res->ready) {
		kv_dirty_remove_locked(kv, obj->res); /* it may wait for a replica */
		obj->state = MC_KV_DIRTY;
		kv->dirty += obj->size;
		kv_dirty_add_locked(kv, obj->res);
	}
	if (r == 0)
		obj->mtime_ns = mtime->tv_sec * INT64_C(1000000000) + mtime->tv_nsec;
	if (r == 0 && obj->res != NULL && obj->res->meta != 0) {
		const struct kv_res *res = obj->res; /* stays: the gate is closed */

		mc_mutex_unlock(&kv->lock);
		r = kv_meta_write(kv, obj, key, res, &fresh);
		mc_mutex_lock(&kv->lock);
		if (r == 0) {
			meta = obj->res->meta;
			obj->res->meta = fresh;
		}
	}
	if (meta != 0)
		kv_meta_clear(kv, meta);
	kv_gate_leave_locked(kv, &gate);
	mc_mutex_unlock(&kv->lock);
	return r;
}
