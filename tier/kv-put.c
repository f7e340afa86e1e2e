/*
 * Putting: a writer's file becomes an object, whole or not at all.
 *
 * Order of publishing: bytes, checksums and record (kv-seal.c), then the index; what it replaces
 * stays below until it is durable itself.
 */
#include "tier/kv-impl.h"

#include <string.h>
#include <sys/stat.h>

#define TYPICAL_MIN UINT64_C(65536)
#define TYPICAL_MAX (UINT64_C(8) << 20)

void kv_reserve_locked(struct mc_kv *kv, uint64_t bytes)
{
	kv->dirty += bytes;
	kv->reserved += bytes;
	kv->n_writers++;
}

static void unreserve_locked(struct mc_kv *kv, uint64_t bytes) MC_REQUIRES(kv->lock)
{
	assert(kv->dirty >= bytes && kv->reserved >= bytes && kv->n_writers > 0);
	kv->dirty -= bytes;
	kv->reserved -= bytes;
	kv->n_writers--;
}

int mc_kv_create(struct mc_kv *kv, uint64_t hint, struct mc_kv_writer **ret)
{
	struct mc_kv_writer *w = calloc(1, sizeof(*w));
	uint64_t want;
	bool room;
	int r;

	if (w == NULL)
		return -ENOMEM;
	mc_mutex_lock(&kv->lock);
	want = hint > 0 ? hint : kv->typical;
	if (want > kv->opts.dirty_bound / 2)
		want = kv->opts.dirty_bound / 2; /* the rest is found while it is written */
	want = (want + 4095) / 4096 * 4096;
	room = kv_room_locked(kv, want);
	if (!room) {
		mc_mutex_unlock(&kv->lock);
		kv_make_room(kv, want);
		mc_mutex_lock(&kv->lock);
		room = kv_room_locked(kv, want);
	}
	if (room) {
		kv_reserve_locked(kv, want);
		kv->refused = 0;
		kv_room_changed_locked(kv); /* it may write more than that */
	} else if (want <= kv->opts.dirty_bound && want > kv->refused) {
		kv->refused = want;
	}
	mc_mutex_unlock(&kv->lock);
	r = room ? kv_file_take(kv, want, &w->file) : -EAGAIN;
	if (r == -ENOSPC) { /* others have more than is counted */
		kv_make_room(kv, want);
		r = kv_file_take(kv, want, &w->file);
	}
	if (r < 0) {
		if (room) {
			mc_mutex_lock(&kv->lock);
			unreserve_locked(kv, want);
			mc_mutex_unlock(&kv->lock);
		}
		free(w);
		return r == -ENOSPC ? -EAGAIN : r;
	}
	w->kv = kv;
	w->reserved = want;
	mc_mutex_init(&w->growing);
	*ret = w;
	return 0;
}

/* What puts come to: the largest of late. */
static uint64_t learned(uint64_t last, uint64_t size)
{
	uint64_t t = last - last / 16;

	t = size > t ? size : t;
	return t > TYPICAL_MIN ? (t + 4095) / 4096 * 4096 : TYPICAL_MIN;
}

static void learn_locked(struct mc_kv *kv, uint64_t size) MC_REQUIRES(kv->lock)
{
	kv->likely = learned(kv->likely, size);
	kv->typical = learned(kv->typical, size < TYPICAL_MAX ? size : TYPICAL_MAX);
}

static void writer_free(struct mc_kv_writer *w)
{
	struct mc_kv *kv = w->kv;

	if (w->file != NULL)
		kv_file_give(kv, w->file);
	mc_mutex_lock(&kv->lock);
	unreserve_locked(kv, w->reserved);
	kv_room_changed_locked(kv);
	mc_mutex_unlock(&kv->lock);
	mc_mutex_done(&w->growing);
	free(w);
}

void mc_kv_discard(struct mc_kv_writer *w)
{
	struct mc_kv *kv = w->kv;
	struct stat st;

	/* It may have ended for want of memory. */
	if (w->file != NULL && fstat(w->file->fd, &st) == 0) {
		mc_mutex_lock(&kv->lock);
		if ((uint64_t)st.st_blocks * 512 > kv->likely)
			learn_locked(kv, (uint64_t)st.st_blocks * 512);
		mc_mutex_unlock(&kv->lock);
	}
	writer_free(w);
}

/* ---- entering the index */

/* What it replaces, or NULL. The gate of key is closed. */
static int find_old_locked(struct mc_kv *kv, const char *key, unsigned flags,
	struct kv_object **ret_old) MC_REQUIRES(kv->lock)
{
	const char *name;
	size_t len;

	*ret_old = kv_index_find(kv->index, key);
	if (kv_index_parent(kv->index, key, &name, &len) == NULL)
		return -ENOENT;
	if (*ret_old != NULL && (flags & MC_KV_NOREPLACE) != 0)
		return -EEXIST;
	return kv_index_dir(kv->index, key, strlen(key)) != NULL ? -EISDIR : 0;
}

