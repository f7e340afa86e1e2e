/*
 * Streams: records one behind the other into the open segment, in large writes, and the groups they
 * form. A group is closed when its segment is full, or when the packer says so. What is large and
 * stays where it is until its put ends is written from there, the rest through fixed buffers.
 *
 * Invariants:
 * 1. Only the packer's thread touches the streams and what is being filled; `open` changes under
 * the lock.
 * 2. A pack belongs to one group; closing a group submits what its packs hold, padded to 4096.
 * 3. A record lies in one segment and one group, and may cross packs.
 * 4. Pieces of a pack begin and end at multiples of 4096, but for the end of the last. Those
 * written in place are 64 KiB or more, but for the first and the last one, with others between
 * them: 65 at most.
 * 5. Nothing is submitted to the upper floor while a closed group waits for its writes or a sync.
 */
#include "tier/kv-log-impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- groups and buffers */

static int group_file(struct mc_kv_log *log, struct mc_kv_segment *seg, unsigned *ret_file)
{
	struct mc_kv_floor *floor = seg->floor;
	struct mc_kv_group *g = floor->open;
	struct mc_kv_file *grown;

	if (g == NULL) {
		g = calloc(1, sizeof(*g));
		if (g == NULL)
			return -ENOMEM;
		g->log = log;
		g->floor = floor;
		mc_kv_list_init(&g->ops);
		g->opened_ns = mc_now_ns();
		g->last_ns = g->opened_ns;
		g->first_seq = UINT64_MAX;
		mc_mutex_lock(&log->lock);
		floor->open = g;
		mc_mutex_unlock(&log->lock);
	}
	mc_mutex_lock(&log->lock);
	grown = reallocarray(g->files, g->n_files + 1, sizeof(*grown));
	if (grown != NULL) {
		g->files = grown;
		*ret_file = g->n_files;
		g->files[g->n_files++] = (struct mc_kv_file){.seg = seg};
	}
	mc_mutex_unlock(&log->lock);
	return grown == NULL ? -ENOMEM : 0;
}

static void pack_done(struct mc_uring_req *req, int64_t res)
{
	struct mc_kv_pack *p = req->ctx;
	struct mc_kv_log *log = p->log;
	struct mc_kv_group *g = p->group;

	mc_kv_took(log, p->floor, p->begun_ns, p->len);
	if (res < 0)
		mc_kv_failed(log, p->floor, (int)res);
	mc_mutex_lock(&log->lock);
	if (res < 0) {
		struct mc_kv_file *f = &g->files[p->file];

		if (f->res == 0)
			f->res = (int)res;
		mc_kv_segment_set_failed(f->seg, true);
	}
	log->stats.written += p->len;
	g->writing--;
	p->next = p->floor->free_packs;
	p->floor->free_packs = p;
	mc_kv_answered_locked(log, p->floor);
	mc_cond_signal(&log->work);
	if (g->writing == 0 || res < 0)
		mc_kv_poke_locked(log);
	mc_mutex_unlock(&log->lock);
}

/* NULL: the floor hangs, and the segment has failed. */
static struct mc_kv_pack *pack_take(struct mc_kv_log *log, struct mc_kv_stream *s)
{
	struct mc_kv_floor *f = s->floor;
	struct mc_kv_file *file;
	struct mc_kv_pack *p;

	mc_mutex_lock(&log->lock);
	while (f->free_packs == NULL && !f->hangs)
		mc_cond_wait(&log->work, &log->lock);
	p = f->hangs ? NULL : f->free_packs;
	if (p != NULL) {
		f->free_packs = p->next;
	} else {
		file = &f->open->files[s->file];
		file->res = file->res != 0 ? file->res : -ETIMEDOUT;
		mc_kv_segment_set_failed(s->seg, true);
	}
	mc_mutex_unlock(&log->lock);
	if (p == NULL)
		return NULL;
	p->floor = f;
	p->group = f->open;
	p->file = s->file;
	p->off = s->off;
	p->len = p->used = p->n_iov = 0;
	return p;
}

