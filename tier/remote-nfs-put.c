/*
 * Publishing in remote kind "nfs": CREATE under tmp/, WRITEs in a window, COMMIT, size checked,
 * RENAME (or LINK) into place; a later sync COMMITs again so that the new name is durable too.
 *
 * 1. UNSTABLE data counts as durable only when the verifier of the COMMIT equals that of every
 * WRITE: a server that restarted between them has another one, and may have lost the data. Then all
 * is written again.
 * 2. The name appears only after that.
 * 3. Servers exist that do not make a RENAME durable by themselves but do so with the file's next
 * COMMIT (NFS-Ganesha). What was published stands in n->unsynced until a COMMIT after the rename
 * succeeded; one whose verifier changed in between is looked up: the name must still lead to our
 * file.
 * 4. RENAME and LINK are not sent blindly twice: after a lost answer the target is looked at.
 */
#include "tier/remote-nfs.h"

#include "tier/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define WINDOW 8     /* WRITEs of one put in flight; COMMITs of one sync */
#define MAX_ROUNDS 3 /* of writing everything */

struct nfs_published {
	struct mc_lru_node node; /* the path */
	struct mc_nfs_fh fh;
	uint64_t fileid;
	char verf[NFS3_WRITEVERFSIZE];
};

/* A put on its way. */
struct put {
	struct mc_nfs *n;
	const char *buf;
	size_t len;
	uint64_t deadline_ns;
	char tmp[MC_REMOTE_PATH_MAX];
	struct mc_nfs_node dir; /* tmp/<node> */
	const char *tmp_name;   /* into tmp */
	struct mc_nfs_fh fh;    /* of the file */
	uint64_t fileid;
	char verf[NFS3_WRITEVERFSIZE];
	bool have_verf, stable;
};

/* A window of calls from one thread; the answers come on others. */
struct window {
	struct mc_mutex lock;
	struct mc_cond change;
	struct mc_nfs_call calls[WINDOW];
	unsigned char state[WINDOW]; /* under lock: FREE, BUSY, ANSWERED */
};

enum { FREE, BUSY, ANSWERED };

int mc_nfs_puts_init(struct mc_nfs *n)
{
	if (getrandom(&n->salt, sizeof(n->salt), 0) != (ssize_t)sizeof(n->salt))
		return -EIO;
	return mc_lru_init(&n->unsynced, 1024);
}

void mc_nfs_puts_done(struct mc_nfs *n)
{
	struct nfs_published *p;

	mc_mutex_lock(&n->lock);
	while ((p = mc_lru_oldest(&n->unsynced)) != NULL) {
		mc_lru_remove(&n->unsynced, &p->node);
		free(p);
	}
	mc_lru_done(&n->unsynced);
	mc_mutex_unlock(&n->lock);
}

static void window_init(struct window *w)
{
	mc_mutex_init(&w->lock);
	mc_cond_init(&w->change);
	memset(w->state, FREE, sizeof(w->state));
}

static void window_done(struct window *w)
{
	mc_cond_done(&w->change);
	mc_mutex_done(&w->lock);
}

static void window_answer(struct mc_nfs_call *c, int res)
{
	struct window *w = c->ctx;

	mc_mutex_lock(&w->lock);
	c->res = res;
	w->state[c - w->calls] = ANSWERED;
	mc_cond_signal(&w->change);
	mc_mutex_unlock(&w->lock);
}

static void window_send(struct window *w, struct mc_nfs_call *c, struct mc_nfs_conn *conn)
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
static struct mc_nfs_call *window_next(struct window *w, bool want_free, bool *ret_answered)
{
	struct mc_nfs_call *found = NULL;

	mc_mutex_lock(&w->lock);
	for (;;) {
		bool busy = false;

		for (unsigned i = 0; i < WINDOW && found == NULL; i++) {
			busy = busy || w->state[i] == BUSY;
			if (w->state[i] == ANSWERED) {
				w->state[i] = FREE;
				found = &w->calls[i];
				*ret_answered = true;
			}
		}
		for (unsigned i = 0; i < WINDOW && found == NULL && want_free; i++) {
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
static int write_answered(struct put *p, struct window *w, struct mc_nfs_call *c)
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
	if (c->count < c->len) {
		c->off += c->count;
		c->buf = (char *)c->buf + c->count;
		c->len -= c->count;
		c->stable = UNSTABLE;
		window_send(w, c, mc_nfs_bulk(p->n));
	}
	return 0;
}

/* One round of WRITEs over the whole object. -EAGAIN: write it all again. */
static int write_round(struct put *p)
{
	uint32_t piece = p->n->wtmax;
	struct window *w = calloc(1, sizeof(*w));
	size_t off = 0;
	int r = 0;

	if (w == NULL)
		return -ENOMEM;
	window_init(w);
	p->have_verf = false;
	p->stable = true;
	for (;;) {
		bool answered = false;
		struct mc_nfs_call *c = window_next(w, r == 0 && off < p->len, &answered);

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
		window_send(w, c, mc_nfs_bulk(p->n));
	}
	window_done(w);
	free(w);
	return r;
}

static int write_durably(struct put *p)
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
		if (!p->have_verf || memcmp(p->verf, c.verf, sizeof(c.verf)) == 0) {
			memcpy(p->verf, c.verf, sizeof(c.verf));
			return 0;
		}
	}
	return -EIO; /* a server that restarts all the time */
}

