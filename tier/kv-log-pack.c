/*
 * The packer: takes puts from the queue, writes their records through fixed buffers to the open
 * segment, and closes the group when the segment is full, when somebody syncs, or by the clock.
 *
 * Invariants:
 * 1. Only this thread touches the streams and what is being filled; `open` changes under the lock.
 * 2. A buffer belongs to one group; closing a group submits what its buffers hold, padded to 4096.
 * 3. A record lies in one segment and one group, and may cross buffers.
 */
#include "tier/kv-log-impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LOW_SEGMENTS 2                  /* below this many left, reclaim begins before it must */
#define FULL_GROUP (UINT64_C(64) << 20) /* payload that need not wait for a full segment */
#define FULL_WAIT_NS (UINT64_C(5) * 1000000)
#define HOPELESS_NS (UINT64_C(100) * 1000000)

/* ---- groups and buffers */

int mc_kv_group_file(struct mc_kv_log *log, struct mc_kv_segment *seg, unsigned *ret_file)
{
	struct mc_kv_group *g = log->open;
	struct mc_kv_file *grown;

	if (g == NULL) {
		g = calloc(1, sizeof(*g));
		if (g == NULL)
			return -ENOMEM;
		g->log = log;
		mc_kv_list_init(&g->ops);
		g->opened_ns = mc_now_ns();
		g->last_ns = g->opened_ns;
		g->first_seq = UINT64_MAX;
		mc_mutex_lock(&log->lock);
		log->open = g;
		mc_mutex_unlock(&log->lock);
	}
	mc_mutex_lock(&log->lock);
	grown = reallocarray(g->files, g->n_files + 1, sizeof(*grown));
	if (grown != NULL) {
		g->files = grown;
		*ret_file = g->n_files;
		g->files[g->n_files++] = (struct mc_kv_file){.seg = seg, .fd = -1};
	}
	mc_mutex_unlock(&log->lock);
	return grown == NULL ? -ENOMEM : 0;
}

static void pack_done(struct mc_uring_req *req, int64_t res)
{
	struct mc_kv_pack *p = req->ctx;
	struct mc_kv_log *log = p->log;
	struct mc_kv_group *g = p->group;

	if (res < 0)
		mc_kv_failed(log, (int)res);
	mc_mutex_lock(&log->lock);
	if (res < 0) {
		struct mc_kv_file *f = &g->files[p->file];

		if (f->res == 0)
			f->res = (int)res;
		if (f->seg != NULL)
			mc_kv_segment_set_failed(f->seg, true);
	}
	log->stats.written += p->len;
	g->writing--;
	p->next = log->free_packs;
	log->free_packs = p;
	mc_cond_signal(&log->work);
	mc_kv_poke_locked(log);
	mc_mutex_unlock(&log->lock);
}

struct mc_kv_pack *mc_kv_pack_take(struct mc_kv_log *log, unsigned file, uint64_t off)
{
	struct mc_kv_pack *p;

	mc_mutex_lock(&log->lock);
	while (log->free_packs == NULL)
		mc_cond_wait(&log->work, &log->lock);
	p = log->free_packs;
	log->free_packs = p->next;
	mc_mutex_unlock(&log->lock);
	p->group = log->open;
	p->file = file;
	p->off = off;
	p->len = 0;
	return p;
}

void mc_kv_pack_submit(struct mc_kv_log *log, struct mc_kv_pack *p)
{
	uint32_t padded = (uint32_t)mc_kv_up(p->len, MC_KV_ALIGN);
	const struct mc_kv_file *f;

	memset(p->buf + p->len, 0, padded - p->len);
	p->len = padded;
	mc_mutex_lock(&log->lock);
	f = &p->group->files[p->file];
	p->group->writing++;
	p->req = (struct mc_uring_req){.kind = MC_URING_WRITE,
		.fd = f->seg != NULL ? f->seg->fd : f->fd,
		.off = p->off,
		.len = p->len,
		.buf = p->buf,
		.done = pack_done,
		.ctx = p};
	mc_mutex_unlock(&log->lock);
	mc_uring_submit(log->uring, &p->req);
}

static void stream_flush(struct mc_kv_log *log, struct mc_kv_stream *s)
{
	if (s->pack != NULL)
		mc_kv_pack_submit(log, s->pack);
	s->pack = NULL;
	s->off = mc_kv_up(s->off, MC_KV_ALIGN);
	s->in_group = false;
	if (s->seg == NULL)
		return;
	mc_mutex_lock(&log->lock);
	s->seg->writers += s->writers;
	s->seg->filled += s->filled;
	mc_mutex_unlock(&log->lock);
	s->writers = 0;
	s->filled = 0;
}

void mc_kv_group_close(struct mc_kv_log *log)
{
	struct mc_kv_group *g = log->open;

	if (g == NULL)
		return;
	stream_flush(log, &log->puts);
	stream_flush(log, &log->survivors);
	mc_mutex_lock(&log->lock);
	log->open = NULL;
	*log->closed_last = g;
	log->closed_last = &g->next;
	mc_kv_poke_locked(log);
	mc_mutex_unlock(&log->lock);
}

/* ---- streams */

