/* What the tests of the KV log share: an index like its owner's, and synchronous puts and reads. */
#pragma once

#include "tests/tier-dir.h"
#include "tier/future.h"
#include "tier/kv-log.h"

#include <errno.h>

#define MIB (UINT64_C(1) << 20)

/* What recovery and the log's callbacks said of one key. */
struct kv_known {
	char key[64];
	uint8_t version[16];
	uint64_t size;
	struct mc_kv_loc loc;
	bool there;
};

struct kv_owner {
	struct mc_mutex lock;
	struct mc_cond told;
	struct kv_known *known; /* owned */
	size_t n, cap;
	uint64_t puts, dirs, pins, copies, evicted, moved;
	int done; /* 1 until recovery ended, then its result */
	bool (*keep)(const char *key);
	bool blind; /* does not follow what it puts and renames, and agrees to all moves */
};

static inline struct kv_known *kv_find_locked(struct kv_owner *o, const char *key)
{
	for (size_t i = 0; i < o->n; i++)
		if (strcmp(o->known[i].key, key) == 0)
			return &o->known[i];
	return NULL;
}

static inline void kv_set(struct kv_owner *o, const char *key, const uint8_t version[16],
	uint64_t size, const struct mc_kv_loc *loc)
{
	struct kv_known *k;

	mc_mutex_lock(&o->lock);
	k = kv_find_locked(o, key);
	if (k == NULL) {
		if (o->n == o->cap) {
			o->cap = 2 * o->cap + 16;
			o->known = reallocarray(o->known, o->cap, sizeof(*k));
			ck_assert_ptr_nonnull(o->known);
		}
		k = &o->known[o->n++];
	}
	*k = (struct kv_known){.size = size, .loc = *loc, .there = true};
	snprintf(k->key, sizeof(k->key), "%s", key);
	memcpy(k->version, version, 16);
	mc_mutex_unlock(&o->lock);
}

static inline void kv_told_put(
	void *ctx, const struct mc_kv_meta *meta, const struct mc_kv_loc *loc)
{
	struct kv_owner *o = ctx;

	o->puts++;
	kv_set(o, meta->key, meta->version, meta->size, loc);
}

static inline void kv_told_dir(void *ctx, const char *key, bool made)
{
	(void)key;
	((struct kv_owner *)ctx)->dirs += made;
}

static inline void kv_told_pin(void *ctx, const char *key, bool pinned)
{
	(void)key;
	((struct kv_owner *)ctx)->pins += pinned;
}

static inline void kv_told_remote(
	void *ctx, const char *key, const uint8_t version[16], unsigned copies)
{
	(void)key;
	(void)version;
	((struct kv_owner *)ctx)->copies += copies;
}

static inline void kv_told_done(void *ctx, int res)
{
	struct kv_owner *o = ctx;

	mc_mutex_lock(&o->lock);
	o->done = res;
	mc_cond_broadcast(&o->told);
	mc_mutex_unlock(&o->lock);
}

static inline bool kv_keep(void *ctx, const char *key, const uint8_t version[16])
{
	struct kv_owner *o = ctx;

	(void)version;
	return o->keep == NULL || o->keep(key);
}

static inline bool kv_moved(void *ctx, const char *key, const uint8_t version[16],
	const struct mc_kv_loc *from, const struct mc_kv_loc *to)
{
	struct kv_owner *o = ctx;
	struct kv_known *k;
	bool ours;

	mc_mutex_lock(&o->lock);
	o->moved++;
	k = kv_find_locked(o, key);
	ours = k != NULL && k->there && memcmp(k->version, version, 16) == 0 &&
		memcmp(&k->loc, from, sizeof(*from)) == 0;
	if (ours)
		k->loc = *to;
	mc_mutex_unlock(&o->lock);
	return ours || o->blind;
}

static inline void kv_evicted(
	void *ctx, const char *key, const uint8_t version[16], const struct mc_kv_loc *from)
{
	struct kv_owner *o = ctx;
	struct kv_known *k;

	(void)from;
	mc_mutex_lock(&o->lock);
	o->evicted++;
	k = kv_find_locked(o, key);
	if (k != NULL && memcmp(k->version, version, 16) == 0)
		k->there = false;
	mc_mutex_unlock(&o->lock);
}

/* Opens and waits for recovery: its result, or that of its first attempt; *ret is open when
 * mc_kv_log_open succeeded, else NULL.
 */
static inline int kv_try_open(
	const struct mc_kv_log_opts *opts, struct kv_owner *o, struct mc_kv_log **ret)
{
	struct mc_kv_log_replay replay = {.unread = kv_told_done, /* who waits does not wait on */
		.put = kv_told_put,
		.dir = kv_told_dir,
		.pin = kv_told_pin,
		.remote = kv_told_remote,
		.done = kv_told_done,
		.ctx = o};
	struct mc_kv_log_owner owner = {
		.keep = kv_keep, .moved = kv_moved, .evicted = kv_evicted, .ctx = o};
	struct mc_err err = {0};
	int r;

	*o = (struct kv_owner){.done = 1, .keep = o->keep, .blind = o->blind};
	mc_mutex_init(&o->lock);
	mc_cond_init(&o->told);
	*ret = NULL;
	r = mc_kv_log_open(opts, &replay, ret, &err);
	if (r != 0)
		return r;
	mc_kv_log_set_owner(*ret, &owner);
	mc_mutex_lock(&o->lock);
	while (o->done == 1)
		mc_cond_wait(&o->told, &o->lock);
	r = o->done;
	mc_mutex_unlock(&o->lock);
	return r;
}

