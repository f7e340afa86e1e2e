/*
 * Renames on the remote: the new name is put there before the old one is removed. kv-deletes
 * remembers what is under way, so that a daemon that is killed between leaves one name, not two.
 *
 * Invariants
 * 1. An entry with `to` is in the file before the remote is told of the new name, and names a
 * removal like others once nothing here has the old name any more.
 * 2. Of an earlier daemon's, the remote's new name decides: if that has the version, the rename has
 * happened. Until that is known neither name is looked up, opened, listed or changed (n_moves
 * counts them), and nothing is removed from the remote.
 */
#include "tier/kv-delete.h"
#include "tier/kv-remote.h"

#include <string.h>

#define WAIT_NS UINT64_C(1000000000)

int kv_move_set_locked(struct mc_kv *kv, struct kv_delete *d, const char *to)
{
	d->to = strdup(to);
	if (d->to == NULL)
		return -ENOMEM;
	kv->n_moves += d->earlier;
	return 0;
}

void kv_move_known_locked(struct mc_kv *kv, struct kv_delete *d)
{
	if (d->to == NULL)
		return;
	kv->n_moves -= d->earlier;
	free(d->to);
	d->to = NULL;
}

int kv_move_begin(struct mc_kv *kv, const struct kv_object *obj, const char *from, const char *to,
	struct kv_delete **ret)
{
	struct kv_delete *d;
	int r;

	*ret = NULL;
	if (kv->opts.remote == NULL || kv->deletes_fd < 0)
		return 0;
	mc_mutex_lock(&kv->lock);
	while ((d = kv_delete_find_locked(kv, from, obj->version)) != NULL && d->running)
		mc_cond_wait(&kv->change, &kv->lock);
	if (d != NULL) /* of this very version, which is here: it is not to be removed */
		kv_delete_remove_locked(kv, d);
	d = kv_delete_push_locked(kv, from, obj->version);
	r = d != NULL ? kv_move_set_locked(kv, d, to) : -ENOMEM;
	mc_mutex_unlock(&kv->lock);
	if (r == 0)
		r = kv_delete_append(kv, KV_DELETE_MOVE, d, true);
	if (r == 0) {
		*ret = d;
		return 0;
	}
	mc_mutex_lock(&kv->lock);
	if (d != NULL)
		kv_delete_remove_locked(kv, d);
	mc_cond_broadcast(&kv->change);
	mc_mutex_unlock(&kv->lock);
	return r;
}

int kv_move_end(struct mc_kv *kv, struct kv_delete *d, bool happened)
{
	int r = kv_delete_append(kv, happened ? KV_DELETE_ADD : KV_DELETE_DONE, d, true);

	mc_mutex_lock(&kv->lock);
	kv_move_known_locked(kv, d);
	d->running = false;
	if (!happened)
		kv_delete_remove_locked(kv, d);
	mc_cond_broadcast(&kv->change);
	mc_cond_signal(&kv->wake);
	mc_mutex_unlock(&kv->lock);
	return r;
}

/* ---- after recovery */

static bool is_moving(const struct kv_delete *d)
{
	return d->to != NULL && d->earlier;
}

bool kv_moving_locked(struct mc_kv *kv, const char *key)
{
	const struct kv_delete *d = kv->n_moves > 0 ? kv->deletes : NULL;

	while (d != NULL &&
		(!is_moving(d) || (strcmp(d->key, key) != 0 && strcmp(d->to, key) != 0)))
		d = d->next;
	return d != NULL;
}

static bool must_wait_locked(struct mc_kv *kv, const char *key, const char *other)
	MC_REQUIRES(kv->lock)
{
	if (key == NULL)
		return kv->n_moves > 0;
	return kv_moving_locked(kv, key) || (other != NULL && kv_moving_locked(kv, other));
}

int kv_moves_wait_locked(struct mc_kv *kv, const char *key, const char *other)
{
	uint64_t deadline = mc_now_ns() + WAIT_NS;

	while (must_wait_locked(kv, key, other)) {
		if (kv->closing)
			return -ESHUTDOWN;
		if (kv->asks_late || mc_cond_wait_until(&kv->change, &kv->lock, deadline) != 0) {
			kv->asks_late = true; /* nobody else waits in vain */
			return -EIO;
		}
	}
	return 0;
}

static bool has_version_locked(struct mc_kv *kv, const char *key, const uint8_t version[16])
	MC_REQUIRES(kv->lock)
{
	const struct kv_object *obj = kv_index_find(kv->index, key);

	return obj != NULL && memcmp(obj->version, version, sizeof(obj->version)) == 0;
}

/* Whoever put it may have died before its name was. */
static int make_durable(struct mc_kv *kv, const char *key)
{
	char path[KV_REMOTE_PATH];
	int r = kv_remote_path(key, path);

	if (r == 0)
		r = mc_remote_touch(kv->opts.remote, path, NULL);
	return r == 0 ? mc_remote_sync(kv->opts.remote, NULL) : r;
}

