/*
 * The DRAM tier: its directory, its table of images, and the adoption of what a predecessor left.
 *
 * Layout of dir: LOCK, images/<name>, images/<name>.map, held/<name>.<n> (dropped, awaiting
 * clients).
 *
 * Invariants:
 * 1. used = memory of all images by name + held ones; it passes capacity never (an adopted image
 * that does not fit is dropped).
 * 2. The table holds exactly the images with references; the others are files only.
 * 3. Lock ranks: an image's lock, then the tier's.
 */
#include "tier/dram-impl.h"

#include "tier/cleanup.h"
#include "tier/dram-mount.h"
#include "tier/lease.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

/* ---- references */

static struct mc_dram_image **find_locked(struct mc_dram *d, const struct mc_file_id *id)
	MC_REQUIRES(d->lock)
{
	struct mc_dram_image **at = &d->buckets[mc_file_id_hash(id) % MC_DRAM_BUCKETS];

	while (*at != NULL && !mc_file_id_equal(&(*at)->id, id))
		at = &(*at)->next;
	return at;
}

int mc_dram_image_get(
	struct mc_dram *d, const struct mc_file_id *id, bool create, struct mc_dram_image **ret)
{
	struct mc_dram_image **at, *img;
	uint64_t bytes;
	int r;

	assert(id->size > 0);
	mc_mutex_lock(&d->lock);
	at = find_locked(d, id);
	if (*at != NULL) {
		(*at)->refs++;
		*ret = *at;
		mc_mutex_unlock(&d->lock);
		return 0;
	}
	r = mc_dram_image_open(d, id, false, &img, &bytes);
	if (r == -EBADMSG)
		r = -ENOENT;
	if (r == -ENOENT && create)
		r = mc_dram_image_open(d, id, true, &img, &bytes);
	if (r == 0) {
		*at = img;
		*ret = img;
	}
	mc_mutex_unlock(&d->lock);
	return r;
}

void mc_dram_image_put(struct mc_dram_image *img)
{
	struct mc_dram *d = img->dram;

	mc_mutex_lock(&d->lock);
	assert(img->refs > 0);
	if (--img->refs > 0) {
		mc_mutex_unlock(&d->lock);
		return;
	}
	if (!img->dropped) {
		struct mc_dram_image **at = find_locked(d, &img->id);

		assert(*at == img);
		*at = img->next;
		d->used -= mc_dram_image_trim(img);
		if (mc_dram_present_blocks(img) == 0)
			mc_dram_image_unlink(img);
	}
	mc_mutex_unlock(&d->lock);
	mc_dram_image_close(img);
}

/* ---- adoption */

static int remember_adopted(struct mc_dram *d, const struct mc_file_id *id)
{
	if (d->n_adopted == d->cap_adopted) {
		size_t cap = d->cap_adopted != 0 ? 2 * d->cap_adopted : 64;
		struct mc_file_id *grown = reallocarray(d->adopted, cap, sizeof(*grown));

		if (grown == NULL)
			return -ENOMEM;
		d->adopted = grown;
		d->cap_adopted = cap;
	}
	d->adopted[d->n_adopted++] = *id;
	return 0;
}

/* Frees what an image that we did not make current has beyond its valid pairs, then counts it. */
static int adopt_image(struct mc_dram *d, const char *path, const struct mc_file_id *id)
{
	struct mc_dram_image *img;
	struct stat st;
	uint64_t bytes;
	int r = mc_dram_image_open(d, id, false, &img, &bytes);

	if (r == -ENOENT || r == -EBADMSG) {
		unlink(path);
		return 0;
	}
	if (r != 0)
		return r;
	if (fstat(img->fd, &st) == 0 && (uint64_t)st.st_blocks * 512 > bytes)
		for (uint64_t p = 0; p < mc_pair_count(id->size); p++)
			mc_bitmap_set(img->reserved, p);
	mc_dram_image_trim(img);
	if (img->n_present == 0 || d->used + bytes > d->capacity) {
		mc_dram_image_unlink(img);
	} else {
		d->used += bytes;
		r = remember_adopted(d, id);
	}
	mc_dram_image_close(img);
	return r;
}

