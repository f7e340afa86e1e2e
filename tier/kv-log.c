/* The KV log: opening and closing, sizes, statistics. */
#include "tier/kv-log-impl.h"

#include "tier/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COMMIT_MS 500
#define PATIENCE_MS 10000
#define JOURNAL_BYTES (UINT64_C(32) << 20)
#define JOURNAL_LEAST (UINT64_C(1) << 20)

static void choose_sizes(struct mc_kv_log *log, uint64_t journal_bytes)
{
	log->journal_bytes = JOURNAL_BYTES;
	while (log->journal_bytes > JOURNAL_LEAST && log->journal_bytes * 32 > log->capacity)
		log->journal_bytes /= 2;
	if (journal_bytes != 0)
		log->journal_bytes = journal_bytes;
	log->segment_bytes = log->store->segment_bytes;
	log->table_max = UINT64_MAX;
	if (log->store->journal_dir == NULL)
		/* Records are shorter than entries; that much is left for framing and segments. */
		log->table_max = mc_journal_area_snapshot_bytes(log->store->journal_bytes) / 10 * 9;
	log->record_max = log->segment_bytes / 4;
	if (log->record_max > MC_KV_RECORD_MAX + 65536)
		log->record_max = MC_KV_RECORD_MAX + 65536;
}

static int make_packs(struct mc_kv_log *log)
{
	for (unsigned i = 0; i < MC_KV_PACKS; i++) {
		struct mc_kv_pack *p = &log->packs[i];

		p->log = log;
		p->buf = aligned_alloc(MC_KV_ALIGN, MC_KV_PACK_BYTES);
		if (p->buf == NULL)
			return -ENOMEM;
		p->next = log->free_packs;
		log->free_packs = p;
	}
	return 0;
}

static int open_store(struct mc_kv_log *log, const struct mc_kv_log_opts *opts, struct mc_err *err)
{
	uint64_t segment_bytes = opts->segment_bytes != 0
		? mc_kv_up(opts->segment_bytes, MC_KV_ALIGN)
		: mc_kv_store_segment_bytes(opts->capacity);
	int r = opts->device != NULL
		? mc_kv_store_device_open(
			  opts->device, log->io, opts->device_uuid, &log->store, err)
		: mc_kv_store_files_open(opts->dir, log->io, segment_bytes, &log->store, err);

	if (r != 0)
		return r;
	if (log->capacity == 0 || log->capacity > log->store->capacity)
		log->capacity = log->store->capacity;
	choose_sizes(log, opts->journal_bytes);
	return 0;
}

static int bring_up(struct mc_kv_log *log, const struct mc_kv_log_opts *opts, struct mc_err *err)
{
	struct mc_uring_opts u = {.depth = 64, .io = opts->io};
	int r = open_store(log, opts, err);

	if (r != 0)
		return r;
	log->op_buckets = calloc(MC_KV_OP_BUCKETS, sizeof(struct mc_kv_op *));
	if (log->op_buckets == NULL)
		return -ENOMEM;
	r = make_packs(log);
	if (r == 0)
		r = mc_kv_table_init(&log->table);
	if (r == 0)
		r = mc_uring_open(&u, &log->uring);
	if (r == 0)
		r = mc_kv_packer_start(log);
	if (r == 0)
		r = mc_kv_committer_start(log);
	return r;
}

static void stop_threads(struct mc_kv_log *log)
{
	mc_mutex_lock(&log->lock);
	log->stopping = true;
	if (!log->committer_runs)
		log->recovering = false;
	mc_cond_signal(&log->work);
	mc_mutex_unlock(&log->lock);
	if (log->packer_runs)
		pthread_join(log->packer, NULL);
	mc_mutex_lock(&log->lock);
	log->packer_done = true;
	mc_kv_poke_locked(log);
	mc_mutex_unlock(&log->lock);
	if (log->committer_runs)
		pthread_join(log->committer, NULL);
}