/* src NULL: zeros. */
void mc_kv_stream_put(struct mc_kv_log *log, struct mc_kv_stream *s, const void *src, uint64_t len)
{
	const unsigned char *from = src;

	while (len > 0) {
		uint32_t n;

		if (s->pack == NULL)
			s->pack = mc_kv_pack_take(log, s->file, s->off);
		n = MC_KV_PACK_BYTES - s->pack->len;
		if (n > len)
			n = (uint32_t)len;
		if (from != NULL) {
			memcpy(s->pack->buf + s->pack->len, from, n);
			from += n;
		} else {
			memset(s->pack->buf + s->pack->len, 0, n);
		}
		s->pack->len += n;
		s->off += n;
		len -= n;
		if (s->pack->len == MC_KV_PACK_BYTES) {
			mc_kv_pack_submit(log, s->pack);
			s->pack = NULL;
		}
	}
}

void mc_kv_stream_seal(struct mc_kv_log *log, struct mc_kv_stream *s)
{
	if (s->seg == NULL)
		return;
	stream_flush(log, s);
	mc_mutex_lock(&log->lock);
	s->seg->state = MC_KV_SEG_SEALED;
	mc_kv_poke_locked(log);
	mc_mutex_unlock(&log->lock);
	s->seg = NULL;
}

static bool fits(
	const struct mc_kv_log *log, const struct mc_kv_stream *s, const struct mc_kv_meta *m)
{
	return mc_kv_record_start(s->off, m->size) + mc_kv_record_bytes(m) <= log->segment_bytes;
}

/* A segment with room for the record, and a file of the group for it. */
static int prepare(struct mc_kv_log *log, struct mc_kv_stream *s, const struct mc_kv_meta *m)
{
	int r;

	if (s->seg != NULL && (mc_kv_segment_failed(s->seg) || !fits(log, s, m))) {
		mc_kv_stream_seal(log, s);
		mc_kv_group_close(log);
	}
	if (s->seg == NULL) {
		r = mc_kv_segment_take(log, s == &log->survivors, &s->seg);
		if (r != 0)
			return r;
		s->off = 0;
		mc_mutex_lock(&log->lock);
		s->seg->filled = 0;
		mc_mutex_unlock(&log->lock);
	}
	if (s->in_group)
		return 0;
	r = mc_kv_group_file(log, s->seg, &s->file);
	s->in_group = r == 0;
	return r;
}

int mc_kv_stream_record(
	struct mc_kv_log *log, struct mc_kv_stream *s, struct mc_kv_op *op, const void *data)
{
	/* The caller's key: op's own may be renamed at any time. */
	const struct mc_kv_meta *m = op->item != NULL ? &op->item->meta : &op->meta;
	unsigned char header[MC_KV_HEADER];
	uint64_t start;
	int r = prepare(log, s, m);

	if (r != 0)
		return r;
	start = mc_kv_record_start(s->off, m->size);
	op->loc = (struct mc_kv_loc){s->seg->id, s->seg->generation, start};
	mc_kv_record_header(log, m, &op->loc, header);
	mc_kv_stream_put(log, s, NULL, start - s->off);
	mc_kv_stream_put(log, s, header, sizeof(header));
	mc_kv_stream_put(log, s, data, m->size);
	mc_kv_stream_put(log, s, m->key, strlen(m->key));
	mc_kv_stream_put(log, s, m->crc, 4 * (uint64_t)m->n_crc);
	op->file = s->file;
	s->writers++;
	s->filled += mc_kv_space(m->size, m->n_crc, s->seg->id);
	mc_kv_list_add(&log->open->ops, op);
	log->open->last_ns = mc_now_ns();
	log->open->payload += m->size;
	if (op->item != NULL && op->seq < log->open->first_seq)
		log->open->first_seq = op->seq;
	return 0;
}

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

/* Lets the committer free what is empty; if that is nothing, reclaims. 0: try again. -ENOSPC. */
static int make_room(struct mc_kv_log *log)
{
	uint64_t freed;
	bool more;

	mc_kv_group_close(log);
	mc_mutex_lock(&log->lock);
	freed = log->stats.reclaimed;
	log->free_wanted = true;
	mc_kv_poke_locked(log);
	while (!idle_locked(log) || log->free_wanted)
		mc_cond_wait(&log->moved, &log->lock);
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
	return log->bypassed || log->dead != 0 ? -EIO : 0;
}

static void pack_op(struct mc_kv_log *log, struct mc_kv_op *op, int r)
{
	while (r == 0) {
		if (mc_kv_record_bytes(&op->item->meta) > log->record_max)
			r = mc_kv_image_write(log, op);
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
	mc_kv_op_fail(log, op, r);
}

/* ---- the thread */

/* How long the open group waits for more while the queue is empty. */
static uint64_t patience_ns(const struct mc_kv_log *log)
{
	uint64_t idle = log->commit_ms * UINT64_C(100000);

	return log->open->payload >= FULL_GROUP && idle > FULL_WAIT_NS ? FULL_WAIT_NS : idle;
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
	mc_kv_group_close(log);
	mc_mutex_lock(&log->lock);
	log->free_wanted = true;
	mc_kv_poke_locked(log);
	while (!idle_locked(log) || log->free_wanted)
		mc_cond_wait(&log->moved, &log->lock);
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
