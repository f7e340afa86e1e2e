/*
 * Getting: handles, backing descriptors and reads of what is in DRAM. What is not is brought there
 * (kv-promote.c) or read by range (kv-range.c).
 */
#include "tier/kv-impl.h"
#include "tier/kv-remote.h"

#include <fcntl.h>
#include <string.h>

/* The waiter's handle, bound to the object. */
void kv_get_handle_locked(struct mc_kv *kv, struct kv_wait *w, struct kv_object *obj)
{
	w->handle->obj = obj;
	obj->refs++;
	if (obj->hits < UINT16_MAX)
		obj->hits++;
	kv_warm_locked(kv, obj);
}

void kv_wait_end(struct kv_wait *w, int res, struct mc_kv_object *h)
{
	w->done(w->ctx, res, h);
	free(w->handle);
	free(w);
}

/* Answers w from memory, or passes it on. */
void kv_get_step(struct mc_kv *kv, struct kv_wait *w)
{
	struct mc_kv_object *h = NULL;
	struct kv_object *obj;
	int r = 0;

	mc_mutex_lock(&kv->lock);
	obj = kv_index_find(kv->index, w->key);
	if (obj == NULL) {
		r = -ENOENT;
	} else if (obj->res != NULL && obj->res->ready && obj->state != MC_KV_EVICTING) {
		mc_policy_hit(kv->policy, &obj->res->policy);
		if (!w->counted)
			atomic_fetch_add(&kv->hits_dram, 1);
		kv_get_handle_locked(kv, w, obj);
		h = steal_ptr(w->handle);
	} else if (obj->res == NULL && obj->size > KV_WHOLE && !w->whole) {
		if (obj->loc.segment == 0)
			atomic_fetch_add(&kv->hits_remote, 1);
		else
			kv_hit_log_locked(kv, obj);
		kv_get_handle_locked(kv, w, obj);
		h = steal_ptr(w->handle);
	} else if (obj->res != NULL) { /* on its way here, or out */
		w->next = obj->res->waiters;
		obj->res->waiters = w;
		w = NULL;
	}
	mc_mutex_unlock(&kv->lock);
	if (w == NULL)
		return;
	if (r == -ENOENT)
		atomic_fetch_add(&kv->misses, 1);
	if (r < 0 || h != NULL)
		kv_wait_end(w, r, h);
	else
		kv_promote(kv, w);
}

static struct kv_object *of_version_locked(
	struct mc_kv *kv, const char *key, const uint8_t version[16]) MC_REQUIRES(kv->lock)
{
	struct kv_object *obj = kv_index_find(kv->index, key);
	bool same = obj != NULL && memcmp(obj->version, version, sizeof(obj->version)) == 0;

	return same ? obj : NULL;
}

static struct kv_object *search_version_locked(struct mc_kv *kv, const uint8_t version[16])
	MC_REQUIRES(kv->lock)
{
	struct kv_object *obj = NULL;

	for (uint64_t b = 0; b < kv->index->n_buckets && obj == NULL; b++) {
		obj = kv->index->objects[b];
		while (obj != NULL && memcmp(obj->version, version, sizeof(obj->version)) != 0)
			obj = obj->next;
	}
	return obj;
}

int mc_kv_bind(struct mc_kv *kv, const char *key, const uint8_t version[16], uint64_t until_ns,
	bool search, struct mc_kv_object **ret)
{
	struct mc_kv_object *h = calloc(1, sizeof(*h));

	if (h == NULL)
		return -ENOMEM;
	h->kv = kv;
	mc_mutex_lock(&kv->lock);
	while ((h->obj = of_version_locked(kv, key, version)) == NULL && kv->recovering &&
		kv->unread == 0)
		if (mc_cond_wait_until(&kv->change, &kv->lock, until_ns) != 0)
			break;
	if (h->obj == NULL && search)
		h->obj = search_version_locked(kv, version);
	if (h->obj != NULL)
		h->obj->refs++;
	mc_mutex_unlock(&kv->lock);
	if (h->obj == NULL) {
		free(h);
		return -ENOENT;
	}
	*ret = h;
	return 0;
}

