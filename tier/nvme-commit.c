/*
 * The committer: one thread that makes written blocks durable and present, in groups.
 *
 * A group is committed when 64 blocks are pending, the oldest is commit_ms old, or somebody syncs:
 *   1. the files' sizes and data (ftruncate after a padded tail, fdatasync)
 *   2. the directory entries of new files
 *   3. the BLOCKS records, one journal commit
 *   4. present bits, under the tier's lock
 * What fails in 1 or 2 is lost (a failed sync is never retried as proof). What fails in 3 stays
 * pending until a snapshot has made the journal usable again.
 *
 * Only this thread sets present bits and writes snapshots, so a snapshot never misses a block whose
 * record was committed.
 */
#include "tier/nvme-impl.h"

#include "tier/cleanup.h"
#include "tier/io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- a group */

struct group {
	struct mc_nvme_pending *blocks; /* owned, sorted by image and block */
	size_t n;
	struct sync *syncs; /* owned, one for each image */
	size_t n_syncs;
	int error; /* the first */
};

struct sync {
	struct mc_uring_req req;
	struct group_wait *wait;
	size_t first, n; /* its blocks */
	int res;
};

struct group_wait {
	struct mc_mutex lock;
	struct mc_cond over;
	size_t left;
};

static int by_place(const void *a, const void *b)
{
	const struct mc_nvme_pending *x = a, *y = b;
	uintptr_t p = (uintptr_t)x->img, q = (uintptr_t)y->img;

	if (p != q)
		return p < q ? -1 : 1;
	return x->block < y->block ? -1 : x->block > y->block;
}

static void sync_done(struct mc_uring_req *req, int64_t res)
{
	struct sync *s = req->ctx;
	struct group_wait *w = s->wait;

	s->res = (int)res;
	mc_mutex_lock(&w->lock);
	if (--w->left == 0)
		mc_cond_signal(&w->over);
	mc_mutex_unlock(&w->lock);
}

static int find_syncs(struct group *g)
{
	g->syncs = calloc(g->n, sizeof(*g->syncs));
	if (g->syncs == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < g->n; i++) {
		if (i > 0 && g->blocks[i].img == g->blocks[i - 1].img) {
			g->syncs[g->n_syncs - 1].n++;
			continue;
		}
		g->syncs[g->n_syncs++] = (struct sync){.first = i, .n = 1};
	}
	return 0;
}

static struct mc_nvme_image *sync_image(const struct group *g, const struct sync *s)
{
	return g->blocks[s->first].img;
}

/* Step 1. */
static void sync_data(struct mc_nvme *n, struct group *g)
{
	struct group_wait w = {.lock = MC_MUTEX_INIT, .left = g->n_syncs};

	mc_cond_init(&w.over);
	for (size_t i = 0; i < g->n_syncs; i++) {
		struct sync *s = &g->syncs[i];
		struct mc_nvme_image *img = sync_image(g, s);

		s->wait = &w;
		s->req = (struct mc_uring_req){
			.kind = MC_URING_DATASYNC, .fd = img->fd, .done = sync_done, .ctx = s};
		if (g->blocks[s->first + s->n - 1].block == img->n_blocks - 1)
			s->res = n->io->ftruncate(n->io, img->fd, img->id.size);
		if (s->res == 0)
			mc_uring_submit(n->uring, &s->req);
		else
			sync_done(&s->req, s->res);
	}
	mc_mutex_lock(&w.lock);
	while (w.left > 0)
		mc_cond_wait(&w.over, &w.lock);
	mc_mutex_unlock(&w.lock);
	mc_cond_done(&w.over);
	mc_mutex_done(&w.lock);
	mc_mutex_lock(&n->lock);
	n->stats.flushes += g->n_syncs;
	mc_mutex_unlock(&n->lock);
}

/* Step 2. Each of the 256 directories at most once. */
static void sync_names(struct mc_nvme *n, struct group *g)
{
	int res[256];

	memset(res, 1, sizeof(res)); /* positive: not asked yet */
	for (size_t i = 0; i < g->n_syncs; i++) {
		struct sync *s = &g->syncs[i];
		struct mc_nvme_image *img = sync_image(g, s);
		int *r = &res[img->id.digest[0]];
		cleanup_free char *dir = NULL;
		bool dirty;

		mc_mutex_lock(&n->lock);
		dirty = img->name_dirty && !img->dropped;
		mc_mutex_unlock(&n->lock);
		if (!dirty || s->res != 0)
			continue;
		if (*r > 0) {
			if (asprintf(&dir, "%s/images/%02x", n->dir, img->id.digest[0]) < 0)
				*r = -ENOMEM;
			else
				*r = mc_io_sync_dir(n->io, dir);
		}
		s->res = *r;
		if (*r != 0)
			continue;
		mc_mutex_lock(&n->lock);
		img->name_dirty = false;
		mc_mutex_unlock(&n->lock);
	}
}