static void pack_piece(struct mc_kv_pack *p, unsigned char *from, uint32_t n)
{
	struct iovec *last = p->n_iov > 0 ? &p->iov[p->n_iov - 1] : NULL;

	if (last != NULL && (unsigned char *)last->iov_base + last->iov_len == from)
		last->iov_len += n;
	else {
		assert(p->n_iov < MC_KV_PACK_PIECES);
		p->iov[p->n_iov++] = (struct iovec){from, n};
	}
	p->len += n;
}

/* src NULL: zeros. */
static void pack_copy(struct mc_kv_pack *p, const void *src, uint32_t n)
{
	unsigned char *to = p->buf + p->used;

	if (src != NULL)
		memcpy(to, src, n);
	else
		memset(to, 0, n);
	p->used += n;
	pack_piece(p, to, n);
}

/* Writes behind those that a closed group waits for, or behind a sync, can hold them up for as long
 * as they come: a disk's scheduler goes on in one direction. Until then they are only packed. Not
 * for a lower floor, which nobody may have to wait for. */
static void let_it_pass_locked(struct mc_kv_log *log, const struct mc_kv_floor *f)
	MC_REQUIRES(log->lock)
{
	if (mc_kv_is_lower(log, f))
		return;
	while (log->syncing || (log->closed != NULL && log->closed->writing > 0))
		mc_cond_wait(&log->work, &log->lock);
}

static void pack_submit(struct mc_kv_log *log, struct mc_kv_pack *p)
{
	const struct mc_kv_file *f;

	if (p->len % MC_KV_ALIGN != 0)
		pack_copy(p, NULL, MC_KV_ALIGN - p->len % MC_KV_ALIGN);
	mc_mutex_lock(&log->lock);
	let_it_pass_locked(log, p->floor);
	f = &p->group->files[p->file];
	p->group->writing++;
	mc_kv_busy_locked(log, p->floor);
	p->begun_ns = mc_now_ns();
	p->req = (struct mc_uring_req){.kind = MC_URING_GATHER,
		.fd = f->seg->place.fd,
		.off = f->seg->place.at + p->off,
		.len = p->len,
		.iov = p->iov,
		.n_iov = p->n_iov,
		.done = pack_done,
		.ctx = p};
	mc_mutex_unlock(&log->lock);
	mc_uring_submit(p->floor->uring, &p->req);
}

