/*
 * Looking at what lies in images: one block on order, a whole image before it may go to the kernel,
 * and whether a client reads it there.
 */
#include "tier/nvme-impl.h"

#include "tier/future.h"
#include "tier/cleanup.h"
#include "tier/lease.h"

#include <errno.h>
#include <stdlib.h>

bool mc_nvme_verified(struct mc_nvme_image *img)
{
	bool r;

	mc_mutex_lock(&img->nvme->lock);
	r = img->verified;
	mc_mutex_unlock(&img->nvme->lock);
	return r;
}

static void waited_done(struct mc_nvme_op *op, int res)
{
	mc_future_set(op->ctx, res);
}

static int run_op(void (*start)(struct mc_nvme_op *op), struct mc_nvme_op *op)
{
	struct mc_future w;

	mc_future_init(&w);
	op->done = waited_done;
	op->ctx = &w;
	start(op);
	return (int)mc_future_wait(&w);
}

int mc_nvme_check(struct mc_nvme_image *img, uint64_t block, void *buf)
{
	struct mc_nvme_op op = {.img = img, .block = block, .buf = buf};

	return run_op(mc_nvme_read, &op);
}

int mc_nvme_put(struct mc_nvme_image *img, uint64_t block, void *buf, uint32_t crc)
{
	struct mc_nvme_op op = {.img = img, .block = block, .buf = buf, .crc = crc};

	return run_op(mc_nvme_write, &op);
}

bool mc_nvme_held(struct mc_nvme_image *img)
{
	int r = -EOPNOTSUPP;

	mc_mutex_lock(&img->lock);
	if (img->nvme->leases && !img->dropped)
		r = mc_lease_take(img->fd);
	if (r == 0)
		mc_lease_drop(img->fd);
	mc_mutex_unlock(&img->lock);
	return r == -EAGAIN;
}

void mc_nvme_verify_stop(struct mc_nvme *n)
{
	atomic_store(&n->no_verify, true);
}

int mc_nvme_verify(struct mc_nvme_image *img, void (*bad)(void *ctx, uint64_t block), void *ctx)
{
	struct mc_nvme *n = img->nvme;
	cleanup_free void *buf = aligned_alloc(MC_NVME_ALIGN, MC_BLOCK_SIZE);
	uint64_t added;
	int r = buf == NULL ? -ENOMEM : 0;

	mc_mutex_lock(&n->lock);
	added = img->added;
	mc_mutex_unlock(&n->lock);
	for (uint64_t b = 0; b < img->n_blocks && r == 0; b++) {
		if (!mc_nvme_present(img, b))
			continue;
		r = atomic_load(&n->no_verify) ? -ECANCELED : mc_nvme_check(img, b, buf);
		atomic_fetch_add(&n->looked, 1);
		if (r == -EBADMSG && bad != NULL)
			bad(ctx, b);
		if (r == -EBADMSG || r == -ENOENT)
			r = 0;
	}
	if (r != 0)
		return r;
	mc_mutex_lock(&n->lock);
	img->verified = true;
	/* Blocks journalled meanwhile were not read back: after a restart the whole is looked at
	 * again. */
	if (img->added == added && !img->dropped && mc_nvme_log_id(img, MC_JOURNAL_VERIFIED) == 0)
		img->verified_logged = true;
	mc_mutex_unlock(&n->lock);
	return mc_nvme_log_commit(n);
}