/* A sync failed: its blocks were never there. Their space is reused by the next write or eviction.
 */
static void lose_blocks_locked(struct group *g, const struct sync *s)
{
	for (size_t i = s->first; i < s->first + s->n; i++)
		mc_bitmap_clear(g->blocks[i].img->busy, g->blocks[i].block);
}

/* Step 3, appending: under the tier's lock, so that an image dropped meanwhile is not revived. */
static int log_blocks(struct mc_nvme *n, struct group *g)
{
	cleanup_free unsigned char *rec = malloc(MC_NVME_RECORD_MAX);
	int r = rec == NULL ? -ENOMEM : 0;

	mc_mutex_lock(&n->lock);
	for (size_t i = 0; i < g->n_syncs && r == 0; i++) {
		struct sync *s = &g->syncs[i];
		struct mc_nvme_image *img = sync_image(g, s);
		size_t end = s->first + s->n;

		if (s->res != 0 || img->dropped)
			continue;
		img->verified_logged = false;
		img->added++;
		for (size_t at = s->first; at < end && r == 0;) {
			uint64_t first = g->blocks[at].block;
			uint32_t count = 1;

			while (at + count < end && count < MC_NVME_RUN_MAX &&
				g->blocks[at + count].block == first + count)
				count++;
			r = mc_journal_append(n->journal, MC_JOURNAL_BLOCKS, rec,
				mc_nvme_blocks_record(img, first, count, rec));
			at += count;
		}
	}
	mc_mutex_unlock(&n->lock);
	return r;
}

/* Step 4. */
static void show_blocks_locked(struct group *g, const struct sync *s)
{
	for (size_t i = s->first; i < s->first + s->n; i++) {
		struct mc_nvme_image *img = g->blocks[i].img;

		mc_bitmap_clear(img->busy, g->blocks[i].block);
		if (img->dropped)
			continue;
		mc_bitmap_set(img->present, g->blocks[i].block);
		__atomic_fetch_add(&img->n_present, 1, __ATOMIC_RELAXED);
	}
}

/* The journal did not take the group: it goes back to the front of the queue. */
static int requeue_locked(struct mc_nvme *n, struct group *g)
{
	size_t keep = 0;

	for (size_t i = 0; i < g->n_syncs; i++)
		if (g->syncs[i].res == 0)
			keep += g->syncs[i].n;
	if (n->n_pending + keep + n->writing > n->cap_pending) {
		size_t cap = n->n_pending + keep + n->writing;
		struct mc_nvme_pending *grown = reallocarray(n->pending, cap, sizeof(*grown));

		if (grown == NULL)
			return -ENOMEM;
		n->pending = grown;
		n->cap_pending = cap;
	}
	for (size_t i = 0; i < g->n_syncs; i++) {
		if (g->syncs[i].res != 0)
			continue;
		memcpy(n->pending + n->n_pending, g->blocks + g->syncs[i].first,
			g->syncs[i].n * sizeof(*g->blocks));
		for (size_t k = 0; k < g->syncs[i].n; k++)
			n->pending[n->n_pending + k].img->refs++;
		n->n_pending += g->syncs[i].n;
	}
	n->oldest_ns = mc_now_ns();
	return 0;
}

static void end_group(struct mc_nvme *n, struct group *g, int logged)
{
	mc_mutex_lock(&n->lock);
	if (logged != 0 && requeue_locked(n, g) == 0)
		logged = 1;
	if (g->n_syncs == 0) /* no memory: lost */
		lose_blocks_locked(g, &(struct sync){.n = g->n});
	for (size_t i = 0; i < g->n_syncs; i++) {
		struct sync *s = &g->syncs[i];

		if (s->res != 0 || logged < 0)
			lose_blocks_locked(g, s);
		else if (logged == 0)
			show_blocks_locked(g, s);
	}
	mc_mutex_unlock(&n->lock);
	for (size_t i = 0; i < g->n_syncs; i++)
		mc_nvme_account_overhead(sync_image(g, &g->syncs[i]));
	for (size_t i = 0; i < g->n; i++)
		mc_nvme_image_put(g->blocks[i].img);
}

static int commit_group(struct mc_nvme *n, struct group *g)
{
	int r, error = 0;

	qsort(g->blocks, g->n, sizeof(*g->blocks), by_place);
	r = find_syncs(g);
	if (r == 0) {
		sync_data(n, g);
		sync_names(n, g);
		for (size_t i = 0; i < g->n_syncs; i++) {
			if (g->syncs[i].res == 0)
				continue;
			error = g->syncs[i].res;
			mc_nvme_failed(n);
		}
		r = log_blocks(n, g);
	}
	if (r == 0)
		r = mc_nvme_log_commit(n);
	end_group(n, g, r);
	return r != 0 ? r : error;
}

/* ---- the thread */

