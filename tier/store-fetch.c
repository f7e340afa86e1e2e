/*
 * Fetching one block into DRAM: memory, then NVMe, the device or the remote, the first that has it;
 * verify; publish.
 *
 * A job is queued → started (holds memory and a place among max_in_flight) → its last transfer
 * completes on a tier's thread, which only posts it → finished by a worker. A bad or failed read of
 * a local tier is repeated from the next; bad bytes from the remote are fetched once more, or from
 * every other copy, then the readers get EIO (T1).
 */
#include "tier/store-transfer.h"

#include "tier/image-name.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ATTEMPTS 2 /* times a remote without copies is asked for bytes that verify */

static void job_start(struct mc_store *s, struct mc_work *w);
static void job_finish(struct mc_store *s, struct mc_work *w);

static bool derived(const struct mc_file *f)
{
	return f->src->ops->block_crc == NULL && !f->src->ops->unchecked;
}

/* The job is not under way any more. */
static void leave_locked(struct mc_store *s, const struct mc_job *job) MC_REQUIRES(s->lock)
{
	if (job->work.home == &s->derive)
		s->gathering--;
	else
		s->in_flight--;
}

int mc_fetch_block_locked(
	struct mc_store *s, struct mc_file *f, uint64_t block, bool prefetch, uint64_t deadline_ns)
{
	struct mc_job *job = calloc(1, sizeof(*job));
	struct mc_pair *p = job != NULL ? mc_pair_make_locked(s, f, block) : NULL;

	if (p == NULL) {
		free(job);
		return -ENOMEM;
	}
	assert(p->blk[block & 1].state == MC_BLK_ABSENT);
	job->work.run = job_start;
	job->file = mc_file_ref_locked(s, f);
	job->pair = p;
	job->block = block;
	job->len = mc_block_len(f->id.size, block);
	job->deadline_ns = deadline_ns;
	job->prefetch = prefetch;
	mc_plan_init(&job->plan);
	p->pins++;
	p->blk[block & 1].state = MC_BLK_FILLING;
	p->blk[block & 1].behind = MC_BEHIND_NONE;
	p->blk[block & 1].job = job;
	job->work.home = derived(f) ? &s->derive : &s->demand;
	mc_queue_push(prefetch && !derived(f) ? &s->prefetch : job->work.home, &job->work);
	mc_store_wake_locked(s);
	return 0;
}

void mc_fetch_urgent_locked(struct mc_job *job, uint64_t deadline_ns)
{
	struct mc_store *s = job->file->store;

	if (job->work.on == &s->prefetch) {
		mc_queue_take(&s->prefetch, &job->work);
		mc_queue_push(&s->demand, &job->work);
	}
	if (job->prefetch) /* on whatever queue: nobody waited until now */
		job->deadline_ns = deadline_ns;
	job->prefetch = false;
}

static void job_free(struct mc_job *job)
{
	mc_plan_done(&job->plan);
	free(job->reqs);
	mc_file_put(job->file);
	free(job);
}

static void wait_for_room_locked(struct mc_store *s, struct mc_job *job) MC_REQUIRES(s->lock)
{
	leave_locked(s, job);
	mc_queue_push(&s->no_room, &job->work);
	mc_cond_signal(&s->tick);
	mc_store_wake_locked(s);
}

/* Whether the block goes to the tier below DRAM: from the device, as objects do, when it is used
 * for the second time. */
static bool is_wanted_above(const struct mc_store *s, const struct mc_job *job)
{
	return job->from == FROM_REMOTE ||
		(job->from == FROM_DEVICE && s->nvme != NULL && job->bop.again);
}

/* Ends the job with res ≤ 0: the block's state, its waiters, the job's place. */
static void job_end(struct mc_store *s, struct mc_job *job, int res)
{
	struct mc_pair *p = job->pair;
	struct mc_file *f = job->file;
	unsigned i = (unsigned)(job->block & 1);
	struct mc_file_wait *ready = NULL;
	bool behind = res == 0 && mc_store_has_lower(s) && is_wanted_above(s, job);

	mc_mutex_lock(&s->lock);
	if (res == -EAGAIN && p->blk[i].waiters != NULL && !s->stopping) {
		wait_for_room_locked(s, job); /* a reader came just as the prefetch gave up */
		mc_mutex_unlock(&s->lock);
		return;
	}
	p->blk[i].state = res == 0 ? MC_BLK_VALID : MC_BLK_ABSENT;
	p->blk[i].job = NULL;
	if (res == 0) {
		f->n_valid++;
		p->blk[i].ahead = p->blk[i].waiters == NULL;
		if (job->from != FROM_REMOTE && !behind)
			p->blk[i].behind = MC_BEHIND_DONE;
	}
	p->pins--;
	leave_locked(s, job);
	mc_read_block_done_locked(s, p, i, res, &ready);
	if (res < 0 && p->pins == 0 && !mc_policy_linked(&p->entry) &&
		p->blk[1 - i].state == MC_BLK_ABSENT)
		mc_pair_free_locked(s, p);
	mc_store_room_locked(s);
	mc_store_wake_locked(s);
	if (s->stopping)
		mc_cond_broadcast(&s->wake);
	mc_mutex_unlock(&s->lock);
	mc_read_resume(ready);
	if (behind)
		mc_behind_start(f, job->block);
	job_free(job);
}

