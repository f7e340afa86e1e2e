/*
 * One image of the DRAM tier.
 *
 * Invariants:
 * 1. A valid block lies in a reserved pair; a reserved pair is allocated in full (fallocate), so a
 *    store through the mapping never meets a full tmpfs.
 * 2. The sum of mc_pair_bytes over reserved pairs is accounted in dram->used, before the allocation
 * and until after the punch.
 * 3. The valid bit is set after the bytes are in place and cleared before they go.
 * 4. Memory goes only under the lease: nobody but us reaches the file at that moment.
 * 5. The image has one open file description: fd, its duplicates and the mapping.
 */
#include "tier/dram-impl.h"

#include "tier/cleanup.h"
#include "tier/io.h"
#include "tier/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

static bool pair_has_blocks(const struct mc_dram_image *img, uint64_t pair)
{
	return mc_bitmap_get(img->map.present, 2 * pair) ||
		(2 * pair + 1 < mc_block_count(img->id.size) &&
			mc_bitmap_get(img->map.present, 2 * pair + 1));
}

static int image_path(const struct mc_dram_image *img, const char *suffix, char **ret)
{
	char name[MC_IMAGE_NAME_MAX];

	mc_image_name(&img->id, name);
	return asprintf(ret, "%s/images/%s%s", img->dram->dir, name, suffix) < 0 ? -ENOMEM : 0;
}

static int punch_file(const struct mc_dram_image *img, uint64_t first_pair, uint64_t pairs)
{
	int r = fallocate(img->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		(off_t)(first_pair << MC_PAIR_SHIFT), (off_t)(pairs << MC_PAIR_SHIFT));

	return r == 0 ? 0 : -errno;
}

static void account(struct mc_dram *d, uint64_t freed)
{
	mc_mutex_lock(&d->lock);
	assert(d->used >= freed);
	d->used -= freed;
	mc_mutex_unlock(&d->lock);
}

/* ---- files */

static int open_files(struct mc_dram_image *img, bool create)
{
	cleanup_free char *path = NULL, *map_path = NULL;
	int r = image_path(img, "", &path);

	if (r == 0)
		r = image_path(img, ".map", &map_path);
	if (r != 0)
		return r;
	img->fd = open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0), 0600);
	if (img->fd < 0)
		return -errno;
	if (!create)
		return mc_dram_map_open(map_path, &img->id, &img->map);
	/* Huge pages are granted only inside the size, so the size comes first. */
	r = ftruncate(img->fd, (off_t)img->id.size) != 0 ? -errno : 0;
	if (r == 0)
		r = mc_dram_map_create(map_path, &img->id, &img->map);
	if (r != 0)
		unlink(path);
	return r;
}

static int map_image(struct mc_dram_image *img)
{
	uint64_t pairs = mc_pair_count(img->id.size);
	struct stat st;

	if (fstat(img->fd, &st) != 0)
		return -errno;
	if ((uint64_t)st.st_size != img->id.size)
		return -EBADMSG;
	img->map_len = (size_t)(pairs << MC_PAIR_SHIFT);
	img->base = mmap(NULL, img->map_len, PROT_READ | PROT_WRITE, MAP_SHARED, img->fd, 0);
	if (img->base == MAP_FAILED) {
		img->base = NULL;
		return -errno;
	}
	img->reserved = calloc(mc_bitmap_words(pairs), sizeof(*img->reserved));
	return img->reserved == NULL ? -ENOMEM : 0;
}

int mc_dram_image_open(struct mc_dram *d, const struct mc_file_id *id, bool create,
	struct mc_dram_image **ret, uint64_t *ret_bytes)
{
	struct mc_dram_image *img = calloc(1, sizeof(*img));
	uint64_t bytes = 0;
	int r;

	if (img == NULL)
		return -ENOMEM;
	img->dram = d;
	img->id = *id;
	img->refs = 1;
	img->fd = -1;
	mc_mutex_init(&img->lock);
	r = open_files(img, create);
	if (r == 0)
		r = map_image(img);
	if (r != 0) {
		if (r == -EBADMSG || (r == -ENOENT && img->fd >= 0)) {
			mc_dram_image_unlink(img);
			r = -EBADMSG;
		}
		mc_dram_image_close(img);
		return r;
	}
	for (uint64_t p = 0; p < mc_pair_count(id->size); p++) {
		if (!pair_has_blocks(img, p))
			continue;
		mc_bitmap_set(img->reserved, p);
		bytes += mc_pair_bytes(id->size, p);
	}
	img->n_present = mc_bitmap_count(img->map.present, mc_block_count(id->size));
	*ret = img;
	*ret_bytes = bytes;
	return 0;
}

