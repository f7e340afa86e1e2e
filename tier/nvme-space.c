/*
 * Giving space back: eviction of blocks, dropping of images, and those that clients still hold.
 *
 * Order of an eviction: bits cleared, EVICTED durable, punched, accounted free. Until the last step
 * the blocks are `punching`, so no write lands in a hole that is being made.
 */
#include "tier/nvme-impl.h"

#include "tier/cleanup.h"
#include "tier/io.h"
#include "tier/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int lease(const struct mc_nvme_image *img)
{
	return img->nvme->leases ? mc_lease_take(img->fd) : 0;
}

static void end_lease(const struct mc_nvme_image *img)
{
	if (img->nvme->leases)
		mc_lease_drop(img->fd);
}

static uint64_t blocks_space_locked(const struct mc_nvme_image *img)
{
	uint64_t last = img->n_blocks - 1, bytes = img->n_allocated << MC_BLOCK_SHIFT;

	if (mc_bitmap_get(img->allocated, last))
		bytes -= MC_BLOCK_SIZE - mc_nvme_space(img, last);
	return bytes;
}

void mc_nvme_account_overhead(struct mc_nvme_image *img)
{
	struct mc_nvme *n = img->nvme;
	struct stat st;
	uint64_t space, over = 0;

	if (n->io->fstat(n->io, img->fd, &st) != 0)
		return;
	mc_mutex_lock(&n->lock);
	space = blocks_space_locked(img);
	if ((uint64_t)st.st_blocks * 512 > space)
		over = (uint64_t)st.st_blocks * 512 - space;
	if (!img->dropped) {
		n->used = n->used + over - img->overhead;
		img->overhead = over;
	}
	mc_mutex_unlock(&n->lock);
}

int mc_nvme_punch_file(struct mc_nvme_image *img, uint64_t first, uint64_t count)
{
	const struct mc_io *io = img->nvme->io;
	int r = io->fallocate(io, img->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		first << MC_BLOCK_SHIFT, count << MC_BLOCK_SHIFT);

	if (r != 0)
		mc_nvme_failed(img->nvme);
	return r;
}

/* ---- evict */

/* Clears the present blocks of the range and appends their EVICTED records; marks what will be
 * punched. */
static int begin_evict(struct mc_nvme_image *img, uint64_t first, uint64_t end)
{
	struct mc_nvme *n = img->nvme;
	uint64_t run = 0;
	int r = 0;

	mc_mutex_lock(&n->lock);
	img->gave_up++;
	for (uint64_t b = first; b <= end; b++) {
		bool was = b < end && mc_bitmap_clear(img->present, b);

		if (was) {
			run++;
			__atomic_fetch_sub(&img->n_present, 1, __ATOMIC_RELAXED);
		} else if (run > 0) {
			int e = mc_nvme_log_evicted(img, b - run, run);

			r = r == 0 ? e : r;
			run = 0;
		}
		if (b < end && mc_bitmap_get(img->allocated, b) && !mc_bitmap_get(img->busy, b))
			mc_bitmap_set(img->punching, b);
	}
	mc_mutex_unlock(&n->lock);
	return r;
}

/*
 * Punches the marked runs, none once *error is set; bytes freed. What stays allocated is freed by
 * the next eviction of the range.
 */
static uint64_t punch_marked(struct mc_nvme_image *img, uint64_t first, uint64_t end, int *error)
{
	struct mc_nvme *n = img->nvme;
	uint64_t freed = 0;

	for (uint64_t b = first; b < end;) {
		uint64_t run = 0;
		bool punched = false;

		while (b + run < end && mc_bitmap_get(img->punching, b + run))
			run++;
		if (run == 0) {
			b++;
			continue;
		}
		if (*error == 0) {
			*error = mc_nvme_punch_file(img, b, run);
			punched = *error == 0;
		}
		mc_mutex_lock(&n->lock);
		for (; run > 0; run--, b++) {
			mc_bitmap_clear(img->punching, b);
			if (!punched)
				continue;
			mc_bitmap_clear(img->allocated, b);
			img->n_allocated--;
			freed += mc_nvme_space(img, b);
		}
		mc_mutex_unlock(&n->lock);
	}
	mc_mutex_lock(&n->lock);
	n->used -= freed;
	mc_mutex_unlock(&n->lock);
	return freed;
}

static bool any_busy(struct mc_nvme_image *img, uint64_t first, uint64_t end)
{
	bool busy = false;

	mc_mutex_lock(&img->nvme->lock);
	for (uint64_t b = first; b < end && !busy; b++)
		busy = mc_bitmap_get(img->busy, b);
	mc_mutex_unlock(&img->nvme->lock);
	return busy;
}