/* The empty file under tmp/<node>/, its handle and number. */
static int create_tmp(struct put *p)
{
	struct mc_nfs_call c = {.proc = &mc_nfs_create, .deadline_ns = p->deadline_ns};
	int r = mc_nfs_walk_parent(p->n, p->tmp, p->deadline_ns, &p->dir, &p->tmp_name);

	if (r == -ENOENT) {
		r = mc_nfs_make_dirs(p->n, p->tmp, false, p->deadline_ns);
		if (r == 0)
			r = mc_nfs_walk_parent(p->n, p->tmp, p->deadline_ns, &p->dir, &p->tmp_name);
	}
	if (r < 0)
		return r;
	c.fh = p->dir.fh;
	c.name = p->tmp_name;
	r = mc_nfs_call_run(p->n->meta, &c);
	if (r == 0 && (!c.has_fh || !c.has_attr)) {
		struct mc_nfs_node node;

		r = mc_nfs_walk_run(p->n, p->tmp, false, p->deadline_ns, &node);
		c.ofh = node.fh;
		c.attr = node.attr;
	}
	if (r == 0) {
		p->fh = c.ofh;
		p->fileid = c.attr.fileid;
	}
	return r;
}

static int check_size(struct put *p)
{
	struct mc_nfs_call c = {
		.proc = &mc_nfs_getattr, .fh = p->fh, .deadline_ns = p->deadline_ns};
	int r = mc_nfs_call_run(p->n->meta, &c);

	return r < 0 ? r : c.attr.size == p->len ? 0 : -EIO;
}

static void remove_tmp(struct put *p)
{
	struct mc_nfs_call c = {.proc = &mc_nfs_remove,
		.fh = p->dir.fh,
		.name = p->tmp_name,
		.deadline_ns = p->deadline_ns};

	while (mc_nfs_call_run(p->n->meta, &c) == -ECONNRESET)
		;
}

/* True when the name leads to the file that we wrote. */
static bool is_ours(struct put *p, const struct mc_nfs_fh *dir, const char *name)
{
	struct mc_nfs_call c = {
		.proc = &mc_nfs_lookup, .fh = *dir, .name = name, .deadline_ns = p->deadline_ns};

	return mc_nfs_call_run(p->n->meta, &c) == 0 && c.has_attr && c.attr.fileid == p->fileid;
}

/* RENAME or LINK once per turn, until an answer came; see 4. */
static int move(struct put *p, const struct mc_nfs_fh *dir, const char *name, bool excl)
{
	bool lost = false;

	for (;;) {
		struct mc_nfs_call c = {.proc = excl ? &mc_nfs_link : &mc_nfs_rename,
			.fh = excl ? p->fh : p->dir.fh,
			.name = p->tmp_name,
			.fh2 = *dir,
			.name2 = name,
			.deadline_ns = p->deadline_ns};
		int r = mc_nfs_call_run(p->n->meta, &c);

		if (r == -ECONNRESET) {
			lost = true;
			continue;
		}
		if (lost && (r == -ENOENT || r == -EEXIST) && is_ours(p, dir, name))
			return 0;
		return r;
	}
}

static int publish(struct put *p, const char *path, bool excl)
{
	struct mc_nfs_node dir;
	const char *name;
	int r = mc_nfs_walk_parent(p->n, path, p->deadline_ns, &dir, &name);

	if (r == -ENOENT) {
		r = mc_nfs_make_dirs(p->n, path, false, p->deadline_ns);
		if (r == 0)
			r = mc_nfs_walk_parent(p->n, path, p->deadline_ns, &dir, &name);
	}
	if (r == 0)
		r = move(p, &dir.fh, name, excl);
	mc_nfs_reads_forget(p->n, path, NULL);
	if (r == 0 && excl)
		remove_tmp(p);
	return r;
}

