/*
 * Remote copies of objects that have one on NVMe: soon after the last close or rename where
 * replicas are asked for, and of cold objects when NVMe fills, so that the log may drop them.
 *
 * An object is BUSY while a copy of it is made: nothing evicts it, changes of its name wait.
 */
#include "tier/kv-impl.h"
#include "tier/future.h"
#include "tier/kv-remote.h"

#include "tier/block-cache.h"
#include "tier/digest.h"

#include <string.h>

#define REPLICA_NS UINT64_C(1000000000) /* after the last close or rename */
#define AT_ONCE 4
#define SWEEP_HIGH 80       /* percent of NVMe in use: cold objects get remote copies */
#define SWEEP_BUCKETS 65536 /* looked at in one go */
#define COLD 25             /* percent of NVMe that may leave at any time */

struct copy {
	struct mc_kv *kv;
	struct kv_object *obj; /* a reference; BUSY */
	struct kv_res *res;    /* a pin; NULL: read from NVMe */
	bool unread;           /* which failed */
	char key[];
};

bool kv_wants_remote(const struct mc_kv *kv)
{
	return kv->opts.remote != NULL &&
		(kv->opts.replicas > 0 || kv->opts.ack == MC_KV_ACK_REMOTE);
}

void kv_replica_want_locked(struct mc_kv *kv, struct kv_res *r)
{
	if (!kv_wants_remote(kv) || r->obj->remotes > 0)
		return;
	/* It became dirty while a copy was made: it is asked for when it is durable again. */
	if (r->obj->state != MC_KV_CLEAN || r->next != NULL)
		return;
	r->prev = kv->replica_list.prev;
	r->next = &kv->replica_list;
	r->prev->next = r;
	kv->replica_list.prev = r;
	mc_cond_signal(&kv->wake);
}

/* ---- reading from NVMe, waiting */

struct reading {
	struct mc_future over;
	char *buf; /* borrowed */
	uint32_t len;
};

static void read_done(void *ctx, const void *bytes, int res)
{
	struct reading *r = ctx;

	if (res == 0)
		memcpy(r->buf, bytes, r->len);
	mc_future_set(&r->over, res);
}

/* A disk that hangs is left out: nobody waits for the copy. */
static int read_block_at(struct copy *c, uint64_t block, char *buf, struct mc_kv_loc *ret_from)
{
	struct reading now = {.buf = buf, .len = mc_block_len(c->obj->size, block)};
	struct mc_block_order order = {.what = {.off = block << MC_BLOCK_SHIFT, .len = now.len},
		.done = read_done,
		.ctx = &now};
	int r;

	if (!kv_reads_place(c->kv, c->obj, false, &order.what.loc))
		return -EIO;
	*ret_from = order.what.loc;
	mc_future_init(&now.over);
	r = kv_reads_begin(c->kv, c->obj, false, &order);
	if (r == 0)
		r = (int)mc_future_wait(&now.over);
	if (r == 0 && mc_crc32c(0, buf, now.len) != kv_crcs(c->obj)[block])
		r = -EBADMSG;
	return r;
}

static int read_block(struct copy *c, uint64_t block, char *buf)
{
	struct mc_kv_loc from;
	int r;

	do
		r = read_block_at(c, block, buf, &from);
	while (r == -ESTALE && kv_moved(c->kv, c->obj, &from));
	return r;
}

static int read_nvme(struct copy *c, char **ret)
{
	cleanup_free char *buf = aligned_alloc(4096, (c->obj->size + 4096) / 4096 * 4096);
	int r = buf != NULL ? 0 : -ENOMEM;

	for (uint64_t b = 0; b < mc_block_count(c->obj->size) && r == 0; b++)
		r = read_block(c, b, buf + (b << MC_BLOCK_SHIFT));
	if (r == 0)
		*ret = steal_ptr(buf);
	return r;
}

/* ---- copying */

