/*
 * Removed versions whose remote copy still has to go: in the background, and remembered across
 * restarts in <NVMe>/kv-deletes. Without NVMe the removal is done before unlink answers.
 *
 * Invariants
 * 1. A remote object is removed only while its footer names the version that was removed here.
 * 2. A put of the same key and a removal never run at once: the put claims what is pending, and a
 * put that succeeded has replaced what was to be removed.
 * 3. An entry is on the disk before kv_delete_add returns, and leaves it after the removal.
 * 4. What waits is not removed before kv_delete_ripe, in this life or the next.
 * 5. Nothing is removed before recovery has ended; what is in the index then stays.
 * 6. What recovery settled is off the list on the disk, too, before anything changes; where that
 * failed it is tried again before the next removal.
 * 7. What is held stays until its readers are done, or a put that cannot wait replaces it.
 */
#include "tier/kv-delete.h"
#include "tier/kv-remote.h"

#include <string.h>

#define RETRY_NS UINT64_C(2000000000)

struct kv_delete *kv_delete_find_locked(struct mc_kv *kv, const char *key, const uint8_t *version)
{
	struct kv_delete *d = kv->deletes;

	while (d != NULL &&
		(strcmp(d->key, key) != 0 ||
			(version != NULL ? memcmp(d->version, version, 16) != 0 : d->to != NULL)))
		d = d->next;
	return d;
}

bool kv_delete_pending_here_locked(struct mc_kv *kv, const char *key)
{
	const struct kv_delete *d = kv->deletes;

	while (d != NULL && (d->earlier || strcmp(d->key, key) != 0))
		d = d->next;
	return d != NULL;
}

bool kv_delete_pending(struct mc_kv *kv, const char *key)
{
	bool pending;

	mc_mutex_lock(&kv->lock);
	pending = kv_delete_find_locked(kv, key, NULL) != NULL;
	mc_mutex_unlock(&kv->lock);
	return pending;
}

struct kv_delete *kv_delete_push_locked(
	struct mc_kv *kv, const char *key, const uint8_t version[16])
{
	size_t len = strlen(key);
	struct kv_delete *d = malloc(sizeof(*d) + len + 1);

	if (d == NULL)
		return NULL;
	*d = (struct kv_delete){.next = kv->deletes, .running = true};
	memcpy(d->version, version, sizeof(d->version));
	memcpy(d->key, key, len + 1);
	kv->deletes = d;
	return d;
}

void kv_delete_free(struct kv_delete *list)
{
	while (list != NULL) {
		struct kv_delete *d = list;

		list = d->next;
		free(d->to);
		free(d);
	}
}

/* Off the list, and the caller's. */
static void take_locked(struct mc_kv *kv, struct kv_delete *gone) MC_REQUIRES(kv->lock)
{
	struct kv_delete **at = &kv->deletes;

	while (*at != gone)
		at = &(*at)->next;
	*at = gone->next;
	gone->next = NULL;
	kv->n_held_deletes -= gone->held;
	kv->n_moves -= gone->to != NULL && gone->earlier;
	kv->removals[kv_key_hash(gone->key) % KV_GATES]++;
}

void kv_delete_remove_locked(struct mc_kv *kv, struct kv_delete *gone)
{
	take_locked(kv, gone);
	kv_delete_free(gone);
}

/* ---- removing */

/* [blocks] Removes it if it is still that version. */
static int delete_now(struct mc_kv *kv, const char *key, const uint8_t version[16])
{
	char path[KV_REMOTE_PATH];
	struct kv_footer f;
	bool same;
	int r = kv_remote_footer(kv, key, &f);

	if (r == -ENOENT || r == -EBADMSG)
		return 0;
	if (r < 0)
		return r;
	same = memcmp(f.version, version, sizeof(f.version)) == 0;
	kv_footer_done(&f);
	r = same ? kv_remote_path(key, path) : 0;
	if (r == 0 && same)
		r = mc_remote_remove(kv->opts.remote, path, NULL);
	return r == -ENOENT ? 0 : r;
}

static int add(struct mc_kv *kv, const char *key, const uint8_t version[16], bool later)
{
	struct kv_delete *d;
	int r;

	mc_mutex_lock(&kv->lock);
	d = kv_delete_find_locked(kv, key, version);
	if (d != NULL && (later || !d->waiting)) {
		mc_mutex_unlock(&kv->lock);
		return 0;
	}
	if (d == NULL)
		d = kv_delete_push_locked(kv, key, version);
	if (d != NULL) {
		d->running = true;
		d->waiting = d->later = later;
	}
	mc_mutex_unlock(&kv->lock);
	if (d == NULL)
		return -ENOMEM;
	r = kv_delete_append(kv, later ? KV_DELETE_LATER : KV_DELETE_ADD, d, true);
	mc_mutex_lock(&kv->lock);
	d->running = false;
	/* What waits is written again when it may go: a failing disk is no reason to refuse a put.
	 */
	if (later)
		r = 0;
	else if (r < 0)
		kv_delete_remove_locked(kv, d);
	mc_cond_broadcast(&kv->change);
	mc_cond_signal(&kv->wake);
	mc_mutex_unlock(&kv->lock);
	return r;
}

