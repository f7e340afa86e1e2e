/* What a group of puts, parts and copies does to the table of a log, once its bytes are durable. */
#include "tier/kv-log-impl.h"

#include <errno.h>
#include <string.h>

#define ATTEMPTS 3

/* A copy: the record may have been removed, evicted or replaced since. */
static void apply_copy_locked(struct mc_kv_log *log, struct mc_kv_op *op, int file_res)
	MC_REQUIRES(log->lock)
{
	const struct mc_kv_entry *e = mc_kv_table_get(&log->table, op->slot);
	struct mc_kv_loc at;

	op->res = file_res;
	if (file_res != 0)
		return;
	op->res = -ECANCELED;
	if (e == NULL || e->kind != (op->of_part ? MC_KV_PART : MC_KV_OBJECT) ||
		memcmp(e->version, op->meta.version, sizeof(e->version)) != 0)
		return;
	at = mc_kv_entry_loc(e);
	if (!mc_kv_loc_same(&at, &op->from))
		return;
	if (!op->of_part && (op->key = strdup(mc_kv_entry_key(e))) == NULL) {
		op->res = -ENOMEM;
		return;
	}
	op->res = 0;
	mc_kv_move_locked(log, op->slot, &op->loc);
}

static void apply_put_locked(struct mc_kv_log *log, struct mc_kv_op *op, int file_res)
	MC_REQUIRES(log->lock)
{
	op->res = op->cancelled ? -ECANCELED : file_res;
	if (op->res == 0)
		op->res = mc_kv_put_locked(log, MC_KV_OBJECT, &op->meta, &op->loc);
	op->entered = op->res == 0;
	if (op->res == 0)
		mc_kv_op_supersede_locked(op);
	else if (op->loc.segment == MC_KV_SPLIT)
		mc_kv_split_gone_locked(log, op->meta.version, &op->loc, op->meta.size);
}

static void apply_part_locked(struct mc_kv_log *log, struct mc_kv_op *op, int file_res)
	MC_REQUIRES(log->lock)
{
	op->res = file_res;
	if (op->res == 0)
		op->res = mc_kv_put_locked(log, MC_KV_PART, &op->meta, &op->loc);
	if (op->whole->part_res == 0)
		op->whole->part_res = op->res;
}

/* True: to be tried again. */
static bool apply_op_locked(struct mc_kv_log *log, struct mc_kv_group *g, struct mc_kv_op *op)
	MC_REQUIRES(log->lock)
{
	int res = op->part_res;

	if (op->file != MC_KV_NO_FILE) {
		struct mc_kv_file *f = &g->files[op->file];

		if (g->given_up)
			f->given_up++;
		else
			f->seg->writers--;
		res = f->res;
	}
	if (op->kind == MC_KV_OP_COPY)
		apply_copy_locked(log, op, res);
	else if (op->kind == MC_KV_OP_PART)
		apply_part_locked(log, op, res);
	if (op->kind != MC_KV_OP_PUT)
		return false;
	apply_put_locked(log, op, res);
	if (res == 0 || op->cancelled || ++op->attempts >= ATTEMPTS)
		return false;
	mc_kv_split_retry(op);
	return true;
}

/* What applying them will read, asked of the memory at once: with many objects it is far away. */
static void expect_locked(struct mc_kv_log *log, struct mc_kv_op *const *ops, unsigned n)
	MC_REQUIRES(log->lock)
{
	uint64_t hashes[MC_KV_OPS_PER_HOLD];
	size_t n_puts = 0;

	for (unsigned i = 0; i < n; i++) {
		if (ops[i]->kind != MC_KV_OP_PUT)
			continue;
		__builtin_prefetch(ops[i]->meta.key);
		__builtin_prefetch(ops[i]->meta.crc);
		if (ops[i]->chain != NULL)
			__builtin_prefetch(ops[i]->chain);
		hashes[n_puts++] = ops[i]->hash;
	}
	mc_kv_table_expect(&log->table, MC_KV_OBJECT, hashes, n_puts);
}

void mc_kv_group_apply(struct mc_kv_log *log, struct mc_kv_group *g)
{
	struct mc_kv_op *ops[MC_KV_OPS_PER_HOLD];
	struct mc_kv_op_list over;
	unsigned n;

	mc_kv_list_init(&over);
	while ((n = mc_kv_list_take_batch(&g->ops, ops)) > 0) {
		mc_mutex_lock(&log->lock);
		expect_locked(log, ops, n);
		for (unsigned i = 0; i < n; i++)
			mc_kv_list_add(
				apply_op_locked(log, g, ops[i]) ? &log->retry : &over, ops[i]);
		if (log->retry.first != NULL)
			mc_cond_signal(&log->work);
		mc_mutex_unlock(&log->lock);
	}
	if (over.first != NULL) {
		g->ops.first = over.first;
		g->ops.last = over.last;
	}
}
