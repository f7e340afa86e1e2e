/*
 * The committer: one thread that makes closed groups durable, in order.
 *
 *   1. all writes of the group have ended
 *   2. one sync for each segment
 *   3. PUT records and the table; one journal commit
 *   4. callbacks
 * Groups that have ended their writes meanwhile are taken together. What fails in 1 or 2 is lost: a
 * failed sync is never repeated as proof. The puts go back to the packer, which writes them from
 * the items' buffers to another segment; the old one is retired. What fails in 3 is made durable by
 * a snapshot, and if that fails, too, the puts answer -EIO (or why else) though the table has them:
 * their bytes are safe, and the next snapshot says so.
 *
 * At the start it recovers what is there, as often as it takes to read it.
 *
 * The same thread frees segments, drops parts, writes snapshots and probes. Groups of a lower floor
 * come to it synced (kv-log-below.c).
 */
#include "tier/kv-log-impl.h"

#include "tier/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAUSE_NS UINT64_C(100000000)

static uint64_t min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static int sync_segment(struct mc_kv_log *log, struct mc_kv_segment *seg)
{
	bool made;
	int r;

	mc_mutex_lock(&log->lock);
	made = seg->made;
	mc_mutex_unlock(&log->lock);
	r = mc_kv_store_sync(seg->floor->store, &seg->place, made);
	mc_mutex_lock(&log->lock);
	seg->made &= r != 0;
	mc_mutex_unlock(&log->lock);
	return r;
}

static void sync_file(struct mc_kv_log *log, struct mc_kv_file *f)
{
	uint64_t begun = mc_now_ns();
	int r;

	mc_mutex_lock(&log->lock);
	/* A sync of an earlier group failed: what this group wrote may be among what was lost. */
	if (f->res == 0 && mc_kv_segment_failed(f->seg))
		f->res = -EIO;
	r = f->res;
	if (r == 0)
		mc_kv_busy_locked(log, f->seg->floor);
	mc_mutex_unlock(&log->lock);
	if (r != 0)
		return;
	r = sync_segment(log, f->seg);
	mc_kv_took(log, f->seg->floor, begun, 0);
	mc_mutex_lock(&log->lock);
	mc_kv_answered_locked(log, f->seg->floor);
	log->stats.syncs++;
	if (f->res == 0) /* it may have been given up meanwhile */
		f->res = r;
	if (r != 0)
		mc_kv_segment_set_failed(f->seg, true);
	mc_mutex_unlock(&log->lock);
	if (r != 0)
		mc_kv_failed(log, f->seg->floor, r);
}

/* Whether a group before g had a sync of that segment: it was after all their writes. */
static bool was_synced(const struct mc_kv_group *first, const struct mc_kv_group *g,
	const struct mc_kv_segment *seg)
{
	for (; first != g; first = first->next)
		for (unsigned i = 0; i < first->n_files; i++)
			if (first->files[i].seg == seg && first->files[i].res == 0)
				return true;
	return false;
}

void mc_kv_group_sync(struct mc_kv_log *log, const struct mc_kv_group *first, struct mc_kv_group *g)
{
	for (unsigned i = 0; i < g->n_files; i++)
		if (!was_synced(first, g, g->files[i].seg))
			sync_file(log, &g->files[i]);
}

static void tell_moved(struct mc_kv_log *log, struct mc_kv_op *op)
{
	struct mc_kv_log_owner owner;
	const struct mc_kv_entry *e;

	mc_mutex_lock(&log->lock);
	owner = log->owner;
	mc_mutex_unlock(&log->lock);
	if (owner.moved == NULL ||
		owner.moved(owner.ctx, mc_kv_op_key(op), op->meta.version, &op->from, &op->loc))
		return;
	mc_mutex_lock(&log->lock);
	e = mc_kv_table_get(&log->table, op->slot);
	if (e != NULL && e->kind == MC_KV_OBJECT && e->segment == op->loc.segment &&
		e->off == op->loc.off && memcmp(e->version, op->meta.version, 16) == 0)
		mc_kv_drop_locked(log, op->slot);
	mc_mutex_unlock(&log->lock);
}

