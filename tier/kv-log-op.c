/*
 * Puts under way: from mc_kv_log_put until done.
 *
 * Invariants:
 * 1. A put is in its key's bucket until its outcome is settled, and in the list by seq until done
 *    has run; copies are in neither, n_moving counts them.
 * 2. It is in exactly one of queue, retry, a group, or the hands of the packer or the committer.
 * 3. key changes only while it is in the bucket, under the lock.
 * 4. A bucket's chain goes from the newest put to the oldest.
 */
#include "tier/kv-log-impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void mc_kv_list_init(struct mc_kv_op_list *l)
{
	l->first = NULL;
	l->last = &l->first;
}

void mc_kv_list_add(struct mc_kv_op_list *l, struct mc_kv_op *op)
{
	op->next = NULL;
	*l->last = op;
	l->last = &op->next;
}

struct mc_kv_op *mc_kv_list_take(struct mc_kv_op_list *l)
{
	struct mc_kv_op *op = l->first;

	if (op == NULL)
		return NULL;
	l->first = op->next;
	if (l->first == NULL)
		l->last = &l->first;
	op->next = NULL;
	return op;
}

unsigned mc_kv_list_take_batch(
	struct mc_kv_op_list *l, struct mc_kv_op *ret_ops[MC_KV_OPS_PER_HOLD])
{
	unsigned n = 0;

	while (n < MC_KV_OPS_PER_HOLD && (ret_ops[n] = mc_kv_list_take(l)) != NULL)
		n++;
	return n;
}

static struct mc_kv_op **bucket_of(struct mc_kv_log *log, uint64_t hash)
{
	return &log->op_buckets[hash % MC_KV_OP_BUCKETS];
}

static bool has_key(const struct mc_kv_op *op, uint64_t hash, const char *key)
{
	return op->hash == hash && strcmp(mc_kv_op_key(op), key) == 0;
}

static void chain_at(struct mc_kv_op *op, struct mc_kv_op **at)
{
	op->link = at;
	op->chain = *at;
	if (op->chain != NULL)
		op->chain->link = &op->chain;
	*at = op;
}

/* Without a look at those it stood between: of many puts under way they are far away. */
static void unchain(struct mc_kv_op *op)
{
	*op->link = op->chain;
	if (op->chain != NULL)
		op->chain->link = op->link;
}

static void rechain_locked(struct mc_kv_log *log, struct mc_kv_op *op, uint64_t hash)
	MC_REQUIRES(log->lock)
{
	struct mc_kv_op **at = bucket_of(log, hash);

	unchain(op);
	while (*at != NULL && (*at)->seq > op->seq)
		at = &(*at)->chain;
	op->hash = hash;
	chain_at(op, at);
}

static void enter_locked(struct mc_kv_log *log, struct mc_kv_op *op) MC_REQUIRES(log->lock)
{
	op->seq = ++log->seq;
	op->older = log->newest;
	op->newer = NULL;
	if (log->newest != NULL)
		log->newest->newer = op;
	else
		log->oldest = op;
	log->newest = op;
	chain_at(op, bucket_of(log, op->hash));
}

static void leave_locked(struct mc_kv_log *log, struct mc_kv_op *op) MC_REQUIRES(log->lock)
{
	if (op->older != NULL)
		op->older->newer = op->newer;
	else
		log->oldest = op->newer;
	if (op->newer != NULL)
		op->newer->older = op->older;
	else
		log->newest = op->older;
}

/* Nobody finds it by key any more. */
static void settle_locked(struct mc_kv_log *log, struct mc_kv_op *op) MC_REQUIRES(log->lock)
{
	if (op->kind == MC_KV_OP_COPY) {
		log->n_moving--;
		op->from_seg->writers--;
	}
	if (op->kind != MC_KV_OP_PUT)
		return;
	unchain(op);
	/* Removed or replaced after its record was written. */
	if (op->res == 0 && op->cancelled)
		op->res = -ECANCELED;
	if (op->res < 0 && op->res != -ECANCELED)
		log->sync_error = op->res;
}

void mc_kv_op_free(struct mc_kv_op *op)
{
	free(op->mem);
	free(op->key);
	free(op);
}

static void run_done(struct mc_kv_op *op)
{
	struct mc_kv_item *item = op->item;

	if (item == NULL)
		return;
	item->loc = op->entered ? op->loc : (struct mc_kv_loc){0};
	item->done(item, op->res);
}

static void end_batch(struct mc_kv_log *log, struct mc_kv_op *const *ops, unsigned n)
{
	mc_mutex_lock(&log->lock);
	for (unsigned i = 0; i < n; i++)
		settle_locked(log, ops[i]);
	mc_mutex_unlock(&log->lock);
	for (unsigned i = 0; i < n; i++)
		run_done(ops[i]);
	mc_mutex_lock(&log->lock);
	for (unsigned i = 0; i < n; i++)
		if (ops[i]->kind == MC_KV_OP_PUT)
			leave_locked(log, ops[i]);
	mc_mutex_unlock(&log->lock);
	for (unsigned i = 0; i < n; i++)
		mc_kv_op_free(ops[i]);
}