static void get_later(void *ctx)
{
	struct kv_wait *w = ctx;
	struct mc_kv *kv = w->handle->kv;
	int r;

	mc_mutex_lock(&kv->lock);
	r = kv_ready_locked(kv);
	if (r == 0)
		r = kv_moves_wait_locked(kv, w->key, NULL);
	mc_mutex_unlock(&kv->lock);
	if (r < 0)
		kv_wait_end(w, r, NULL);
	else
		kv_get_step(kv, w);
}

static void get(struct mc_kv *kv, const char *key, bool whole,
	void (*done)(void *ctx, int res, struct mc_kv_object *obj), void *ctx)
{
	size_t len = strlen(key);
	struct kv_wait *w = kv_key_check(key) == 0 ? calloc(1, sizeof(*w) + len + 1) : NULL;
	struct mc_kv_object *h = calloc(1, sizeof(*h));
	bool unsure, moving;
	int r = 0;

	if (w == NULL || h == NULL) {
		free(w);
		free(h);
		done(ctx, kv_key_check(key) < 0 ? -ENOENT : -ENOMEM, NULL);
		return;
	}
	h->kv = kv;
	w->done = done;
	w->ctx = ctx;
	w->handle = h;
	w->whole = whole;
	memcpy(w->key, key, len + 1);
	atomic_fetch_add(&kv->gets, 1);
	mc_mutex_lock(&kv->lock);
	moving = kv_moving_locked(kv, key);
	unsure = moving || (kv->recovering && kv_index_find(kv->index, key) == NULL);
	mc_mutex_unlock(&kv->lock);
	if (unsure) /* those of kv->work may have to find out */
		r = kv_work_add(moving ? kv->asks : kv->work, get_later, w);
	if (r < 0)
		kv_wait_end(w, r, NULL);
	else if (!unsure)
		kv_get_step(kv, w);
}

void mc_kv_get(struct mc_kv *kv, const char *key,
	void (*done)(void *ctx, int res, struct mc_kv_object *obj), void *ctx)
{
	get(kv, key, false, done, ctx);
}

struct bring {
	struct mc_mutex lock;
	struct mc_cond cond;
	bool done MC_GUARDED_BY(lock);
	int res MC_GUARDED_BY(lock);
	struct mc_kv_object *h MC_GUARDED_BY(lock);
};

static void brought(void *ctx, int res, struct mc_kv_object *h)
{
	struct bring *b = ctx;

	mc_mutex_lock(&b->lock);
	b->done = true;
	b->res = res;
	b->h = h;
	mc_cond_signal(&b->cond);
	mc_mutex_unlock(&b->lock);
}

int kv_bring(struct mc_kv *kv, const char *key)
{
	struct bring b = {0};
	struct mc_kv_object *h;
	int r;

	mc_mutex_init(&b.lock);
	mc_cond_init(&b.cond);
	get(kv, key, true, brought, &b);
	mc_mutex_lock(&b.lock);
	while (!b.done)
		mc_cond_wait(&b.cond, &b.lock);
	r = b.res;
	h = b.h;
	mc_mutex_unlock(&b.lock);
	mc_cond_done(&b.cond);
	mc_mutex_done(&b.lock);
	if (h != NULL)
		mc_kv_object_put(h);
	return r;
}

void mc_kv_object_put(struct mc_kv_object *h)
{
	struct mc_kv *kv = h->kv;

	mc_mutex_lock(&kv->lock);
	kv_object_drop_locked(kv, h->obj);
	mc_mutex_unlock(&kv->lock);
	if (h->last != NULL)
		kv_block_put(kv, h->last);
	free(h);
	kv_reap(kv);
}

