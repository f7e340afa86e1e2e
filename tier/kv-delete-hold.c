/*
 * Copies on the remote that outlive their key's removal, or wait before they are replaced, because
 * somebody reads the version.
 */
#include "tier/kv-delete.h"
#include "tier/kv-remote.h"

#include <string.h>

void kv_delete_hold_locked(struct mc_kv *kv, const char *key, struct kv_object *obj)
{
	struct kv_delete *d = kv_delete_find_locked(kv, key, obj->version);

	if (d == NULL || d->held)
		return;
	d->held = true;
	kv->n_held_deletes++;
	obj->flags |= KV_HELD_REMOTE;
}

void kv_delete_unhold(struct mc_kv *kv, const uint8_t version[16])
{
	mc_mutex_lock(&kv->lock);
	for (struct kv_delete *d = kv->deletes; d != NULL; d = d->next)
		if (d->held && memcmp(d->version, version, sizeof(d->version)) == 0) {
			d->held = false;
			kv->n_held_deletes--;
		}
	mc_cond_signal(&kv->wake);
	mc_cond_signal(&kv->flush);
	mc_mutex_unlock(&kv->lock);
}

bool kv_delete_held_path(struct mc_kv *kv, const uint8_t version[16], char *ret)
{
	char key[KV_KEY_MAX + 1] = "";

	mc_mutex_lock(&kv->lock);
	for (const struct kv_delete *d = kv->deletes; d != NULL; d = d->next)
		if (d->held && memcmp(d->version, version, sizeof(d->version)) == 0)
			memcpy(key, d->key, strlen(d->key) + 1);
	mc_mutex_unlock(&kv->lock);
	return *key != '\0' && kv_remote_path(key, ret) == 0;
}

bool kv_delete_held_locked(struct mc_kv *kv, const char *key)
{
	const struct kv_delete *d =
		kv->n_held_deletes > 0 ? kv_delete_find_locked(kv, key, NULL) : NULL;

	return d != NULL && d->held;
}
