/*
 * Dirty objects go down, asynchronously and in batches: to the log on NVMe, or to the remote where
 * there is none.
 *
 * Transitions made here: DIRTY → FLUSHING (taken into a flight), FLUSHING → CLEAN (durable below)
 * or back to DIRTY (failed: tried again later, within the dirty bound).
 */
#include "tier/kv-impl.h"
#include "tier/kv-remote.h"

#include <string.h>

#define BATCH 256
/* Under way to the log at once: more than two segments of it, so that one is filled while the other
 * is made durable. */
#define FLIGHTS_BYTES (UINT64_C(320) << 20)
#define FLIGHTS_LOG 65536 /* and in number: about 500 bytes each */
#define FLIGHTS_REMOTE 8  /* objects under way to the remote at once */
/* Clients put under a temporary name, which they rename at once: a rename waits for the flush of
 * what it renames, so an object stays here for a while first. */
#define REST_NS UINT64_C(200000000)

struct flight {
	struct mc_kv_item item;
	struct mc_kv *kv;
	struct kv_object *obj; /* a reference and a pin */
	struct kv_res *res;
	bool mapped;
	bool remote; /* where to */
	bool shadows, still_shadows;
	char key[];
};

static void insert_locked(struct mc_kv *kv, struct kv_res *r, struct kv_res *before)
	MC_REQUIRES(kv->lock)
{
	assert(r->next == NULL);
	r->prev = before->prev;
	r->next = before;
	r->prev->next = r;
	before->prev = r;
	mc_cond_signal(&kv->flush);
}

void kv_dirty_add_locked(struct mc_kv *kv, struct kv_res *r)
{
	r->dirty_ns = mc_now_ns();
	insert_locked(kv, r, &kv->dirty_list);
}

void kv_dirty_remove_locked(struct mc_kv *kv, struct kv_res *r)
{
	if (r->next == NULL)
		return;
	r->prev->next = r->next;
	r->next->prev = r->prev;
	r->next = r->prev = NULL;
}

void kv_dirty_again_locked(struct mc_kv *kv, struct kv_object *obj)
{
	obj->kept = 0;
	if (obj->state != MC_KV_CLEAN || obj->res == NULL || !obj->res->ready || obj->dir == NULL)
		return;
	kv_dirty_remove_locked(kv, obj->res); /* it may wait for a replica */
	obj->state = MC_KV_DIRTY;
	kv->dirty += obj->size;
	kv_dirty_add_locked(kv, obj->res);
}

void kv_redirty_locked(struct mc_kv *kv, struct kv_object *obj)
{
	if (!kv_has_copy(obj))
		kv_dirty_again_locked(kv, obj);
}

static bool time_enough_locked(struct mc_kv *kv) MC_REQUIRES(kv->lock)
{
	return kv->room == NULL && !kv->closing && !kv->leaving &&
		kv->dirty < kv->opts.dirty_bound / 4;
}

/* Where flights go now: without NVMe, or while it fails, to the remote; while NVMe is slow as well,
 * if that works. */
static bool to_remote_locked(struct mc_kv *kv) MC_REQUIRES(kv->lock)
{
	return kv->log == NULL || kv->stalled || mc_now_ns() < kv->bypass_ns ||
		(kv->slow && kv->opts.remote != NULL && kv->trouble[KV_REMOTE].error == 0);
}

void kv_keep_locked(struct mc_kv *kv, struct kv_object *obj)
{
	if (to_remote_locked(kv) || kv->recovering || !time_enough_locked(kv) ||
		kv_gate_closed_locked(kv, obj) || (obj->flags & KV_BUSY) != 0 ||
		(obj->remotes == 0 && !kv_is_below(obj)))
		return;
	if ((!obj->was_nvme || kv_is_below(obj)) && obj->hits == 0)
		return;
	kv_dirty_again_locked(kv, obj);
	obj->kept = obj->state == MC_KV_DIRTY;
}

void kv_unkeep_locked(struct mc_kv *kv, struct kv_object *obj)
{
	kv_dirty_remove_locked(kv, obj->res);
	obj->state = MC_KV_CLEAN;
	obj->kept = 0;
	kv->dirty -= obj->size;
}

static void landed_locked(struct mc_kv *kv, struct flight *f, const struct mc_kv_loc *loc)
	MC_REQUIRES(kv->lock)
{
	struct kv_object *obj = f->obj;

	if (loc != NULL) {
		kv_loc_set(obj, loc);
		if (obj->warm < KV_NEW)
			obj->warm = KV_NEW;
	} else {
		kv_asked_locked(kv, obj);
	}
	if (loc == NULL && obj->remotes == 0) /* it may have been there with an older mtime */
		obj->remotes = 1;
	if (loc != NULL || !f->still_shadows)
		obj->flags &= (uint8_t)~KV_SHADOWS;
	obj->flags &= (uint8_t)~KV_WANTED;
	obj->state = MC_KV_CLEAN;
	obj->kept = 0;
	kv->dirty -= obj->size;
	atomic_fetch_add(&kv->flushed, obj->size);
	kv_meta_note(kv, obj);
	if (loc != NULL)
		kv_replica_want_locked(kv, f->res);
}

