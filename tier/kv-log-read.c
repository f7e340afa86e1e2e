/*
 * Reads. Where place and buffer allow it the middle goes straight into the caller's buffer; what is
 * not aligned comes through bounce buffers. A segment with readers is not reused.
 */
#include "tier/kv-log-impl.h"

#include "tier/cleanup.h"
#include "tier/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define DIRECT_FROM 65536u /* bytes: below, one bounce is cheaper than three requests */
#define PARTS 3            /* head, middle, tail */

struct part {
	struct mc_uring_req req;
	unsigned char *bounce; /* owned; NULL: into the caller's buffer */
	uint64_t off;          /* where it begins, of the segment */
	uint64_t from, to;     /* likewise: what of it is wanted */
};

struct job {
	struct mc_kv_log *log;
	struct mc_kv_log_read *read;
	struct mc_kv_segment *seg; /* one reader; NULL: none yet */
	int fd;                    /* borrowed from it */
	uint64_t base;             /* of fd: where the segment begins */
	uint64_t payload;          /* offset in the segment */
	bool framed;               /* the header is read, too */
	unsigned left;             /* atomic */
	int res;                   /* atomic: first error */
	unsigned n;
	struct part parts[PARTS];
};

static void free_job(struct job *j)
{
	struct mc_kv_log *log = j->log;

	if (j->seg != NULL) {
		mc_mutex_lock(&log->lock);
		if (--j->seg->readers == 0 && j->seg->head == 0)
			mc_kv_poke_locked(log);
		mc_mutex_unlock(&log->lock);
	}
	for (unsigned i = 0; i < j->n; i++)
		free(j->parts[i].bounce);
	free(j);
}

/* Copies what a bounce buffer holds of the header and of the payload. */
static void take_part(const struct job *j, const struct part *p, unsigned char *header)
{
	const struct mc_kv_log_read *r = j->read;
	uint64_t start = j->payload + r->off, end = start + r->len;
	uint64_t from = p->from > start ? p->from : start, to = p->to < end ? p->to : end;

	if (p->bounce == NULL)
		return;
	if (from < to)
		memcpy((char *)r->buf + (from - start), p->bounce + (from - p->off), to - from);
	if (j->framed && p == &j->parts[0])
		memcpy(header, p->bounce + (r->loc.off - p->off), MC_KV_HEADER);
}

static void finish(struct job *j)
{
	struct mc_kv_log *log = j->log;
	struct mc_kv_log_read *r = j->read;
	unsigned char header[MC_KV_HEADER];
	int res = __atomic_load_n(&j->res, __ATOMIC_ACQUIRE);

	for (unsigned i = 0; i < j->n && res == 0; i++)
		take_part(j, &j->parts[i], header);
	if (res == 0 && j->framed)
		res = mc_kv_record_check(log, header, &r->loc, r->version, r->size);
	if (res == -EBADMSG) {
		mc_mutex_lock(&log->lock);
		log->stats.bad++;
		mc_mutex_unlock(&log->lock);
	}
	free_job(j);
	r->done(r, res);
}