/* Step 4. */
static void end_ops(struct mc_kv_log *log, struct mc_kv_group *g, int committed)
{
	for (struct mc_kv_op *op = g->ops.first; op != NULL; op = op->next) {
		if (op->kind == MC_KV_OP_COPY && !op->of_part && op->res == 0)
			tell_moved(log, op);
		if (op->kind == MC_KV_OP_PUT && op->res == 0)
			op->res = committed;
	}
	mc_kv_ops_end(log, &g->ops);
}

static void set_syncing(struct mc_kv_log *log, bool syncing)
{
	mc_mutex_lock(&log->lock);
	log->syncing = syncing;
	mc_cond_signal(&log->work);
	mc_mutex_unlock(&log->lock);
}

static void commit_groups(struct mc_kv_log *log, struct mc_kv_group *first)
{
	struct mc_kv_group *next;
	uint64_t begun;
	int r;

	for (struct mc_kv_group *g = first; g != NULL; g = g->next)
		if (!g->synced)
			mc_kv_group_sync(log, first, g);
	set_syncing(log, false);
	for (struct mc_kv_group *g = first; g != NULL; g = g->next)
		mc_kv_group_apply(log, g);
	set_syncing(log, true);
	begun = mc_now_ns();
	r = mc_kv_commit(log);
	mc_kv_took(log, mc_kv_top(log), begun, 0);
	set_syncing(log, false);
	for (struct mc_kv_group *g = first; g != NULL; g = next) {
		next = g->next;
		end_ops(log, g, mc_kv_journal_error(r));
		free(g->files);
		free(g);
	}
}

void mc_kv_group_give_up(struct mc_kv_log *log, struct mc_kv_group *g)
{
	mc_kv_group_apply(log, g);
	end_ops(log, g, 0);
}

/* A segment whose copies failed waits for another try. */
static void settle_moving(struct mc_kv_log *log)
{
	mc_mutex_lock(&log->lock);
	for (uint32_t i = 1; i < log->n_segs; i++) {
		struct mc_kv_segment *seg = log->segs[i];

		if (seg != NULL && seg->state == MC_KV_SEG_MOVING && seg->writers == 0 &&
			seg->head != 0)
			seg->state = MC_KV_SEG_SEALED;
	}
	mc_mutex_unlock(&log->lock);
}

/* The upper floor, which has the journal. True: it was. */
static bool probe(struct mc_kv_log *log)
{
	struct mc_kv_floor *f = mc_kv_top(log);
	bool due;

	mc_mutex_lock(&log->lock);
	due = mc_kv_probe_due_locked(f);
	mc_mutex_unlock(&log->lock);
	if (due)
		mc_kv_probe(log, f);
	return due;
}

static void look_after(struct mc_kv_log *log)
{
	bool snapshot, probed;

	settle_moving(log);
	mc_kv_splits_remove(log);
	mc_kv_segments_free(log);
	mc_mutex_lock(&log->lock);
	snapshot = log->want_snapshot;
	mc_mutex_unlock(&log->lock);
	probed = probe(log);
	if (snapshot ||
		(!probed && mc_journal_usable(log->journal) &&
			mc_journal_snapshot_due(log->journal)))
		mc_kv_failed(log, mc_kv_top(log), mc_kv_snapshot(log));
}

/* The oldest groups, as many as have ended their writes. */
static struct mc_kv_group *next_locked(struct mc_kv_log *log) MC_REQUIRES(log->lock)
{
	struct mc_kv_group *first = log->closed, **end = &log->closed;

	while (*end != NULL && (*end)->writing == 0)
		end = &(*end)->next;
	if (end == &log->closed)
		return NULL;
	log->closed = *end;
	if (log->closed == NULL)
		log->closed_last = &log->closed;
	*end = NULL;
	log->committing = true;
	log->syncing = true;
	return first;
}