/* Commits one published file; see 3. */
static int commit_name(
	struct mc_nfs *n, const struct nfs_published *pub, const char *path, uint64_t deadline_ns)
{
	struct mc_nfs_call c = {.proc = &mc_nfs_commit, .fh = pub->fh, .deadline_ns = deadline_ns};
	struct mc_nfs_node node;
	int r = mc_nfs_call_run(n->meta, &c);

	if (r == -ESTALE) /* replaced or removed since: nothing of ours to keep */
		return 0;
	if (r < 0 || memcmp(c.verf, pub->verf, sizeof(c.verf)) == 0)
		return r;
	r = mc_nfs_walk_run(n, path, false, deadline_ns, &node);
	if (r == -ENOENT || (r == 0 && node.attr.fileid != pub->fileid))
		return -EIO; /* the server restarted, and the name did not survive */
	return r;
}

/* Remembers what has to be committed; memory short: commits it here. */
static int note_published(struct put *p, const char *path)
{
	struct nfs_published *pub, copy = {.fh = p->fh, .fileid = p->fileid};
	struct mc_nfs *n = p->n;
	bool noted = false;

	memcpy(copy.verf, p->verf, sizeof(copy.verf));
	mc_mutex_lock(&n->lock);
	pub = mc_lru_find(&n->unsynced, path);
	if (pub != NULL) {
		mc_lru_remove(&n->unsynced, &pub->node);
		free(pub);
	}
	pub = calloc(1, sizeof(*pub));
	if (pub != NULL) {
		*pub = copy;
		noted = mc_lru_insert(&n->unsynced, &pub->node, path) == 0;
		if (!noted)
			free(pub);
	}
	mc_mutex_unlock(&n->lock);
	return noted ? 0 : commit_name(n, &copy, path, p->deadline_ns);
}

int mc_nfs_put(struct mc_backend *b, const struct mc_remote_call *c, const void *buf, size_t len,
	unsigned flags)
{
	struct mc_nfs *n = (struct mc_nfs *)b;
	struct put p = {.n = n, .buf = buf, .len = len, .deadline_ns = c->deadline_ns};
	int r;

	snprintf(p.tmp, sizeof(p.tmp), "%s/%016llx-%llx", n->tmp, (unsigned long long)n->salt,
		(unsigned long long)atomic_fetch_add(&n->serial, 1));
	r = create_tmp(&p);
	if (r < 0)
		return r;
	r = write_durably(&p);
	if (r == 0)
		r = check_size(&p);
	if (r == 0)
		r = publish(&p, c->path, (flags & MC_PUT_EXCL) != 0);
	if (r < 0) {
		remove_tmp(&p);
		return r;
	}
	return note_published(&p, c->path);
}

/* Everything unsynced now, as an owned chain through node.chain; the keys are owned with it. */
static struct nfs_published *take_unsynced(struct mc_nfs *n)
{
	struct nfs_published *p, *all = NULL;

	mc_mutex_lock(&n->lock);
	while ((p = mc_lru_oldest(&n->unsynced)) != NULL) {
		p->node.key = mc_lru_take(&n->unsynced, &p->node);
		p->node.chain = all == NULL ? NULL : &all->node;
		all = p;
	}
	mc_mutex_unlock(&n->lock);
	return all;
}

static void give_back(struct mc_nfs *n, struct nfs_published *p)
{
	char *path = p->node.key;
	bool kept;

	mc_mutex_lock(&n->lock);
	kept = mc_lru_find(&n->unsynced, path) == NULL &&
		mc_lru_insert(&n->unsynced, &p->node, path) == 0;
	mc_mutex_unlock(&n->lock);
	free(path);
	if (!kept)
		free(p);
}

static int sync_all(struct mc_nfs *n, uint64_t deadline_ns)
{
	struct nfs_published *p, *all = take_unsynced(n);
	int r = 0;

	while ((p = all) != NULL) {
		int one;

		all = (struct nfs_published *)p->node.chain;
		one = r == 0 ? commit_name(n, p, p->node.key, deadline_ns) : r;
		if (one < 0) {
			r = one;
			give_back(n, p);
		} else {
			free(p->node.key);
			free(p);
		}
	}
	return r;
}

int mc_nfs_sync(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_nfs *n = (struct mc_nfs *)b;
	int r;

	mc_mutex_lock(&n->lock);
	while (n->syncing)
		mc_cond_wait(&n->synced, &n->lock);
	n->syncing = true;
	mc_mutex_unlock(&n->lock);
	r = sync_all(n, c->deadline_ns);
	mc_mutex_lock(&n->lock);
	n->syncing = false;
	mc_cond_broadcast(&n->synced);
	mc_mutex_unlock(&n->lock);
	return r;
}
