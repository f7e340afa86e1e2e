/* What the KV store says of itself. */
#include "tier/kv-impl.h"

#include "tier/block-cache.h"
#include "tier/share.h"

void kv_log_figures(struct mc_kv *kv, struct mc_kv_log_stats *ret)
{
	struct mc_block_cache_stats blocks;

	*ret = (struct mc_kv_log_stats){0};
	if (kv->log == NULL)
		return;
	mc_kv_log_stats(kv->log, ret);
	mc_block_cache_stats(kv->opts.blocks, &blocks);
	if (ret->below.capacity > 0)
		ret->below.used -= blocks.used < ret->below.used ? blocks.used : ret->below.used;
	else
		ret->used -= blocks.used < ret->used ? blocks.used : ret->used;
	ret->live -= blocks.used < ret->live ? blocks.used : ret->live;
}

void mc_kv_stats(struct mc_kv *kv, struct mc_kv_stats *ret)
{
	struct mc_kv_log_stats log;
	bool dir = kv->opts.nvme_dir != NULL;

	kv_log_figures(kv, &log);
	mc_mutex_lock(&kv->lock);
	*ret = (struct mc_kv_stats){
		.objects = kv->index->n_objects,
		.bytes = kv->index->bytes,
		.puts = atomic_load(&kv->puts),
		.gets = atomic_load(&kv->gets),
		.hits_dram = atomic_load(&kv->hits_dram),
		.hits_nvme = atomic_load(&kv->hits_nvme),
		.hits_block = atomic_load(&kv->hits_block),
		.hits_remote = atomic_load(&kv->hits_remote),
		.misses = atomic_load(&kv->misses),
		.dirty_bytes = kv->dirty,
		.dirty_bound = kv->opts.dirty_bound,
		.dram_used = kv_total_locked(kv),
		.dram_capacity = kv->opts.dram_capacity,
		.written_bytes = kv->reserved + kv->unseen,
		.open_bytes = kv->lent,
		.held_bytes = kv->held_bytes,
		.pinned_bytes = kv->index->pinned_bytes,
		.nvme_used = dir ? log.used : 0,
		.nvme_capacity = dir ? log.capacity : 0,
		.block_used = dir ? log.below.used : log.used,
		.block_capacity = dir ? log.below.capacity : log.capacity,
		.log_live = log.live,
		.nvme_unreadable = log.unreadable,
		.flushed_bytes = atomic_load(&kv->flushed),
		.nvme_written_bytes = log.written,
		.nvme_syncs = log.syncs,
		.reclaimed_segments = log.reclaimed,
		.evicted_objects = atomic_load(&kv->evicted),
		.index_bytes = kv->index->memory,
		.recovering = kv->recovering,
		.recovered_percent =
			kv->recovering ? mc_share_percent(log.recovered_percent, 100) : 100,
		.nvme_trouble = kv_trouble_text(KV_NVME, kv->trouble[KV_NVME].error),
		.block_trouble = kv_trouble_text(KV_BLOCK, kv->trouble[KV_BLOCK].error),
		.remote_trouble = kv_trouble_text(KV_REMOTE, kv->trouble[KV_REMOTE].error),
	};
	ret->degraded = ret->nvme_trouble != NULL ? ret->nvme_trouble
		: ret->block_trouble != NULL      ? ret->block_trouble
						  : ret->remote_trouble;
	mc_mutex_unlock(&kv->lock);
}