static int put(struct copy *c)
{
	struct mc_kv *kv = c->kv;
	struct kv_object *obj = c->obj;
	struct mc_kv_meta meta = kv_meta_of(obj, c->key);
	cleanup_free char *own = NULL;
	char *map = NULL;
	int r = 0;

	if (c->res == NULL)
		c->unread = (r = read_nvme(c, &own)) != 0;
	else
		r = kv_res_map(kv, c->res, obj->size, &map);
	if (r == 0)
		r = kv_remote_put(kv, &meta, map != NULL ? map : own, c->res);
	if (map != NULL)
		kv_res_unmap(kv, c->res, obj->size);
	if (r == 0 && kv->log != NULL)
		r = mc_kv_log_remote(kv->log, c->key, obj->version, 1);
	return r;
}

static int copy(struct copy *c)
{
	struct mc_kv *kv = c->kv;
	struct kv_object *obj = c->obj;
	int r = put(c);

	mc_mutex_lock(&kv->lock);
	obj->flags &= (uint8_t)~KV_BUSY;
	if (c->res != NULL)
		c->res->pins--;
	kv->n_copies--;
	mc_cond_signal(&kv->wake); /* the next one */
	if (!c->unread)
		kv_trouble_locked(kv, KV_REMOTE, r);
	if (r == 0) {
		obj->remotes = 1;
		kv_asked_locked(kv, obj);
		kv_meta_note(kv, obj);
	} else if (c->unread) {
		kv->cold_retry_ns = mc_now_ns() + REPLICA_NS;
	} else {
		obj->unsure = 1;
		kv->copy_retry_ns = mc_now_ns() + REPLICA_NS;
		if (c->res != NULL)
			kv_replica_want_locked(kv, c->res);
	}
	kv_object_drop_locked(kv, obj);
	mc_cond_broadcast(&kv->change);
	mc_mutex_unlock(&kv->lock);
	kv_reap(kv);
	free(c);
	return r;
}

static void copy_job(void *ctx)
{
	copy(ctx);
}

/* The object, made busy. NULL: no memory. */
static struct copy *begin_locked(struct mc_kv *kv, struct kv_object *obj) MC_REQUIRES(kv->lock)
{
	char key[KV_KEY_MAX + 1];
	size_t len = kv_key_of(obj, key);
	struct copy *c = malloc(sizeof(*c) + len + 1);

	if (c == NULL)
		return NULL;
	*c = (struct copy){.kv = kv, .obj = obj, .res = obj->res};
	memcpy(c->key, key, len + 1);
	if (c->res != NULL) {
		kv_dirty_remove_locked(kv, c->res);
		c->res->pins++;
	}
	obj->flags |= KV_BUSY;
	obj->refs++;
	kv->n_copies++;
	return c;
}

static bool may_copy_locked(struct mc_kv *kv) MC_REQUIRES(kv->lock)
{
	return kv->n_copies < AT_ONCE && mc_now_ns() >= kv->copy_retry_ns && !kv->closing &&
		!kv->recovering;
}

/* Whether an older version of its key is read from the remote, and nobody waits for this one. */
static bool held_locked(struct mc_kv *kv, const struct kv_object *obj) MC_REQUIRES(kv->lock)
{
	char key[KV_KEY_MAX + 1];

	if (kv->n_held_deletes == 0 || kv->opts.ack == MC_KV_ACK_REMOTE)
		return false;
	kv_key_of(obj, key);
	return kv_delete_held_locked(kv, key);
}

/* The next object whose replica is due. */
static struct copy *take_due_locked(struct mc_kv *kv) MC_REQUIRES(kv->lock)
{
	uint64_t now = mc_now_ns();

	if (!may_copy_locked(kv))
		return NULL;
	for (struct kv_res *r = kv->replica_list.next; r != &kv->replica_list; r = r->next) {
		if (kv->opts.ack != MC_KV_ACK_REMOTE && now - r->dirty_ns < REPLICA_NS)
			return NULL; /* the list is by time, nearly */
		if (r->obj->state == MC_KV_CLEAN && (r->obj->flags & KV_BUSY) == 0 &&
			!kv_gate_closed_locked(kv, r->obj) && !held_locked(kv, r->obj))
			return begin_locked(kv, r->obj);
	}
	return NULL;
}