static inline struct mc_kv_log *kv_open_with(
	const struct mc_kv_log_opts *opts, struct kv_owner *o, int want)
{
	struct mc_kv_log *log;

	ck_assert_int_eq(kv_try_open(opts, o, &log), want);
	return log;
}

static inline void kv_forget(struct kv_owner *o)
{
	free(o->known);
	mc_cond_done(&o->told);
	mc_mutex_done(&o->lock);
	*o = (struct kv_owner){.keep = o->keep, .blind = o->blind};
}

struct kv_put {
	struct mc_kv_item item;
	struct kv_owner *owner;
	unsigned content;
	char key[64];
	void *buf; /* owned, or the caller's */
	uint32_t crc[64];
	bool own_buf;
	int res; /* 1 until done */
};

/* A version is its content's number; the bytes are those of tier_fill. */
static inline void kv_version(unsigned content, uint8_t ret[16])
{
	memset(ret, 0, 16);
	memcpy(ret, &content, sizeof(content));
	ret[15] = 0x77;
}

static inline void kv_put_done(struct mc_kv_item *item, int res)
{
	struct kv_put *p = item->ctx;

	if (res == 0 && p->owner != NULL)
		kv_set(p->owner, p->key, item->meta.version, item->meta.size, &item->loc);
	__atomic_store_n(&p->res, res, __ATOMIC_RELEASE);
}

static inline struct kv_put *kv_put_make(
	struct kv_owner *o, const char *key, unsigned content, uint64_t size)
{
	struct kv_put *p = calloc(1, sizeof(*p));

	ck_assert_uint_le(size, 64 * MIB);
	p->owner = o;
	p->content = content;
	p->res = 1;
	p->own_buf = true;
	snprintf(p->key, sizeof(p->key), "%s", key);
	/* Every other one lies so that it can be written from where it is. */
	p->buf = content % 2 != 0 ? aligned_alloc(4096, (size + 4096) / 4096 * 4096)
				  : malloc(size + 1);
	ck_assert_ptr_nonnull(p->buf);
	tier_fill(p->buf, (uint32_t)size, content, 0);
	p->item = (struct mc_kv_item){.buf = p->buf, .done = kv_put_done, .ctx = p};
	p->item.meta = (struct mc_kv_meta){.key = p->key,
		.size = size,
		.mtime_s = 1000 + content,
		.mtime_ns = content,
		.n_crc = (uint32_t)((size + MIB - 1) / MIB),
		.crc = p->crc};
	kv_version(content, p->item.meta.version);
	for (uint32_t i = 0; i < p->item.meta.n_crc; i++)
		p->crc[i] = mc_crc32c(
			0, (char *)p->buf + i * MIB, size - i * MIB < MIB ? size - i * MIB : MIB);
	return p;
}

static inline int kv_put_free(struct kv_put *p)
{
	int res = p->res;

	free(p->buf);
	free(p);
	return res;
}

/* Puts one object and syncs. */
static inline int kv_put(
	struct mc_kv_log *log, struct kv_owner *o, const char *key, unsigned content, uint64_t size)
{
	struct kv_put *p = kv_put_make(o, key, content, size);
	struct mc_kv_item *item = &p->item;

	mc_kv_log_put(log, &item, 1);
	mc_kv_log_sync(log);
	ck_assert_int_ne(p->res, 1);
	return kv_put_free(p);
}

static inline void kv_read_done(struct mc_kv_log_read *r, int res)
{
	mc_future_set(r->ctx, res);
}

static inline int kv_read(
	struct mc_kv_log *log, const struct kv_known *k, uint64_t off, uint32_t len, void *buf)
{
	struct mc_future over;
	struct mc_kv_log_read r = {.loc = k->loc,
		.size = k->size,
		.off = off,
		.len = len,
		.buf = buf,
		.done = kv_read_done,
		.ctx = &over};

	memcpy(r.version, k->version, 16);
	mc_future_init(&over);
	mc_kv_log_read(log, &r);
	return (int)mc_future_wait(&over);
}

/* 0 when key holds that content whole; -ENOENT unknown; else what reading said, -EILSEQ wrong. */
static inline int kv_check(
	struct mc_kv_log *log, struct kv_owner *o, const char *key, unsigned content)
{
	struct kv_known k = {0}, *found;
	uint8_t version[16];
	char *buf;
	int r;

	mc_mutex_lock(&o->lock);
	found = kv_find_locked(o, key);
	if (found != NULL)
		k = *found;
	mc_mutex_unlock(&o->lock);
	if (!k.there)
		return -ENOENT;
	kv_version(content, version);
	if (memcmp(version, k.version, 16) != 0)
		return -EILSEQ;
	buf = aligned_alloc(4096, (k.size + 8191) / 4096 * 4096);
	r = kv_read(log, &k, 0, (uint32_t)k.size, buf);
	if (r == 0 && !tier_matches(buf, (uint32_t)k.size, content, 0))
		r = -EILSEQ;
	free(buf);
	return r;
}

static inline struct mc_kv_log_stats kv_stats(struct mc_kv_log *log)
{
	struct mc_kv_log_stats s;

	mc_kv_log_stats(log, &s);
	return s;
}
