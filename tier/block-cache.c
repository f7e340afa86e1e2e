/*
 * The record of a block has the first 16 bytes of its file's digest as version, and as key "/", its
 * index and some of the digest. Where it lies, and its checksum, only the log's table knows.
 *
 * Invariants
 * 1. A slot is set when the record is durable, or was found at the start; a record may be gone all
 * the same: then a read finds that out. What is not set is fetched from the remote.
 * 2. The lock is never held across a call of the log or of the caller.
 * 3. The log is used only between enter and leave, or by its own threads.
 */
#include "tier/block-cache.h"

#include "tier/block-here.h"
#include "tier/block-key.h"
#include "tier/block-read.h"
#include "tier/digest.h"
#include "tier/lock.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct mc_block_cache {
	struct mc_mutex lock;
	struct mc_cond left;
	struct mc_kv_log *log; /* borrowed; NULL = not attached */
	unsigned users;        /* calls and transfers that use it */
	struct mc_block_reads reads;
	struct mc_block_here here;
};

/* ---- what is here */

static bool is_here(struct mc_block_cache *c, const uint8_t digest[16], uint64_t block)
{
	bool here;

	mc_mutex_lock(&c->lock);
	here = mc_block_here_find(&c->here, digest, block) != NULL;
	mc_mutex_unlock(&c->lock);
	return here;
}

static void forget(struct mc_block_cache *c, const uint8_t digest[16], uint64_t block)
{
	mc_mutex_lock(&c->lock);
	mc_block_here_clear(&c->here, digest, block);
	mc_mutex_unlock(&c->lock);
}

/* ---- users of the log */

/* The log, which stays until leave; NULL: there is none. */
static struct mc_kv_log *enter(struct mc_block_cache *c)
{
	struct mc_kv_log *log;

	mc_mutex_lock(&c->lock);
	log = c->log;
	c->users += log != NULL;
	mc_mutex_unlock(&c->lock);
	return log;
}

static void leave(struct mc_block_cache *c)
{
	mc_mutex_lock(&c->lock);
	if (--c->users == 0)
		mc_cond_broadcast(&c->left);
	mc_mutex_unlock(&c->lock);
}

static void read_ended(void *ctx)
{
	leave(ctx);
}

/* ---- life */

int mc_block_cache_open(struct mc_block_cache **ret)
{
	struct mc_block_cache *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return -ENOMEM;
	mc_mutex_init(&c->lock);
	mc_cond_init(&c->left);
	mc_block_reads_init(&c->reads, true, read_ended, c);
	*ret = c;
	return 0;
}

void mc_block_cache_close(struct mc_block_cache *c)
{
	if (c == NULL)
		return;
	mc_block_here_done(&c->here);
	mc_block_reads_done(&c->reads);
	mc_cond_done(&c->left);
	mc_mutex_done(&c->lock);
	free(c);
}

void mc_block_cache_attach(struct mc_block_cache *c, struct mc_kv_log *log)
{
	mc_mutex_lock(&c->lock);
	c->log = log;
	mc_mutex_unlock(&c->lock);
}

void mc_block_cache_detach(struct mc_block_cache *c)
{
	struct mc_kv_log *log;

	mc_mutex_lock(&c->lock);
	log = c->log;
	c->log = NULL;
	mc_mutex_unlock(&c->lock);
	if (log != NULL)
		mc_kv_log_hasten(log);
	mc_mutex_lock(&c->lock);
	while (c->users > 0)
		mc_cond_wait(&c->left, &c->lock);
	mc_mutex_unlock(&c->lock);
}

/* ---- transfers */

static void read_end(struct mc_block_op *op, int res)
{
	struct mc_block_cache *c = op->cache;
	struct mc_block_slot *s;

	if (res == -ESTALE) /* it has moved or gone meanwhile */
		res = -ENOENT;
	mc_mutex_lock(&c->lock);
	s = mc_block_here_find(&c->here, op->id->digest, op->block);
	op->again = s != NULL && s->warm;
	if (res == 0)
		mc_block_here_heat(&c->here, s, true);
	else if (res == -EBADMSG)
		mc_block_here_clear(&c->here, op->id->digest, op->block);
	mc_mutex_unlock(&c->lock);
	op->done(op, res);
}

static void read_done(void *ctx, const void *bytes, int res)
{
	struct mc_block_op *op = ctx;
	uint32_t len = mc_block_len(op->id->size, op->block);

	if (res == 0 && mc_crc32c(0, bytes, len) != op->crc)
		res = -EBADMSG;
	if (res == 0)
		memcpy(op->buf, bytes, len);
	read_end(op, res);
}

void mc_block_cache_read(struct mc_block_op *op)
{
	struct mc_block_cache *c = op->cache;
	uint32_t len = mc_block_len(op->id->size, op->block);
	struct mc_block_order order = {
		.what = {.size = len, .len = len}, .done = read_done, .ctx = op};
	struct mc_kv_log *log = enter(c);
	char key[MC_BLOCK_KEY];
	int r;

	if (log == NULL) {
		op->done(op, -ESHUTDOWN);
		return;
	}
	mc_block_key(op->id->digest, op->block, key);
	memcpy(order.what.version, op->id->digest, sizeof(order.what.version));
	r = mc_kv_log_find(log, key, order.what.version, len, &order.what.loc, &op->crc);
	if (r != 0)
		forget(c, op->id->digest, op->block);
	else
		r = mc_block_reads_begin(&c->reads, log, &order);
	if (r == 0)
		return;
	leave(c);
	read_end(op, r);
}

void mc_block_cache_look(struct mc_block_cache *c, uint64_t patience_ns)
{
	mc_block_reads_give_up(&c->reads, mc_now_ns() - patience_ns);
}