/* A dropped image of the predecessor: gone when nobody holds it, else it stays accounted. */
static int adopt_held(struct mc_dram *d, const char *path)
{
	const char *dot = strrchr(path, '.'), *slash = strrchr(path, '/');
	struct mc_dram_image *img = calloc(1, sizeof(*img));
	char name[MC_IMAGE_NAME_MAX] = "";
	struct stat st;
	uint64_t seq;

	if (img == NULL)
		return -ENOMEM;
	mc_mutex_init(&img->lock);
	img->fd = open(path, O_RDWR | O_CLOEXEC);
	if (img->fd < 0 || dot < slash || (size_t)(dot - slash) > sizeof(name))
		goto remove;
	memcpy(name, slash + 1, (size_t)(dot - slash - 1));
	seq = strtoull(dot + 1, NULL, 10);
	if (seq >= d->held_seq)
		d->held_seq = seq + 1;
	if (mc_image_name_parse(name, &img->id) != 0 || mc_lease_take(img->fd) != -EAGAIN ||
		fstat(img->fd, &st) != 0)
		goto remove;
	img->dram = d;
	img->refs = 1;
	img->dropped = true;
	img->held_path = strdup(path);
	img->reserved = calloc(mc_bitmap_words(mc_pair_count(img->id.size)), sizeof(uint64_t));
	if (img->held_path == NULL || img->reserved == NULL) {
		mc_dram_image_close(img);
		return -ENOMEM;
	}
	/* Which pairs have memory does not matter any more, only how much there is. */
	for (uint64_t p = 0, left = (uint64_t)st.st_blocks * 512;
		p < mc_pair_count(img->id.size) && left > 0; p++) {
		uint64_t bytes = mc_pair_bytes(img->id.size, p);

		mc_bitmap_set(img->reserved, p);
		d->used += bytes;
		d->held += bytes;
		left -= left < bytes ? left : bytes;
	}
	img->next = d->held_images;
	d->held_images = img;
	return 0;
remove:
	unlink(path);
	mc_dram_image_close(img);
	return 0;
}

static int adopt_entry(struct mc_dram *d, const char *folder, const char *name)
{
	cleanup_free char *path = NULL;
	struct mc_file_id id;
	size_t len = strlen(name);

	if (asprintf(&path, "%s/%s/%s", d->dir, folder, name) < 0)
		return -ENOMEM;
	if (strcmp(folder, "held") == 0)
		return adopt_held(d, path);
	if (mc_image_name_parse(name, &id) == 0)
		return adopt_image(d, path, &id);
	/* A map is removed with its image; alone it is left over from a crash between the two. */
	if (len > 4 && strcmp(name + len - 4, ".map") == 0) {
		char *dot = path + strlen(path) - 4;

		*dot = '\0';
		if (access(path, F_OK) == 0)
			return 0;
		*dot = '.';
	}
	unlink(path);
	return 0;
}

static int adopt_folder(struct mc_dram *d, const char *folder)
{
	cleanup_free char *path = NULL;
	struct dirent *e;
	DIR *dir;
	int r = 0;

	if (asprintf(&path, "%s/%s", d->dir, folder) < 0)
		return -ENOMEM;
	if (mkdir(path, 0700) != 0 && errno != EEXIST)
		return -errno;
	dir = opendir(path);
	if (dir == NULL)
		return -errno;
	while (r == 0 && (e = readdir(dir)) != NULL)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			r = adopt_entry(d, folder, e->d_name);
	closedir(dir);
	return r;
}

/* ---- open and close */

static int busy(struct mc_dram *d, struct mc_err *err)
{
	int code = errno == EWOULDBLOCK ? -EBUSY : -errno;

	return mc_err_set(err, code, "DRAM tier %s: in use by another daemon", d->dir);
}

static int take_lock(struct mc_dram *d, struct mc_err *err)
{
	cleanup_free char *path = NULL;

	if (asprintf(&path, "%s/LOCK", d->dir) < 0)
		return -ENOMEM;
	d->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (d->lock_fd < 0)
		return -errno;
	d->leases = mc_lease_supported(d->lock_fd);
	return flock(d->lock_fd, LOCK_EX | LOCK_NB) == 0 ? 0 : busy(d, err);
}

