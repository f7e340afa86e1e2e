/*
 * Making published names durable on an NFS server.
 *
 * Servers exist that do not make a RENAME durable by themselves but do so with the file's next
 * COMMIT (NFS-Ganesha). So what was published stands in n->unsynced until a COMMIT after the rename
 * succeeded. One whose verifier changed in between is looked up: the server restarted, and the name
 * must still lead to our file. One sync runs at a time; another waits for it, so that none returns
 * while what it owes is on the way.
 */
#include "tier/remote-nfs-put.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define MAX_UNSYNCED 4096 /* the put that makes it more syncs */

struct nfs_published {
	struct mc_lru_node node; /* the path */
	struct mc_nfs_fh fh;
	uint64_t fileid;
	char verf[NFS3_WRITEVERFSIZE];
};

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

static void free_published(struct nfs_published *p)
{
	free(p->node.key);
	free(p);
}

/* After the COMMIT of a published file, whose key is its path: 0 when the name is durable. */
static int committed(struct mc_nfs *n, const struct nfs_published *p, const struct mc_nfs_call *c)
{
	struct mc_nfs_node node;
	int r = c->res;

	if (r == -ESTALE) /* replaced or removed since: nothing of ours to keep */
		return 0;
	if (r < 0 || memcmp(c->verf, p->verf, sizeof(c->verf)) == 0)
		return r;
	r = mc_nfs_walk_run(n, p->node.key, false, c->deadline_ns, &node);
	if (r == -ENOENT || (r == 0 && node.attr.fileid != p->fileid))
		return -EIO; /* the server restarted, and the name did not survive */
	return r;
}

static struct nfs_published *take_oldest(struct mc_nfs *n)
{
	struct nfs_published *p;

	mc_mutex_lock(&n->lock);
	p = mc_lru_oldest(&n->unsynced);
	if (p != NULL) {
		p->node.key = mc_lru_take(&n->unsynced, &p->node);
	}
	mc_mutex_unlock(&n->lock);
	return p;
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

static struct mc_nfs_call commit_of(const struct nfs_published *p, uint64_t deadline_ns)
{
	return (struct mc_nfs_call){
		.proc = &mc_nfs_commit, .fh = p->fh, .deadline_ns = deadline_ns};
}

/* Everything unsynced now, as an owned chain through node.chain; the keys are owned with it. */
static struct nfs_published *take_all(struct mc_nfs *n)
{
	struct nfs_published *p, *all = NULL;

	while ((p = take_oldest(n)) != NULL) {
		p->node.chain = all == NULL ? NULL : &all->node;
		all = p;
	}
	return all;
}

/* COMMITs a window of them at a time; what fails is given back. */
static int sync_all(struct mc_nfs *n, uint64_t deadline_ns)
{
	struct nfs_published *all = take_all(n), *at[MC_NFS_WINDOW];
	struct mc_nfs_window *w = all == NULL ? NULL : calloc(1, sizeof(*w));
	int r = 0;

	if (all == NULL)
		return 0;
	if (w != NULL)
		mc_nfs_window_init(w);
	for (;;) {
		bool answered = false;
		struct mc_nfs_call *c =
			w == NULL ? NULL : mc_nfs_window_next(w, all != NULL && r == 0, &answered);

		if (c == NULL)
			break;
		if (answered) {
			struct nfs_published *p = at[c - w->calls];
			int one = committed(n, p, c);

			if (one < 0)
				give_back(n, p);
			else
				free_published(p);
			r = r < 0 ? r : one;
			continue;
		}
		*c = commit_of(all, deadline_ns);
		at[c - w->calls] = all;
		all = (struct nfs_published *)all->node.chain;
		mc_nfs_window_send(w, c, n->meta);
	}
	for (struct nfs_published *p = all; p != NULL; p = all) {
		all = (struct nfs_published *)p->node.chain;
		give_back(n, p);
	}
	if (w == NULL)
		return -ENOMEM;
	mc_nfs_window_done(w);
	free(w);
	return r;
}

/* One at a time, see above. */
static int sync_alone(struct mc_nfs *n, uint64_t deadline_ns)
{
	int r;

	mc_mutex_lock(&n->lock);
	while (n->syncing)
		mc_cond_wait(&n->synced, &n->lock);
	n->syncing = true;
	mc_mutex_unlock(&n->lock);
	r = sync_all(n, deadline_ns);
	mc_mutex_lock(&n->lock);
	n->syncing = false;
	mc_cond_broadcast(&n->synced);
	mc_mutex_unlock(&n->lock);
	return r;
}

int mc_nfs_sync_note(struct mc_nfs_putting *put, const char *path)
{
	struct nfs_published *old, *p = calloc(1, sizeof(*p));
	struct mc_nfs *n = put->n;
	bool full;
	int r;

	if (p == NULL)
		return -ENOMEM;
	p->fh = put->fh;
	p->fileid = put->fileid;
	memcpy(p->verf, put->verf, sizeof(p->verf));
	mc_mutex_lock(&n->lock);
	old = mc_lru_find(&n->unsynced, path);
	if (old != NULL)
		mc_lru_remove(&n->unsynced, &old->node);
	r = mc_lru_insert(&n->unsynced, &p->node, path);
	full = n->unsynced.n > MAX_UNSYNCED;
	mc_mutex_unlock(&n->lock);
	free(old);
	if (r < 0)
		free(p);
	return r == 0 && full ? sync_alone(n, put->deadline_ns) : r;
}

int mc_nfs_sync(struct mc_backend *b, const struct mc_remote_call *c)
{
	return sync_alone((struct mc_nfs *)b, c->deadline_ns);
}