int64_t mc_nvme_evict(struct mc_nvme_image *img, uint64_t first, uint64_t n)
{
	uint64_t end = first + n < img->n_blocks ? first + n : img->n_blocks, freed = 0;
	int r;

	assert(first < img->n_blocks);
	/* What waits for its group to be journalled cannot go before that: the group goes now. */
	if (any_busy(img, first, end))
		mc_nvme_flush(img->nvme);
	mc_mutex_lock(&img->lock);
	r = img->dropped ? 0 : lease(img);
	if (r != 0 || img->dropped) {
		mc_mutex_unlock(&img->lock);
		return r;
	}
	r = begin_evict(img, first, end);
	if (r == 0)
		r = mc_nvme_log_commit(img->nvme);
	freed = punch_marked(img, first, end, &r);
	end_lease(img);
	mc_nvme_account_overhead(img);
	mc_mutex_unlock(&img->lock);
	return r == 0 ? (int64_t)freed : r;
}

/* ---- drop and reap */

static void forget_all_locked(struct mc_nvme_image *img)
{
	size_t bytes = mc_bitmap_words(img->n_blocks) * sizeof(uint64_t);

	memset(img->present, 0, bytes);
	memset(img->allocated, 0, bytes);
	__atomic_store_n(&img->n_present, 0, __ATOMIC_RELAXED);
	img->n_allocated = 0;
	img->overhead = 0;
}

/* Frees the space of an image without a name in the table, if no client holds it. */
static int64_t release_space(struct mc_nvme_image *img, bool held)
{
	struct mc_nvme *n = img->nvme;
	uint64_t bytes;
	int r = lease(img);

	if (r != 0)
		return r;
	/* Our own descriptor would keep the space past the unlink. */
	r = n->io->ftruncate(n->io, img->fd, 0);
	if (r != 0)
		mc_nvme_failed(n);
	if (img->held_path != NULL)
		n->io->unlink(n->io, img->held_path);
	mc_mutex_lock(&n->lock);
	bytes = blocks_space_locked(img) + img->overhead;
	n->used -= bytes;
	if (held)
		n->held -= bytes;
	forget_all_locked(img);
	mc_mutex_unlock(&n->lock);
	end_lease(img);
	return (int64_t)bytes;
}

/*
 * Takes the image's name away, so that a new one can be made: the file waits under held/, where a
 * later daemon finds it, too.
 */
static void move_aside_locked(struct mc_nvme_image *img)
{
	struct mc_nvme *n = img->nvme;
	char name[MC_IMAGE_NAME_MAX];

	mc_image_name(&img->id, name);
	if (asprintf(&img->held_path, "%s/held/%s.%" PRIu64, n->dir, name, n->held_seq++) < 0)
		img->held_path = NULL;
	if (img->held_path == NULL || n->io->rename(n->io, img->path, img->held_path) != 0)
		n->io->unlink(n->io, img->path);
	mc_nvme_image_unlist_locked(img);
	mc_cond_broadcast(&n->idle);
}

int64_t mc_nvme_drop(struct mc_nvme_image *img)
{
	struct mc_nvme *n = img->nvme;
	int64_t r;

	mc_mutex_lock(&img->lock);
	mc_mutex_lock(&n->lock);
	if (img->dropped) {
		mc_mutex_unlock(&n->lock);
		mc_mutex_unlock(&img->lock);
		return 0;
	}
	img->dropped = true;
	img->gave_up++;
	r = mc_nvme_log_id(img, MC_JOURNAL_DROP);
	while (img->in_flight > 0)
		mc_cond_wait(&n->idle, &n->lock);
	mc_mutex_unlock(&n->lock);
	/* The name is free only after this: a new file must not meet the old one's records. */
	if (r == 0)
		mc_nvme_log_commit(n);
	mc_mutex_lock(&n->lock);
	move_aside_locked(img);
	mc_mutex_unlock(&n->lock);
	r = release_space(img, false);
	if (r < 0) {
		mc_mutex_lock(&n->lock);
		n->held += blocks_space_locked(img) + img->overhead;
		img->refs++;
		img->next = n->held_images;
		n->held_images = img;
		mc_mutex_unlock(&n->lock);
		r = 0;
	}
	mc_mutex_unlock(&img->lock);
	return r;
}

uint64_t mc_nvme_reap(struct mc_nvme *n)
{
	struct mc_nvme_image *list, *img;
	uint64_t total = 0;

	mc_mutex_lock(&n->lock);
	list = n->held_images;
	n->held_images = NULL;
	mc_mutex_unlock(&n->lock);
	while ((img = list) != NULL) {
		int64_t freed;

		list = img->next;
		mc_mutex_lock(&img->lock);
		freed = release_space(img, true);
		mc_mutex_unlock(&img->lock);
		if (freed >= 0) {
			total += (uint64_t)freed;
			mc_nvme_image_put(img);
			continue;
		}
		mc_mutex_lock(&n->lock);
		img->next = n->held_images;
		n->held_images = img;
		mc_mutex_unlock(&n->lock);
	}
	return total;
}