void mc_dram_image_close(struct mc_dram_image *img)
{
	if (img->base != NULL)
		munmap(img->base, img->map_len);
	if (img->fd >= 0)
		close(img->fd);
	mc_dram_map_close(&img->map);
	mc_mutex_done(&img->lock);
	free(img->reserved);
	free(img->held_path);
	free(img);
}

void mc_dram_image_unlink(struct mc_dram_image *img)
{
	cleanup_free char *path = NULL, *map_path = NULL;

	if (image_path(img, "", &path) == 0)
		unlink(path);
	if (image_path(img, ".map", &map_path) == 0)
		unlink(map_path);
}

uint64_t mc_dram_image_trim(struct mc_dram_image *img)
{
	uint64_t freed = 0;

	for (uint64_t p = 0; p < mc_pair_count(img->id.size); p++) {
		if (!mc_bitmap_get(img->reserved, p) || pair_has_blocks(img, p) ||
			punch_file(img, p, 1) != 0)
			continue;
		mc_bitmap_clear(img->reserved, p);
		freed += mc_pair_bytes(img->id.size, p);
	}
	return freed;
}

/* ---- blocks */

int mc_dram_reserve(struct mc_dram_image *img, uint64_t block)
{
	struct mc_dram *d = img->dram;
	uint64_t pair = block / 2, bytes = mc_pair_bytes(img->id.size, pair);
	int r = 0;

	assert(block < mc_block_count(img->id.size));
	mc_mutex_lock(&img->lock);
	if (mc_bitmap_get(img->reserved, pair))
		goto out;
	mc_mutex_lock(&d->lock);
	if (img->dropped)
		r = -ESTALE;
	else if (d->used + bytes > d->capacity)
		r = -ENOSPC;
	else
		d->used += bytes;
	mc_mutex_unlock(&d->lock);
	if (r != 0)
		goto out;
	r = mc_io_allocate(img->fd, FALLOC_FL_KEEP_SIZE, pair << MC_PAIR_SHIFT, bytes);
	if (r != 0) {
		r = r == -ENOMEM || r == -EDQUOT ? -ENOSPC : r;
		account(d, bytes);
		goto out;
	}
	mc_bitmap_set(img->reserved, pair);
out:
	mc_mutex_unlock(&img->lock);
	return r;
}

void *mc_dram_ptr(struct mc_dram_image *img, uint64_t block)
{
	assert(block < mc_block_count(img->id.size));
	assert(mc_bitmap_get(img->reserved, block / 2));
	return img->base + (block << MC_BLOCK_SHIFT);
}

void mc_dram_commit(struct mc_dram_image *img, uint64_t block)
{
	assert(mc_bitmap_get(img->reserved, block / 2));
	if (!mc_bitmap_set(img->map.present, block))
		__atomic_fetch_add(&img->n_present, 1, __ATOMIC_RELAXED);
}

bool mc_dram_present(struct mc_dram_image *img, uint64_t block)
{
	return mc_bitmap_get(img->map.present, block);
}

uint64_t mc_dram_present_blocks(struct mc_dram_image *img)
{
	return __atomic_load_n(&img->n_present, __ATOMIC_RELAXED);
}

uint64_t mc_dram_resident_bytes(struct mc_dram_image *img)
{
	uint64_t last = mc_block_count(img->id.size) - 1;
	uint64_t bytes = mc_dram_present_blocks(img) << MC_BLOCK_SHIFT;

	if (bytes > 0 && mc_dram_present(img, last))
		bytes -= MC_BLOCK_SIZE - mc_block_len(img->id.size, last);
	return bytes;
}

int mc_dram_fd(struct mc_dram_image *img)
{
	return img->dram->leases ? img->fd : -EOPNOTSUPP;
}

/* ---- giving memory back */

static int lease(struct mc_dram_image *img)
{
	return img->dram->leases ? mc_lease_take(img->fd) : 0;
}

static void end_lease(struct mc_dram_image *img)
{
	if (img->dram->leases)
		mc_lease_drop(img->fd);
}

/* A held image taken over from a predecessor has no map any more. */
static void forget_block(struct mc_dram_image *img, uint64_t block)
{
	if (img->map.present != NULL && block < mc_block_count(img->id.size) &&
		mc_bitmap_clear(img->map.present, block))
		__atomic_fetch_sub(&img->n_present, 1, __ATOMIC_RELAXED);
}

