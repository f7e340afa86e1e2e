/*
 * The NVMe tier: its directory, opening and closing.
 *
 * Layout of dir: LOCK (flock, pid), STORE (format, uuid), journal/, images/<2 hex>/<name>,
 * held/<name>.<n> (dropped, awaiting clients), PROBE (while the error budget is spent). Other names
 * in dir belong to others and are never touched; inside our folders everything is ours.
 */
#include "tier/nvme-impl.h"

#include "tier/cleanup.h"
#include "tier/dir-lock.h"
#include "tier/io.h"
#include "tier/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#define COMMIT_MS 1000

static int make_dir(struct mc_nvme *n, const char *sub)
{
	cleanup_free char *path = NULL;
	int r;

	if (asprintf(&path, "%s/%s", n->dir, sub) < 0)
		return -ENOMEM;
	r = n->io->mkdir(n->io, path, 0700);
	return r == -EEXIST ? 0 : r;
}

/* Our folders, durable before anything is put in them. */
int mc_nvme_make_layout(struct mc_nvme *n)
{
	cleanup_free char *images = NULL;
	char sub[16];
	int r = make_dir(n, "images");

	if (r == 0)
		r = make_dir(n, "held");
	if (r == 0)
		r = make_dir(n, "journal");
	for (unsigned i = 0; i < 256 && r == 0; i++) {
		snprintf(sub, sizeof(sub), "images/%02x", i);
		r = make_dir(n, sub);
	}
	if (r == 0)
		r = mc_io_sync_dir(n->io, n->dir);
	if (r == 0 && asprintf(&images, "%s/images", n->dir) < 0)
		r = -ENOMEM;
	return r == 0 ? mc_io_sync_dir(n->io, images) : r;
}

struct mc_dir_id mc_nvme_dir_id(const struct mc_nvme *n)
{
	return (struct mc_dir_id){
		.dir = n->dir, .name = "STORE", .kind = "nvme", .what = "NVMe tier", .format = 1};
}

void mc_nvme_find_direct(struct mc_nvme *n)
{
	cleanup_free char *path = NULL;
	int fd;

	if (asprintf(&path, "%s/LOCK", n->dir) < 0)
		return;
	fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	n->direct = fd >= 0;
	if (fd >= 0)
		close(fd);
}

static int default_capacity(struct mc_nvme *n)
{
	struct statvfs sv;

	if (statvfs(n->dir, &sv) != 0)
		return n->capacity != 0 ? 0 : -errno;
	n->disk_bytes = (uint64_t)sv.f_blocks * sv.f_frsize;
	if (n->capacity != 0)
		return 0;
	n->capacity = ((uint64_t)sv.f_bavail * sv.f_frsize + n->used) / 10 * 9;
	return 0;
}

/* The capacity was lowered: whole images go until the rest fits. */
static void shrink(struct mc_nvme *n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n->n_recovered; i++) {
		struct mc_nvme_image *img;
		struct mc_nvme_stats s;

		mc_nvme_stats(n, &s);
		if (s.used > s.capacity &&
			mc_nvme_image_get(n, &n->recovered[i], false, &img) == 0) {
			mc_nvme_drop(img);
			mc_nvme_image_put(img);
			continue;
		}
		n->recovered[kept++] = n->recovered[i];
	}
	n->n_recovered = kept;
}

void mc_nvme_free(struct mc_nvme *n)
{
	mc_nvme_committer_stop(n);
	mc_uring_close(n->uring);
	for (size_t i = 0; i < n->n_pending; i++)
		mc_nvme_image_put(n->pending[i].img);
	for (struct mc_nvme_image *img = n->held_images, *next; img != NULL; img = next) {
		next = img->next;
		mc_nvme_image_free(img);
	}
	for (size_t i = 0; i < MC_NVME_BUCKETS; i++)
		for (struct mc_nvme_image *img = n->buckets[i], *next; img != NULL; img = next) {
			next = img->next;
			assert(img->refs == 0);
			mc_nvme_image_free(img);
		}
	mc_journal_close(n->journal);
	if (n->lock_fd >= 0)
		close(n->lock_fd);
	mc_cond_done(&n->idle);
	mc_cond_done(&n->work);
	mc_mutex_done(&n->lock);
	free(n->pending);
	free(n->recovered);
	free(n->dir);
	free(n);
}

