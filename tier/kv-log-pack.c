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
#define BYTES_PER_TURN MC_KV_PACK_BYTES /* about: a close waits for no more */

/* ---- room */

static bool idle_locked(const struct mc_kv_log *log) MC_REQUIRES(log->lock)
{
	return log->closed == NULL && !log->committing && mc_kv_below_idle_locked(log);
}

/* Whether there is a lower floor for what lives on f, and it works. */
static bool goes_down(struct mc_kv_log *log, const struct mc_kv_floor *f)
{
	bool down;

	mc_mutex_lock(&log->lock);
	down = f != mc_kv_bottom(log) && !mc_disk_ails(&mc_kv_bottom(log)->health);
	mc_mutex_unlock(&log->lock);
	return down;
}

static int try_reclaim(struct mc_kv_log *log, struct mc_kv_floor *f)
{
	uint64_t deaths;
	int r;

	mc_mutex_lock(&log->lock);
	deaths = log->deaths;
	mc_mutex_unlock(&log->lock);
	if (f->hopeless_ns != 0 && deaths == f->hopeless_deaths &&
		mc_now_ns() - f->hopeless_ns < HOPELESS_NS)
		return -ENOENT;
	r = mc_kv_reclaim(log, f, MC_KV_RECLAIM_GAIN);
	f->hopeless_ns = r == 0 ? 0 : mc_now_ns();
	f->hopeless_deaths = deaths;
	return r;
}

/* Everything written is committed, or given up, and what is empty is free. Returns with the lock
 * held. */
static void settle(struct mc_kv_log *log) MC_ACQUIRE(log->lock)
{
	mc_kv_groups_close(log);
	mc_mutex_lock(&log->lock);
	log->free_wanted = true;
	mc_kv_poke_locked(log);
	while (!idle_locked(log) || log->free_wanted)
		mc_cond_wait(&log->moved, &log->lock);
}

/* Lets the committer free what is empty. Whether there is more on that floor than before. */
static bool freed(struct mc_kv_log *log, const struct mc_kv_floor *f)
{
	uint64_t before;
	bool more;

	mc_mutex_lock(&log->lock);
	before = f->freed;
	mc_mutex_unlock(&log->lock);
	settle(log);
	more = f->freed != before;
	mc_mutex_unlock(&log->lock);
	return more;
}

/* 0: try again. -ENOSPC. */
static int make_room_on(struct mc_kv_log *log, struct mc_kv_floor *f)
{
	return freed(log, f) || try_reclaim(log, f) == 0 ? 0 : -ENOSPC;
}

/* A segment of f moves down, for which room is made there. False: it has to be emptied where it
 * is. */
static bool move_down(struct mc_kv_log *log, struct mc_kv_floor *f)
{
	int r = -EAGAIN;

	while (r == -EAGAIN && goes_down(log, f)) {
		r = mc_kv_reclaim(log, f, MC_KV_RECLAIM_DOWN);
		if (r == -EAGAIN && make_room_on(log, mc_kv_bottom(log)) != 0)
			r = -ENOSPC;
	}
	return r == 0;
}

static int make_room(struct mc_kv_log *log, struct mc_kv_floor *f)
{
	return freed(log, f) || move_down(log, f) || try_reclaim(log, f) == 0 ? 0 : -ENOSPC;
}

/* Why it is not to be written, or 0. */
static int refused_locked(struct mc_kv_log *log, const struct mc_kv_op *op) MC_REQUIRES(log->lock)
{
	if (op->cancelled)
		return -ECANCELED;
	return mc_kv_bypassed_locked(log, mc_kv_floor_of(log, op)) || log->dead != 0 ? -EIO : 0;
}

/* What is under way is not in the table yet: it is what the margin is for, too. */
static void look_at_table_locked(struct mc_kv_log *log) MC_REQUIRES(log->lock)
{
	log->table_full = log->table.bytes >= log->table_max;
}

/* Its parts, none of which is under way any more, are of no use. */
static void give_up_parts(struct mc_kv_log *log, struct mc_kv_op *op)
{
	settle(log);
	mc_kv_split_gone_locked(log, op->meta.version, &op->loc, op->meta.size);
	mc_mutex_unlock(&log->lock);
}

static void pack_op(struct mc_kv_log *log, struct mc_kv_op *op)
{
	struct mc_kv_floor *f = mc_kv_floor_of(log, op);
	int r = op->res;

	while (r == 0) {
		if (mc_kv_record_bytes(&op->item->meta) > log->record_max)
			r = mc_kv_split_write(log, op);
		else
			r = mc_kv_stream_record(log, &f->puts, op, op->item->buf);
		if (r == 0)
			return;
		if (r == -EAGAIN)
			r = make_room(log, f);
		if (r != 0)
			break;
		mc_mutex_lock(&log->lock);
		r = refused_locked(log, op);
		look_at_table_locked(log);
		mc_mutex_unlock(&log->lock);
	}
	if (op->parts > 0)
		give_up_parts(log, op);
	mc_kv_op_fail(log, op, r);
}

/* ---- the thread */

/* How long an open group waits for more while the queue is empty. */
static uint64_t patience_ns(const struct mc_kv_log *log)
{
	return log->commit_ms * UINT64_C(100000);
}

static bool close_due_locked(const struct mc_kv_log *log, const struct mc_kv_floor *f, uint64_t now)
	MC_REQUIRES(log->lock)
{
	const struct mc_kv_group *g = f->open;
	const struct mc_kv_op *next = log->queue.first;

	if (g == NULL)
		return false;
	if (f->hangs)
		return true;
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
	uint64_t until = UINT64_MAX;

	for (unsigned i = 0; i < MC_KV_FLOORS; i++) {
		const struct mc_kv_group *g = log->floors[i].open;

		if (g != NULL && g->last_ns + patience_ns(log) < until)
			until = g->last_ns + patience_ns(log);
	}
	if (until != UINT64_MAX)
		mc_cond_wait_until(&log->work, &log->lock, until);
	else
		mc_cond_wait(&log->work, &log->lock);
}