int64_t mc_dram_punch(struct mc_dram_image *img, uint64_t pair)
{
	int64_t r = 0;

	assert(pair < mc_pair_count(img->id.size));
	mc_mutex_lock(&img->lock);
	if (!mc_bitmap_get(img->reserved, pair))
		goto out;
	r = lease(img);
	if (r != 0)
		goto out;
	forget_block(img, 2 * pair);
	forget_block(img, 2 * pair + 1);
	r = punch_file(img, pair, 1);
	if (r == 0) {
		mc_bitmap_clear(img->reserved, pair);
		r = (int64_t)mc_pair_bytes(img->id.size, pair);
		account(img->dram, (uint64_t)r);
	}
	end_lease(img);
out:
	mc_mutex_unlock(&img->lock);
	return r;
}

static uint64_t reserved_bytes_locked(const struct mc_dram_image *img)
{
	uint64_t bytes = 0;

	for (uint64_t p = 0; p < mc_pair_count(img->id.size); p++)
		if (mc_bitmap_get(img->reserved, p))
			bytes += mc_pair_bytes(img->id.size, p);
	return bytes;
}

/* Frees every pair, under the lease. Bytes freed. */
static int64_t punch_all_locked(struct mc_dram_image *img)
{
	uint64_t bytes = reserved_bytes_locked(img), pairs = mc_pair_count(img->id.size);
	int r = lease(img);

	if (r != 0)
		return r;
	for (uint64_t b = 0; b < mc_block_count(img->id.size); b++)
		forget_block(img, b);
	r = punch_file(img, 0, pairs);
	if (r == 0)
		memset(img->reserved, 0, mc_bitmap_words(pairs) * sizeof(*img->reserved));
	end_lease(img);
	return r == 0 ? (int64_t)bytes : r;
}

/* The name goes, the file stays findable: a daemon started later asks its lease again. */
static void move_to_held(struct mc_dram_image *img, uint64_t seq)
{
	cleanup_free char *path = NULL, *map_path = NULL;
	char name[MC_IMAGE_NAME_MAX];

	mc_image_name(&img->id, name);
	if (asprintf(&img->held_path, "%s/held/%s.%" PRIu64, img->dram->dir, name, seq) < 0)
		img->held_path = NULL;
	if (image_path(img, "", &path) == 0 &&
		(img->held_path == NULL || rename(path, img->held_path) != 0))
		unlink(path);
	if (image_path(img, ".map", &map_path) == 0)
		unlink(map_path);
}

int64_t mc_dram_drop(struct mc_dram_image *img)
{
	struct mc_dram *d = img->dram;
	struct mc_dram_image **at;
	int64_t freed;

	mc_mutex_lock(&img->lock);
	mc_mutex_lock(&d->lock);
	if (img->dropped) {
		mc_mutex_unlock(&d->lock);
		mc_mutex_unlock(&img->lock);
		return 0;
	}
	img->dropped = true;
	at = &d->buckets[mc_file_id_hash(&img->id) % MC_DRAM_BUCKETS];
	while (*at != img)
		at = &(*at)->next;
	*at = img->next;
	move_to_held(img, d->held_seq++);
	mc_mutex_unlock(&d->lock);
	freed = punch_all_locked(img);
	mc_mutex_lock(&d->lock);
	if (freed >= 0) {
		d->used -= (uint64_t)freed;
		if (img->held_path != NULL)
			unlink(img->held_path);
	} else {
		d->held += reserved_bytes_locked(img);
		img->refs++;
		img->next = d->held_images;
		d->held_images = img;
		freed = 0;
	}
	mc_mutex_unlock(&d->lock);
	mc_mutex_unlock(&img->lock);
	return freed;
}

/* One pass over a private list; what is still held goes back. */
uint64_t mc_dram_reap(struct mc_dram *d)
{
	struct mc_dram_image *list, *img;
	uint64_t total = 0;

	mc_mutex_lock(&d->lock);
	list = d->held_images;
	d->held_images = NULL;
	mc_mutex_unlock(&d->lock);
	while ((img = list) != NULL) {
		int64_t freed;

		list = img->next;
		mc_mutex_lock(&img->lock);
		freed = punch_all_locked(img);
		mc_mutex_unlock(&img->lock);
		mc_mutex_lock(&d->lock);
		if (freed < 0) {
			img->next = d->held_images;
			d->held_images = img;
			mc_mutex_unlock(&d->lock);
			continue;
		}
		d->used -= (uint64_t)freed;
		d->held -= (uint64_t)freed;
		mc_mutex_unlock(&d->lock);
		total += (uint64_t)freed;
		if (img->held_path != NULL)
			unlink(img->held_path);
		mc_dram_image_put(img);
	}
	return total;
}
