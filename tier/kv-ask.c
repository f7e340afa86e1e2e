/*
 * What the remote has under a key now: another node may have put, replaced or removed it.
 *
 * Invariants
 * 1. A key is asked for only when it is due: one unknown here ABSENT_NS after the last answer, one
 * with a remote copy revalidate_ms after it. What only this node has (remotes = 0) is not: it will
 * replace whatever is there.
 * 2. Nobody waits longer than WAIT_NS for an answer. Where one waited in vain (asks_late) nobody
 * waits any more, and there is one question at a time, until the remote answers.
 * 3. An answer counts only for the version that was here when the question was asked.
 */
#include "tier/kv-impl.h"
#include "tier/kv-remote.h"

#include <string.h>

#define ABSENT_NS UINT64_C(1000000000) /* a key the remote did not know is asked for again then */
#define WAIT_NS UINT64_C(1000000000)
#define TICK_NS UINT64_C(250000000) /* unit of kv_object.asked */

struct ask {
	struct mc_kv *kv;
	unsigned refs; /* the job's and the asker's; this and what follows under kv->lock */
	bool done;
	bool known; /* the key had this version here */
	uint8_t version[16];
	char key[];
};

static uint16_t now_ticks(void)
{
	return (uint16_t)(mc_now_ns() / TICK_NS);
}

void kv_asked_locked(struct mc_kv *kv, struct kv_object *obj)
{
	(void)kv;
	obj->asked = now_ticks();
}

bool kv_ask_due_locked(struct mc_kv *kv, const struct kv_object *obj)
{
	/* Modulo 2^16: what was not asked for since 4.5 h may seem fresh, for revalidate_ms. */
	return obj->remotes > 0 && obj->state == MC_KV_CLEAN && kv->opts.remote != NULL &&
		(uint16_t)(now_ticks() - obj->asked) * (TICK_NS / 1000000) >=
		kv->opts.revalidate_ms;
}

/* ---- entering answers */

/* Enters what the remote has; nothing is here under that key. */
static int enter_found_locked(struct mc_kv *kv, const char *key, const struct kv_footer *f)
	MC_REQUIRES(kv->lock)
{
	struct kv_object *obj, *old = NULL;
	const char *name;
	size_t len;
	int r;

	if (kv_index_dir(kv->index, key, strlen(key)) != NULL)
		return -ENOENT;
	r = kv_index_make_parents(kv->index, key);
	if (r < 0)
		return r == -ENOTDIR ? -ENOENT : r;
	name = strrchr(key, '/') != NULL ? strrchr(key, '/') + 1 : key;
	obj = kv_object_new(name, strlen(name), f->size);
	if (obj == NULL)
		return -ENOMEM;
	memcpy(obj->version, f->version, sizeof(obj->version));
	obj->mtime_ns = f->mtime_ns;
	kv_crcs_copy(obj, f->crc);
	obj->state = MC_KV_CLEAN;
	obj->remotes = 1;
	kv_asked_locked(kv, obj);
	r = kv_index_insert(kv_index_parent(kv->index, key, &name, &len), obj, &old);
	assert(old == NULL);
	kv_object_drop_locked(kv, obj);
	return r;
}

static void leave_locked(struct mc_kv *kv, struct kv_object *obj) MC_REQUIRES(kv->lock)
{
	kv_index_remove(obj);
	kv_unlist_locked(kv, obj);
	kv_object_drop_locked(kv, obj);
}

/* Another node replaced or removed it: the version leaves this node's tiers. The gate is closed. */
static int give_up_locked(struct mc_kv *kv, const char *key, struct kv_object *obj)
	MC_REQUIRES(kv->lock)
{
	struct kv_parting p = {0};
	int r = 0;

	kv_settle_locked(kv, obj);
	if (obj->loc.segment != 0) {
		mc_mutex_unlock(&kv->lock);
		kv_part(kv, key, obj, &p);
		r = kv_unshadow(kv, key, obj);
		mc_mutex_lock(&kv->lock);
		kv_settle_locked(kv, obj); /* it may have been asked for meanwhile */
	}
	kv_parted_locked(kv, &p);
	leave_locked(kv, obj);
	return r;
}

static struct kv_absent *absent_slot(struct mc_kv *kv, uint64_t hash) MC_REQUIRES(kv->lock)
{
	return &kv->absent[hash % KV_ABSENT];
}

/* r, f: the remote's answer; -ENOENT: nothing, -EBADMSG: what is no object of this key. */
static void learn_locked(struct mc_kv *kv, const struct ask *a, int r, const struct kv_footer *f)
	MC_REQUIRES(kv->lock)
{
	struct kv_object *obj;
	struct kv_gate gate;
	bool same;

	kv_gate_enter_locked(kv, a->key, NULL, &gate);
	obj = kv_index_find(kv->index, a->key);
	same = obj != NULL && a->known && memcmp(obj->version, a->version, 16) == 0 &&
		obj->remotes > 0 && obj->state == MC_KV_CLEAN;
	if (kv_delete_pending_locked(kv, a->key)) {
		/* Removed here meanwhile: what the remote said is not so any more. */
	} else if (obj == NULL && r == 0) {
		enter_found_locked(kv, a->key, f);
	} else if (obj == NULL) {
		uint64_t hash = kv_key_hash(a->key);

		*absent_slot(kv, hash) =
			(struct kv_absent){.hash = hash, .until_ns = mc_now_ns() + ABSENT_NS};
	} else if (same &&
		(r == -EBADMSG || (r == 0 && memcmp(obj->version, f->version, 16) == 0))) {
		kv_asked_locked(kv, obj);
	} else if (same && give_up_locked(kv, a->key, obj) == 0 && r == 0) {
		enter_found_locked(kv, a->key, f);
	}
	kv_gate_leave_locked(kv, &gate);
}