static void write_done(struct mc_kv_item *item, int res)
{
	struct mc_block_op *op = item->ctx;
	struct mc_block_cache *c = op->cache;

	mc_mutex_lock(&c->lock);
	if (res == 0)
		mc_block_here_set(&c->here, op->id->digest, op->block, (uint32_t)item->meta.size);
	mc_mutex_unlock(&c->lock);
	leave(c);
	op->done(op, res);
}

void mc_block_cache_write(struct mc_block_op *op, bool hurry)
{
	struct mc_block_cache *c = op->cache;
	bool can = op->block < MC_BLOCK_KEYS, answers = mc_block_reads_lost(&c->reads) == 0;
	struct mc_kv_log *log = can && answers ? enter(c) : NULL;
	struct mc_kv_item *item = &op->item;

	if (log == NULL) {
		op->done(op, can ? -ESHUTDOWN : -EFBIG);
		return;
	}
	mc_block_key(op->id->digest, op->block, op->key);
	*item = (struct mc_kv_item){.meta = {.key = op->key,
					    .size = mc_block_len(op->id->size, op->block),
					    .n_crc = 1,
					    .crc = &op->crc},
		.buf = op->buf,
		.below = true,
		.done = write_done,
		.ctx = op};
	memcpy(item->meta.version, op->id->digest, sizeof(item->meta.version));
	if (hurry) {
		mc_mutex_lock(&c->lock);
		c->users++; /* op may be gone after the put */
		mc_mutex_unlock(&c->lock);
	}
	mc_kv_log_put(log, &item, 1);
	if (hurry) {
		mc_kv_log_hasten(log);
		leave(c);
	}
}

void mc_block_cache_hasten(struct mc_block_cache *c)
{
	struct mc_kv_log *log = enter(c);

	if (log == NULL)
		return;
	mc_kv_log_hasten(log);
	leave(c);
}

/* ---- questions */

bool mc_block_cache_has(struct mc_block_cache *c, const struct mc_file_id *id, uint64_t block)
{
	return mc_block_reads_lost(&c->reads) == 0 && is_here(c, id->digest, block);
}

uint64_t mc_block_cache_resident(struct mc_block_cache *c, const struct mc_file_id *id)
{
	uint64_t n;

	mc_mutex_lock(&c->lock);
	n = mc_block_here_bytes(&c->here, id->digest);
	mc_mutex_unlock(&c->lock);
	return n;
}

int64_t mc_block_cache_drop(struct mc_block_cache *c, const struct mc_file_id *id)
{
	static const struct mc_kv_loc nowhere;
	struct mc_kv_log *log = enter(c);
	int64_t dropped = 0;
	int r = 0;

	for (uint64_t b = 0; log != NULL && r == 0 && b < mc_block_count(id->size); b++) {
		char key[MC_BLOCK_KEY];

		if (!is_here(c, id->digest, b))
			continue;
		mc_block_key(id->digest, b, key);
		r = mc_kv_log_evict(log, key, id->digest, &nowhere);
		if (r == -ENOENT)
			r = 0;
		forget(c, id->digest, b);
		dropped += mc_block_len(id->size, b);
	}
	if (log != NULL)
		leave(c);
	return r < 0 ? r : dropped;
}

void mc_block_cache_stats(struct mc_block_cache *c, struct mc_block_cache_stats *ret)
{
	struct mc_kv_log *log = c != NULL ? enter(c) : NULL;
	struct mc_kv_log_stats st = {0};

	*ret = (struct mc_block_cache_stats){0};
	if (log == NULL)
		return;
	mc_kv_log_stats(log, &st);
	leave(c);
	ret->capacity = st.below.capacity > 0 ? st.below.capacity : st.capacity;
	mc_mutex_lock(&c->lock);
	ret->used = c->here.used;
	ret->blocks = c->here.blocks;
	mc_mutex_unlock(&c->lock);
	ret->lost = mc_block_reads_lost(&c->reads);
}

/* ---- what the log says and asks */

void mc_block_cache_found(struct mc_block_cache *c, const struct mc_kv_meta *meta)
{
	uint64_t block;

	if (c == NULL || !mc_block_key_parse(meta->key, meta->version, &block) || meta->size == 0 ||
		meta->size > MC_BLOCK_SIZE || meta->n_crc != 1)
		return;
	mc_mutex_lock(&c->lock);
	mc_block_here_set(&c->here, meta->version, block, (uint32_t)meta->size);
	mc_mutex_unlock(&c->lock);
}

/* Never all of them: there is always room to be had for objects. */
bool mc_block_cache_keep(struct mc_block_cache *c, const char *key, const uint8_t version[16])
{
	const struct mc_block_slot *s;
	uint64_t block;
	bool keep;

	if (c == NULL || !mc_block_key_parse(key, version, &block))
		return false;
	mc_mutex_lock(&c->lock);
	s = mc_block_here_find(&c->here, version, block);
	keep = s != NULL && s->warm && c->here.warm <= c->here.used / 2;
	mc_mutex_unlock(&c->lock);
	return keep;
}

bool mc_block_cache_moved(struct mc_block_cache *c, const char *key, const uint8_t version[16])
{
	struct mc_block_slot *s;
	uint64_t block;

	if (c == NULL || !mc_block_key_parse(key, version, &block))
		return false;
	mc_mutex_lock(&c->lock);
	s = mc_block_here_find(&c->here, version, block);
	mc_block_here_heat(&c->here, s, false);
	mc_mutex_unlock(&c->lock);
	return s != NULL;
}

void mc_block_cache_evicted(struct mc_block_cache *c, const char *key, const uint8_t version[16])
{
	uint64_t block;

	if (c != NULL && mc_block_key_parse(key, version, &block))
		forget(c, version, block);
}