static void stream_flush(struct mc_kv_log *log, struct mc_kv_stream *s)
{
	if (s->pack != NULL)
		pack_submit(log, s->pack);
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

void mc_kv_group_close(struct mc_kv_log *log, struct mc_kv_floor *f)
{
	struct mc_kv_group *g = f->open;

	if (g == NULL)
		return;
	stream_flush(log, &f->puts);
	stream_flush(log, &f->survivors);
	mc_mutex_lock(&log->lock);
	f->open = NULL;
	if (mc_kv_is_lower(log, f)) {
		*f->closed_last = g;
		f->closed_last = &g->next;
		f->pending++;
	} else {
		*log->closed_last = g;
		log->closed_last = &g->next;
	}
	mc_kv_poke_locked(log);
	mc_mutex_unlock(&log->lock);
}

void mc_kv_groups_close(struct mc_kv_log *log)
{
	for (unsigned i = 0; i < MC_KV_FLOORS; i++)
		mc_kv_group_close(log, &log->floors[i]);
}

/* ---- streams */

/* How much of what is at src the pack can write from there. */
static uint32_t in_place(const struct mc_kv_pack *p, const void *src, uint32_t n)
{
	if (p->len % MC_KV_ALIGN != 0 || (uintptr_t)src % MC_KV_ALIGN != 0)
		return 0;
	return n / MC_KV_ALIGN * MC_KV_ALIGN;
}

/* src NULL: zeros. stays: src is not changed before the I/O has ended. Nothing more is written to a
 * segment that has failed. */
static void stream_put(
	struct mc_kv_log *log, struct mc_kv_stream *s, const void *src, uint64_t len, bool stays)
{
	const unsigned char *from = src;

	while (len > 0) {
		uint32_t n, direct;

		if (s->pack == NULL && !mc_kv_segment_failed(s->seg))
			s->pack = pack_take(log, s);
		if (s->pack == NULL) {
			s->off += len;
			return;
		}
		n = MC_KV_PACK_BYTES - s->pack->len;
		if (n > len)
			n = (uint32_t)len;
		direct = stays ? in_place(s->pack, from, n) : 0;
		if (direct > 0) {
			n = direct;
			pack_piece(s->pack, (unsigned char *)(uintptr_t)from, n);
		} else {
			pack_copy(s->pack, from, n);
		}
		if (from != NULL)
			from += n;
		s->off += n;
		len -= n;
		if (s->pack->len == MC_KV_PACK_BYTES) {
			pack_submit(log, s->pack);
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

static bool fits(const struct mc_kv_stream *s, const struct mc_kv_meta *m)
{
	return mc_kv_record_start(s->off, m->size) + mc_kv_record_bytes(m) <=
		s->floor->segment_bytes;
}

/* A segment with room for the record, and a file of the group for it. */
static int prepare(struct mc_kv_log *log, struct mc_kv_stream *s, const struct mc_kv_meta *m)
{
	int r;

	if (mc_kv_is_lower(log, s->floor) && mc_kv_hangs(log, s->floor))
		return -EIO;
	if (s->seg != NULL && (mc_kv_segment_failed(s->seg) || !fits(s, m))) {
		mc_kv_stream_seal(log, s);
		mc_kv_group_close(log, s->floor);
	}
	if (s->seg == NULL) {
		r = mc_kv_segment_take(log, s->floor, s->spare, &s->seg);
		if (r != 0)
			return r;
		s->off = 0;
		mc_mutex_lock(&log->lock);
		s->seg->filled = 0;
		mc_mutex_unlock(&log->lock);
	}
	if (!s->spare && log->table_full)
		return -EAGAIN;
	if (s->in_group)
		return 0;
	r = group_file(log, s->seg, &s->file);
	s->in_group = r == 0;
	return r;
}

int mc_kv_stream_record(
	struct mc_kv_log *log, struct mc_kv_stream *s, struct mc_kv_op *op, const void *data)
{
	/* The caller's key: op's own may be renamed at any time. */
	const struct mc_kv_meta *m = op->item != NULL ? &op->item->meta : &op->meta;
	unsigned char header[MC_KV_HEADER];
	struct mc_kv_group *g;
	uint64_t start;
	int r = prepare(log, s, m);

	if (r != 0)
		return r;
	start = mc_kv_record_start(s->off, m->size);
	op->loc = (struct mc_kv_loc){s->seg->id, s->seg->generation, start};
	mc_kv_record_header(log, m, &op->loc, header);
	stream_put(log, s, NULL, start - s->off, false);
	stream_put(log, s, header, sizeof(header), false);
	/* The lower floor may be given up, and the put with it, while a write is under way. */
	stream_put(log, s, data, m->size,
		op->kind != MC_KV_OP_COPY && m->size >= MC_KV_ALIGNED_FROM &&
			!mc_kv_is_lower(log, s->floor));
	stream_put(log, s, m->key, strlen(m->key), false);
	stream_put(log, s, m->crc, 4 * (uint64_t)m->n_crc, false);
	op->file = s->file;
	s->writers++;
	s->filled += mc_kv_space(m->size, m->n_crc, s->seg->id);
	g = s->floor->open;
	mc_kv_list_add(&g->ops, op);
	g->payload += m->size;
	if (op->item != NULL && op->seq < g->first_seq)
		g->first_seq = op->seq;
	return 0;
}