int kv_delete_add(struct mc_kv *kv, const char *key, const uint8_t version[16])
{
	if (kv->opts.remote == NULL)
		return 0;
	return kv->deletes_fd < 0 ? delete_now(kv, key, version) : add(kv, key, version, false);
}

int kv_delete_later(struct mc_kv *kv, const char *key, const uint8_t version[16])
{
	return kv->opts.remote == NULL ? 0 : add(kv, key, version, true);
}

/* One of key's that the file knows as waiting, and that nobody has in hand. What somebody has may
 * go once he is done; sync: that is waited for, because the file does not say so yet. */
static struct kv_delete *take_later_locked(struct mc_kv *kv, const char *key, bool sync)
	MC_REQUIRES(kv->lock)
{
	for (;;) {
		bool busy = false;

		for (struct kv_delete *d = kv->deletes; d != NULL; d = d->next) {
			if (!d->later || strcmp(d->key, key) != 0)
				continue;
			if (!d->running) {
				d->running = true;
				return d;
			}
			busy = true;
			d->waiting &= sync;
		}
		if (!busy || !sync)
			return NULL;
		mc_cond_wait(&kv->change, &kv->lock);
	}
}

/* Whether a crash may take it back that something of key's may go. */
static bool is_unsynced_locked(struct mc_kv *kv, const char *key) MC_REQUIRES(kv->lock)
{
	const struct kv_delete *d = kv->deletes;

	while (d != NULL && (!d->unsynced || strcmp(d->key, key) != 0))
		d = d->next;
	return d != NULL;
}

int kv_delete_ripe(struct mc_kv *kv, const char *key, bool sync)
{
	struct kv_delete *d;
	bool unsynced;
	int r = 0;

	mc_mutex_lock(&kv->lock);
	while (r == 0 && (d = take_later_locked(kv, key, sync)) != NULL) {
		mc_mutex_unlock(&kv->lock);
		r = kv->deletes_fd < 0 && sync ? delete_now(kv, key, d->version)
					       : kv_delete_append(kv, KV_DELETE_ADD, d, sync);
		mc_mutex_lock(&kv->lock);
		d->running = false;
		if (r == 0)
			d->waiting = d->later = false;
		d->unsynced = r == 0 && !sync;
		if (r == 0 && kv->deletes_fd < 0)
			kv_delete_remove_locked(kv, d);
		mc_cond_broadcast(&kv->change);
		mc_cond_signal(&kv->wake);
	}
	unsynced = sync && r == 0 && is_unsynced_locked(kv, key);
	mc_mutex_unlock(&kv->lock);
	return unsynced ? kv_delete_sync(kv) : r;
}

/* The log learns that a version's remote copy is not to be counted on. */
struct uncounted {
	struct mc_kv *kv;
	uint8_t version[16];
	char key[];
};

static void uncount_job(void *ctx)
{
	struct uncounted *u = ctx;

	mc_kv_log_remote(u->kv->log, u->key, u->version, 0);
	free(u);
}

/* The daemon died before the version was removed, or renamed, here; its remote copy may be gone. */
static void keep_locked(struct mc_kv *kv, struct kv_object *obj, const char *key)
	MC_REQUIRES(kv->lock)
{
	size_t len = strlen(key);
	struct uncounted *u;

	obj->unsure = 1;
	if (obj->remotes == 0 || (obj->loc.segment == 0 && obj->res == NULL))
		return;
	obj->remotes = 0;
	kv_redirty_locked(kv, obj);
	u = malloc(sizeof(*u) + len + 1);
	if (u == NULL)
		return;
	u->kv = kv;
	memcpy(u->version, obj->version, sizeof(u->version));
	memcpy(u->key, key, len + 1);
	if (kv_work_add(kv->work, uncount_job, u) < 0)
		free(u);
}

/* It is not pending; the file is to say so. */
static void settle_locked(struct mc_kv *kv, struct kv_delete *d) MC_REQUIRES(kv->lock)
{
	take_locked(kv, d);
	d->next = kv->settled;
	kv->settled = d;
}

