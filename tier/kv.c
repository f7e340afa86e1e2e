/* The KV store: opening, closing, the life of objects. */
#include "tier/kv-impl.h"
#include "tier/kv-remote.h"

#include "tier/block-cache.h"
#include "tier/dram-mount.h"
#include "tier/full-watch.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define WORKERS 8
#define ASKERS 8
#define FIRST_TYPICAL (UINT64_C(1) << 20)

/* ---- objects */

void kv_object_drop_locked(struct mc_kv *kv, struct kv_object *obj)
{
	while (obj != NULL) {
		struct kv_object *moved = NULL;

		assert(obj->refs > 0);
		if (--obj->refs > 0)
			return;
		if ((obj->flags & KV_MOVED) != 0)
			moved = obj->next;
		if (obj->res != NULL && mc_policy_linked(&obj->res->policy))
			mc_policy_remove(kv->policy, &obj->res->policy);
		obj->next = kv->garbage;
		kv->garbage = obj;
		obj = moved;
	}
}

void kv_reap(struct mc_kv *kv)
{
	struct kv_object *list, *obj;
	struct kv_block *blocks, *b;

	mc_mutex_lock(&kv->lock);
	list = kv->garbage;
	kv->garbage = NULL;
	blocks = kv->blocks.garbage;
	kv->blocks.garbage = NULL;
	mc_mutex_unlock(&kv->lock);
	while ((b = blocks) != NULL) {
		blocks = b->next;
		kv_block_put(kv, b);
	}
	while ((obj = list) != NULL) {
		list = obj->next;
		kv_release_place(kv, obj);
		if (obj->res != NULL)
			kv_res_free(kv, obj->res, obj->size);
		if (mc_block_count(obj->size) > 1)
			free(obj->crc.many);
		free(obj);
	}
}

void kv_event(struct mc_kv *kv, const char *event, const char *text)
{
	if (kv->opts.event != NULL)
		kv->opts.event(kv->opts.event_ctx, event, text);
}

/* ---- open */

static int copy_opts(struct mc_kv *kv, const struct mc_kv_opts *opts)
{
	kv->opts = *opts;
	kv->opts.dram_dir = strdup(opts->dram_dir);
	kv->opts.nvme_dir = opts->nvme_dir != NULL ? strdup(opts->nvme_dir) : NULL;
	kv->opts.device = opts->device != NULL ? strdup(opts->device) : NULL;
	kv->opts.node = opts->node != NULL ? strdup(opts->node) : NULL;
	if (kv->opts.dram_dir == NULL || (opts->nvme_dir != NULL && kv->opts.nvme_dir == NULL) ||
		(opts->device != NULL && kv->opts.device == NULL) ||
		(opts->node != NULL && kv->opts.node == NULL))
		return -ENOMEM;
	if (kv->opts.dirty_bound == 0)
		kv->opts.dirty_bound = opts->dram_capacity / 2;
	if (kv->opts.revalidate_ms == 0)
		kv->opts.revalidate_ms = 10000;
	kv->retry_ns = (opts->retry_ms != 0 ? opts->retry_ms : 500) * UINT64_C(1000000);
	kv->deadline_ns = (opts->deadline_ms != 0 ? opts->deadline_ms : 30000) * UINT64_C(1000000);
	return 0;
}

static int dram_failed(const char *path, int r, struct mc_err *err)
{
	return mc_err_set(err, r, "kv: %s: %s%s", path, strerror(-r), mc_err_hint(r));
}

