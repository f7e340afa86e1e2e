/*
 * Reads of remote kind "nfs".
 *
 * 1. A handle is in the map (and holds a reference for that) or on its way out. RESOLVING: a walk
 * is under way, reads wait on it; READY: fh and attr are those of the path at seen_ns.
 * 2. A read is in one place: waiting on a handle, or in its call on a bulk connection. Whoever
 * takes it from there passes it on or ends it.
 * 3. The attributes that come with each READ answer are compared with the guard, so a file changed
 *    under us is noticed by the read that got its bytes. -ESTALE from the server, a broken guard,
 * or an end too early lead to one new walk before they are the answer.
 * 4. No lock is held where a callback may run.
 */
#include "tier/remote-nfs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HANDLES 4096
#define MAX_TRIES 2

struct nfs_read {
	struct nfs_read *next; /* waiting on the same handle */
	struct mc_nfs *n;
	struct mc_remote_read *req;
	struct mc_nfs_handle *h; /* a reference, while it reads */
	struct mc_nfs_conn *conn;
	uint32_t got; /* bytes in req->buf */
	unsigned tries;
	struct mc_nfs_call call;
};

struct mc_nfs_handle {
	struct mc_lru_node node;
	struct mc_nfs *n;
	unsigned refs; /* under n->lock */
	bool ready;
	uint64_t seen_ns;
	uint64_t instance;        /* of the file handle: a new inode has another generation in it */
	struct nfs_read *waiting; /* newest first */
	char *path;               /* owned: outlives the key in the map */
	struct mc_nfs_walk walk;
};

static void begin(struct nfs_read *t);

int mc_nfs_reads_init(struct mc_nfs *n)
{
	return mc_lru_init(&n->handles, MAX_HANDLES);
}

static void unref_locked(struct mc_nfs_handle *h)
{
	if (--h->refs > 0)
		return;
	free(h->path);
	free(h);
}

static void drop_locked(struct mc_nfs *n, struct mc_nfs_handle *h) MC_REQUIRES(n->lock)
{
	if (h->node.key == NULL)
		return;
	mc_lru_remove(&n->handles, &h->node);
	unref_locked(h);
}

void mc_nfs_reads_done(struct mc_nfs *n)
{
	struct mc_nfs_handle *h;

	mc_mutex_lock(&n->lock);
	while ((h = mc_lru_oldest(&n->handles)) != NULL)
		drop_locked(n, h);
	mc_lru_done(&n->handles);
	mc_mutex_unlock(&n->lock);
}

void mc_nfs_reads_forget(struct mc_nfs *n, const char *path, const struct mc_nfs_fh *unless)
{
	struct mc_nfs_handle *h;

	mc_mutex_lock(&n->lock);
	h = mc_lru_find(&n->handles, path);
	if (h != NULL &&
		(unless == NULL || !h->ready || !mc_nfs_fh_equal(unless, &h->walk.node.fh)))
		drop_locked(n, h);
	mc_mutex_unlock(&n->lock);
}

static void put_handle(struct nfs_read *t, bool drop)
{
	struct mc_nfs *n = t->n;

	mc_mutex_lock(&n->lock);
	if (drop)
		drop_locked(n, t->h);
	unref_locked(t->h);
	mc_mutex_unlock(&n->lock);
	t->h = NULL;
}

static void end(struct nfs_read *t, int res)
{
	struct mc_remote_read *req = t->req;

	if (t->h != NULL) {
		req->instance = t->h->instance;
		put_handle(t, false);
	}
	free(t);
	mc_backend_read_done(req, res);
}

/* Not what was asked for: look the path up once more, then it is the answer. */
static void again_or_stale(struct nfs_read *t)
{
	put_handle(t, true);
	if (++t->tries >= MAX_TRIES) {
		end(t, -ESTALE);
		return;
	}
	t->got = 0;
	begin(t);
}

static bool guard_holds(const struct mc_remote_read *req, const struct mc_remote_attr *a)
{
	const struct mc_guard *g = &req->guard;

	return !g->set ||
		(a->size == g->size && a->mtime_s == g->mtime_s && a->mtime_ns == g->mtime_ns);
}

static void send(struct nfs_read *t);

static void on_attr(struct mc_nfs_call *c, int res)
{
	struct nfs_read *t = c->ctx;

	if (res == -ESTALE || (res == 0 && !guard_holds(t->req, &c->attr)))
		again_or_stale(t);
	else
		end(t, res);
}

static void on_data(struct mc_nfs_call *c, int res)
{
	struct nfs_read *t = c->ctx;
	bool attr = c->has_attr;

	if (res == -ESTALE || (res == 0 && attr && !guard_holds(t->req, &c->attr))) {
		again_or_stale(t);
		return;
	}
	if (res < 0) {
		end(t, res);
		return;
	}
	t->got += c->count;
	if (t->got < t->req->len && c->eof) {
		again_or_stale(t);
	} else if (t->got < t->req->len && c->count == 0) {
		end(t, -EIO); /* neither bytes nor the end of the file */
	} else if (t->got < t->req->len) {
		send(t);
	} else if (t->req->guard.set && !attr) {
		c->proc = &mc_nfs_getattr;
		c->done = on_attr;
		mc_nfs_conn_submit(t->conn, c);
	} else {
		end(t, 0);
	}
}

