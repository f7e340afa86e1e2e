/*
 * Removed versions whose remote copy still has to go: in the background, and remembered across
 * restarts in <NVMe>/kv-deletes. Without NVMe the removal is done at once.
 *
 * A remote object is removed only while its footer names the version that was removed here.
 */
#include "tier/kv-impl.h"

#include <string.h>

struct kv_delete {
	struct kv_delete *next;
	uint8_t version[16];
	char key[];
};

bool kv_delete_pending_locked(struct mc_kv *kv, const char *key)
{
	for (const struct kv_delete *d = kv->deletes; d != NULL; d = d->next)
		if (strcmp(d->key, key) == 0)
			return true;
	return false;
}

bool kv_delete_pending(struct mc_kv *kv, const char *key)
{
	bool pending;

	mc_mutex_lock(&kv->lock);
	pending = kv_delete_pending_locked(kv, key);
	mc_mutex_unlock(&kv->lock);
	return pending;
}

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
		r = mc_remote_unlink(kv->opts.remote, path, NULL);
	return r == -ENOENT ? 0 : r;
}

int kv_delete_add(struct mc_kv *kv, const char *key, const uint8_t version[16])
{
	return delete_now(kv, key, version);
}
