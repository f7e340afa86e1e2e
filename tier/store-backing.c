/*
 * Passthrough: when a file may be read by the kernel straight from its image, and for how much of a
 * tier that may be so at once.
 *
 * Invariant: files with passthrough openers take at most three quarters of a tier, pinned ones
 * included, so blocks of other files can always come in; images the kernel still holds after the
 * last close count as well.
 */
#include "tier/store-impl.h"

#include <errno.h>
#include <fcntl.h>

#define NOTE_STEP 512 /* pairs looked at under one lock */

/* Blocks of the file that are stored somewhere, i.e. not wholly hole. */
static uint64_t count_data_blocks(const struct mc_file *f)
{
	uint64_t n = 0, off = 0, start, end, last = 0;
	bool any = false;

	while (off < f->id.size && f->src->ops->next_data(f->src, off, &start, &end) == 0) {
		uint64_t first_block = start >> MC_BLOCK_SHIFT;
		uint64_t last_block = (end - 1) >> MC_BLOCK_SHIFT;

		if (any && first_block == last)
			first_block++;
		if (last_block >= first_block)
			n += last_block - first_block + 1;
		last = last_block;
		any = true;
		off = end;
	}
	return n;
}

static uint64_t data_blocks(struct mc_file *f)
{
	uint64_t n;

	mc_mutex_lock(&f->store->lock);
	n = f->data_blocks;
	mc_mutex_unlock(&f->store->lock);
	if (n != UINT64_MAX)
		return n;
	n = count_data_blocks(f);
	mc_mutex_lock(&f->store->lock);
	f->data_blocks = n;
	mc_mutex_unlock(&f->store->lock);
	return n;
}

/* Takes a place among the passthrough openers of a tier, when its bound allows. */
static bool take_locked(struct mc_store *s, struct mc_file *f, enum mc_tier tier)
	MC_REQUIRES(s->lock)
{
	/* An eviction that has begun may punch until the client's open is seen by its lease. */
	if (tier == MC_TIER_NVME && f->evicting_runs > 0)
		return false;
	if (f->backing[tier] == 0 && !f->pinned) {
		if (s->kept_bytes[tier] + f->id.size > mc_keep_limit(s, tier))
			return false;
		s->kept_bytes[tier] += f->id.size;
	}
	f->backing[tier]++;
	return true;
}

/* Passed-through reads are the kernel's and never seen here: an open counts as a use of every pair.
 */
static void note_use(struct mc_store *s, struct mc_file *f)
{
	uint64_t n = (f->blocks + 1) / 2;

	for (uint64_t i = 0; i < n;) {
		mc_mutex_lock(&s->lock);
		for (uint64_t end = i + NOTE_STEP; i < n && i < end; i++)
			if (f->pairs[i] != NULL && mc_policy_linked(&f->pairs[i]->entry))
				mc_policy_hit(s->dram_policy, &f->pairs[i]->entry);
		mc_mutex_unlock(&s->lock);
	}
}

/* Holes of a DRAM image would be filled by a mapping's read fault, past the capacity: never pass
 * such a file through. */
static bool take_dram(struct mc_file *f, uint64_t need)
{
	struct mc_store *s = f->store;
	bool ok;

	if (need != f->blocks)
		return false;
	mc_mutex_lock(&s->lock);
	ok = f->dram != NULL && f->n_valid == need && take_locked(s, f, MC_TIER_DRAM);
	mc_mutex_unlock(&s->lock);
	return ok;
}

static bool nvme_complete(struct mc_file *f, uint64_t need, struct mc_nvme_image **ret_img)
{
	struct mc_store *s = f->store;
	struct mc_nvme_image *img;

	mc_mutex_lock(&s->lock);
	img = f->nvme;
	mc_mutex_unlock(&s->lock);
	*ret_img = img;
	return img != NULL && mc_nvme_present_blocks(img) == need;
}

/* Has the image of so many blocks read through in the background, once. */
static void queue_verify(struct mc_file *f, uint64_t blocks)
{
	struct mc_store *s = f->store;

	mc_mutex_lock(&s->lock);
	if (!f->verify_queued && !s->stopping) {
		f->verify_queued = true;
		s->verify_blocks += blocks;
		mc_file_ref_locked(s, f);
		mc_queue_push(&s->verify, &f->verify_work);
		mc_cond_signal(&s->verify_more);
	}
	mc_mutex_unlock(&s->lock);
}

static bool take_nvme(struct mc_file *f, uint64_t need)
{
	struct mc_store *s = f->store;
	struct mc_nvme_image *img;
	bool ok;

	if (s->nvme == NULL || !nvme_complete(f, need, &img))
		return false;
	if (!mc_nvme_verified(img)) {
		queue_verify(f, need);
		return false;
	}
	mc_mutex_lock(&s->lock);
	ok = take_locked(s, f, MC_TIER_NVME);
	mc_mutex_unlock(&s->lock);
	if (!ok)
		return false;
	/* Nothing is evicted any more, but it may have been between the look and the taking. */
	if (nvme_complete(f, need, &img))
		return true;
	mc_file_backing_put(f, MC_TIER_NVME);
	return false;
}

/* Takes a place among the passthrough openers of the tier that has the whole file. */
static int take(struct mc_file *f, enum mc_tier *ret_tier)
{
	uint64_t need = data_blocks(f);

	if (need == 0)
		return -EAGAIN;
	if (take_dram(f, need))
		*ret_tier = MC_TIER_DRAM;
	else if (take_nvme(f, need))
		*ret_tier = MC_TIER_NVME;
	else
		return -EAGAIN;
	return 0;
}

int mc_file_backing_get(struct mc_file *f, int *ret_fd, enum mc_tier *ret_tier)
{
	enum mc_tier tier;
	int fd, r = take(f, &tier);

	if (r < 0)
		return r;
	fd = tier == MC_TIER_DRAM ? mc_dram_fd(f->dram) : mc_nvme_fd(f->nvme);
	fd = fd < 0 ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (fd < 0) { /* also: the tier cannot take leases, so nothing may be passed through */
		mc_file_backing_put(f, tier);
		return -EAGAIN;
	}
	if (tier == MC_TIER_DRAM)
		note_use(f->store, f);
	mc_mutex_lock(&f->store->lock);
	f->hits++;
	mc_mutex_unlock(&f->store->lock);
	*ret_fd = fd;
	*ret_tier = tier;
	return 0;
}

void mc_file_backing_put(struct mc_file *f, enum mc_tier tier)
{
	struct mc_store *s = f->store;
	bool last;

	mc_mutex_lock(&s->lock);
	last = --f->backing[tier] == 0;
	if (last) {
		s->kept_bytes[tier] -= f->pinned ? 0 : f->id.size;
		mc_store_room_locked(s);
	}
	mc_mutex_unlock(&s->lock);
	if (last && tier == MC_TIER_NVME)
		mc_file_keep_mapped(f);
}

bool mc_file_backing_ready(struct mc_file *f)
{
	enum mc_tier tier;

	if (take(f, &tier) < 0)
		return false;
	mc_file_backing_put(f, tier);
	return true;
}