void mc_kv_object_attr(struct mc_kv_object *h, struct mc_kv_attr *ret)
{
	struct mc_kv *kv = h->kv;

	mc_mutex_lock(&kv->lock);
	kv_attr_locked(kv, kv_now(h->obj), ret);
	mc_mutex_unlock(&kv->lock);
}

/* The resident with a pin, or NULL: it is not in DRAM now. */
static struct kv_res *pin(struct mc_kv_object *h, uint64_t *ret_size)
{
	struct mc_kv *kv = h->kv;
	struct kv_object *obj;
	struct kv_res *res;

	mc_mutex_lock(&kv->lock);
	obj = kv_now(h->obj);
	res = obj->res;
	*ret_size = obj->size;
	if (res != NULL && (!res->ready || obj->state == MC_KV_EVICTING))
		res = NULL;
	if (res != NULL)
		res->pins++;
	mc_mutex_unlock(&kv->lock);
	return res;
}

static void unpin(struct mc_kv *kv, struct kv_res *res)
{
	mc_mutex_lock(&kv->lock);
	assert(res->pins > 0);
	res->pins--;
	mc_mutex_unlock(&kv->lock);
}

int mc_kv_object_backing_get(struct mc_kv_object *h, int *ret_fd)
{
	struct mc_kv *kv = h->kv;
	uint64_t size;
	struct kv_res *res;
	bool crowded;
	int fd = -EAGAIN;

	/* Held backing files cannot be evicted: at most half of the tier may be. */
	mc_mutex_lock(&kv->lock);
	crowded = kv->held_bytes > kv->opts.dram_capacity / 2;
	mc_mutex_unlock(&kv->lock);
	res = crowded ? NULL : pin(h, &size);
	if (res != NULL && res->is_file)
		fd = kv_file_open(kv, res->data, O_RDONLY);
	if (res != NULL && fd < 0)
		unpin(kv, res);
	if (fd < 0)
		return -EAGAIN;
	mc_mutex_lock(&kv->lock);
	if (res->lent++ == 0)
		kv->lent += size;
	mc_mutex_unlock(&kv->lock);
	*ret_fd = fd;
	return 0;
}

void mc_kv_object_backing_put(struct mc_kv_object *h)
{
	struct mc_kv *kv = h->kv;
	struct kv_object *obj;

	mc_mutex_lock(&kv->lock);
	obj = kv_now(h->obj);
	assert(obj->res != NULL && obj->res->pins > 0 && obj->res->lent > 0);
	obj->res->pins--;
	if (--obj->res->lent == 0)
		kv->lent -= obj->size;
	mc_mutex_unlock(&kv->lock);
}

void mc_kv_read(struct mc_kv_read *r)
{
	uint64_t size;
	struct kv_res *res = pin(r->obj, &size);
	char *map;
	int fail;

	assert(r->off + r->len <= size);
	memset(r->priv, 0, sizeof(r->priv));
	if (res == NULL) {
		kv_range_read(r);
		return;
	}
	fail = kv_res_map(r->obj->kv, res, size, &map);
	if (fail < 0) {
		unpin(r->obj->kv, res);
		r->done(r, kv_caller_error(fail));
		return;
	}
	r->priv[0] = res;
	r->n_iov = 1;
	r->iov[0] = (struct iovec){.iov_base = map + r->off, .iov_len = r->len};
	r->done(r, 0);
}

void mc_kv_read_end(struct mc_kv_read *r)
{
	struct kv_res *res = r->priv[0];
	struct mc_kv *kv = r->obj->kv;
	uint64_t size;

	if (res == NULL) {
		kv_range_end(r);
		return;
	}
	mc_mutex_lock(&kv->lock);
	size = kv_now(r->obj->obj)->size;
	mc_mutex_unlock(&kv->lock);
	kv_res_unmap(kv, res, size);
	unpin(kv, res);
}
