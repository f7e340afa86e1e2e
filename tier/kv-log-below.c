/*
 * The lower floor of a log, whose disk may hang: what waits for it is done by a thread of its own,
 * which makes its groups durable before the committer journals them, clears segments and probes.
 *
 * When nothing of what its disk has to do has ended for long, the floor hangs: the ops of its
 * groups end, so that nobody waits for them, and nothing is written there until all of it has
 * ended. Then a probe says whether it is used again. The upper floor has the journal: nothing is
 * durable without it, so it has no such thread.
 *
 * Invariants:
 * 1. A group stays in closed until its writes and its sync have ended, whether it is given up or
 * not: the packs, and the segments' writers, are its own as long.
 * 2. What a given-up group wrote is referred to by nobody: its segments have failed, and are
 * cleared before they are used again.
 * 3. A put given up here may end while its bytes are written: they are the packs'
 * (kv-log-stream.c).
 */
#include "tier/kv-log-impl.h"

#include <errno.h>
#include <stdlib.h>

void mc_kv_busy_locked(struct mc_kv_log *log, struct mc_kv_floor *f)
{
	if (f->busy++ > 0)
		return;
	f->answered_ns = mc_now_ns();
	if (mc_kv_is_lower(log, f))
		mc_cond_signal(&log->ready); /* it watches */
}

void mc_kv_answered_locked(struct mc_kv_log *log, struct mc_kv_floor *f)
{
	f->answered_ns = mc_now_ns();
	if (--f->busy > 0 || !f->hangs)
		return;
	f->hangs = false;
	f->health.probe_at_ns = f->answered_ns;
	mc_kv_poke_locked(log);
}

/* ---- the committer watches it */

static uint64_t patience_end_locked(const struct mc_kv_log *log) MC_REQUIRES(log->lock)
{
	const struct mc_kv_floor *f = &log->floors[1];

	return f->answered_ns + mc_disk_patience_ns(&f->health, MC_KV_PACK_BYTES);
}

uint64_t mc_kv_below_due_locked(const struct mc_kv_log *log)
{
	const struct mc_kv_floor *f = &log->floors[1];

	return f->busy > 0 && !f->hangs ? patience_end_locked(log) : UINT64_MAX;
}

bool mc_kv_below_idle_locked(const struct mc_kv_log *log)
{
	const struct mc_kv_floor *f = &log->floors[1];

	return f->pending == 0 && (f->clearing == 0 || f->hangs);
}

/* It may free g. */
static void drop_locked(struct mc_kv_log *log, struct mc_kv_group *g) MC_REQUIRES(log->lock)
{
	if (!g->ops_over || !g->io_over)
		return;
	for (unsigned i = 0; i < g->n_files; i++)
		g->files[i].seg->writers -= g->files[i].given_up;
	mc_kv_poke_locked(log);
	free(g->files);
	free(g);
}

static struct mc_kv_group *take_up_locked(struct mc_kv_log *log) MC_REQUIRES(log->lock)
{
	const struct mc_kv_floor *f = &log->floors[1];
	struct mc_kv_group *g = f->hangs ? f->closed : NULL;

	while (g != NULL && g->given_up)
		g = g->next;
	if (g == NULL)
		return NULL;
	g->given_up = true;
	for (unsigned i = 0; i < g->n_files; i++) {
		if (g->files[i].res == 0)
			g->files[i].res = -ETIMEDOUT;
		mc_kv_segment_set_failed(g->files[i].seg, true);
	}
	return g;
}

static void find_hang_locked(struct mc_kv_log *log) MC_REQUIRES(log->lock)
{
	struct mc_kv_floor *f = &log->floors[1];

	if (mc_now_ns() < mc_kv_below_due_locked(log))
		return;
	f->hangs = true;
	mc_disk_hangs(&f->health);
	mc_cond_broadcast(&log->moved);
	mc_cond_signal(&log->work);
}

void mc_kv_below_watch(struct mc_kv_log *log)
{
	struct mc_kv_group *g;

	mc_mutex_lock(&log->lock);
	find_hang_locked(log);
	while ((g = take_up_locked(log)) != NULL) {
		mc_mutex_unlock(&log->lock);
		mc_kv_group_give_up(log, g);
		mc_mutex_lock(&log->lock);
		log->floors[1].pending--;
		g->ops_over = true;
		drop_locked(log, g);
	}
	mc_mutex_unlock(&log->lock);
}

/* ---- the thread */

static void sync_first_locked(struct mc_kv_log *log, struct mc_kv_floor *f) MC_REQUIRES(log->lock)
{
	struct mc_kv_group *g = f->closed;

	mc_mutex_unlock(&log->lock);
	mc_kv_group_sync(log, g, g);
	mc_mutex_lock(&log->lock);
	f->closed = g->next;
	if (f->closed == NULL)
		f->closed_last = &f->closed;
	g->next = NULL;
	g->io_over = g->synced = true;
	if (g->given_up) {
		drop_locked(log, g);
		return;
	}
	f->pending--;
	*log->closed_last = g;
	log->closed_last = &g->next;
	mc_kv_poke_locked(log);
}

static struct mc_kv_segment *to_clear_locked(const struct mc_kv_log *log) MC_REQUIRES(log->lock)
{
	for (uint32_t i = 1; i < log->n_segs && log->floors[1].clearing > 0; i++)
		if (log->segs[i] != NULL && log->segs[i]->state == MC_KV_SEG_CLEARING)
			return log->segs[i];
	return NULL;
}

/* One segment cleared, or a probe. False: there is nothing to do. */
static bool look_after_locked(struct mc_kv_log *log, struct mc_kv_floor *f) MC_REQUIRES(log->lock)
{
	struct mc_kv_segment *seg = to_clear_locked(log);

	if (seg == NULL && (log->packer_done || !mc_kv_probe_due_locked(f)))
		return false;
	mc_kv_busy_locked(log, f);
	mc_mutex_unlock(&log->lock);
	if (seg != NULL)
		mc_kv_segment_clear(log, seg);
	else
		mc_kv_probe(log, f);
	mc_mutex_lock(&log->lock);
	mc_kv_answered_locked(log, f);
	mc_cond_broadcast(&log->moved);
	mc_cond_signal(&log->work);
	return true;
}

static void *below_main(void *arg)
{
	struct mc_kv_log *log = arg;
	struct mc_kv_floor *f = &log->floors[1];

	mc_mutex_lock(&log->lock);
	for (;;) {
		uint64_t at = mc_kv_probe_at_locked(f);

		if (f->closed != NULL && f->closed->writing == 0)
			sync_first_locked(log, f);
		else if (!log->recovering && look_after_locked(log, f))
			continue;
		else if (f->closed == NULL && log->packer_done)
			break;
		else if (at != UINT64_MAX && !log->recovering)
			mc_cond_wait_until(&f->wake, &log->lock, at);
		else
			mc_cond_wait(&f->wake, &log->lock);
	}
	f->runs = false;
	mc_kv_poke_locked(log);
	mc_mutex_unlock(&log->lock);
	return NULL;
}

int mc_kv_below_start(struct mc_kv_log *log)
{
	struct mc_kv_floor *f = &log->floors[1];

	f->runs = pthread_create(&f->thread, NULL, below_main, log) == 0;
	f->started = f->runs;
	return f->runs ? 0 : -EAGAIN;
}

void mc_kv_below_join(struct mc_kv_log *log)
{
	struct mc_kv_floor *f = &log->floors[1];

	if (f->started)
		pthread_join(f->thread, NULL);
	f->started = false;
}