void mc_kv_log_free(struct mc_kv_log *log)
{
	stop_threads(log);
	mc_uring_close(log->uring);
	mc_journal_close(log->journal);
	mc_kv_segments_leave(log);
	free(log->segs);
	if (log->table.buckets != NULL)
		mc_kv_table_done(&log->table);
	for (unsigned i = 0; i < MC_KV_PACKS; i++)
		free(log->packs[i].buf);
	mc_kv_store_close(log->store);
	mc_cond_done(&log->work);
	mc_cond_done(&log->ready);
	mc_cond_done(&log->moved);
	mc_mutex_done(&log->lock);
	free(log->gone);
	free(log->held);
	free(log->op_buckets);
	free(log);
}

struct mc_kv_log *mc_kv_log_new(const struct mc_kv_log_opts *opts)
{
	struct mc_kv_log *log = calloc(1, sizeof(*log));

	if (log == NULL)
		return NULL;
	log->io = opts->io != NULL ? opts->io : mc_io_real();
	log->capacity = opts->capacity;
	log->commit_ms = opts->commit_ms != 0 ? opts->commit_ms : COMMIT_MS;
	log->patience_ns =
		UINT64_C(1000000) * (opts->patience_ms != 0 ? opts->patience_ms : PATIENCE_MS);
	mc_disk_health_init(&log->health, opts->probe_ms, opts->slow_ms);
	log->recovering = true;
	log->closed_last = &log->closed;
	mc_kv_list_init(&log->queue);
	mc_kv_list_init(&log->retry);
	mc_mutex_init(&log->lock);
	mc_cond_init(&log->work);
	mc_cond_init(&log->ready);
	mc_cond_init(&log->moved);
	return log;
}

int mc_kv_log_open(const struct mc_kv_log_opts *opts, const struct mc_kv_log_replay *replay,
	struct mc_kv_log **ret, struct mc_err *err)
{
	struct mc_kv_log *log = mc_kv_log_new(opts);
	int r;

	if (log == NULL)
		return -ENOMEM;
	if (replay != NULL)
		log->replay = *replay;
	r = bring_up(log, opts, err);
	if (r != 0) {
		mc_kv_log_free(log);
		return mc_err_set(err, r, "KV log %s: %s",
			opts->device != NULL ? opts->device : opts->dir, strerror(-r));
	}
	*ret = log;
	return 0;
}

void mc_kv_log_close(struct mc_kv_log *log)
{
	mc_mutex_lock(&log->lock);
	log->closing = true;
	mc_kv_poke_locked(log);
	mc_mutex_unlock(&log->lock);
	mc_kv_log_sync(log);
	stop_threads(log);
	log->packer_runs = log->committer_runs = false;
	if (log->dead == 0)
		mc_kv_snapshot(log);
	mc_kv_log_free(log);
}

void mc_kv_log_set_owner(struct mc_kv_log *log, const struct mc_kv_log_owner *owner)
{
	mc_mutex_lock(&log->lock);
	log->owner = *owner;
	mc_mutex_unlock(&log->lock);
}

static uint64_t recovered_locked(const struct mc_kv_log *log) MC_REQUIRES(log->lock)
{
	return !log->recovering ? 100 : (mc_share_done(&log->read) + mc_share_done(&log->told)) / 2;
}

void mc_kv_log_stats(struct mc_kv_log *log, struct mc_kv_log_stats *ret)
{
	mc_mutex_lock(&log->lock);
	if (!log->replayed) { /* recovery fills the rest without the lock */
		*ret = (struct mc_kv_log_stats){.capacity = log->capacity,
			.recovering = true,
			.recovered_percent = recovered_locked(log)};
		mc_mutex_unlock(&log->lock);
		return;
	}
	*ret = log->stats;
	ret->capacity = log->capacity;
	ret->used = log->n_files * log->segment_bytes;
	/* Entry, its allocation's header, slot and bucket, checksums of one or two MiB, a key. */
	ret->index_bytes = log->table.n * (sizeof(struct mc_kv_entry) + 8 + 8 + 6 + 8 + 48);
	ret->bypassed = log->health.bypassed;
	ret->slow = log->health.slow;
	ret->recovering = log->recovering;
	ret->recovered_percent = recovered_locked(log);
	mc_mutex_unlock(&log->lock);
}