static void part_done(struct mc_uring_req *req, int64_t res)
{
	struct job *j = req->ctx;
	int expected = 0;

	if (res < 0)
		mc_kv_failed(j->log, j->seg->floor, (int)res);
	else if (res < req->need)
		res = -EBADMSG; /* the file ends before the record */
	if (res < 0)
		__atomic_compare_exchange_n(
			&j->res, &expected, (int)res, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	if (__atomic_sub_fetch(&j->left, 1, __ATOMIC_ACQ_REL) == 0)
		finish(j);
}

/* bytes [from, to) through a bounce buffer. */
static int add_bounce(struct job *j, uint64_t from, uint64_t to)
{
	uint64_t off = from / MC_KV_ALIGN * MC_KV_ALIGN, len = mc_kv_up(to, MC_KV_ALIGN) - off;
	struct part *p = &j->parts[j->n];

	p->bounce = aligned_alloc(MC_KV_ALIGN, len);
	if (p->bounce == NULL)
		return -ENOMEM;
	p->off = off;
	p->from = from;
	p->to = to;
	p->req = (struct mc_uring_req){.kind = MC_URING_READ,
		.fd = j->fd,
		.off = j->base + off,
		.len = (uint32_t)len,
		.need = (uint32_t)(to - off),
		.buf = p->bounce};
	j->n++;
	return 0;
}

static void add_direct(struct job *j, uint64_t from, uint64_t to)
{
	struct part *p = &j->parts[j->n++];

	p->off = p->from = from;
	p->to = to;
	p->req = (struct mc_uring_req){.kind = MC_URING_READ,
		.fd = j->fd,
		.off = j->base + from,
		.len = (uint32_t)(to - from),
		.need = (uint32_t)(to - from),
		.buf = j->read->buf};
}

static int plan_parts(struct job *j)
{
	const struct mc_kv_log_read *r = j->read;
	uint64_t start = j->payload + r->off, end = start + r->len;
	uint64_t first = j->framed ? r->loc.off : start;
	int res = 0;

	if (r->len < DIRECT_FROM || start % MC_KV_ALIGN != 0 ||
		(uintptr_t)r->buf % MC_KV_ALIGN != 0)
		return add_bounce(j, first, end);
	if (first < start)
		res = add_bounce(j, first, start);
	add_direct(j, start, end / MC_KV_ALIGN * MC_KV_ALIGN);
	if (res == 0 && end % MC_KV_ALIGN != 0)
		res = add_bounce(j, end / MC_KV_ALIGN * MC_KV_ALIGN, end);
	return res;
}

static int find_segment(struct job *j)
{
	struct mc_kv_log *log = j->log;
	const struct mc_kv_loc *loc = &j->read->loc;
	struct mc_kv_segment *seg;
	int r = -ESTALE;

	mc_mutex_lock(&log->lock);
	seg = mc_kv_segment_get(log, loc->segment);
	if (seg != NULL && mc_kv_segment_holds_locked(seg, loc->generation)) {
		seg->readers++;
		j->seg = seg;
		j->fd = seg->place.fd;
		j->base = seg->place.at;
		r = 0;
	} else if (seg != NULL && seg->aside != 0) {
		r = -EIO;
	}
	mc_mutex_unlock(&log->lock);
	return r;
}

static int prepare(struct job *j)
{
	const struct mc_kv_log_read *r = j->read;
	int res;

	if (r->loc.segment == 0)
		return -ESTALE;
	res = find_segment(j);
	if (res != 0)
		return res;
	j->payload = r->loc.off + MC_KV_HEADER;
	j->framed = r->off == 0;
	return plan_parts(j);
}

void mc_kv_log_read(struct mc_kv_log *log, struct mc_kv_log_read *r)
{
	struct mc_uring *uring;
	struct job *j;
	unsigned n;
	int res;

	if (r->len > 0 && r->loc.segment == MC_KV_SPLIT) {
		mc_kv_split_read(log, r);
		return;
	}
	j = calloc(1, sizeof(*j));
	if (r->len == 0 || j == NULL) {
		free(j);
		r->done(r, r->len == 0 ? 0 : -ENOMEM);
		return;
	}
	j->log = log;
	j->read = r;
	j->fd = -1;
	res = prepare(j);
	if (res != 0) {
		free_job(j);
		r->done(r, res);
		return;
	}
	uring = j->seg->floor->uring;
	n = j->n;
	j->left = n;
	for (unsigned i = 0; i < n; i++) {
		j->parts[i].req.done = part_done;
		j->parts[i].req.ctx = j;
		mc_uring_submit(uring, &j->parts[i].req); /* the last one may free j */
	}
}

int mc_kv_log_find(struct mc_kv_log *log, const char *key, const uint8_t version[16], uint64_t size,
	struct mc_kv_loc *ret, uint32_t *ret_crc)
{
	const struct mc_kv_entry *e;
	int r = -ENOENT;

	mc_mutex_lock(&log->lock);
	e = mc_kv_table_get(&log->table, mc_kv_table_find(&log->table, MC_KV_OBJECT, key));
	if (e != NULL && e->size == size && e->n_crc > 0 &&
		memcmp(e->version, version, sizeof(e->version)) == 0) {
		*ret = mc_kv_entry_loc(e);
		*ret_crc = e->crc[0];
		r = 0;
	}
	mc_mutex_unlock(&log->lock);
	return r;
}
