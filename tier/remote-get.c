/* The insides of mc_remote_get: a whole object through the same reads as everything else, a window
 * of them at once. */
#include "tier/remote-backend.h"

#include "tier/cleanup.h"
#include "tier/lock.h"

#include <assert.h>
#include <string.h>

#define GET_WINDOW 16 /* reads in flight */
#define GET_TRIES 4   /* versions of an object that is being replaced */

struct get;

struct get_slot {
	struct mc_remote_read req;
	struct get *g;
	struct get_slot *next_free;
};

struct get {
	struct mc_mutex lock;
	struct mc_cond change;
	struct get_slot slots[GET_WINDOW];
	struct get_slot *free MC_GUARDED_BY(lock);
	unsigned in_flight MC_GUARDED_BY(lock);
	bool have_instance MC_GUARDED_BY(lock);
	uint64_t instance MC_GUARDED_BY(lock); /* of every read */
	int res MC_GUARDED_BY(lock);           /* first failure */
};

static void slot_done(struct mc_remote_read *req, int res)
{
	struct get_slot *s = req->ctx;
	struct get *g = s->g;

	mc_mutex_lock(&g->lock);
	if (res == 0 && g->have_instance && g->instance != req->instance)
		res = -ESTALE; /* replaced, by one of the same size and time */
	if (res == 0) {
		g->have_instance = true;
		g->instance = req->instance;
	}
	if (res < 0 && g->res == 0)
		g->res = res;
	s->next_free = g->free;
	g->free = s;
	g->in_flight--;
	mc_cond_signal(&g->change);
	mc_mutex_unlock(&g->lock);
}

/* A slot to read with, or NULL after a failure. */
static struct get_slot *slot_take(struct get *g)
{
	struct get_slot *s = NULL;

	mc_mutex_lock(&g->lock);
	while (g->free == NULL && g->res == 0)
		mc_cond_wait(&g->change, &g->lock);
	if (g->res == 0) {
		s = g->free;
		g->free = s->next_free;
		g->in_flight++;
	}
	mc_mutex_unlock(&g->lock);
	return s;
}

static int wait_all(struct get *g)
{
	int res;

	mc_mutex_lock(&g->lock);
	while (g->in_flight > 0)
		mc_cond_wait(&g->change, &g->lock);
	res = g->res;
	mc_mutex_unlock(&g->lock);
	return res;
}

static int read_all(struct mc_remote *r, const char *path, const struct mc_remote_attr *attr,
	char *buf, uint64_t deadline_ns)
{
	struct get *g = calloc(1, sizeof(*g));
	int res;

	if (g == NULL)
		return -ENOMEM;
	mc_mutex_init(&g->lock);
	mc_cond_init(&g->change);
	mc_mutex_lock(&g->lock);
	for (size_t i = 0; i < GET_WINDOW; i++) {
		g->slots[i].g = g;
		g->slots[i].next_free = g->free;
		g->free = &g->slots[i];
	}
	mc_mutex_unlock(&g->lock);
	for (uint64_t off = 0; off < attr->size;) {
		uint64_t left = attr->size - off;
		struct get_slot *s = slot_take(g);

		if (s == NULL)
			break;
		s->req = (struct mc_remote_read){
			.path = path,
			.off = off,
			.len = left < MC_REMOTE_READ_MAX ? (uint32_t)left : MC_REMOTE_READ_MAX,
			.buf = buf + off,
			.guard = {.set = true,
				.size = attr->size,
				.mtime_s = attr->mtime_s,
				.mtime_ns = attr->mtime_ns},
			.done = slot_done,
			.ctx = s,
		};
		off += s->req.len;
		mc_remote_read_until(r, &s->req, deadline_ns);
	}
	res = wait_all(g);
	mc_cond_done(&g->change);
	mc_mutex_done(&g->lock);
	free(g);
	return res;
}

static int get_once(struct mc_remote *r, const struct mc_remote_call *c, size_t max, void **ret_buf,
	size_t *ret_len)
{
	struct mc_remote_attr attr;
	cleanup_free void *buf = NULL;
	int res = mc_remote_stat(r, c->path, &attr, c->err);

	if (res < 0)
		return res;
	if (attr.type != MC_REMOTE_FILE)
		return mc_err_set(c->err,
			attr.type == MC_REMOTE_DIR               ? -EISDIR
				: attr.type == MC_REMOTE_SYMLINK ? -ELOOP
								 : -EINVAL,
			"%s: %s: not a plain file", mc_remote_url(r), c->path);
	if (attr.size > max)
		return mc_err_set(c->err, -EFBIG, "%s: %s: %llu bytes, at most %zu expected",
			mc_remote_url(r), c->path, (unsigned long long)attr.size, max);
	buf = malloc(attr.size > 0 ? attr.size : 1);
	if (buf == NULL)
		return -ENOMEM;
	res = read_all(r, c->path, &attr, buf, c->deadline_ns);
	if (res < 0)
		return res;
	*ret_buf = steal_ptr(buf);
	*ret_len = attr.size;
	return 0;
}

int mc_remote_get_whole(struct mc_remote *r, const struct mc_remote_call *c, size_t max,
	void **ret_buf, size_t *ret_len)
{
	int res = -ESTALE;

	for (int tries = 0; res == -ESTALE && tries < GET_TRIES; tries++)
		res = get_once(r, c, max, ret_buf, ret_len);
	return res;
}
