/*
 * What the remote has under a key now: another node may have put, replaced or removed it.
 *
 * Invariants
 * 1. A key is asked for only when it is due: one unknown here ABSENT_NS after the last answer, one
 * with a remote copy revalidate_ms after it. What only this node has (remotes = 0) is not: it will
 * replace whatever is there.
 * 2. Nobody waits longer than WAIT_NS (and a tick of the keeper) for an answer. Where one waited in
 * vain (asks_late) nobody waits any more, and there is one question at a time, until the remote
 * answers.
 * 3. An answer counts only for the version that was here when the question was asked, and while no
 * removal of the key has ended since.
 * 4. An ask is in kv->waiting exactly until somebody takes it out to tell its asker.
 */
#include "tier/kv-impl.h"
#include "tier/kv-delete.h"
#include "tier/kv-remote.h"

#include <string.h>

#define ABSENT_NS UINT64_C(1000000000) /* a key the remote did not know is asked for again then */
#define WAIT_NS UINT64_C(1000000000)
#define TICK_NS UINT64_C(250000000) /* unit of kv_object.asked */

struct kv_ask {
	struct mc_kv *kv;
	void (*done)(void *ctx, int res, const struct mc_kv_attr *attr);
	void *ctx;
	struct kv_ask *next; /* in kv->waiting, or of those to be told; all below under kv->lock */
	unsigned refs;       /* the job's, and one while it is in a list */
	bool waiting;        /* in kv->waiting */
	uint64_t begun_ns;   /* when the wait for the remote began; 0 = recovery is waited for */
	bool known;          /* the key had this version here */
	uint8_t version[16];
	uint32_t removals; /* as many had ended when the question was asked */
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

static int enter_dir_locked(struct mc_kv *kv, const char *key) MC_REQUIRES(kv->lock)
{
	size_t len = strlen(key);
	char child[KV_KEY_MAX + 3];
	int r;

	memcpy(child, key, len);
	memcpy(child + len, "/.", 3); /* a name in it, for the sake of its parent */
	r = kv_index_make_parents(kv->index, child);
	if (r == 0)
		kv_index_dir(kv->index, key, len)->on_remote = true;
	return r;
}

int kv_enter_found_locked(struct mc_kv *kv, const char *key, const struct kv_footer *f)
{
	struct kv_object *obj, *old = NULL;
	const char *name;
	size_t len;
	int r;

	if (kv_index_dir(kv->index, key, strlen(key)) != NULL)
		return -ENOENT;
	r = kv_footer_is_dir(f) ? enter_dir_locked(kv, key) : kv_index_make_parents(kv->index, key);
	if (r < 0 || kv_footer_is_dir(f))
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

int kv_give_up_locked(struct mc_kv *kv, const char *key, struct kv_object *obj)
{
	struct kv_parting p = {0};
	int r = 0;

	kv_settle_locked(kv, obj);
	if (obj->loc.segment != 0 || (obj->flags & KV_SHADOWS) != 0) {
		mc_mutex_unlock(&kv->lock);
		kv_part(kv, key, obj, &p);
		r = kv_unshadow(kv, key, obj);
		mc_mutex_lock(&kv->lock);
		kv_settle_locked(kv, obj); /* it may have been asked for meanwhile */
	}
	kv_parted_locked(kv, key, &p);
	leave_locked(kv, obj);
	return r;
}

static struct kv_absent *absent_slot(struct mc_kv *kv, uint64_t hash) MC_REQUIRES(kv->lock)
{
	return &kv->absent[hash % KV_ABSENT];
}

static uint32_t *removals_locked(struct mc_kv *kv, const char *key) MC_REQUIRES(kv->lock)
{
	return &kv->removals[kv_key_hash(key) % KV_GATES];
}

/* Nothing is here under that key: the remote's version, unless it is about to be removed. */
static void learn_unknown_locked(
	struct mc_kv *kv, const char *key, int r, const struct kv_footer *f) MC_REQUIRES(kv->lock)
{
	uint64_t hash = kv_key_hash(key);

	if (r == 0 && kv_delete_find_locked(kv, key, f->version) == NULL)
		kv_enter_found_locked(kv, key, f);
	else
		*absent_slot(kv, hash) =
			(struct kv_absent){.hash = hash, .until_ns = mc_now_ns() + ABSENT_NS};
}

/* r, f: the remote's answer; -ENOENT: nothing, -EBADMSG: what is no object of this key. False: to
 * be asked again. */
static bool learn_locked(struct mc_kv *kv, const struct kv_ask *a, int r, const struct kv_footer *f)
	MC_REQUIRES(kv->lock)
{
	struct kv_object *obj;
	struct kv_gate gate;
	bool same, fresh;

	kv_gate_enter_locked(kv, a->key, NULL, &gate);
	obj = kv_index_find(kv->index, a->key);
	same = obj != NULL && a->known && memcmp(obj->version, a->version, 16) == 0 &&
		obj->remotes > 0 && obj->state == MC_KV_CLEAN;
	fresh = *removals_locked(kv, a->key) == a->removals;
	if (!fresh || kv_delete_pending_here_locked(kv, a->key)) {
		/* Removed here meanwhile: what the remote said is not so any more. */
	} else if (obj == NULL) {
		learn_unknown_locked(kv, a->key, r, f);
	} else if (same &&
		(r == -EBADMSG || (r == 0 && memcmp(obj->version, f->version, 16) == 0))) {
		kv_asked_locked(kv, obj);
	} else if (same && kv_give_up_locked(kv, a->key, obj) == 0 && r == 0) {
		kv_enter_found_locked(kv, a->key, f);
	}
	kv_gate_leave_locked(kv, &gate);
	return fresh;
}

/* ---- asking */

static void ask_put(struct kv_ask *a)
{
	bool last;

	mc_mutex_lock(&a->kv->lock);
	last = --a->refs == 0;
	mc_mutex_unlock(&a->kv->lock);
	if (last)
		free(a);
}

/* Tells the asker what is known here now; consumes a reference. res < 0: that instead. */
static void tell(struct kv_ask *a, int res)
{
	struct mc_kv_attr attr;
	int r = res < 0 ? res : mc_kv_lookup(a->kv, a->key, &attr);

	a->done(a->ctx, r, r == 0 ? &attr : NULL);
	ask_put(a);
}

/* Takes those out of kv->waiting that began before since, or the one. */
static struct kv_ask *take_locked(struct mc_kv *kv, uint64_t since, const struct kv_ask *one)
	MC_REQUIRES(kv->lock)
{
	struct kv_ask **at = &kv->waiting, *list = NULL;

	while (*at != NULL) {
		struct kv_ask *a = *at;

		if (a != one && (a->begun_ns == 0 || a->begun_ns >= since)) {
			at = &a->next;
			continue;
		}
		*at = a->next;
		a->waiting = false;
		a->next = list;
		list = a;
	}
	return list;
}

void kv_asks_tick(struct mc_kv *kv)
{
	uint64_t now = mc_now_ns();
	struct kv_ask *list, *a;

	mc_mutex_lock(&kv->lock);
	list = take_locked(kv, now - WAIT_NS, NULL);
	if (list != NULL && !kv->asks_late) {
		kv->asks_late = true;
		a = list;
		while (a->next != NULL)
			a = a->next;
		a->next = take_locked(kv, now, NULL); /* the others would wait in vain, too */
	}
	mc_mutex_unlock(&kv->lock);
	while ((a = list) != NULL) {
		list = a->next;
		tell(a, 0);
	}
}

/* A remote without kv/ is no remote of ours: perhaps it is away, and an empty directory in its
 * place. -EIO then. */
int kv_remote_absent(struct mc_kv *kv)
{
	struct mc_remote_attr attr;

	return mc_remote_stat(kv->opts.remote, "kv", &attr, NULL) == 0 ? -ENOENT : -EIO;
}

static bool is_due_locked(struct mc_kv *kv, const char *key) MC_REQUIRES(kv->lock)
{
	const struct kv_object *obj = kv_index_find(kv->index, key);
	uint64_t hash = kv_key_hash(key);
	const struct kv_absent *slot = absent_slot(kv, hash);

	if (kv->opts.remote == NULL || kv_delete_pending_here_locked(kv, key) ||
		(kv->asks_late && kv->n_asks > 0))
		return false;
	if (obj != NULL)
		return kv_ask_due_locked(kv, obj);
	return kv_index_dir(kv->index, key, strlen(key)) == NULL &&
		(slot->hash != hash || slot->until_ns <= mc_now_ns());
}

/* Asks the remote and enters what it says. False: a removal has ended meanwhile. */
static bool ask_remote(struct kv_ask *a)
{
	bool fresh = true;
	struct mc_kv *kv = a->kv;
	struct kv_object *obj;
	struct kv_footer f;
	int r;

	mc_mutex_lock(&kv->lock);
	obj = kv_index_find(kv->index, a->key);
	a->known = obj != NULL;
	if (obj != NULL)
		memcpy(a->version, obj->version, sizeof(a->version));
	a->removals = *removals_locked(kv, a->key);
	kv->n_asks++;
	mc_mutex_unlock(&kv->lock);
	r = kv_remote_footer(kv, a->key, &f);
	if (r == -ENOENT && a->known)
		r = kv_remote_absent(kv);
	mc_mutex_lock(&kv->lock);
	if (r == 0 || r == -ENOENT || r == -EBADMSG) {
		kv->asks_late = false;
		fresh = learn_locked(kv, a, r, &f);
	}
	kv->n_asks--;
	mc_mutex_unlock(&kv->lock);
	if (r == 0)
		kv_footer_done(&f);
	kv_reap(kv);
	return fresh;
}

/* The end of the job: tells the asker, if nobody did, and is done with a. */
static void finish(struct kv_ask *a, int res)
{
	struct mc_kv *kv = a->kv;
	struct kv_ask *mine;

	mc_mutex_lock(&kv->lock);
	mine = a->waiting ? take_locked(kv, 0, a) : NULL;
	mc_mutex_unlock(&kv->lock);
	if (mine != NULL)
		tell(mine, res);
	ask_put(a);
}

static void ask_job(void *ctx)
{
	struct kv_ask *a = ctx;
	struct mc_kv *kv = a->kv;
	bool due;
	int r;

	mc_mutex_lock(&kv->lock);
	r = kv_ready_locked(kv);
	if (a->begun_ns == 0)
		a->begun_ns = mc_now_ns();
	if (r == 0)
		r = kv_moves_wait_locked(kv, a->key, NULL);
	due = r == 0 && a->waiting && is_due_locked(kv, a->key);
	mc_mutex_unlock(&kv->lock);
	while (due && !ask_remote(a))
		;
	finish(a, r);
}

static struct kv_ask *ask_new(struct mc_kv *kv, const char *key,
	void (*done)(void *ctx, int res, const struct mc_kv_attr *attr), void *ctx)
{
	size_t len = strlen(key);
	struct kv_ask *a = calloc(1, sizeof(*a) + len + 1);

	if (a == NULL)
		return NULL;
	a->kv = kv;
	a->done = done;
	a->ctx = ctx;
	a->refs = 2;
	memcpy(a->key, key, len + 1);
	return a;
}

void mc_kv_ask(struct mc_kv *kv, const char *key,
	void (*done)(void *ctx, int res, const struct mc_kv_attr *attr), void *ctx)
{
	struct mc_kv_attr attr;
	struct kv_ask *a = NULL;
	bool wanted;
	int r;

	mc_mutex_lock(&kv->lock);
	wanted = kv_key_check(key) == 0 &&
		(kv->recovering || kv_moving_locked(kv, key) || is_due_locked(kv, key));
	mc_mutex_unlock(&kv->lock);
	if (wanted)
		a = ask_new(kv, key, done, ctx);
	if (a == NULL) {
		r = mc_kv_lookup(kv, key, &attr);
		done(ctx, r, r == 0 ? &attr : NULL);
		return;
	}
	mc_mutex_lock(&kv->lock);
	a->waiting = true;
	a->begun_ns = kv->recovering ? 0 : mc_now_ns();
	a->next = kv->waiting;
	kv->waiting = a;
	mc_mutex_unlock(&kv->lock);
	if (kv_work_add(kv->asks, ask_job, a) < 0)
		finish(a, 0);
}

void kv_remote_refresh(struct mc_kv *kv, const char *key, const struct kv_object *was)
{
	struct kv_object *obj;
	struct kv_footer f;
	int r = kv->opts.remote != NULL ? kv_remote_footer(kv, key, &f) : -EIO;

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
			kv_enter_found_locked(kv, key, &f);
	}
	mc_mutex_unlock(&kv->lock);
	if (r == 0)
		kv_footer_done(&f);
	kv_reap(kv);
}
