/*
 * Promotion: an object that lies below DRAM is brought there whole, once for all who ask.
 *
 * A resident that is not ready marks the object meanwhile: its waiters are answered at the end,
 * changes of the name wait for it. Each source's bytes are checked against the object's checksums;
 * bad ones are looked for in the next tier, then EIO. A read that was given up keeps the memory
 * that it was to fill: who asked reads by range.
 */
#include "tier/kv-impl.h"
#include "tier/kv-remote.h"

#include "tier/digest.h"

#include <fcntl.h>
#include <string.h>

#define VERSIONS_TRIED 4

struct fetch {
	struct mc_kv *kv;
	struct kv_object *obj; /* a reference */
	struct kv_res *res;
	char *buf;
	uint64_t size;
	struct mc_kv_loc at;      /* of the read */
	_Atomic unsigned left_by; /* of a read given up: we, and the disk */
	bool from_nvme;
	int res_nvme;
	char key[];
};

static bool bytes_match(const struct kv_object *obj, const char *buf)
{
	const uint32_t *crc = kv_crcs(obj);

	for (uint64_t b = 0; b < mc_block_count(obj->size); b++)
		if (mc_crc32c(0, buf + (b << MC_BLOCK_SHIFT), mc_block_len(obj->size, b)) != crc[b])
			return false;
	return true;
}

/* Answers everybody: with the object in DRAM, or with the error. */
static void end(struct fetch *f, int r)
{
	struct mc_kv *kv = f->kv;
	struct kv_res *res = f->res;
	struct kv_wait *waiters, *w;
	bool gone;

	if (f->buf != NULL && res->is_file)
		kv_res_unmap(kv, res, f->size);
	/* Without a record the next daemon finds it below again. */
	if (r == 0 && kv_meta_write(kv, f->obj, f->key, res, &res->meta) < 0)
		res->meta = 0;
	mc_mutex_lock(&kv->lock);
	waiters = res->waiters;
	res->waiters = NULL;
	if (r == 0) {
		res->ready = true;
		mc_policy_insert(kv->policy, &res->policy, kv_key_hash(f->key), f->obj->size + 1);
		for (w = waiters; w != NULL; w = w->next) {
			if (f->from_nvme)
				kv_hit_log_locked(kv, f->obj);
			else
				atomic_fetch_add(&kv->hits_remote, 1);
			w->counted = true;
		}
		if (!f->from_nvme || kv_is_below(f->obj))
			kv_keep_locked(kv, f->obj);
	} else {
		f->obj->res = NULL;
	}
	mc_cond_broadcast(&kv->change);
	mc_mutex_unlock(&kv->lock);
	if (r < 0)
		kv_res_free(kv, res, f->size);
	/* Replaced or removed on the remote, by another node: what is there now? */
	gone = r == -ENOENT || r == -ESTALE;
	if (gone)
		kv_remote_refresh(kv, f->key, f->obj);
	mc_mutex_lock(&kv->lock);
	kv_object_drop_locked(kv, f->obj);
	mc_mutex_unlock(&kv->lock);
	while ((w = waiters) != NULL) {
		waiters = w->next;
		if (r == 0 || (gone && ++w->tries < VERSIONS_TRIED))
			kv_get_step(kv, w);
		else
			kv_wait_end(w, kv_caller_error(r), NULL);
	}
	kv_reap(kv);
	free(f);
}

/* Answers everybody without bringing it here: who asked reads by range, or the error. The resident
 * is out of use, and ours to free. */
static void answer_unpromoted(struct fetch *f, int res)
{
	struct mc_kv *kv = f->kv;
	struct kv_wait *waiters, *w;

	mc_mutex_lock(&kv->lock);
	waiters = f->res->waiters;
	f->res->waiters = NULL;
	f->obj->res = NULL;
	for (w = waiters; w != NULL && res == 0; w = w->next)
		kv_get_handle_locked(kv, w, f->obj);
	kv_object_drop_locked(kv, f->obj);
	mc_cond_broadcast(&kv->change);
	mc_mutex_unlock(&kv->lock);
	while ((w = waiters) != NULL) {
		waiters = w->next;
		kv_wait_end(w, res, res == 0 ? steal_ptr(w->handle) : NULL);
	}
	kv_reap(kv);
}

static void end_unpromoted(struct fetch *f)
{
	answer_unpromoted(f, 0);
	free(f->res);
	free(f);
}

static void leave_given_up(void *kv, void *memory)
{
	struct fetch *f = memory;

	if (atomic_fetch_add(&f->left_by, 1) == 0)
		return;
	if (f->res->is_file)
		kv_res_unmap(kv, f->res, f->size);
	kv_res_free(kv, f->res, f->size);
	free(f);
}