void mc_kv_ops_end(struct mc_kv_log *log, struct mc_kv_op_list *ops)
{
	struct mc_kv_op *batch[MC_KV_OPS_PER_HOLD];
	unsigned n;

	while ((n = mc_kv_list_take_batch(ops, batch)) > 0)
		end_batch(log, batch, n);
	mc_mutex_lock(&log->lock);
	if (log->sync_waiters > 0)
		mc_cond_broadcast(&log->moved);
	mc_mutex_unlock(&log->lock);
}

void mc_kv_op_fail(struct mc_kv_log *log, struct mc_kv_op *op, int res)
{
	struct mc_kv_op_list one;

	op->res = res;
	mc_kv_list_init(&one);
	mc_kv_list_add(&one, op);
	mc_kv_ops_end(log, &one);
}

bool mc_kv_ops_cancel_locked(struct mc_kv_log *log, const char *key, const uint8_t *version)
{
	uint64_t hash = mc_kv_key_hash(key);
	bool any = false;

	for (struct mc_kv_op *op = *bucket_of(log, hash); op != NULL; op = op->chain) {
		if (op->cancelled || !has_key(op, hash, key))
			continue;
		if (version != NULL && memcmp(op->meta.version, version, 16) != 0)
			continue;
		op->cancelled = true;
		any = true;
	}
	return any;
}

int mc_kv_ops_rename_locked(struct mc_kv_log *log, const char *from, const char *to)
{
	uint64_t hash = mc_kv_key_hash(from), to_hash = mc_kv_key_hash(to);

	for (struct mc_kv_op *op = *bucket_of(log, hash), *next; op != NULL; op = next) {
		char *key;

		next = op->chain;
		if (op->cancelled || !has_key(op, hash, from))
			continue;
		key = strdup(to);
		if (key == NULL)
			return -ENOMEM;
		free(op->key);
		op->key = key;
		op->meta.key = key;
		rechain_locked(log, op, to_hash);
	}
	return 0;
}

void mc_kv_op_supersede_locked(struct mc_kv_op *by)
{
	for (struct mc_kv_op *op = by->chain; op != NULL; op = op->chain)
		if (has_key(op, by->hash, mc_kv_op_key(by)))
			op->cancelled = true;
}

static struct mc_kv_op *make_op(struct mc_kv_item *item)
{
	struct mc_kv_op *op = calloc(1, sizeof(*op));

	assert(strlen(item->meta.key) <= MC_KV_KEY_MAX);
	if (op == NULL) {
		item->loc = (struct mc_kv_loc){0};
		item->done(item, -ENOMEM);
		return NULL;
	}
	op->item = item;
	op->meta = item->meta;
	op->hash = mc_kv_key_hash(op->meta.key);
	return op;
}

void mc_kv_log_put(struct mc_kv_log *log, struct mc_kv_item *const *items, size_t n)
{
	struct mc_kv_op_list made, failed;
	struct mc_kv_op *op;

	mc_kv_list_init(&made);
	mc_kv_list_init(&failed);
	for (size_t i = 0; i < n; i++)
		if ((op = make_op(items[i])) != NULL)
			mc_kv_list_add(&made, op);
	mc_mutex_lock(&log->lock);
	while ((op = mc_kv_list_take(&made)) != NULL) {
		log->stats.put_bytes += op->meta.size;
		enter_locked(log, op);
		if (op->meta.n_crc > MC_KV_CRC_MAX)
			op->res = -EFBIG;
		else if (log->dead != 0 || mc_kv_bypassed_locked(log, mc_kv_floor_of(log, op)))
			op->res = -EIO;
		mc_kv_list_add(op->res != 0 ? &failed : &log->queue, op);
	}
	mc_cond_signal(&log->work);
	mc_mutex_unlock(&log->lock);
	if (failed.first != NULL)
		mc_kv_ops_end(log, &failed);
}

static uint64_t hasten_locked(struct mc_kv_log *log) MC_REQUIRES(log->lock)
{
	log->sync_upto = log->seq;
	mc_cond_signal(&log->work);
	return log->seq;
}

void mc_kv_log_hasten(struct mc_kv_log *log)
{
	mc_mutex_lock(&log->lock);
	hasten_locked(log);
	mc_mutex_unlock(&log->lock);
}

int mc_kv_log_sync(struct mc_kv_log *log)
{
	uint64_t upto;
	int r;

	mc_mutex_lock(&log->lock);
	upto = hasten_locked(log);
	log->sync_waiters++;
	while (log->oldest != NULL && log->oldest->seq <= upto)
		mc_cond_wait(&log->moved, &log->lock);
	log->sync_waiters--;
	r = log->sync_error;
	log->sync_error = 0;
	mc_mutex_unlock(&log->lock);
	return r;
}