void kv_deletes_settle_locked(struct mc_kv *kv)
{
	for (struct kv_delete *d = kv->deletes, *next; d != NULL; d = next) {
		struct kv_object *obj = kv_index_find(kv->index, d->key);

		next = d->next;
		if (d->to != NULL)
			continue;
		if (obj != NULL && memcmp(obj->version, d->version, sizeof(d->version)) == 0) {
			if (!d->waiting)
				keep_locked(kv, obj, d->key);
			settle_locked(kv, d);
			continue;
		}
		if (!d->waiting)
			continue;
		if (obj == NULL)
			settle_locked(kv, d);
		else if (obj->loc.segment != 0)
			d->waiting = false;
		else
			obj->flags |= KV_SHADOWS;
	}
}

int kv_deletes_note(struct mc_kv *kv)
{
	struct kv_delete *list, **end = &list;
	int r = 0;

	mc_mutex_lock(&kv->lock);
	list = kv->settled;
	kv->settled = NULL;
	mc_mutex_unlock(&kv->lock);
	if (list == NULL)
		return 0;
	for (; *end != NULL; end = &(*end)->next)
		if (r == 0) /* one sync for all */
			r = kv_delete_append(kv, KV_DELETE_DONE, *end, (*end)->next == NULL);
	if (r == 0) {
		kv_delete_free(list);
		return 0;
	}
	mc_mutex_lock(&kv->lock);
	*end = kv->settled;
	kv->settled = list;
	mc_mutex_unlock(&kv->lock);
	return r;
}

/* The next to be removed. While its key is being changed nobody has said yet whether it is read. */
static struct kv_delete *next_locked(struct mc_kv *kv) MC_REQUIRES(kv->lock)
{
	struct kv_delete *d = kv->deletes;

	while (d != NULL &&
		(d->running || d->waiting || d->held || d->to != NULL ||
			kv->gates[kv_gate_of(d->key)] != 0))
		d = d->next;
	return d;
}

static void delete_job(void *ctx)
{
	struct mc_kv *kv = ctx;
	struct kv_delete *d;
	int r = kv_deletes_note(kv);

	if (r == 0)
		r = kv_moves_decide(kv);
	mc_mutex_lock(&kv->lock);
	while (r == 0 && !kv->closing && (d = next_locked(kv)) != NULL) {
		d->running = true;
		mc_mutex_unlock(&kv->lock);
		r = delete_now(kv, d->key, d->version);
		if (r == 0)
			kv_delete_append(kv, KV_DELETE_DONE, d, false);
		mc_mutex_lock(&kv->lock);
		d->running = false;
		if (r == 0)
			kv_delete_remove_locked(kv, d);
		mc_cond_broadcast(&kv->change);
	}
	if (r < 0)
		kv->delete_retry_ns = mc_now_ns() + RETRY_NS;
	/* The file is empty when nothing is pending: it never grows for long. */
	if (kv->deletes == NULL && kv->settled == NULL && kv->deletes_fd >= 0 &&
		kv_delete_empty(kv) != 0)
		kv->delete_retry_ns = mc_now_ns() + RETRY_NS;
	kv->deleting = false;
	mc_mutex_unlock(&kv->lock);
}

void kv_deletes_tick(struct mc_kv *kv)
{
	bool start;

	mc_mutex_lock(&kv->lock);
	start = (kv->deletes != NULL || kv->settled != NULL) && !kv->deleting && !kv->closing &&
		!kv->recovering && mc_now_ns() >= kv->delete_retry_ns;
	if (start)
		kv->deleting = true;
	mc_mutex_unlock(&kv->lock);
	if (start && kv_work_add(kv->work, delete_job, kv) < 0) {
		mc_mutex_lock(&kv->lock);
		kv->deleting = false;
		mc_mutex_unlock(&kv->lock);
	}
}

struct kv_delete *kv_delete_claim(struct mc_kv *kv, const char *key)
{
	struct kv_delete *d;

	mc_mutex_lock(&kv->lock);
	while ((d = kv_delete_find_locked(kv, key, NULL)) != NULL && d->running)
		mc_cond_wait(&kv->change, &kv->lock);
	if (d != NULL)
		d->running = true;
	mc_mutex_unlock(&kv->lock);
	return d;
}

void kv_delete_release(struct mc_kv *kv, struct kv_delete *d, bool replaced)
{
	if (d == NULL)
		return;
	if (replaced)
		kv_delete_append(kv, KV_DELETE_DONE, d, false);
	mc_mutex_lock(&kv->lock);
	d->running = false;
	if (replaced)
		kv_delete_remove_locked(kv, d);
	mc_cond_broadcast(&kv->change);
	mc_mutex_unlock(&kv->lock);
}