static int open_dram(struct mc_kv *kv, struct mc_err *err)
{
	const char *dir = kv->opts.dram_dir;
	struct mc_dram_mount mount;
	bool adopted;
	char path[4200];
	int r = mc_dram_mount_mkdir(dir);

	if (r < 0)
		return dram_failed(dir, r, err);
	mc_dram_mount_open(dir, kv->opts.dram_capacity, &mount);
	kv->mounted = mount.mounted;
	if (mount.mounted && !mount.fresh)
		mc_dram_mount_resize(dir, kv->opts.dram_capacity);
	snprintf(path, sizeof(path), "%s/LOCK", dir);
	kv->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	r = kv->lock_fd < 0 || flock(kv->lock_fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
	if (r == -EWOULDBLOCK)
		return mc_err_set(err, r, "kv: %s: another daemon uses it", path);
	if (r < 0)
		return dram_failed(path, r, err);
	snprintf(path, sizeof(path), "%s/f", dir);
	r = mkdir(path, 0700) < 0 ? -errno : 0;
	if (r < 0 && r != -EEXIST)
		return dram_failed(path, r, err);
	snprintf(path, sizeof(path), "%s/full", dir);
	r = mc_full_watch_open(path, &kv->full);
	if (r < 0)
		return dram_failed(path, r, err);
	snprintf(path, sizeof(path), "%s/slab", dir);
	r = mc_slab_open(path, kv->opts.dram_capacity, true, &kv->slab, &adopted);
	if (r < 0)
		return dram_failed(path, r, err);
	mc_slab_watch(kv->slab, kv->full);
	if (!adopted) /* and emptied */
		mc_full_watch_missed(kv->full);
	return 0;
}

static int open_threads(struct mc_kv *kv)
{
	int r = -pthread_create(&kv->keeper, NULL, kv_keeper_main, kv);
	kv->has_keeper = r == 0;
	if (r == 0) {
		r = -pthread_create(&kv->flusher, NULL, kv_flusher_main, kv);
		kv->has_flusher = r == 0;
	}
	return r;
}

static int open_log(struct mc_kv *kv, struct mc_err *err)
{
	struct mc_kv_log_opts opts = {.dir = kv->opts.nvme_dir,
		.device = kv->opts.device,
		.device_uuid = kv->opts.device_uuid,
		.capacity = kv->opts.nvme_dir != NULL ? kv->opts.nvme_capacity
						      : kv->opts.device_capacity,
		.below_capacity = kv->opts.device_capacity,
		.io = kv->opts.io,
		.slow_ms = kv->opts.slow_ms,
		.patience_ms = kv->opts.patience_ms,
		.probe_ms = (unsigned)(KV_STALL * kv->retry_ns / 1000000)};
	struct mc_kv_log_replay replay;
	int r;

	if (kv->opts.nvme_dir == NULL && kv->opts.device == NULL)
		return 0;
	mc_mutex_lock(&kv->lock);
	kv->recovering = true;
	kv->replay = kv_index_open(kv);
	r = kv->replay != NULL ? 0 : -ENOMEM;
	mc_mutex_unlock(&kv->lock);
	if (r < 0)
		return r;
	kv_replay_ops(kv, &replay);
	r = mc_kv_log_open(&opts, &replay, &kv->log, err);
	kv->opts.device_uuid = NULL;
	if (r < 0)
		return r;
	kv_own_log(kv);
	if (kv->opts.blocks != NULL)
		mc_block_cache_attach(kv->opts.blocks, kv->log);
	r = kv_delete_open(kv);
	return r < 0 ? mc_err_set(err, r, "kv: %s/kv-deletes: %s", kv->opts.nvme_dir, strerror(-r))
		     : 0;
}

static struct mc_kv *kv_new(void)
{
	struct mc_kv *kv = calloc(1, sizeof(*kv));

	if (kv == NULL)
		return NULL;
	kv->lock_fd = kv->deletes_fd = -1;
	mc_mutex_init(&kv->lock);
	mc_mutex_init(&kv->deletes_lock);
	mc_cond_init(&kv->change);
	mc_cond_init(&kv->wake);
	mc_cond_init(&kv->flush);
	kv_reads_init(kv);
	mc_mutex_lock(&kv->lock);
	kv->dirty_list.next = kv->dirty_list.prev = &kv->dirty_list;
	kv->replica_list.next = kv->replica_list.prev = &kv->replica_list;
	kv->room_tail = &kv->room;
	kv->typical = kv->likely = FIRST_TYPICAL;
	mc_mutex_unlock(&kv->lock);
	atomic_store(&kv->next_file, 1);
	atomic_store(&kv->next_seq, 1);
	return kv;
}

/* Drops every object; the files and records in DRAM stay. */
static void free_index(struct mc_kv *kv, struct kv_index *ix)
{
	for (uint64_t b = 0; ix != NULL && b < ix->n_buckets; b++) {
		for (struct kv_object *o = ix->objects[b], *next; o != NULL; o = next) {
			next = o->next;
			assert(o->refs == 1);
			free(o->res);
			if (mc_block_count(o->size) > 1)
				free(o->crc.many);
			free(o);
		}
	}
	kv_index_close(ix);
}

static void stop(struct mc_kv *kv)
{
	mc_mutex_lock(&kv->lock);
	kv->closing = true;
	while (kv->n_flights > 0)
		mc_cond_wait(&kv->change, &kv->lock);
	kv->stopping = true;
	mc_cond_broadcast(&kv->change);
	mc_cond_broadcast(&kv->wake);
	mc_cond_broadcast(&kv->flush);
	mc_mutex_unlock(&kv->lock);
	if (kv->has_keeper)
		pthread_join(kv->keeper, NULL);
	if (kv->has_flusher)
		pthread_join(kv->flusher, NULL);
	kv_work_close(kv->asks);
	kv_work_close(kv->work);
	kv_reap(kv);
	if (kv->opts.blocks != NULL)
		mc_block_cache_detach(kv->opts.blocks);
	if (kv->log != NULL)
		mc_kv_log_close(kv->log);
	kv_reap(kv);
	kv_blocks_close(kv);
	kv_pool_done(kv);
	kv_delete_close(kv);
}

static void kv_free(struct mc_kv *kv)
{
	mc_mutex_lock(&kv->lock);
	free_index(kv, kv->index);
	free_index(kv, kv->replay);
	mc_policy_close(kv->policy);
	mc_mutex_unlock(&kv->lock);
	mc_slab_close(kv->slab);
	mc_full_watch_close(kv->full);
	if (kv->lock_fd >= 0)
		close(kv->lock_fd);
	mc_cond_done(&kv->change);
	mc_cond_done(&kv->wake);
	mc_cond_done(&kv->flush);
	kv_reads_done(kv);
	mc_mutex_done(&kv->lock);
	mc_mutex_done(&kv->deletes_lock);
	free(kv->left);
	free((void *)(uintptr_t)kv->opts.dram_dir);
	free((void *)(uintptr_t)kv->opts.nvme_dir);
	free((void *)(uintptr_t)kv->opts.device);
	free((void *)(uintptr_t)kv->opts.node);
	free(kv);
}

int mc_kv_open(const struct mc_kv_opts *opts, struct mc_kv **ret, struct mc_err *err)
{
	struct mc_kv *kv = kv_new();
	int r;

	if (kv == NULL)
		return -ENOMEM;
	r = copy_opts(kv, opts);
	if (r == 0)
		r = open_dram(kv, err);
	if (r == 0) {
		mc_mutex_lock(&kv->lock);
		kv->index = kv_index_open(kv);
		r = kv->index != NULL ? mc_policy_open(kv->opts.dram_capacity, &kv->policy)
				      : -ENOMEM;
		if (r == 0)
			r = kv_blocks_open(&kv->blocks, kv->opts.dram_capacity);
		mc_mutex_unlock(&kv->lock);
	}
	if (r == 0)
		r = kv_adopt(kv);
	if (r == 0)
		r = kv_work_open(WORKERS, &kv->work);
	if (r == 0)
		r = kv_work_open(ASKERS, &kv->asks);
	if (r == 0)
		r = open_log(kv, err);
	if (r == 0)
		r = open_threads(kv);
	if (r < 0) {
		mc_err_set(err, r, "kv: %s", strerror(-r));
		if (kv->slab != NULL)
			stop(kv);
		kv_free(kv);
		return r;
	}
	*ret = kv;
	return 0;
}

/* ---- close */

/* Dirty objects now: those that wait, unless they are safe without, and those under way. */
static uint64_t n_dirty_locked(struct mc_kv *kv) MC_REQUIRES(kv->lock)
{
	uint64_t n = kv->n_flights;

	for (struct kv_res *r = kv->dirty_list.next; r != &kv->dirty_list; r = r->next)
		n += !kv_is_kept(r->obj);
	return n;
}

int64_t mc_kv_close(struct mc_kv *kv, unsigned drain_ms)
{
	uint64_t deadline = mc_now_ns() + drain_ms * UINT64_C(1000000);
	bool sinks = kv->log != NULL || kv->opts.remote != NULL;
	uint64_t left;

	mc_mutex_lock(&kv->lock);
	kv->hurry++; /* for good */
	kv->leaving = true;
	mc_cond_signal(&kv->flush);
	mc_mutex_unlock(&kv->lock);
	if (kv->log != NULL)
		mc_kv_log_sync(kv->log);
	mc_mutex_lock(&kv->lock);
	while (sinks && n_dirty_locked(kv) > 0 &&
		mc_cond_wait_until(&kv->change, &kv->lock, deadline) == 0)
		;
	mc_mutex_unlock(&kv->lock);
	stop(kv);
	mc_mutex_lock(&kv->lock);
	left = n_dirty_locked(kv);
	mc_mutex_unlock(&kv->lock);
	if (left == 0 && kv->mounted) {
		mc_slab_close(kv->slab);
		kv->slab = NULL;
		mc_full_watch_close(kv->full);
		kv->full = NULL;
		close(kv->lock_fd);
		kv->lock_fd = -1;
		mc_dram_mount_close(kv->opts.dram_dir);
	}
	kv_free(kv);
	return (int64_t)left;
}

/* ---- figures */

int mc_kv_sync(struct mc_kv *kv, const char *key)
{
	struct kv_object *obj;
	int r;

	if (kv_key_check(key) < 0)
		return -ENOENT;
	mc_mutex_lock(&kv->lock);
	r = kv_ready_locked(kv);
	if (r == 0)
		r = kv_moves_wait_locked(kv, key, NULL);
	obj = r == 0 ? kv_index_find(kv->index, key) : NULL;
	if (obj != NULL)
		obj->refs++;
	mc_mutex_unlock(&kv->lock);
	if (obj == NULL)
		return r < 0 ? r : -ENOENT;
	r = kv_wait_safe(kv, obj, false);
	mc_mutex_lock(&kv->lock);
	kv_object_drop_locked(kv, obj);
	mc_mutex_unlock(&kv->lock);
	kv_reap(kv);
	return r;
}
