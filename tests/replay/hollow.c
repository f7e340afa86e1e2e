/*
 * A remote for replays: it keeps the last bytes of each object and its size; the rest it reads as
 * zeros, which is what replayed objects hold. Nothing is on a disk.
 *
 * Invariant: entries is open addressing by the path's hash, never full; removed ones stay, with
 * size 0.
 */
#include "tests/replay/hollow.h"

#include "tier/lock.h"
#include "tier/remote-backend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TAIL 256u        /* bytes kept: more than a footer of one block and a short key */
#define SLOTS (1u << 20) /* more than a trace has blocks */

struct entry {
	uint64_t hash; /* 0 = free */
	uint64_t size;
	int64_t version; /* its mtime */
	unsigned char tail[TAIL];
};

struct hollow {
	struct mc_backend base;
	struct mc_remote_counters *counters;
	struct mc_mutex lock;
	struct entry *entries;
	int64_t versions;
	uint32_t used;
};

static uint64_t hash_of(const char *path)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (; *path != '\0'; path++)
		h = (h ^ (unsigned char)*path) * UINT64_C(0x100000001b3);
	return h | 1;
}

/* The path's entry, or the free one where it would be. */
static struct entry *slot_of(struct hollow *h, const char *path)
{
	uint64_t hash = hash_of(path);
	size_t i = hash >> 32 & (SLOTS - 1);

	while (h->entries[i].hash != 0 && h->entries[i].hash != hash)
		i = (i + 1) & (SLOTS - 1);
	return &h->entries[i];
}

static void fill(const struct entry *e, uint64_t off, char *buf, size_t len)
{
	uint64_t kept = e->size < TAIL ? e->size : TAIL, from = e->size - kept;

	memset(buf, 0, len);
	for (uint64_t at = off > from ? off : from; at < off + len; at++)
		buf[at - off] = (char)e->tail[at - from];
}

static void hollow_read(struct mc_backend *b, struct mc_remote_read *req)
{
	struct hollow *h = (struct hollow *)b;
	const struct entry *e;
	int r = 0;

	mc_mutex_lock(&h->lock);
	e = slot_of(h, req->path);
	if (e->hash == 0 || e->size == 0)
		r = -ENOENT;
	else if (req->off + req->len > e->size ||
		(req->guard.set &&
			(req->guard.size != e->size || req->guard.mtime_s != e->version)))
		r = -ESTALE;
	else
		fill(e, req->off, req->buf, req->len);
	req->instance = (uint64_t)e->version;
	mc_mutex_unlock(&h->lock);
	mc_backend_read_done(req, r);
}

static int hollow_stat(
	struct mc_backend *b, const struct mc_remote_call *c, struct mc_remote_attr *ret)
{
	struct hollow *h = (struct hollow *)b;
	const struct entry *e;
	int r;

	mc_mutex_lock(&h->lock);
	e = slot_of(h, c->path);
	r = e->hash != 0 && e->size > 0 ? 0 : -ENOENT;
	*ret = (struct mc_remote_attr){
		.type = MC_REMOTE_FILE, .size = e->size, .mode = 0600, .mtime_s = e->version};
	mc_mutex_unlock(&h->lock);
	return r;
}

static int hollow_put(struct mc_backend *b, const struct mc_remote_call *c, const void *buf,
	size_t len, unsigned flags)
{
	struct hollow *h = (struct hollow *)b;
	size_t kept = len < TAIL ? len : TAIL;
	struct entry *e;
	int r = 0;

	mc_mutex_lock(&h->lock);
	e = slot_of(h, c->path);
	if (e->hash == 0 && h->used >= SLOTS / 4 * 3) {
		r = -ENOSPC;
	} else if ((flags & MC_PUT_EXCL) != 0 && e->size > 0) {
		r = -EEXIST;
	} else {
		h->used += e->hash == 0;
		e->hash = hash_of(c->path);
		e->size = len;
		e->version = ++h->versions;
		memcpy(e->tail, (const char *)buf + len - kept, kept);
	}
	mc_mutex_unlock(&h->lock);
	return r;
}

static int hollow_unlink(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct hollow *h = (struct hollow *)b;
	struct entry *e;
	int r;

	mc_mutex_lock(&h->lock);
	e = slot_of(h, c->path);
	r = e->hash != 0 && e->size > 0 ? 0 : -ENOENT;
	e->size = 0;
	mc_mutex_unlock(&h->lock);
	return r;
}

static int nothing(struct mc_backend *b, const struct mc_remote_call *c)
{
	(void)b;
	(void)c;
	return 0;
}

static int hollow_list(
	struct mc_backend *b, const struct mc_remote_call *c, mc_remote_each *each, void *ctx)
{
	(void)each;
	(void)ctx;
	return nothing(b, c);
}

static int hollow_space(
	struct mc_backend *b, const struct mc_remote_call *c, struct mc_remote_space *ret)
{
	*ret = (struct mc_remote_space){.total = UINT64_C(1) << 50, .avail = UINT64_C(1) << 49};
	return nothing(b, c);
}

static void hollow_stop(struct mc_backend *b)
{
	(void)b; /* nothing is ever in flight */
}

static void hollow_close(struct mc_backend *b)
{
	struct hollow *h = (struct hollow *)b;

	mc_mutex_done(&h->lock);
	free(h->entries);
	free(h);
}

static const struct mc_backend_ops ops = {.read = hollow_read,
	.stat = hollow_stat,
	.put = hollow_put,
	.sync = nothing,
	.list = hollow_list,
	.mkdir = nothing,
	.unlink = hollow_unlink,
	.rename = nothing,
	.touch = nothing,
	.space = hollow_space,
	.stop = hollow_stop,
	.close = hollow_close};

int replay_hollow_open(const struct mc_remote *like, struct mc_remote **ret)
{
	struct hollow *h = calloc(1, sizeof(*h));
	int r = -ENOMEM;

	if (h == NULL)
		return -ENOMEM;
	h->base.ops = &ops;
	mc_mutex_init(&h->lock);
	h->entries = calloc(SLOTS, sizeof(*h->entries));
	h->counters = calloc(1, sizeof(*h->counters));
	if (h->entries != NULL && h->counters != NULL)
		r = mc_remote_from_backend(
			mc_remote_url(like), mc_remote_patience(like), &h->base, h->counters, ret);
	if (r < 0) {
		free(h->counters);
		hollow_close(&h->base);
	}
	return r;
}
