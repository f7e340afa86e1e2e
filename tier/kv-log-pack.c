/*
 * The packer: takes puts from the queue, hands them to the stream of puts, makes room, and closes
 * the group when somebody syncs, or by the clock. It alone touches the streams.
 */
#include "tier/kv-log-impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LOW_SEGMENTS 2 /* below this many left, reclaim begins before it must */
#define HOPELESS_NS (UINT64_C(100) * 1000000)

/* ---- room */

static bool idle_locked(const struct mc_kv_log *log) MC_REQUIRES(log->lock)
{
	return log->closed == NULL && !log->committing;
}

static int try_reclaim(struct mc_kv_log *log)
{
	uint64_t deaths;
	int r;

	mc_mutex_lock(&log->lock);
	deaths = log->deaths;
	mc_mutex_unlock(&log->lock);
	if (log->hopeless_ns != 0 && deaths == log->hopeless_deaths &&
		mc_now_ns() - log->hopeless_ns < HOPELESS_NS)
		return -ENOENT;
	r = mc_kv_reclaim(log, false);
	log->hopeless_ns = r == 0 ? 0 : mc_now_ns();
	log->hopeless_deaths = deaths;
	return r;
}

/* Everything written is committed and what is empty is free. Returns with the lock held. */
static void settle(struct mc_kv_log *log) MC_ACQUIRE(log->lock)
{
	mc_kv_group_close(log);
	mc_mutex_lock(&log->lock);
	log->free_wanted = true;
	mc_kv_poke_locked(log);
	while (!idle_locked(log) || log->free_wanted)
		mc_cond_wait(&log->moved, &log->lock);
}

/* Lets the committer free what is empty; if that is nothing, reclaims. 0: try again. -ENOSPC. */
static int make_room(struct mc_kv_log *log)
{
	uint64_t freed;
	bool more;

	mc_mutex_lock(&log->lock);
	freed = log->stats.reclaimed;
	mc_mutex_unlock(&log->lock);
	settle(log);
	more = log->stats.reclaimed != freed;
	mc_mutex_unlock(&log->lock);
	if (more || try_reclaim(log) == 0)
		return 0;
	return -ENOSPC;
}

/* Why it is not to be written, or 0. */
static int refused_locked(struct mc_kv_log *log, const struct mc_kv_op *op) MC_REQUIRES(log->lock)
{
	if (op->cancelled)
		return -ECANCELED;
	return log->health.bypassed || log->dead != 0 ? -EIO : 0;
}

/* Its parts, none of which is under way any more, are of no use. */
static void give_up_parts(struct mc_kv_log *log, struct mc_kv_op *op)
{
	settle(log);
	mc_kv_split_gone_locked(log, op->meta.version, &op->loc, op->meta.size);
	mc_mutex_unlock(&log->lock);
}

static void pack_op(struct mc_kv_log *log, struct mc_kv_op *op, int r)
{
	while (r == 0) {
		if (mc_kv_record_bytes(&op->item->meta) > log->record_max)
			r = mc_kv_split_write(log, op);
		else
			r = mc_kv_stream_record(log, &log->puts, op, op->item->buf);
		if (r == 0)
			return;
		if (r == -EAGAIN)
			r = make_room(log);
		if (r != 0)
			break;
		mc_mutex_lock(&log->lock);
		r = refused_locked(log, op);
		mc_mutex_unlock(&log->lock);
	}
	if (op->parts > 0)
		give_up_parts(log, op);
	mc_kv_op_fail(log, op, r);
}

/* ---- the thread */

/* How long the open group waits for more while the queue is empty. */
static uint64_t patience_ns(const struct mc_kv_log *log)
{
	return log->commit_ms * UINT64_C(100000);
}

static bool close_due_locked(const struct mc_kv_log *log, uint64_t now) MC_REQUIRES(log->lock)
{
	const struct mc_kv_group *g = log->open;
	const struct mc_kv_op *next = log->queue.first;

	if (g == NULL)
		return false;
	if (log->retry.first != NULL)
		return false;
	if (g->first_seq <= log->sync_upto && (next == NULL || next->seq > log->sync_upto))
		return true;
	if (now - g->opened_ns >= log->commit_ms * UINT64_C(1000000))
		return true;
	return next == NULL && (log->stopping || now - g->last_ns >= patience_ns(log));
}