/* [blocks] 0: the new name has the version there; -ENOENT: it does not; else that is not known.
 * *ret, which was zeros: to be ended with kv_footer_done in every case. */
static int ask(struct mc_kv *kv, const struct kv_delete *d, struct kv_footer *ret)
{
	int r = kv_remote_footer(kv, d->to, ret);

	if (r < 0 && r != -ENOENT && r != -EBADMSG)
		return r;
	if (r == -ENOENT)
		return kv_remote_absent(kv);
	if (r == 0 && memcmp(ret->version, d->version, sizeof(ret->version)) == 0)
		r = make_durable(kv, d->to);
	else
		return -ENOENT;
	return r == -ENOENT ? -EIO : r; /* it has gone just now */
}

/* What is here under both names from before the rename goes. */
static int give_up_both_locked(struct mc_kv *kv, const struct kv_delete *d) MC_REQUIRES(kv->lock)
{
	struct kv_object *obj;
	int r = 0;

	if (has_version_locked(kv, d->key, d->version))
		r = kv_give_up_locked(kv, d->key, kv_index_find(kv->index, d->key));
	obj = kv_index_find(kv->index, d->to);
	if (r == 0 && obj != NULL && !has_version_locked(kv, d->to, d->version))
		r = kv_give_up_locked(kv, d->to, obj);
	return r;
}

/* 0: it has happened, and is so here; -ENOENT: it has not. */
static int take_over(struct mc_kv *kv, const struct kv_delete *d, bool here)
{
	struct kv_footer f = {0};
	struct kv_object *obj;
	struct kv_gate gate;
	int r = 0;

	mc_mutex_lock(&kv->lock);
	kv_gate_enter_locked(kv, d->key, d->to, &gate);
	obj = kv_index_find(kv->index, d->to);
	if (obj != NULL)
		kv_settle_locked(kv, obj);
	if (!here) { /* once more: what was here under the new name may have been put meanwhile */
		mc_mutex_unlock(&kv->lock);
		r = ask(kv, d, &f);
		mc_mutex_lock(&kv->lock);
	}
	if (r == 0)
		r = give_up_both_locked(kv, d);
	/* Where there is no memory for it the remote is asked later. */
	if (r == 0 && !here && kv_index_find(kv->index, d->to) == NULL)
		kv_enter_found_locked(kv, d->to, &f);
	kv_gate_leave_locked(kv, &gate);
	mc_mutex_unlock(&kv->lock);
	kv_footer_done(&f);
	kv_reap(kv);
	return r;
}

/* The new name is not to be removed, whatever was pending for it before. */
static int keep_new_name(struct mc_kv *kv, const struct kv_delete *d)
{
	struct kv_delete *old;
	int r;

	mc_mutex_lock(&kv->lock);
	old = kv_delete_find_locked(kv, d->to, d->version);
	mc_mutex_unlock(&kv->lock);
	if (old == NULL)
		return 0;
	r = kv_delete_append(kv, KV_DELETE_DONE, old, true);
	mc_mutex_lock(&kv->lock);
	if (r == 0)
		kv_delete_remove_locked(kv, old);
	mc_mutex_unlock(&kv->lock);
	return r;
}

/* here: the new name is in DRAM, so it has happened. */
static int decide(struct mc_kv *kv, struct kv_delete *d, bool here)
{
	struct kv_footer f = {0};
	int r = here ? 0 : ask(kv, d, &f);
	bool happened;

	kv_footer_done(&f);
	if (r == 0)
		r = take_over(kv, d, here);
	happened = r == 0;
	if (happened)
		r = keep_new_name(kv, d);
	mc_mutex_lock(&kv->lock);
	kv->asks_late &= here || (r < 0 && r != -ENOENT);
	if (r < 0 && r != -ENOENT)
		d->running = false;
	mc_mutex_unlock(&kv->lock);
	return r < 0 && r != -ENOENT ? r : kv_move_end(kv, d, happened);
}

/* The next to decide: first of those whose new name is here. */
static struct kv_delete *next_locked(struct mc_kv *kv, bool *ret_here) MC_REQUIRES(kv->lock)
{
	struct kv_delete *found = NULL;

	*ret_here = false;
	for (struct kv_delete *d = kv->deletes; d != NULL && !*ret_here; d = d->next) {
		if (!is_moving(d))
			continue;
		*ret_here = has_version_locked(kv, d->to, d->version);
		if (found == NULL || *ret_here)
			found = d;
	}
	return found;
}

int kv_moves_decide(struct mc_kv *kv)
{
	int r = 0;

	while (r == 0) {
		struct kv_delete *d;
		bool here;

		mc_mutex_lock(&kv->lock);
		d = kv->closing ? NULL : next_locked(kv, &here);
		if (d != NULL)
			d->running = true;
		mc_mutex_unlock(&kv->lock);
		if (d == NULL)
			break;
		r = decide(kv, d, here);
	}
	return r;
}