static int bring_up(struct mc_nvme *n, const struct mc_nvme_opts *opts, struct mc_err *err)
{
	struct mc_uring_opts u = {.depth = 64, .io = opts->io};
	struct mc_dir_id id;
	int r = mc_io_make_dir(n->io, opts->dir, &n->dir);

	if (r != 0)
		return r;
	r = mc_dir_lock(n->dir, "LOCK", true, "NVMe tier", &n->lock_fd, err);
	if (r != 0)
		return r;
	n->leases = mc_lease_supported(n->lock_fd);
	id = mc_nvme_dir_id(n);
	r = mc_dir_id_read(n->io, &id, n->uuid, err);
	if (r == -ENOENT)
		r = mc_dir_id_make(n->io, &id, n->uuid);
	if (r == 0)
		r = mc_nvme_make_layout(n);
	if (r != 0)
		return r;
	mc_nvme_find_direct(n);
	r = mc_uring_open(&u, &n->uring);
	if (r == 0)
		r = mc_nvme_recover(n, err);
	if (r == 0)
		r = default_capacity(n);
	if (r == 0)
		r = mc_nvme_committer_start(n);
	if (r == 0)
		shrink(n);
	return r;
}

struct mc_nvme *mc_nvme_new(const struct mc_nvme_opts *opts)
{
	struct mc_nvme *n = calloc(1, sizeof(*n));

	if (n == NULL)
		return NULL;
	n->io = opts->io != NULL ? opts->io : mc_io_real();
	n->capacity = opts->capacity;
	n->commit_ms = opts->commit_ms != 0 ? opts->commit_ms : COMMIT_MS;
	mc_disk_health_init(&n->health, opts->probe_ms, 0);
	n->journal_bytes = opts->journal_bytes;
	n->lock_fd = -1;
	mc_mutex_init(&n->lock);
	mc_cond_init(&n->idle);
	mc_cond_init(&n->work);
	return n;
}

int mc_nvme_open(const struct mc_nvme_opts *opts, struct mc_nvme **ret, struct mc_err *err)
{
	struct mc_nvme *n = mc_nvme_new(opts);
	int r;

	if (n == NULL)
		return -ENOMEM;
	r = bring_up(n, opts, err);
	if (r != 0) {
		mc_nvme_free(n);
		return mc_err_set(err, r, "NVMe tier %s: %s%s", opts->dir, strerror(-r),
			r == -ENOENT || r == -ENOTDIR
				? "; give a directory on a local disk, whose parent exists"
				: mc_err_hint(r));
	}
	*ret = n;
	return 0;
}

void mc_nvme_close(struct mc_nvme *n)
{
	mc_nvme_sync(n);
	mc_nvme_committer_stop(n);
	mc_nvme_snapshot(n);
	mc_nvme_free(n);
}

void mc_nvme_resize(struct mc_nvme *n, uint64_t capacity)
{
	mc_mutex_lock(&n->lock);
	n->capacity = capacity;
	mc_mutex_unlock(&n->lock);
}

void mc_nvme_stats(struct mc_nvme *n, struct mc_nvme_stats *ret)
{
	mc_mutex_lock(&n->lock);
	*ret = n->stats;
	ret->capacity = n->capacity;
	ret->used = n->used;
	ret->held = n->held;
	ret->bypassed = n->health.bypassed;
	ret->uring = mc_uring_native(n->uring);
	ret->direct = n->direct;
	ret->looked = atomic_load(&n->looked);
	ret->disk_bytes = n->disk_bytes;
	mc_mutex_unlock(&n->lock);
}

void mc_nvme_recovered(
	struct mc_nvme *n, void (*each)(void *ctx, const struct mc_file_id *id), void *ctx)
{
	for (size_t i = 0; i < n->n_recovered; i++)
		each(ctx, &n->recovered[i]);
}

const char *mc_nvme_dir(const struct mc_nvme *n)
{
	return n->dir;
}