static void wait_locked(struct mc_kv_log *log) MC_REQUIRES(log->lock)
{
	uint64_t until;

	if (log->open == NULL) {
		mc_cond_wait(&log->work, &log->lock);
		return;
	}
	until = log->open->last_ns + patience_ns(log);
	mc_cond_wait_until(&log->work, &log->lock, until);
}

/* What is left of the segment counts as dead. */
static void give_up_rest(const struct mc_kv_log *log, struct mc_kv_stream *s)
{
	s->filled += log->segment_bytes;
}

/* What seal and reclaim asked for. */
static void do_asked(struct mc_kv_log *log, bool seal)
{
	int r = 0;

	if (seal) {
		give_up_rest(log, &log->puts);
		give_up_rest(log, &log->survivors);
		mc_kv_stream_seal(log, &log->puts);
		mc_kv_stream_seal(log, &log->survivors);
	} else {
		r = mc_kv_reclaim(log, true);
	}
	settle(log);
	log->asked_res = r;
	log->asked = MC_KV_ASKED_NOTHING;
	mc_cond_broadcast(&log->moved);
	mc_mutex_unlock(&log->lock);
}

/* Once for each segment begun. */
static bool reclaim_due_locked(const struct mc_kv_log *log) MC_REQUIRES(log->lock)
{
	return log->puts.seg != NULL && log->puts.seg != log->looked_for && log->n_moving == 0 &&
		!log->stopping && mc_kv_segments_left_locked(log) < LOW_SEGMENTS;
}

/* What one turn of the packer does: the first of these that is due. */
struct turn {
	bool close, reclaim;
	struct mc_kv_op *op;
	int refused;
	enum mc_kv_asked asked;
};

static struct turn next_turn_locked(struct mc_kv_log *log) MC_REQUIRES(log->lock)
{
	struct turn t = {.close = close_due_locked(log, mc_now_ns())};

	if (t.close)
		return t;
	t.op = mc_kv_list_take(&log->retry);
	if (t.op == NULL)
		t.op = mc_kv_list_take(&log->queue);
	if (t.op != NULL) {
		t.refused = refused_locked(log, t.op);
		t.reclaim = reclaim_due_locked(log);
	} else {
		t.asked = log->asked;
	}
	return t;
}

static void take_turn(struct mc_kv_log *log, const struct turn *t)
{
	if (t->close)
		mc_kv_group_close(log);
	if (t->reclaim)
		try_reclaim(log);
	if (t->op != NULL)
		pack_op(log, t->op, t->refused);
	if (t->asked != MC_KV_ASKED_NOTHING)
		do_asked(log, t->asked == MC_KV_ASKED_SEAL);
}

static void *packer_main(void *arg)
{
	struct mc_kv_log *log = arg;

	mc_mutex_lock(&log->lock);
	while (log->recovering)
		mc_cond_wait(&log->work, &log->lock);
	for (;;) {
		struct turn t = next_turn_locked(log);

		if (!t.close && t.op == NULL && t.asked == MC_KV_ASKED_NOTHING) {
			if (log->stopping && log->open == NULL)
				break;
			wait_locked(log);
			continue;
		}
		mc_mutex_unlock(&log->lock);
		if (t.reclaim)
			log->looked_for = log->puts.seg;
		take_turn(log, &t);
		mc_mutex_lock(&log->lock);
	}
	log->packer_done = true;
	mc_kv_poke_locked(log);
	mc_mutex_unlock(&log->lock);
	return NULL;
}

int mc_kv_packer_start(struct mc_kv_log *log)
{
	if (pthread_create(&log->packer, NULL, packer_main, log) != 0)
		return -EAGAIN;
	log->packer_runs = true;
	return 0;
}

static int ask(struct mc_kv_log *log, enum mc_kv_asked what)
{
	int r = mc_kv_log_sync(log);

	if (r != 0)
		return r;
	mc_mutex_lock(&log->lock);
	while (log->asked != MC_KV_ASKED_NOTHING)
		mc_cond_wait(&log->moved, &log->lock);
	log->asked = what;
	mc_cond_signal(&log->work);
	while (log->asked == what)
		mc_cond_wait(&log->moved, &log->lock);
	r = log->asked_res;
	mc_mutex_unlock(&log->lock);
	return r;
}

int mc_kv_log_seal(struct mc_kv_log *log)
{
	return ask(log, MC_KV_ASKED_SEAL);
}

int mc_kv_log_reclaim(struct mc_kv_log *log)
{
	return ask(log, MC_KV_ASKED_RECLAIM);
}