static void run(struct mc_kv *kv, struct copy *c)
{
	if (kv_work_add(kv->work, copy_job, c) < 0)
		copy_job(c);
}

void kv_replicas_tick(struct mc_kv *kv)
{
	struct copy *c;

	do {
		mc_mutex_lock(&kv->lock);
		c = take_due_locked(kv);
		mc_mutex_unlock(&kv->lock);
		if (c != NULL)
			run(kv, c);
	} while (c != NULL);
}

static bool may_leave_nvme_locked(struct mc_kv *kv, const struct kv_object *o) MC_REQUIRES(kv->lock)
{
	return o->loc.segment != 0 && !o->lost && o->state == MC_KV_CLEAN &&
		(o->flags & (KV_PINNED | KV_BUSY)) == 0 && (o->res == NULL || o->res->ready) &&
		!kv_gate_closed_locked(kv, o);
}

/* The next cold object that lies on NVMe alone, by a hand that goes round the table and stops once
 * want bytes are cold. Each round costs an object one of its lives (warm): what leaves NVMe is
 * nearly what was used least recently, and before that what never was. */
static struct copy *take_cold_locked(struct mc_kv *kv, uint64_t want) MC_REQUIRES(kv->lock)
{
	struct kv_index *ix = kv->index;

	if (kv->trouble[KV_NVME].error == -ENOSPC)
		kv->cold_bytes = 0; /* what was counted is not there */
	for (unsigned i = 0; i < SWEEP_BUCKETS && may_copy_locked(kv); kv->sweep++, i++) {
		uint64_t bucket = kv->sweep & (ix->n_buckets - 1);

		if (bucket == 0 && kv->cold_bytes < want)
			kv->cold_bytes = 0; /* counted anew */
		for (struct kv_object *o = ix->objects[bucket]; o != NULL && kv->cold_bytes < want;
			o = o->next) {
			if (!may_leave_nvme_locked(kv, o) ||
				(o->remotes == 0 && held_locked(kv, o)))
				continue;
			if (o->warm > 0) {
				o->warm--;
				continue;
			}
			kv->cold_bytes += o->size;
			if (o->remotes == 0) {
				kv->sweep++;
				return begin_locked(kv, o);
			}
		}
		if (kv->cold_bytes >= want)
			return NULL;
	}
	return NULL;
}

void kv_sweep_tick(struct mc_kv *kv)
{
	struct mc_kv_log_stats log;
	uint64_t capacity;
	struct copy *c;

	if (kv->log == NULL || kv->opts.remote == NULL)
		return;
	kv_log_figures(kv, &log);
	capacity = log.capacity + log.below.capacity;
	if (log.live < capacity / 100 * SWEEP_HIGH)
		return;
	do {
		mc_mutex_lock(&kv->lock);
		c = mc_now_ns() >= kv->cold_retry_ns ? take_cold_locked(kv, capacity / 100 * COLD)
						     : NULL;
		mc_mutex_unlock(&kv->lock);
		if (c != NULL)
			run(kv, c);
	} while (c != NULL);
}

/* What a copy is to be made of, made busy; NULL: nothing, or *ret why not. */
static struct copy *begin_now(struct mc_kv *kv, struct kv_object *obj, int *ret)
{
	struct copy *c = NULL;
	int r = 0;

	mc_mutex_lock(&kv->lock);
	while (r == 0 && c == NULL && obj->dir != NULL && obj->remotes == 0 &&
		obj->loc.segment != 0) {
		kv_settle_locked(kv, obj); /* it may lose its name meanwhile */
		if (kv->closing)
			r = -ESHUTDOWN;
		else if (obj->dir == NULL)
			continue;
		else if (obj->state != MC_KV_CLEAN || kv_gate_closed_locked(kv, obj))
			mc_cond_wait(&kv->change, &kv->lock);
		else if (obj->remotes == 0 && (c = begin_locked(kv, obj)) == NULL)
			r = -ENOMEM;
	}
	mc_mutex_unlock(&kv->lock);
	*ret = r;
	return c;
}