static void wait_locked(struct mc_kv_log *log) MC_REQUIRES(log->lock)
{
	uint64_t until = mc_kv_below_due_locked(log);

	if (log->closed != NULL && log->closed->writing == 0)
		return;
	if (log->closed == NULL)
		until = min(until, mc_kv_probe_at_locked(mc_kv_top(log)));
	if (until != UINT64_MAX)
		mc_cond_wait_until(&log->ready, &log->lock, until);
	else
		mc_cond_wait(&log->ready, &log->lock);
}

/* Told, and waited for, ever longer. False: the log is being closed. */
static bool wait_to_read(struct mc_kv_log *log, int res, uint64_t *pause_ns)
{
	uint64_t until = mc_now_ns() + *pause_ns;
	bool again;

	mc_kv_failed(log, mc_kv_top(log), res);
	mc_mutex_lock(&log->lock);
	log->unread = res;
	mc_cond_broadcast(&log->moved);
	mc_mutex_unlock(&log->lock);
	if (log->replay.unread != NULL)
		log->replay.unread(log->replay.ctx, res);
	mc_mutex_lock(&log->lock);
	while (!log->closing && mc_now_ns() < until)
		mc_cond_wait_until(&log->ready, &log->lock, until);
	again = !log->closing;
	mc_mutex_unlock(&log->lock);
	*pause_ns = min(2 * *pause_ns, mc_kv_top(log)->health.probe_ns);
	return again;
}

/* Another format or another store stays what it is; anything else may pass. */
static int recover(struct mc_kv_log *log)
{
	uint64_t pause_ns = min(PAUSE_NS, mc_kv_top(log)->health.probe_ns);
	uint64_t until = mc_now_ns() + log->patience_ns;
	struct mc_err err = {0};
	int r = mc_kv_recover(log, &err);

	while (r != 0 && r != -EPROTONOSUPPORT && r != -ESTALE && wait_to_read(log, r, &pause_ns)) {
		log->impatient =
			mc_now_ns() >= until && mc_kv_store_probe(mc_kv_top(log)->store) == 0;
		r = mc_kv_recover(log, &err);
	}
	return r;
}

static void start_up(struct mc_kv_log *log)
{
	int r = recover(log);

	if (r == 0)
		mc_kv_failed(log, mc_kv_top(log),
			mc_kv_snapshot(log)); /* the first commit tries again */
	mc_mutex_lock(&log->lock);
	log->dead = r;
	log->unread = 0;
	log->replayed = true;
	mc_mutex_unlock(&log->lock);
	if (log->replay.done != NULL)
		log->replay.done(log->replay.ctx, r);
	mc_mutex_lock(&log->lock);
	log->recovering = false;
	mc_cond_broadcast(&log->moved);
	mc_cond_signal(&log->work);
	mc_mutex_unlock(&log->lock);
}

static void *committer_main(void *arg)
{
	struct mc_kv_log *log = arg;

	pthread_setname_np(pthread_self(), "mc-kv-commit");
	start_up(log);
	mc_mutex_lock(&log->lock);
	for (;;) {
		struct mc_kv_group *g;
		bool free_wanted = log->free_wanted;

		log->attention = false;
		g = next_locked(log);
		mc_mutex_unlock(&log->lock);
		if (g != NULL)
			commit_groups(log, g);
		mc_kv_below_watch(log);
		if (log->dead == 0)
			look_after(log);
		mc_mutex_lock(&log->lock);
		log->committing = false;
		if (free_wanted)
			log->free_wanted = false;
		mc_cond_broadcast(&log->moved);
		mc_cond_signal(&log->work);
		if (log->closed == NULL && log->packer_done && !log->floors[1].runs)
			break;
		if (!log->attention)
			wait_locked(log);
	}
	mc_mutex_unlock(&log->lock);
	return NULL;
}

int mc_kv_committer_start(struct mc_kv_log *log)
{
	if (pthread_create(&log->committer, NULL, committer_main, log) != 0)
		return -EAGAIN;
	log->committer_runs = true;
	return 0;
}