static void end_given_up(struct fetch *f)
{
	struct mc_kv *kv = f->kv;
	bool elsewhere;

	mc_mutex_lock(&kv->lock);
	elsewhere = kv->opts.remote != NULL && f->obj->remotes > 0;
	mc_mutex_unlock(&kv->lock);
	answer_unpromoted(f, elsewhere ? 0 : -EIO);
	leave_given_up(kv, f);
}

static void fetch_remote(void *ctx)
{
	struct fetch *f = ctx;
	int r = kv_remote_get(f->kv, f->key, f->obj, f->buf);

	if (r == -EBADMSG)
		kv_tell_bad(f->kv, f->obj, true);
	kv_trouble_read(f->kv, r);
	if ((r == -ENOENT || r == -ESTALE) && f->from_nvme)
		r = f->res_nvme; /* a copy of this version was here, and it was bad */
	f->from_nvme = false;
	end(f, r);
}

static void start_remote(struct fetch *f)
{
	int r = f->kv->opts.remote == NULL ? -EIO : kv_work_add(f->kv->work, fetch_remote, f);

	if (r < 0)
		end(f, f->res_nvme < 0 ? f->res_nvme : r);
}

static void start(struct fetch *f);

static void nvme_done(void *ctx, const void *bytes, int res)
{
	struct fetch *f = ctx;

	(void)bytes;
	if (res == -ETIMEDOUT) {
		end_given_up(f);
		return;
	}
	if (res == -ESTALE && kv_moved(f->kv, f->obj, &f->at)) {
		start(f);
		return;
	}
	if (res == 0 && !bytes_match(f->obj, f->buf))
		res = -EBADMSG;
	if (res == 0) {
		end(f, 0);
		return;
	}
	if (res == -EBADMSG)
		kv_tell_bad(f->kv, f->obj, false);
	f->res_nvme = res;
	start_remote(f);
}

/* Memory for the object's bytes, mapped at f->buf. */
static int make_room_for(struct fetch *f)
{
	struct mc_kv *kv = f->kv;
	struct kv_res *res = f->res;
	struct kv_file *file;
	int r;

	kv_make_room(kv, f->size < KV_SMALL ? MC_SLAB_PIECE : f->size);
	if (f->size < KV_SMALL) {
		if (f->size > 0)
			r = mc_slab_alloc(kv->slab, MC_SLAB_DATA, (uint32_t)f->size, &res->data);
		else
			r = 0;
	} else {
		r = kv_file_take(kv, f->size, &file);
		if (r < 0)
			return r;
		r = kv_file_cut(kv, file->fd, f->size);
		if (r < 0)
			kv_file_give(kv, file);
		else
			kv_file_to_object(kv, file, res, f->size);
	}
	if (r < 0)
		return r;
	return kv_res_map(kv, res, f->size, &f->buf);
}

static void start(struct fetch *f)
{
	struct mc_block_order order = {.what = {.len = (uint32_t)f->size, .buf = f->buf},
		.done = nvme_done,
		.ctx = f,
		.release = leave_given_up,
		.memory = f};
	bool readable = kv_reads_place(f->kv, f->obj, true, &order.what.loc);

	f->from_nvme = order.what.loc.segment != 0 && f->kv->log != NULL;
	f->at = order.what.loc;
	if (f->size == 0) {
		end(f, 0);
		return;
	}
	if (!readable) {
		f->res_nvme = f->from_nvme ? -EIO : f->res_nvme;
		start_remote(f);
		return;
	}
	if (kv_reads_begin(f->kv, f->obj, true, &order) < 0)
		nvme_done(f, NULL, -ENOMEM);
}

void kv_promote(struct mc_kv *kv, struct kv_wait *w)
{
	size_t len = strlen(w->key);
	struct fetch *f = calloc(1, sizeof(*f) + len + 1);
	struct kv_res *res = calloc(1, sizeof(*res));
	struct kv_object *obj;
	int r;

	if (f == NULL || res == NULL) {
		free(f);
		free(res);
		kv_wait_end(w, -ENOMEM, NULL);
		return;
	}
	mc_mutex_lock(&kv->lock);
	obj = kv_index_find(kv->index, w->key);
	if (obj == NULL || obj->res != NULL ||
		(obj->size > KV_WHOLE && !w->whole)) { /* another was quicker */
		mc_mutex_unlock(&kv->lock);
		free(f);
		free(res);
		kv_get_step(kv, w);
		return;
	}
	obj->refs++;
	obj->res = res;
	res->obj = obj;
	res->is_file = obj->size >= KV_SMALL;
	w->next = NULL;
	res->waiters = w;
	*f = (struct fetch){.kv = kv, .obj = obj, .res = res, .size = obj->size};
	memcpy(f->key, w->key, len + 1);
	mc_mutex_unlock(&kv->lock);
	r = make_room_for(f);
	if (r < 0 && f->res->data == 0 && f->size > 0)
		end_unpromoted(f);
	else if (r < 0)
		end(f, r);
	else
		start(f);
}
