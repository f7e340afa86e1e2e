/*
 * Writing an object to an NFS server: WRITEs in a window, then COMMIT.
 *
 * UNSTABLE data counts as durable only when the verifier of the COMMIT equals that of every WRITE:
 * a server that restarted between them has another one, and may have lost the data. Then all is
 * written again. What fits into one WRITE is written FILE_SYNC.
 */
#include "tier/remote-nfs-put.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROUNDS 3 /* of writing everything */

enum { FREE, BUSY, ANSWERED };

void mc_nfs_window_init(struct mc_nfs_window *w)
{
	mc_mutex_init(&w->lock);
	mc_cond_init(&w->change);
	memset(w->state, FREE, sizeof(w->state));
}

void mc_nfs_window_done(struct mc_nfs_window *w)
{
	mc_cond_done(&w->change);
	mc_mutex_done(&w->lock);
}

static void window_answer(struct mc_nfs_call *c, int res)
{
	struct mc_nfs_window *w = c->ctx;

	mc_mutex_lock(&w->lock);
	c->res = res;
	w->state[c - w->calls] = ANSWERED;
	mc_cond_signal(&w->change);
	mc_mutex_unlock(&w->lock);
}

void mc_nfs_window_send(struct mc_nfs_window *w, struct mc_nfs_call *c, struct mc_nfs_conn *conn)
{
	c->done = window_answer;
	c->ctx = w;
	mc_mutex_lock(&w->lock);
	w->state[c - w->calls] = BUSY;
	mc_mutex_unlock(&w->lock);
	mc_nfs_conn_submit(conn, c);
}

/* An answered call, else (unless only answers are wanted) a free one, else waits; NULL: all are
 * free. */
struct mc_nfs_call *mc_nfs_window_next(struct mc_nfs_window *w, bool want_free, bool *ret_answered)
{
	struct mc_nfs_call *found = NULL;

	mc_mutex_lock(&w->lock);
	for (;;) {
		bool busy = false;

		for (unsigned i = 0; i < MC_NFS_WINDOW && found == NULL; i++) {
			busy = busy || w->state[i] == BUSY;
			if (w->state[i] == ANSWERED) {
				w->state[i] = FREE;
				found = &w->calls[i];
				*ret_answered = true;
			}
		}
		for (unsigned i = 0; i < MC_NFS_WINDOW && found == NULL && want_free; i++) {
			if (w->state[i] == FREE) {
				found = &w->calls[i];
				*ret_answered = false;
			}
		}
		if (found != NULL || !busy)
			break;
		mc_cond_wait(&w->change, &w->lock);
	}
	mc_mutex_unlock(&w->lock);
	return found;
}

/* Takes a WRITE's answer in: the rest of a short one goes out again. */
static int write_answered(struct mc_nfs_putting *p, struct mc_nfs_window *w, struct mc_nfs_call *c)
{
	if (c->res < 0)
		return c->res;
	if (c->count == 0)
		return -EIO;
	if (c->stable != FILE_SYNC) {
		if (p->have_verf && memcmp(p->verf, c->verf, sizeof(p->verf)) != 0)
			return -EAGAIN; /* the server restarted between two WRITEs */
		p->stable = false;
	}
	memcpy(p->verf, c->verf, sizeof(p->verf));
	p->have_verf = true;
	p->have_size = c->has_attr && c->off == 0 && c->len == p->len && c->count == c->len;
	p->size = c->attr.size;
	if (c->count < c->len) {
		c->off += c->count;
		c->buf = (char *)c->buf + c->count;
		c->len -= c->count;
		c->stable = UNSTABLE;
		mc_nfs_window_send(w, c, mc_nfs_bulk(p->n));
	}
	return 0;
}

/* One round of WRITEs over the whole object. -EAGAIN: write it all again. */
static int write_round(struct mc_nfs_putting *p)
{
	uint32_t piece = p->n->wtmax;
	struct mc_nfs_window *w = calloc(1, sizeof(*w));
	size_t off = 0;
	int r = 0;

	if (w == NULL)
		return -ENOMEM;
	mc_nfs_window_init(w);
	p->have_verf = false;
	p->stable = true;
	for (;;) {
		bool answered = false;
		struct mc_nfs_call *c = mc_nfs_window_next(w, r == 0 && off < p->len, &answered);

		if (c == NULL)
			break;
		if (answered) {
			int one = r < 0 ? 0 : write_answered(p, w, c);

			r = r < 0 ? r : one;
			continue;
		}
		*c = (struct mc_nfs_call){.proc = &mc_nfs_write,
			.fh = p->fh,
			.off = off,
			.len = p->len - off < piece ? (uint32_t)(p->len - off) : piece,
			.stable = p->len <= piece ? FILE_SYNC : UNSTABLE,
			.buf = (char *)(uintptr_t)p->buf + off,
			.deadline_ns = p->deadline_ns};
		off += c->len;
		mc_nfs_window_send(w, c, mc_nfs_bulk(p->n));
	}
	mc_nfs_window_done(w);
	free(w);
	return r;
}

int mc_nfs_write_durably(struct mc_nfs_putting *p)
{
	for (int round = 0; round < MAX_ROUNDS; round++) {
		struct mc_nfs_call c = {
			.proc = &mc_nfs_commit, .fh = p->fh, .deadline_ns = p->deadline_ns};
		int r = write_round(p);

		if (r == -EAGAIN)
			continue;
		if (r < 0)
			return r;
		if (p->have_verf && p->stable)
			return 0; /* every WRITE said FILE_SYNC */
		r = mc_nfs_call_run(p->n->meta, &c);
		if (r < 0)
			return r;
		p->have_size = c.has_attr;
		p->size = c.attr.size;
		if (!p->have_verf || memcmp(p->verf, c.verf, sizeof(c.verf)) == 0) {
			memcpy(p->verf, c.verf, sizeof(c.verf));
			return 0;
		}
	}
	return -EIO; /* a server that restarts all the time */
}
