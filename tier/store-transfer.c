/* A transfer of a block into DRAM: where from, its reads, and what of a local tier it held. */
#include "tier/store-transfer.h"

#include "tier/cleanup.h"
#include "tier/store-gather.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void transfer_done(struct mc_job *job, int res)
{
	int zero = 0;

	if (res < 0)
		atomic_compare_exchange_strong(&job->res, &zero, res);
	if (atomic_fetch_sub(&job->pending, 1) == 1)
		mc_store_post(job->file->store, &job->work);
}

static void remote_done(struct mc_remote_read *req, int res)
{
	transfer_done(req->ctx, res);
}

static void nvme_done(struct mc_nvme_op *op, int res)
{
	transfer_done(op->ctx, res);
}

static void device_done(struct mc_block_op *op, int res)
{
	transfer_done(op->ctx, res);
}

static void gathered(void *ctx, int res)
{
	transfer_done(ctx, res);
}

/* Whether NVMe has the block; pins the run it lies in. */
static bool nvme_take(struct mc_store *s, struct mc_job *job)
{
	struct mc_file *f = job->file;
	struct mc_run *run;

	if (s->nvme == NULL || job->no_nvme)
		return false;
	run = mc_run_pin(f, job->block);
	if (run == NULL)
		return false;
	if (mc_file_nvme_open(f, false) == 0 && mc_nvme_present(f->nvme, job->block)) {
		job->run = run;
		return true;
	}
	mc_run_unpin(s, run);
	return false;
}

static bool device_has(const struct mc_store *s, const struct mc_job *job)
{
	return s->opts.blocks != NULL && !job->no_device &&
		mc_block_cache_has(s->opts.blocks, &job->file->id, job->block);
}

/* Asked before the device is: what it does not have then is still on its way. */
static bool waits_for_device(struct mc_store *s, const struct mc_job *job)
{
	bool comes;

	if (s->nvme == NULL || s->opts.blocks == NULL || job->no_device)
		return false;
	mc_mutex_lock(&s->lock);
	comes = mc_sink_brings_locked(s, job->file, job->block);
	mc_mutex_unlock(&s->lock);
	return comes;
}

static void fetch_device(struct mc_store *s, struct mc_job *job)
{
	job->from = FROM_DEVICE;
	atomic_store(&job->pending, 1);
	job->bop = (struct mc_block_op){.cache = s->opts.blocks,
		.id = &job->file->id,
		.block = job->block,
		.buf = mc_dram_ptr(job->file->dram, job->block),
		.done = device_done,
		.ctx = job};
	mc_block_cache_read(&job->bop);
}

static void fetch_nvme(struct mc_job *job)
{
	job->from = FROM_NVME;
	atomic_store(&job->pending, 1);
	job->nop = (struct mc_nvme_op){.img = job->file->nvme,
		.block = job->block,
		.buf = mc_dram_ptr(job->file->dram, job->block),
		.done = nvme_done,
		.ctx = job};
	mc_nvme_read(&job->nop);
}

/* Sends one remote read per object piece; holes and inline bytes are put in place here. Copies that
 * an earlier attempt had are avoided. */
static int fetch_remote(struct mc_store *s, struct mc_job *job)
{
	cleanup_free struct mc_remote_read *before = steal_ptr(job->reqs);
	struct mc_source *src = job->file->src;
	uint8_t *base = mc_dram_ptr(job->file->dram, job->block), *at = base;
	size_t n = 0;
	int r;

	mc_plan_done(&job->plan);
	job->from = FROM_REMOTE;
	r = src->ops->plan(src, job->block << MC_BLOCK_SHIFT, job->len, &job->plan);
	if (r == 0 && mc_plan_len(&job->plan) != job->len)
		r = -EBADMSG;
	if (r < 0)
		return r;
	job->reqs = calloc(job->plan.n, sizeof(*job->reqs));
	if (job->reqs == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < job->plan.n; i++) {
		const struct mc_piece *p = &job->plan.pieces[i];

		if (p->kind == MC_PIECE_HOLE)
			memset(at, 0, p->len);
		else if (p->kind == MC_PIECE_INLINE)
			memcpy(at, p->data, p->len);
		else if (p->kind == MC_PIECE_OBJECT) {
			job->reqs[n] = (struct mc_remote_read){.path = p->path,
				.off = p->off,
				.len = p->len,
				.buf = at,
				.guard = p->guard,
				.avoid = before != NULL ? before[n].avoid | before[n].served : 0,
				.done = remote_done,
				.ctx = job};
			job->n_reqs = ++n;
		}
		at += p->len;
	}
	job->attempts++;
	/* One more than the reads, so that the job cannot finish before all are sent. */
	atomic_store(&job->pending, (unsigned)n + 1);
	for (size_t i = 0; i < n; i++)
		mc_remote_read(s->opts.remote, &job->reqs[i]);
	if (!mc_gather_wanted(&job->plan))
		transfer_done(job, 0);
	else if ((r = mc_gather_start(&job->plan, base, gathered, job)) < 0)
		transfer_done(job, r);
	return 0;
}

int mc_transfer_start(struct mc_store *s, struct mc_job *job)
{
	bool comes;

	atomic_store(&job->res, 0);
	if (nvme_take(s, job)) {
		fetch_nvme(job);
		return 0;
	}
	comes = waits_for_device(s, job);
	if (device_has(s, job)) {
		fetch_device(s, job);
		return 0;
	}
	if (!comes)
		return fetch_remote(s, job);
	mc_block_cache_hasten(s->opts.blocks);
	return 1;
}

void mc_transfer_local_end(struct mc_store *s, struct mc_job *job, int res)
{
	mc_mutex_lock(&s->lock);
	if (job->run != NULL)
		job->run->pins--;
	if (res == 0) {
		if (job->run != NULL)
			s->st.hits_nvme++;
		else
			s->st.hits_block++;
		job->file->hits++;
		if (job->run != NULL)
			mc_policy_hit(s->nvme_policy, &job->run->entry);
	} else if (res == -EBADMSG) {
		s->st.bad_blocks++;
	}
	job->run = NULL;
	mc_mutex_unlock(&s->lock);
	if (res < 0 && res != -ENOENT)
		(job->from == FROM_DEVICE ? mc_event_device : mc_event_nvme)(s, job->file,
			res == -EBADMSG ? "nvme-bad-block" : "nvme-read-failed",
			"block=%llu: %s; fetched from the remote instead",
			(unsigned long long)job->block,
			res == -EBADMSG ? "bytes do not match their checksum" : strerror(-res));
}
