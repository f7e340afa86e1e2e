/*
 * Images of the NVMe tier in memory: the table and references.
 *
 * An image is in the table while it has references or space; its file is open while it has
 * references.
 */
#include "tier/nvme-impl.h"

#include "tier/cleanup.h"
#include "tier/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* ---- images in memory */

struct mc_nvme_image *mc_nvme_image_new(struct mc_nvme *n, const struct mc_file_id *id)
{
	struct mc_nvme_image *img = calloc(1, sizeof(*img));
	uint64_t blocks = mc_block_count(id->size);
	size_t words = mc_bitmap_words(blocks);
	char name[MC_IMAGE_NAME_MAX];

	if (img == NULL)
		return NULL;
	mc_mutex_init(&img->lock);
	img->nvme = n;
	img->id = *id;
	img->n_blocks = blocks;
	img->fd = -1;
	img->refs = 1;
	img->verified = true;
	img->present = calloc(words, sizeof(uint64_t));
	img->busy = calloc(words, sizeof(uint64_t));
	img->allocated = calloc(words, sizeof(uint64_t));
	img->punching = calloc(words, sizeof(uint64_t));
	img->crc = calloc(blocks, sizeof(uint32_t));
	mc_image_name(id, name);
	if (asprintf(&img->path, "%s/images/%.2s/%s", n->dir, name, name) < 0)
		img->path = NULL;
	if (img->present == NULL || img->busy == NULL || img->allocated == NULL ||
		img->punching == NULL || img->crc == NULL || img->path == NULL) {
		mc_nvme_image_free(img);
		return NULL;
	}
	return img;
}

void mc_nvme_image_free(struct mc_nvme_image *img)
{
	if (img->fd >= 0)
		img->nvme->io->close(img->nvme->io, img->fd);
	mc_mutex_done(&img->lock);
	free(img->present);
	free(img->busy);
	free(img->allocated);
	free(img->punching);
	free(img->crc);
	free(img->path);
	free(img->held_path);
	free(img);
}

int mc_nvme_image_find_locked(
	struct mc_nvme *n, const struct mc_file_id *id, bool create, struct mc_nvme_image **ret)
{
	struct mc_nvme_image **bucket = &n->buckets[mc_file_id_hash(id) % MC_NVME_BUCKETS];
	struct mc_nvme_image *img = *bucket;

	while (img != NULL && !mc_file_id_equal(&img->id, id))
		img = img->next;
	if (img != NULL && img->dropped)
		return -EAGAIN;
	if (img != NULL) {
		img->refs++;
	} else {
		if (!create)
			return -ENOENT;
		img = mc_nvme_image_new(n, id);
		if (img == NULL)
			return -ENOMEM;
		img->next = *bucket;
		*bucket = img;
	}
	*ret = img;
	return 0;
}

void mc_nvme_image_unlist_locked(struct mc_nvme_image *img)
{
	struct mc_nvme_image **at =
		&img->nvme->buckets[mc_file_id_hash(&img->id) % MC_NVME_BUCKETS];

	while (*at != img)
		at = &(*at)->next;
	*at = img->next;
}

/* ---- references */

int mc_nvme_image_open_file(struct mc_nvme_image *img, bool create)
{
	struct mc_nvme *n = img->nvme;
	int flags = O_RDWR | (n->direct ? O_DIRECT : 0), fd, r = 0;

	fd = n->io->open(n->io, img->path, flags | (create ? O_CREAT | O_EXCL : 0), 0600);
	if (fd == -EEXIST) {
		/* A leftover of which the journal knows nothing. Never truncated: a client may map
		 * it. */
		n->io->unlink(n->io, img->path);
		fd = n->io->open(n->io, img->path, flags | O_CREAT | O_EXCL, 0600);
	}
	if (fd < 0)
		return fd;
	if (create) {
		r = n->io->ftruncate(n->io, fd, img->id.size);
		img->name_dirty = true;
	}
	if (r != 0) {
		n->io->close(n->io, fd);
		n->io->unlink(n->io, img->path);
		return r;
	}
	img->fd = fd;
	img->on_disk = true;
	return 0;
}

int mc_nvme_image_get(
	struct mc_nvme *n, const struct mc_file_id *id, bool create, struct mc_nvme_image **ret)
{
	struct mc_nvme_image *img;
	int r;