static void failed_locked(struct mc_kv *kv, struct flight *f, bool nvme) MC_REQUIRES(kv->lock)
{
	if (nvme && f->item.loc.segment != 0) /* the log may have it: it is to be told of changes */
		f->obj->flags |= KV_SHADOWS;
	if (!nvme)
		f->obj->unsure = 1;
	if (kv_is_kept(f->obj)) {
		kv_unkeep_locked(kv, f->obj);
	} else {
		f->obj->state = MC_KV_DIRTY;
		insert_locked(kv, f->res, kv->dirty_list.next); /* it has rested */
	}
	kv->retry_at = mc_now_ns() + kv->retry_ns;
	if (nvme && kv->opts.remote != NULL) { /* the tier below that one */
		kv->retry_at = 0;
		kv->bypass_ns = mc_now_ns() + KV_BYPASS * kv->retry_ns;
	}
}

/* The end of a flight to either tier; loc: where on NVMe. */
static void land(struct flight *f, int res, const struct mc_kv_loc *loc)
{
	struct mc_kv *kv = f->kv;
	struct kv_object *obj = f->obj;
	bool nvme = !f->remote;

	if (f->mapped)
		kv_res_unmap(kv, f->res, obj->size);
	if (res == 0 && nvme && f->shadows)
		kv_delete_ripe(kv, f->key, false);
	mc_mutex_lock(&kv->lock);
	f->res->pins--;
	kv->flights -= obj->size;
	kv->n_flights--;
	kv->n_remote_flights -= f->remote;
	if (nvme) {
		kv->landed_ns = mc_now_ns();
		kv->stalled = false;
	}
	if (res != -ECANCELED)
		kv_trouble_locked(kv, nvme ? KV_NVME : KV_REMOTE, res);
	if (res == 0)
		landed_locked(kv, f, loc);
	else
		failed_locked(kv, f, nvme);
	kv_object_drop_locked(kv, obj);
	kv_room_changed_locked(kv);
	mc_cond_broadcast(&kv->change);
	mc_cond_signal(&kv->flush);
	mc_mutex_unlock(&kv->lock);
	kv_reap(kv);
	free(f);
}

static void log_done(struct mc_kv_item *item, int res)
{
	struct flight *f = item->ctx;

	land(f, res, &item->loc);
}

static void remote_job(void *ctx)
{
	struct flight *f = ctx;
	int r = kv_remote_put(f->kv, &f->item.meta, f->item.buf, f->res);

	/* Where the journal fails it is safe but for a crash: then the old version is found. */
	f->still_shadows = r == 0 && f->shadows && kv_unshadow(f->kv, f->key, f->obj) < 0;
	land(f, r, NULL);
}

/* Whether flushes wait until an object has rested: not when memory or somebody waits for them. */
static bool rests_locked(struct mc_kv *kv) MC_REQUIRES(kv->lock)
{
	return kv->hurry == 0 && time_enough_locked(kv);
}

/* The copy on the remote that it would replace is being read. */
static bool waits_for_readers_locked(struct mc_kv *kv, const struct kv_object *obj, const char *key)
	MC_REQUIRES(kv->lock)
{
	return kv_delete_held_locked(kv, key) && (obj->flags & KV_WANTED) == 0 &&
		time_enough_locked(kv);
}

/* The oldest dirty object that may go now, taken into a flight. NULL: none, or no memory. */
static struct flight *take_locked(struct mc_kv *kv, bool remote) MC_REQUIRES(kv->lock)
{
	uint64_t rested = rests_locked(kv) ? mc_now_ns() - REST_NS : UINT64_MAX;

	for (struct kv_res *r = kv->dirty_list.next, *next; r != &kv->dirty_list; r = next) {
		struct kv_object *obj = r->obj;
		char key[KV_KEY_MAX + 1];
		struct flight *f;
		size_t len;

		next = r->next;
		if ((remote || kv->leaving) && kv_is_kept(obj)) {
			kv_unkeep_locked(kv, obj);
			continue;
		}
		if (r->dirty_ns > rested)
			return NULL; /* and those behind it are hardly older */
		if (kv_gate_closed_locked(kv, obj))
			continue;
		len = kv_key_of(obj, key);
		if (remote && waits_for_readers_locked(kv, obj, key))
			continue;
		f = malloc(sizeof(*f) + len + 1);
		if (f == NULL)
			return NULL;
		kv_dirty_remove_locked(kv, r);
		obj->state = MC_KV_FLUSHING;
		obj->refs++;
		r->pins++;
		kv->flights += obj->size;
		if (kv->n_flights == kv->n_remote_flights) /* the first to NVMe, perhaps */
			kv->landed_ns = mc_now_ns();
		kv->n_flights++;
		kv->n_remote_flights += remote;
		*f = (struct flight){.kv = kv,
			.obj = obj,
			.res = r,
			.remote = remote,
			.shadows = (obj->flags & KV_SHADOWS) != 0};
		memcpy(f->key, key, len + 1);
		f->item = (struct mc_kv_item){
			.meta = kv_meta_of(obj, f->key),
			.done = log_done,
			.ctx = f,
		};
		return f;
	}
	return NULL;
}