/* Before the index changes; it stays below until obj is durable. */
static int part_locked(struct mc_kv *kv, const char *key, struct kv_object *obj,
	struct kv_parting *p) MC_REQUIRES(kv->lock)
{
	struct kv_object *old = p->obj;
	int r;

	kv_settle_locked(kv, old);
	mc_mutex_unlock(&kv->lock);
	kv_part(kv, key, old, p);
	r = kv_replaced(kv, key, old, &obj->flags);
	mc_mutex_lock(&kv->lock);
	kv_settle_locked(kv, old); /* it may have been asked for meanwhile */
	return r;
}

static int insert_locked(struct mc_kv *kv, const char *key, struct kv_object *obj)
	MC_REQUIRES(kv->lock)
{
	const char *name;
	size_t len;
	struct kv_dir *dir = kv_index_parent(kv->index, key, &name, &len);
	struct kv_object *old;
	int r = dir == NULL ? -ENOENT : kv_index_insert(dir, obj, &old);

	if (r < 0)
		return r;
	if (old != NULL) {
		if ((old->flags & KV_PINNED) != 0) { /* it is the key that is pinned */
			kv_index_pin(obj, true);
			kv_meta_note(kv, obj);
		}
		kv_unlist_locked(kv, old);
		kv_object_drop_locked(kv, old);
	}
	mc_policy_insert(kv->policy, &obj->res->policy, kv_key_hash(key), obj->size + 1);
	obj->state = MC_KV_DIRTY;
	kv->dirty += obj->size;
	kv_dirty_add_locked(kv, obj->res);
	return 0;
}

static int publish(struct mc_kv *kv, const char *key, struct kv_object *obj, unsigned flags)
{
	struct kv_parting p = {0};
	struct kv_gate gate;
	int r = kv_change_begin(kv, key, NULL, &gate);

	if (r == 0)
		r = find_old_locked(kv, key, flags, &p.obj);
	if (r == 0 && p.obj != NULL)
		r = part_locked(kv, key, obj, &p);
	if (r == 0) {
		if (p.obj != NULL)
			p.obj->refs++;
		r = insert_locked(kv, key, obj);
		if (r == 0)
			kv_parted_locked(kv, key, &p);
		if (p.obj != NULL)
			kv_object_drop_locked(kv, p.obj);
	}
	if (r == 0)
		learn_locked(kv, obj->size);
	kv_change_end(kv, &gate);
	kv_part_end(kv, &p);
	return r;
}

int mc_kv_publish(struct mc_kv_writer *w, const char *key, const struct timespec *mtime,
	unsigned flags, bool copy, struct mc_kv_attr *ret)
{
	struct mc_kv *kv = w->kv;
	struct kv_object *obj = NULL;
	struct kv_res *res = calloc(1, sizeof(*res));
	const char *slash = strrchr(key, '/'), *name = slash != NULL ? slash + 1 : key;
	enum mc_kv_ack ack = kv->opts.ack;
	bool is_file = false;
	struct stat st;
	int r = kv_key_check(key);

	if (r == 0 && fstat(w->file->fd, &st) != 0)
		r = -errno;
	if (r == 0)
		obj = kv_object_new(name, strlen(name), (uint64_t)st.st_size);
	if (r == 0 && (obj == NULL || res == NULL))
		r = -ENOMEM;
	if (r == 0) {
		obj->mtime_ns = kv_time_ns(mtime->tv_sec, mtime->tv_nsec);
		obj->res = res;
		res->obj = obj;
		res->ready = true;
		r = kv_seal(w, obj, res, key, copy);
	}
	if (r == 0) {
		is_file = res->is_file;
		r = publish(kv, key, obj, flags); /* from then on anybody may evict it */
	}
	if (r == 0 && is_file) {
		/* The object's now. */
		close(w->file->fd);
		free(w->file);
		w->file = NULL;
		atomic_fetch_add(&kv->puts, 1);
	} else if (r == 0) {
		atomic_fetch_add(&kv->puts, 1);
	} else if (res != NULL) {
		if (res->is_file)
			res->data = 0; /* still the writer's */
		if (obj == NULL)
			free(res);
	}
	if (r == 0 && w->synced && ack == MC_KV_ACK_DRAM)
		ack = MC_KV_ACK_NVME;
	writer_free(w);
	if (r == 0 && ack != MC_KV_ACK_DRAM)
		r = kv_wait_safe(kv, obj, ack == MC_KV_ACK_REMOTE);
	mc_mutex_lock(&kv->lock);
	if (r == 0 && ret != NULL)
		kv_attr_locked(kv, kv_now(obj), ret);
	if (obj != NULL)
		kv_object_drop_locked(kv, obj);
	mc_mutex_unlock(&kv->lock);
	kv_reap(kv);
	return r;
}

int mc_kv_writer_sync(struct mc_kv_writer *w, const char *key)
{
	struct mc_kv *kv = w->kv;
	int r = kv_key_check(key);

	mc_mutex_lock(&kv->lock);
	if (r == 0)
		r = kv_persist_error_locked(kv);
	mc_mutex_unlock(&kv->lock);
	if (r == 0)
		w->synced = true;
	return r;
}
