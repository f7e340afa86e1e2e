/*
 * Reads of objects in the log whose disk does not answer: they are given up, and the remote is
 * asked instead. What has no other copy is waited for longer, where somebody wants it.
 *
 * Invariants
 * 1. While a read that was given up has not ended, what the remote has is not read from that floor.
 * Reads of objects in parts, where there are two floors, are taken for reads of the lower one.
 * 2. At most KV_LOST reads are given up and have not ended, but for those that were under way.
 */
#include "tier/kv-impl.h"

#define PATIENCE_NS UINT64_C(4000000000) /* at most; else a quarter of the deadline */
#define BYTE_NS 16                       /* 64 MiB/s: a large one takes longer */
#define KV_LOST 64u

void kv_reads_init(struct mc_kv *kv)
{
	for (unsigned i = 0; i < KV_READS; i++)
		mc_block_reads_init(&kv->reads[i], i != KV_READS_ABOVE, NULL, kv);
}

void kv_reads_done(struct mc_kv *kv)
{
	for (unsigned i = 0; i < KV_READS; i++)
		mc_block_reads_done(&kv->reads[i]);
}

static bool has_two_floors(const struct mc_kv *kv)
{
	return kv->opts.nvme_dir != NULL && kv->opts.device != NULL;
}

static enum kv_reads reads_of(const struct mc_kv *kv, const struct mc_kv_loc *loc)
{
	if (!has_two_floors(kv))
		return KV_READS_ABOVE;
	if (loc->segment >= 2 * MC_KV_BELOW)
		return KV_READS_PARTS;
	return (loc->segment & MC_KV_BELOW) != 0 ? KV_READS_BELOW : KV_READS_ABOVE;
}

/* Whether a part of it lies where reads hang. */
static bool parts_hang(
	struct mc_kv *kv, const struct kv_object *obj, const struct mc_kv_loc *loc, unsigned lost)
{
	unsigned above = mc_block_reads_lost(&kv->reads[KV_READS_ABOVE]);
	uint64_t bytes;
	bool any;

	lost += mc_block_reads_lost(&kv->reads[KV_READS_BELOW]);
	if (above + lost == 0)
		return false; /* there may be many parts to look for */
	bytes = mc_kv_log_below(kv->log, obj->version, loc, obj->size, &any);
	return (any && lost > 0) || (bytes < obj->size && above > 0);
}

bool kv_reads_place(struct mc_kv *kv, struct kv_object *obj, bool awaited, struct mc_kv_loc *ret)
{
	enum kv_reads set;
	bool elsewhere;
	unsigned lost;

	mc_mutex_lock(&kv->lock);
	*ret = kv_loc(kv_now(obj));
	elsewhere = !awaited || (kv->opts.remote != NULL && kv_now(obj)->remotes > 0);
	mc_mutex_unlock(&kv->lock);
	if (ret->segment == 0 || kv->log == NULL)
		return false;
	set = reads_of(kv, ret);
	lost = mc_block_reads_lost(&kv->reads[set]);
	if (elsewhere && set == KV_READS_PARTS)
		return !parts_hang(kv, obj, ret, lost);
	return lost < (elsewhere ? 1 : KV_LOST);
}

int kv_reads_begin(
	struct mc_kv *kv, struct kv_object *obj, bool awaited, struct mc_block_order *order)
{
	bool alone;

	mc_mutex_lock(&kv->lock);
	alone = awaited && (kv->opts.remote == NULL || kv_now(obj)->remotes == 0);
	mc_mutex_unlock(&kv->lock);
	order->grace_ns = (uint64_t)order->what.len * BYTE_NS + (alone ? kv->deadline_ns / 2 : 0);
	order->what.size = obj->size;
	memcpy(order->what.version, obj->version, sizeof(order->what.version));
	return mc_block_reads_begin(&kv->reads[reads_of(kv, &order->what.loc)], kv->log, order);
}

void kv_reads_tick(struct mc_kv *kv)
{
	uint64_t patience = kv->deadline_ns / 4 < PATIENCE_NS ? kv->deadline_ns / 4 : PATIENCE_NS;

	for (unsigned i = 0; i < KV_READS; i++)
		mc_block_reads_give_up(&kv->reads[i], mc_now_ns() - patience);
}