/* ---- asking */

static void ask_put_locked(struct mc_kv *kv, struct ask *a) MC_REQUIRES(kv->lock)
{
	(void)kv;
	if (--a->refs == 0)
		free(a);
}

/* A remote without kv/ is no remote of ours: perhaps it is away, and an empty directory in its
 * place. -EIO then. */
static int is_there(struct mc_kv *kv)
{
	struct mc_remote_attr attr;

	return mc_remote_stat(kv->opts.remote, "kv", &attr, NULL) == 0 ? -ENOENT : -EIO;
}

static void ask_job(void *ctx)
{
	struct ask *a = ctx;
	struct mc_kv *kv = a->kv;
	struct kv_footer f;
	int r = kv_remote_footer(kv, a->key, &f);

	if (r == -ENOENT && a->known)
		r = is_there(kv);
	mc_mutex_lock(&kv->lock);
	if (r == 0 || r == -ENOENT || r == -EBADMSG) {
		kv->asks_late = false;
		learn_locked(kv, a, r, &f);
	}
	kv->n_asks--;
	a->done = true;
	mc_cond_broadcast(&kv->change);
	ask_put_locked(kv, a);
	mc_mutex_unlock(&kv->lock);
	if (r == 0)
		kv_footer_done(&f);
	kv_reap(kv);
}

/* A question about key that is due, with a reference for the caller. NULL: none. */
static struct ask *begin_locked(struct mc_kv *kv, const char *key) MC_REQUIRES(kv->lock)
{
	const struct kv_object *obj = kv_index_find(kv->index, key);
	size_t len = strlen(key);
	uint64_t hash = kv_key_hash(key);
	struct ask *a;

	if (kv->opts.remote == NULL || kv_delete_pending_locked(kv, key) ||
		(kv->asks_late && kv->n_asks > 0))
		return NULL;
	if (obj != NULL && !kv_ask_due_locked(kv, obj))
		return NULL;
	if (obj == NULL &&
		(kv_index_dir(kv->index, key, len) != NULL ||
			(absent_slot(kv, hash)->hash == hash &&
				absent_slot(kv, hash)->until_ns > mc_now_ns())))
		return NULL;
	a = calloc(1, sizeof(*a) + len + 1);
	if (a == NULL)
		return NULL;
	a->kv = kv;
	a->refs = 2;
	a->known = obj != NULL;
	if (obj != NULL)
		memcpy(a->version, obj->version, sizeof(a->version));
	memcpy(a->key, key, len + 1);
	kv->n_asks++;
	return a;
}

/* Until it is answered, or nobody should wait. */
static void wait_for(struct ask *a)
{
	struct mc_kv *kv = a->kv;
	uint64_t until = mc_now_ns() + WAIT_NS;

	mc_mutex_lock(&kv->lock);
	while (!a->done && !kv->asks_late && !kv->stopping) {
		if (mc_cond_wait_until(&kv->change, &kv->lock, until) == 0 || a->done)
			continue;
		kv->asks_late = true;
		mc_cond_broadcast(&kv->change);
	}
	ask_put_locked(kv, a);
	mc_mutex_unlock(&kv->lock);
}

int mc_kv_lookup_remote(struct mc_kv *kv, const char *key, struct mc_kv_attr *ret)
{
	struct ask *a;
	int r = mc_kv_lookup(kv, key, ret);

	if ((r == 0 && !ret->ask) || kv_key_check(key) < 0)
		return r;
	mc_mutex_lock(&kv->lock);
	r = kv_ready_locked(kv);
	a = r == 0 ? begin_locked(kv, key) : NULL;
	mc_mutex_unlock(&kv->lock);
	if (a != NULL && kv_work_add(kv->asks, ask_job, a) < 0) {
		mc_mutex_lock(&kv->lock);
		kv->n_asks--;
		mc_mutex_unlock(&kv->lock);
		free(a);
		a = NULL;
	}
	if (a != NULL)
		wait_for(a);
	return r < 0 ? r : mc_kv_lookup(kv, key, ret);
}

void kv_remote_refresh(struct mc_kv *kv, const char *key, const struct kv_object *was)
{
	struct kv_object *obj;
	struct kv_footer f;
	int r = kv_remote_footer(kv, key, &f);

	if (r < 0 && r != -ENOENT && r != -EBADMSG)
		return;
	mc_mutex_lock(&kv->lock);
	obj = kv_index_find(kv->index, key);
	/* Whose gate is closed is being changed, perhaps by one who waits for this promotion. */
	if (obj == was && !kv_gate_closed_locked(kv, obj) && obj->loc.segment == 0 &&
		obj->res == NULL &&
		(r < 0 || memcmp(f.version, obj->version, sizeof(f.version)) != 0)) {
		leave_locked(kv, obj);
		if (r == 0)
			enter_found_locked(kv, key, &f);
	}
	mc_mutex_unlock(&kv->lock);
	if (r == 0)
		kv_footer_done(&f);
	kv_reap(kv);
}