/* Memory for the block. 0; -EAGAIN nothing could be evicted now; other errors are final. */
static int take_memory(struct mc_store *s, struct mc_job *job)
{
	int r;

	for (;;) {
		r = mc_file_dram_open(job->file, true);
		if (r == 0)
			r = mc_dram_reserve(job->file->dram, job->block);
		if (r != -ENOSPC)
			break;
		if (mc_evict_dram(s) == 0)
			return -EAGAIN;
	}
	if (r == -EMFILE || r == -ENFILE)
		return -EAGAIN; /* files that go idle give descriptors back */
	if (r < 0)
		return r;
	mc_mutex_lock(&s->lock);
	if (!mc_policy_linked(&job->pair->entry))
		mc_policy_insert_ahead(s->dram_policy, &job->pair->entry,
			mc_file_id_hash(&job->file->id) + job->pair->index,
			mc_pair_weight(job->pair));
	mc_mutex_unlock(&s->lock);
	return 0;
}

static void transfer(struct mc_store *s, struct mc_job *job)
{
	int r;

	job->work.run = job_finish;
	r = mc_transfer_start(s, job);
	if (r < 0)
		job_end(s, job, r);
	if (r != 1)
		return;
	job->work.run = job_start;
	mc_mutex_lock(&s->lock);
	wait_for_room_locked(s, job);
	mc_mutex_unlock(&s->lock);
}

/* No memory to be had: a prefetch is dropped, anything else waits for room. */
static void park(struct mc_store *s, struct mc_job *job)
{
	bool wait;

	mc_mutex_lock(&s->lock);
	wait = !job->prefetch && !s->stopping;
	if (wait)
		wait_for_room_locked(s, job);
	mc_mutex_unlock(&s->lock);
	if (!wait)
		job_end(s, job, -EAGAIN);
}

static void job_start(struct mc_store *s, struct mc_work *w)
{
	struct mc_job *job = (struct mc_job *)w;
	int r;

	mc_mutex_lock(&s->lock);
	r = s->stopping ? -ESHUTDOWN : mc_now_ns() > job->deadline_ns ? -ETIMEDOUT : 0;
	mc_mutex_unlock(&s->lock);
	if (r != 0) {
		job_end(s, job, r);
		return;
	}
	r = take_memory(s, job);
	if (r == -EAGAIN)
		park(s, job);
	else if (r < 0)
		job_end(s, job, r);
	else
		transfer(s, job);
}

/* Whether bytes that did not verify may be better from another copy, or the second time. */
static bool is_worth_another(const struct mc_job *job)
{
	for (size_t i = 0; i < job->n_reqs; i++)
		if (job->reqs[i].served != 0) /* the remote says when no copy is left */
			return true;
	return job->attempts < MAX_ATTEMPTS;
}

static void job_finish(struct mc_store *s, struct mc_work *w)
{
	struct mc_job *job = (struct mc_job *)w;
	struct mc_source *src = job->file->src;
	int res = atomic_load(&job->res);
	bool arrived = res == 0;

	if (res == 0 && src->ops->block_crc != NULL &&
		mc_crc32c(0, mc_dram_ptr(job->file->dram, job->block), job->len) !=
			src->ops->block_crc(src, job->block))
		res = -EBADMSG;
	if (job->from != FROM_REMOTE)
		mc_transfer_local_end(s, job, res);
	else if (res < 0 && res != -ESHUTDOWN)
		mc_event_remote(s, job->file, job->block,
			job->plan.n > 0 ? job->plan.pieces[0].path : NULL, res);
	if (res == 0) {
		mc_mutex_lock(&s->lock);
		if (job->from == FROM_REMOTE && !derived(job->file)) {
			s->st.fetches++;
			s->st.fetched_bytes += job->len;
		}
		mc_mutex_unlock(&s->lock);
		mc_dram_commit(job->file->dram, job->block);
		job_end(s, job, 0);
		return;
	}
	if (job->from != FROM_REMOTE || (arrived && res == -EBADMSG && is_worth_another(job))) {
		job->no_nvme = true;
		job->no_device |= job->from != FROM_NVME;
		transfer(s, job);
		return;
	}
	job_end(s, job, mc_read_error(res));
}