static void start(struct mc_kv *kv, struct flight **flights, size_t n)
{
	struct mc_kv_item *items[BATCH];
	size_t n_items = 0;
	bool hurry;

	for (size_t i = 0; i < n; i++) {
		struct flight *f = flights[i];

		char *map;
		int r = kv_res_map(kv, f->res, f->item.meta.size, &map);

		f->mapped = r == 0;
		f->item.buf = r == 0 ? map : NULL;
		if (r < 0)
			land(f, r, NULL);
		else if (!f->remote)
			items[n_items++] = &f->item;
		else if (kv_work_add(kv->work, remote_job, f) < 0)
			land(f, -ENOMEM, NULL);
	}
	if (n_items == 0)
		return;
	mc_kv_log_put(kv->log, items, n_items);
	mc_mutex_lock(&kv->lock);
	hurry = kv->hurry > 0;
	mc_mutex_unlock(&kv->lock);
	if (hurry)
		mc_kv_log_hasten(kv->log);
}

static bool may_fly_locked(struct mc_kv *kv) MC_REQUIRES(kv->lock)
{
	if (kv->recovering || mc_now_ns() < kv->retry_at)
		return false;
	if (to_remote_locked(kv))
		return kv->opts.remote != NULL && kv->n_remote_flights < FLIGHTS_REMOTE;
	return kv->flights < FLIGHTS_BYTES && kv->n_flights < FLIGHTS_LOG;
}

void *kv_flusher_main(void *arg)
{
	struct mc_kv *kv = arg;
	struct flight *flights[BATCH];

	mc_mutex_lock(&kv->lock);
	while (!kv->stopping) {
		size_t n = 0;
		bool remote = to_remote_locked(kv);

		while (n < BATCH && may_fly_locked(kv) &&
			(flights[n] = take_locked(kv, remote)) != NULL)
			n++;
		if (n > 0) {
			mc_mutex_unlock(&kv->lock);
			start(kv, flights, n);
			mc_mutex_lock(&kv->lock);
		} else if (kv->dirty_list.next == &kv->dirty_list) {
			mc_cond_wait(&kv->flush, &kv->lock);
		} else { /* a closed gate, a pause after a failure, or enough under way */
			mc_cond_wait_until(&kv->flush, &kv->lock, mc_now_ns() + 20000000);
		}
	}
	mc_mutex_unlock(&kv->lock);
	return NULL;
}

/* Whether it is where its caller wants it; it may have to go there once more. */
static bool safe_locked(struct mc_kv *kv, struct kv_object *obj, bool remote) MC_REQUIRES(kv->lock)
{
	if ((obj->flags & KV_DEAD) != 0 || (!remote && obj->loc.segment != 0))
		return true;
	if (obj->remotes == 0)
		return false;
	if ((obj->flags & KV_SHADOWS) == 0 || obj->lost) /* of itself */
		return true;
	if (!kv_gate_closed_locked(kv, obj) && (obj->flags & KV_BUSY) == 0)
		kv_dirty_again_locked(kv, obj);
	return false;
}

int kv_wait_safe(struct mc_kv *kv, struct kv_object *obj, bool remote)
{
	uint64_t deadline = mc_now_ns() + kv->deadline_ns, failures;
	int r = 0;

	if (kv->log == NULL && kv->opts.remote == NULL)
		return -EIO;
	mc_mutex_lock(&kv->lock);
	kv->hurry++;
	failures = kv->failures;
	mc_cond_signal(&kv->flush);
	kv_now(obj)->flags |= KV_WANTED;
	while (r == 0 && !safe_locked(kv, kv_now(obj), remote)) {
		if (kv->stopping)
			r = -ESHUTDOWN;
		else if (kv->failures != failures && kv_persist_error_locked(kv) != 0)
			r = kv_persist_error_locked(kv);
		else if (mc_cond_wait_until(&kv->change, &kv->lock, deadline) != 0)
			r = -ETIMEDOUT;
	}
	kv->hurry--;
	mc_mutex_unlock(&kv->lock);
	return r;
}