static void send(struct nfs_read *t)
{
	struct mc_remote_read *req = t->req;
	uint32_t left = req->len - t->got;

	t->call = (struct mc_nfs_call){.proc = &mc_nfs_read_proc,
		.fh = t->h->walk.node.fh,
		.off = req->off + t->got,
		.len = left < t->n->rtmax ? left : t->n->rtmax,
		.buf = (char *)req->buf + t->got,
		.deadline_ns = req->deadline_ns,
		.done = on_data,
		.ctx = t};
	mc_nfs_conn_submit(t->conn, &t->call);
}

/* t->h is ready. fresh: it was looked up for this read. */
static void start(struct nfs_read *t, bool fresh)
{
	const struct mc_remote_attr *a = &t->h->walk.node.attr;

	if (a->type != MC_REMOTE_FILE) {
		end(t, a->type == MC_REMOTE_DIR ? -EISDIR : -EINVAL);
	} else if (fresh && !guard_holds(t->req, a)) {
		end(t, -ESTALE);
	} else if (!guard_holds(t->req, a)) {
		again_or_stale(t);
	} else {
		t->conn = mc_nfs_bulk(t->n);
		send(t);
	}
}

static void on_walk(struct mc_nfs_walk *w, int res)
{
	struct mc_nfs_handle *h = w->ctx;
	struct mc_nfs *n = h->n;
	struct nfs_read *t, *waiting;
	uint64_t now = mc_now_ns();

	mc_mutex_lock(&n->lock);
	waiting = h->waiting;
	h->waiting = NULL;
	if (res == 0) {
		h->ready = true;
		h->seen_ns = now;
		h->instance = mc_lru_hash(w->node.fh.data, w->node.fh.len);
	} else if (h->node.key != NULL) {
		mc_lru_remove(&n->handles, &h->node);
		h->refs--; /* the map's; the walk's is still there */
	}
	for (t = waiting; t != NULL; t = t->next) {
		if (res == 0) {
			t->h = h;
			h->refs++;
		}
	}
	unref_locked(h); /* the walk's */
	mc_mutex_unlock(&n->lock);
	while ((t = waiting) != NULL) {
		waiting = t->next;
		if (res == 0)
			start(t, true);
		else if (res == -ETIMEDOUT && now < t->req->deadline_ns)
			begin(t); /* the walk's deadline was another's */
		else
			end(t, res);
	}
}

static struct mc_nfs_handle *handle_new(struct nfs_read *t)
{
	struct mc_nfs_handle *h = calloc(1, sizeof(*h));

	if (h == NULL)
		return NULL;
	h->path = strdup(t->req->path);
	if (h->path == NULL) {
		free(h);
		return NULL;
	}
	h->n = t->n;
	h->refs = 1; /* the walk's */
	h->waiting = t;
	h->walk = (struct mc_nfs_walk){.path = h->path,
		.follow = true,
		.fresh = t->tries > 0,
		.deadline_ns = t->req->deadline_ns,
		.done = on_walk,
		.ctx = h};
	t->next = NULL;
	return h;
}

/* Finds or makes the handle of the read's path, and reads or waits. */
static void begin(struct nfs_read *t)
{
	struct mc_nfs *n = t->n;
	struct mc_nfs_handle *h, *made = NULL;
	bool ready = false, waits = false;

	mc_mutex_lock(&n->lock);
	h = mc_lru_find(&n->handles, t->req->path);
	if (h != NULL && h->ready && mc_now_ns() - h->seen_ns > MC_NFS_TTL_NS) {
		drop_locked(n, h);
		h = NULL;
	}
	if (h != NULL && h->ready) {
		ready = true;
		t->h = h;
		h->refs++;
	} else if (h != NULL && h->walk.deadline_ns <= t->req->deadline_ns) {
		waits = true;
		t->next = h->waiting;
		h->waiting = t;
	} else {
		made = handle_new(t);
		if (made != NULL && h == NULL &&
			mc_lru_insert(&n->handles, &made->node, t->req->path) == 0)
			made->refs++;
		if (n->handles.n > MAX_HANDLES)
			drop_locked(n, mc_lru_oldest(&n->handles));
	}
	mc_mutex_unlock(&n->lock);
	if (ready)
		start(t, false);
	else if (made != NULL)
		mc_nfs_walk_start(n, &made->walk);
	else if (!waits)
		end(t, -ENOMEM);
}

void mc_nfs_read(struct mc_backend *b, struct mc_remote_read *req)
{
	struct nfs_read *t = calloc(1, sizeof(*t));

	if (t == NULL) {
		mc_backend_read_done(req, -ENOMEM);
		return;
	}
	t->n = (struct mc_nfs *)b;
	t->req = req;
	begin(t);
}