int kv_copy_now(struct mc_kv *kv, struct kv_object *obj)
{
	struct copy *c;
	int r;

	do {
		/* A rename that waited for the copy takes it away at once, with the old name in
		 * it: then there is nothing more to do under that name. */
		c = begin_now(kv, obj, &r);
		if (c != NULL)
			r = copy(c);
	} while (c != NULL && r == 0);
	return r;
}

/* ---- what the log asks when it reclaims a segment */

static struct kv_object *at_locked(struct mc_kv *kv, const char *key, const uint8_t version[16])
	MC_REQUIRES(kv->lock)
{
	struct kv_object *obj = kv_index_find(kv->index, key);

	return obj != NULL && memcmp(obj->version, version, 16) == 0 ? obj : NULL;
}

static bool same_place(const struct kv_object *obj, const struct mc_kv_loc *loc)
{
	return obj->loc.segment == loc->segment && obj->loc.generation == loc->generation &&
		obj->loc.off == loc->off;
}

bool kv_moved(struct mc_kv *kv, struct kv_object *obj, const struct mc_kv_loc *from)
{
	bool moved;

	mc_mutex_lock(&kv->lock);
	moved = !same_place(kv_now(obj), from);
	mc_mutex_unlock(&kv->lock);
	return moved;
}

/* Kept: what has no other copy below, what is pinned, what was used since the last time, and what a
 * version that is not durable yet has replaced. */
static bool on_keep(void *ctx, const char *key, const uint8_t version[16])
{
	struct mc_kv *kv = ctx;
	struct kv_object *obj;
	bool keep;

	if (mc_block_cache_owns(key))
		return mc_block_cache_keep(kv->opts.blocks, key, version);
	mc_mutex_lock(&kv->lock);
	obj = at_locked(kv, key, version);
	keep = kv->recovering || kv_shadowed_locked(kv, key) ||
		(obj != NULL &&
			(obj->remotes == 0 || (obj->flags & (KV_PINNED | KV_BUSY)) != 0 ||
				obj->warm > 0));
	mc_mutex_unlock(&kv->lock);
	return keep;
}

static bool on_moved(void *ctx, const char *key, const uint8_t version[16],
	const struct mc_kv_loc *from, const struct mc_kv_loc *to)
{
	struct mc_kv *kv = ctx;
	struct kv_object *obj;
	bool moved;

	if (mc_block_cache_owns(key))
		return mc_block_cache_moved(kv->opts.blocks, key, version);
	mc_mutex_lock(&kv->lock);
	obj = at_locked(kv, key, version);
	if (obj == NULL && kv->replay != NULL)
		obj = kv_index_find(kv->replay, key);
	moved = obj != NULL && memcmp(obj->version, version, 16) == 0 && same_place(obj, from);
	if (moved) {
		kv_loc_set(obj, to);
	}
	moved |= kv_shadowed_locked(kv, key);
	mc_mutex_unlock(&kv->lock);
	return moved;
}

static void on_evicted(
	void *ctx, const char *key, const uint8_t version[16], const struct mc_kv_loc *from)
{
	struct mc_kv *kv = ctx;
	struct kv_object *obj;
	bool lost = false;

	if (mc_block_cache_owns(key)) {
		mc_block_cache_evicted(kv->opts.blocks, key, version);
		return;
	}
	mc_mutex_lock(&kv->lock);
	obj = at_locked(kv, key, version);
	if (obj != NULL && same_place(obj, from)) {
		kv->cold_bytes -= obj->size < kv->cold_bytes ? obj->size : kv->cold_bytes;
		obj->loc = (struct kv_place){0};
		kv_redirty_locked(kv, obj);
		/* on_keep wanted it, so its record was damaged. */
		lost = obj->remotes == 0 && obj->res == NULL;
	}
	mc_mutex_unlock(&kv->lock);
	if (lost)
		kv_tell_lost(kv, key);
}

void kv_own_log(struct mc_kv *kv)
{
	struct mc_kv_log_owner owner = {
		.keep = on_keep, .moved = on_moved, .evicted = on_evicted, .ctx = kv};

	mc_kv_log_set_owner(kv->log, &owner);
}