/* What is left of the segment counts as dead. */
static void give_up_rest(struct mc_kv_log *log, struct mc_kv_stream *s)
{
	s->filled += s->floor->segment_bytes;
	mc_kv_stream_seal(log, s);
}

/* Down, if that is where things go; else of the floor that has something. */
static int reclaim_asked(struct mc_kv_log *log)
{
	struct mc_kv_floor *top = mc_kv_top(log), *bottom = mc_kv_bottom(log);
	int r = goes_down(log, top) ? mc_kv_reclaim(log, top, MC_KV_RECLAIM_DOWN) : -ENOENT;

	if (r != 0)
		r = mc_kv_reclaim(log, bottom, MC_KV_RECLAIM_FORCE);
	if (r != 0 && top != bottom)
		r = mc_kv_reclaim(log, top, MC_KV_RECLAIM_FORCE);
	return r;
}

/* What seal and reclaim asked for. */
static void do_asked(struct mc_kv_log *log, bool seal)
{
	int r = 0;

	for (unsigned i = 0; i < MC_KV_FLOORS && seal; i++) {
		give_up_rest(log, &log->floors[i].puts);
		give_up_rest(log, &log->floors[i].survivors);
	}
	if (!seal)
		r = reclaim_asked(log);
	settle(log);
	log->asked_res = r;
	log->asked = MC_KV_ASKED_NOTHING;
	mc_cond_broadcast(&log->moved);
	mc_mutex_unlock(&log->lock);
}

/* Once for each segment begun. */
static bool reclaim_due_locked(const struct mc_kv_log *log, const struct mc_kv_floor *f)
	MC_REQUIRES(log->lock)
{
	return f->puts.seg != NULL && f->puts.seg != f->looked_for && log->n_moving == 0 &&
		!log->stopping && mc_kv_segments_left_locked(log, f) < LOW_SEGMENTS;
}

/* Before somebody waits for it. */
static void reclaim_early(struct mc_kv_log *log, struct mc_kv_floor *f)
{
	f->looked_for = f->puts.seg;
	if (!goes_down(log, f))
		try_reclaim(log, f);
	else if (mc_kv_reclaim(log, f, MC_KV_RECLAIM_DOWN) == -EAGAIN)
		try_reclaim(log, mc_kv_bottom(log));
}

/* What one turn of the packer does: the first of these that is due. */
struct turn {
	bool close;
	struct mc_kv_floor *reclaim;
	struct mc_kv_op *ops[MC_KV_OPS_PER_HOLD]; /* res: why it is not to be written, or 0 */
	unsigned n_ops;
	enum mc_kv_asked asked;
};

static void take_ops_locked(struct mc_kv_log *log, struct turn *t) MC_REQUIRES(log->lock)
{
	uint64_t bytes = 0;

	while (t->n_ops < MC_KV_OPS_PER_HOLD && bytes < BYTES_PER_TURN) {
		struct mc_kv_op *op = mc_kv_list_take(&log->retry);

		if (op == NULL)
			op = mc_kv_list_take(&log->queue);
		if (op == NULL)
			break;
		op->res = refused_locked(log, op);
		bytes += op->meta.size;
		t->ops[t->n_ops++] = op;
	}
}

static void next_turn_locked(struct mc_kv_log *log, struct turn *t) MC_REQUIRES(log->lock)
{
	const uint64_t now = mc_now_ns();

	t->n_ops = 0;
	t->reclaim = NULL;
	t->asked = MC_KV_ASKED_NOTHING;
	t->close = false;
	for (unsigned i = 0; i < MC_KV_FLOORS; i++)
		t->close |= close_due_locked(log, &log->floors[i], now);
	if (t->close)
		return;
	take_ops_locked(log, t);
	look_at_table_locked(log);
	if (t->n_ops == 0)
		t->asked = log->asked;
	for (unsigned i = 0; i < MC_KV_FLOORS && t->n_ops > 0; i++)
		if (reclaim_due_locked(log, &log->floors[i]))
			t->reclaim = &log->floors[i];
}

static void take_turn(struct mc_kv_log *log, const struct turn *t)
{
	uint64_t now;

	if (t->close)
		mc_kv_groups_close(log);
	if (t->reclaim != NULL)
		reclaim_early(log, t->reclaim);
	for (unsigned i = 0; i < t->n_ops; i++)
		pack_op(log, t->ops[i]);
	now = mc_now_ns();
	for (unsigned i = 0; i < MC_KV_FLOORS; i++)
		if (log->floors[i].open != NULL)
			log->floors[i].open->last_ns = now;
	if (t->asked != MC_KV_ASKED_NOTHING)
		do_asked(log, t->asked == MC_KV_ASKED_SEAL);
}

static bool are_open(const struct mc_kv_log *log)
{
	return log->floors[0].open != NULL || log->floors[1].open != NULL;
}

static void *packer_main(void *arg)
{
	struct mc_kv_log *log = arg;

	pthread_setname_np(pthread_self(), "mc-kv-pack");
	mc_mutex_lock(&log->lock);
	while (log->recovering)
		mc_cond_wait(&log->work, &log->lock);
	for (;;) {
		struct turn t;

		next_turn_locked(log, &t);
		if (!t.close && t.n_ops == 0 && t.asked == MC_KV_ASKED_NOTHING) {
			if (log->stopping && !are_open(log))
				break;
			wait_locked(log);
			continue;
		}
		mc_mutex_unlock(&log->lock);
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