	assert(id->size > 0);
	mc_mutex_lock(&n->lock);
	while ((r = mc_nvme_image_find_locked(n, id, create && !n->health.bypassed, &img)) ==
		-EAGAIN)
		mc_cond_wait(&n->idle, &n->lock);
	if (r == -ENOENT && create && n->health.bypassed)
		r = -EIO;
	mc_mutex_unlock(&n->lock);
	if (r != 0)
		return r;
	mc_mutex_lock(&img->lock);
	/* While records cannot be written the journal may promise blocks of an older file of this
	 * name. */
	if (img->fd < 0 && !img->on_disk && !mc_journal_usable(n->journal))
		r = -EIO;
	else if (img->fd < 0)
		r = mc_nvme_image_open_file(img, !img->on_disk);
	mc_mutex_unlock(&img->lock);
	if (r != 0) {
		mc_nvme_image_put(img);
		if (r == -ENOSPC || r == -EDQUOT)
			return -ENOSPC;
		if (r == -EMFILE || r == -ENFILE)
			return r; /* our lack, not the disk's */
		mc_nvme_failed(n);
		return -EIO;
	}
	*ret = img;
	return 0;
}

void mc_nvme_image_put(struct mc_nvme_image *img)
{
	struct mc_nvme *n = img->nvme;
	bool gone;

	mc_mutex_lock(&n->lock);
	assert(img->refs > 0);
	if (--img->refs > 0) {
		mc_mutex_unlock(&n->lock);
		return;
	}
	gone = img->dropped || img->n_allocated == 0;
	if (!img->dropped && img->n_allocated == 0) {
		mc_nvme_image_unlist_locked(img);
		n->used -= img->overhead;
		if (img->on_disk)
			n->io->unlink(n->io, img->path);
	}
	if (!gone && img->fd >= 0) {
		n->io->close(n->io, img->fd);
		img->fd = -1;
	}
	mc_mutex_unlock(&n->lock);
	if (gone)
		mc_nvme_image_free(img);
}

bool mc_nvme_present(struct mc_nvme_image *img, uint64_t block)
{
	return mc_bitmap_get(img->present, block);
}

uint64_t mc_nvme_present_blocks(struct mc_nvme_image *img)
{
	return __atomic_load_n(&img->n_present, __ATOMIC_RELAXED);
}

uint64_t mc_nvme_resident_bytes(struct mc_nvme_image *img)
{
	uint64_t last = img->n_blocks - 1;
	uint64_t bytes = mc_nvme_present_blocks(img) << MC_BLOCK_SHIFT;

	if (bytes > 0 && mc_nvme_present(img, last))
		bytes -= MC_BLOCK_SIZE - mc_block_len(img->id.size, last);
	return bytes;
}

uint64_t mc_nvme_resident(struct mc_nvme *n, const struct mc_file_id *id)
{
	struct mc_nvme_image *img;
	uint64_t bytes;

	mc_mutex_lock(&n->lock);
	img = n->buckets[mc_file_id_hash(id) % MC_NVME_BUCKETS];
	while (img != NULL && !mc_file_id_equal(&img->id, id))
		img = img->next;
	bytes = img != NULL && !img->dropped ? mc_nvme_resident_bytes(img) : 0;
	mc_mutex_unlock(&n->lock);
	return bytes;
}

int mc_nvme_fd(struct mc_nvme_image *img)
{
	return img->nvme->leases ? img->fd : -EOPNOTSUPP;
}

/* ---- one after the other */

static bool id_before(const struct mc_file_id *a, const struct mc_file_id *b)
{
	int d = memcmp(a->digest, b->digest, sizeof(a->digest));

	return d < 0 || (d == 0 && a->size < b->size);
}

bool mc_nvme_next(struct mc_nvme *n, const struct mc_file_id *after, struct mc_file_id *ret)
{
	size_t at = after != NULL ? mc_file_id_hash(after) % MC_NVME_BUCKETS : 0;
	bool found = false;

	mc_mutex_lock(&n->lock);
	for (; at < MC_NVME_BUCKETS && !found; at++, after = NULL)
		for (const struct mc_nvme_image *img = n->buckets[at]; img != NULL; img = img->next)
			if (!img->dropped && (after == NULL || id_before(after, &img->id)) &&
				(!found || id_before(&img->id, ret))) {
				*ret = img->id;
				found = true;
			}
	mc_mutex_unlock(&n->lock);
	return found;
}