/* The new tmpfs leaves the tree: only this process holds it from now on. */
static int detach(struct mc_dram *d)
{
	char *dir;

	d->root_fd = open(d->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (d->root_fd < 0)
		return -errno;
	mc_dram_mount_close(d->dir);
	d->mounted = false;
	if (asprintf(&dir, "/proc/self/fd/%d", d->root_fd) < 0)
		return -ENOMEM;
	free(d->dir);
	d->dir = dir;
	return 0;
}

/* Only the holder of both locks mounts, resizes and adopts. */
static int settle(struct mc_dram *d, const struct mc_dram_opts *o, struct mc_err *err)
{
	struct mc_dram_mount mnt = {0};
	int r = mc_dram_mount_mkdir(o->dir);

	if (r != 0)
		return r;
	d->dir = realpath(o->dir, NULL);
	if (d->dir == NULL)
		return -errno;
	d->dir_fd = open(d->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (d->dir_fd < 0)
		return -errno;
	if (flock(d->dir_fd, LOCK_EX | LOCK_NB) != 0)
		return busy(d, err);
	mc_dram_mount_open(d->dir, d->capacity, &mnt);
	d->mounted = mnt.mounted;
	d->huge = mnt.huge;
	d->fresh = mnt.fresh;
	if (o->alone && mnt.fresh)
		r = detach(d);
	if (r == 0)
		r = take_lock(d, err);
	if (r == 0 && mnt.mounted && !mnt.fresh)
		mc_dram_mount_resize(d->dir, d->capacity);
	return r;
}

static void free_tier(struct mc_dram *d)
{
	while (d->held_images != NULL) {
		struct mc_dram_image *img = d->held_images;

		d->held_images = img->next;
		mc_dram_image_close(img);
	}
	if (d->lock_fd >= 0)
		close(d->lock_fd);
	if (d->dir_fd >= 0)
		close(d->dir_fd);
	if (d->root_fd >= 0)
		close(d->root_fd);
	mc_mutex_done(&d->lock);
	free(d->adopted);
	free(d->dir);
	free(d);
}

int mc_dram_open(const struct mc_dram_opts *opts, struct mc_dram **ret, struct mc_err *err)
{
	struct mc_dram *d = calloc(1, sizeof(*d));
	int r;

	if (d == NULL)
		return -ENOMEM;
	mc_mutex_init(&d->lock);
	d->lock_fd = -1;
	d->dir_fd = d->root_fd = -1;
	d->capacity = opts->capacity;
	r = settle(d, opts, err);
	/* Held images first: they cannot be given up, the others can. */
	if (r == 0)
		r = adopt_folder(d, "held");
	if (r == 0)
		r = adopt_folder(d, "images");
	if (r != 0) {
		/* Ours, empty, and of no use to anybody. */
		if (d->fresh && d->mounted)
			mc_dram_mount_close(d->dir);
		free_tier(d);
		return mc_err_set(
			err, r, "DRAM tier %s: %s%s", opts->dir, strerror(-r), mc_err_hint(r));
	}
	*ret = d;
	return 0;
}

static void remove_folder(const struct mc_dram *d, const char *folder)
{
	cleanup_free char *path = NULL;
	struct dirent *e;
	DIR *dir;

	if (asprintf(&path, "%s/%s", d->dir, folder) < 0)
		return;
	dir = opendir(path);
	if (dir == NULL)
		return;
	while ((e = readdir(dir)) != NULL)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			unlinkat(dirfd(dir), e->d_name, 0);
	closedir(dir);
	rmdir(path);
}

void mc_dram_close(struct mc_dram *d, bool keep)
{
	cleanup_free char *dir = strdup(d->dir);
	bool mounted = d->mounted;

	for (size_t i = 0; i < MC_DRAM_BUCKETS; i++)
		assert(d->buckets[i] == NULL);
	if (!keep) {
		remove_folder(d, "images");
		remove_folder(d, "held");
	}
	free_tier(d);
	if (!keep && mounted && dir != NULL)
		mc_dram_mount_close(dir);
}

void mc_dram_stats(struct mc_dram *d, struct mc_dram_stats *ret)
{
	mc_mutex_lock(&d->lock);
	*ret = (struct mc_dram_stats){
		.capacity = d->capacity,
		.used = d->used,
		.held = d->held,
		.mounted = d->mounted,
		.huge = d->huge,
	};
	mc_mutex_unlock(&d->lock);
}

void mc_dram_resize(struct mc_dram *d, uint64_t capacity)
{
	bool grows;

	mc_mutex_lock(&d->lock);
	grows = capacity > d->capacity;
	mc_mutex_unlock(&d->lock);
	/* The tmpfs is never smaller than what may be allocated on it. */
	if (grows && d->mounted)
		mc_dram_mount_resize(d->dir, capacity);
	mc_mutex_lock(&d->lock);
	d->capacity = capacity;
	mc_mutex_unlock(&d->lock);
}

void mc_dram_adopted(
	struct mc_dram *d, void (*each)(void *ctx, const struct mc_file_id *id), void *ctx)
{
	for (size_t i = 0; i < d->n_adopted; i++)
		each(ctx, &d->adopted[i]);
}