static bool due_locked(const struct mc_nvme *n, uint64_t now)
{
	return n->sync_wanted > n->sync_done || n->n_fresh >= MC_NVME_GROUP || n->log_dirty ||
		(n->oldest_ns != 0 && now - n->oldest_ns >= n->commit_ms * UINT64_C(1000000)) ||
		(mc_disk_ails(&n->health) && now >= n->health.probe_at_ns);
}

static void wait_locked(struct mc_nvme *n) MC_REQUIRES(n->lock)
{
	uint64_t until = UINT64_MAX;

	if (n->oldest_ns != 0)
		until = n->oldest_ns + n->commit_ms * UINT64_C(1000000);
	if (mc_disk_ails(&n->health) && n->health.probe_at_ns < until)
		until = n->health.probe_at_ns;
	if (until == UINT64_MAX)
		mc_cond_wait(&n->work, &n->lock);
	else
		mc_cond_wait_until(&n->work, &n->lock, until);
}

/* Writes that waited because too much was pending. */
static void tell_writers(struct group *g)
{
	for (size_t i = 0; i < g->n; i++) {
		struct mc_nvme_op *op = g->blocks[i].op;

		g->blocks[i].op = NULL;
		if (op != NULL)
			op->done(op, 0);
	}
}

/* Takes what is pending and returns with the lock released and taken again. */
static void round_locked(struct mc_nvme *n) MC_REQUIRES(n->lock)
{
	struct group g = {.blocks = n->pending, .n = n->n_pending};
	uint64_t syncs = n->sync_wanted;
	bool log = n->log_dirty, must_probe = mc_disk_probe_due(&n->health);
	int r = 0;

	/* Writes in flight were promised room in the array, so they get a new one. */
	n->pending = n->writing > 0 ? reallocarray(NULL, n->writing, sizeof(*n->pending)) : NULL;
	if (n->writing > 0 && n->pending == NULL) {
		n->pending = g.blocks;
		mc_cond_wait_until(&n->work, &n->lock, mc_now_ns() + 10000000);
		return;
	}
	n->cap_pending = n->writing;
	n->n_pending = 0;
	n->n_fresh = 0;
	n->oldest_ns = 0;
	n->log_dirty = false;
	mc_mutex_unlock(&n->lock);
	tell_writers(&g);
	if (must_probe)
		mc_nvme_probe(n);
	if (g.n > 0)
		r = commit_group(n, &g);
	else if (log || syncs > 0)
		r = mc_nvme_log_commit(n);
	if (mc_journal_snapshot_due(n->journal) && mc_nvme_snapshot(n) != 0)
		mc_nvme_failed(n);
	free(g.blocks);
	free(g.syncs);
	mc_mutex_lock(&n->lock);
	if (r != 0 && n->sync_error == 0)
		n->sync_error = r;
	n->sync_done = syncs;
	mc_cond_broadcast(&n->idle);
}

static void *committer_main(void *arg)
{
	struct mc_nvme *n = arg;

	pthread_setname_np(pthread_self(), "mc-nvme-commit");
	mc_mutex_lock(&n->lock);
	for (;;) {
		if (due_locked(n, mc_now_ns()))
			round_locked(n);
		else if (n->stopping)
			break;
		else
			wait_locked(n);
	}
	mc_mutex_unlock(&n->lock);
	return NULL;
}

int mc_nvme_committer_start(struct mc_nvme *n)
{
	if (pthread_create(&n->committer, NULL, committer_main, n) != 0)
		return -EAGAIN;
	n->committer_runs = true;
	return 0;
}

void mc_nvme_committer_stop(struct mc_nvme *n)
{
	if (!n->committer_runs)
		return;
	mc_mutex_lock(&n->lock);
	n->stopping = true;
	mc_cond_signal(&n->work);
	mc_mutex_unlock(&n->lock);
	pthread_join(n->committer, NULL);
	n->committer_runs = false;
}

/* Waits for the writes submitted before and has their group committed, well or badly. */
static void flush_locked(struct mc_nvme *n) MC_REQUIRES(n->lock)
{
	uint64_t mine;
	unsigned old;

	while (n->sync_busy)
		mc_cond_wait(&n->idle, &n->lock);
	n->sync_busy = true;
	old = n->epoch;
	n->epoch ^= 1;
	while (n->in_epoch[old] > 0)
		mc_cond_wait(&n->idle, &n->lock);
	mine = ++n->sync_wanted;
	mc_cond_signal(&n->work);
	while (n->sync_done < mine)
		mc_cond_wait(&n->idle, &n->lock);
	n->sync_busy = false;
	mc_cond_broadcast(&n->idle);
}

void mc_nvme_flush(struct mc_nvme *n)
{
	mc_mutex_lock(&n->lock);
	flush_locked(n);
	mc_mutex_unlock(&n->lock);
}

int mc_nvme_sync(struct mc_nvme *n)
{
	int r;

	mc_mutex_lock(&n->lock);
	flush_locked(n);
	r = n->sync_error;
	n->sync_error = 0;
	mc_mutex_unlock(&n->lock);
	return r;
}
