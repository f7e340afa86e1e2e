/* The KV log: opening and closing, sizes, statistics. */
#include "tier/kv-log-impl.h"

#include "tier/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define COMMIT_MS 500
#define PATIENCE_MS 10000
#define JOURNAL_BYTES (UINT64_C(32) << 20)
#define JOURNAL_LEAST (UINT64_C(1) << 20)

static void choose_sizes(struct mc_kv_log *log, uint64_t journal_bytes)
{
	const struct mc_kv_store *store = mc_kv_top(log)->store;

	log->journal_bytes = JOURNAL_BYTES;
	while (log->journal_bytes > JOURNAL_LEAST &&
		log->journal_bytes * 32 > mc_kv_top(log)->capacity)
		log->journal_bytes /= 2;
	if (journal_bytes != 0)
		log->journal_bytes = journal_bytes;
	log->table_max = UINT64_MAX;
	if (store->journal_dir == NULL)
		/* Records are shorter than entries; that much is left for framing and segments. */
		log->table_max = mc_journal_area_snapshot_bytes(store->journal_bytes) / 10 * 9;
	log->record_max = MC_KV_RECORD_MAX + 65536;
	for (unsigned i = 0; i < MC_KV_FLOORS; i++)
		if (log->floors[i].store != NULL &&
			log->floors[i].segment_bytes / 4 < log->record_max)
			log->record_max = log->floors[i].segment_bytes / 4;
}

static int make_packs(struct mc_kv_log *log, struct mc_kv_floor *f)
{
	for (unsigned i = 0; i < MC_KV_PACKS; i++) {
		struct mc_kv_pack *p = &f->packs[i];

		p->log = log;
		p->buf = aligned_alloc(MC_KV_PACK_BYTES, MC_KV_PACK_BYTES);
		if (p->buf == NULL)
			return -ENOMEM;
		/* One huge page, if there is one: the disk is told of it in one piece. */
		(void)madvise(p->buf, MC_KV_PACK_BYTES, MADV_HUGEPAGE);
		p->next = f->free_packs;
		f->free_packs = p;
	}
	return 0;
}

void mc_kv_floor_set(struct mc_kv_floor *f, struct mc_kv_store *store, uint64_t capacity)
{
	f->store = store;
	f->segment_bytes = store->segment_bytes;
	f->capacity = capacity == 0 || capacity > store->capacity ? store->capacity : capacity;
}

static int open_stores(struct mc_kv_log *log, const struct mc_kv_log_opts *opts, struct mc_err *err)
{
	uint64_t segment_bytes = opts->segment_bytes != 0
		? mc_kv_up(opts->segment_bytes, MC_KV_ALIGN)
		: mc_kv_store_segment_bytes(opts->capacity);
	struct mc_kv_floor *f = mc_kv_top(log);
	struct mc_kv_store *store;
	int r = 0;

	if (opts->dir != NULL) {
		r = mc_kv_store_files_open(opts->dir, log->io, segment_bytes, &store, err);
		if (r == 0)
			mc_kv_floor_set(f++, store, opts->capacity);
	}
	if (r == 0 && opts->device != NULL) {
		r = mc_kv_store_device_open(opts->device, log->io, opts->device_uuid, &store, err);
		if (r == 0)
			mc_kv_floor_set(f, store,
				opts->dir != NULL ? opts->below_capacity : opts->capacity);
	}
	if (r == 0)
		r = mc_kv_store_bind(log->floors[0].store, log->floors[1].store, err);
	if (r == 0)
		choose_sizes(log, opts->journal_bytes);
	return r;
}

static int open_floor(struct mc_kv_log *log, struct mc_kv_floor *f)
{
	struct mc_uring_opts u = {.depth = 64, .io = log->io};
	int r;

	if (f->store == NULL)
		return 0;
	r = make_packs(log, f);
	return r == 0 ? mc_uring_open(&u, &f->uring) : r;
}

static int bring_up(struct mc_kv_log *log, const struct mc_kv_log_opts *opts, struct mc_err *err)
{
	int r = open_stores(log, opts, err);

	if (r != 0)
		return r;
	log->op_buckets = calloc(MC_KV_OP_BUCKETS, sizeof(struct mc_kv_op *));
	if (log->op_buckets == NULL)
		return -ENOMEM;
	r = mc_kv_table_init(&log->table);
	for (unsigned i = 0; i < MC_KV_FLOORS && r == 0; i++)
		r = open_floor(log, &log->floors[i]);
	if (r == 0)
		r = mc_kv_packer_start(log);
	if (r == 0 && log->floors[1].store != NULL)
		r = mc_kv_below_start(log);
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
	mc_kv_below_join(log);
	if (log->committer_runs)
		pthread_join(log->committer, NULL);
}

void mc_kv_log_free(struct mc_kv_log *log)
{
	stop_threads(log);
	for (unsigned i = 0; i < MC_KV_FLOORS; i++)
		mc_uring_close(log->floors[i].uring);
	mc_journal_close(log->journal);
	mc_kv_segments_leave(log);
	free(log->segs);
	if (log->table.buckets != NULL)
		mc_kv_table_done(&log->table);
	for (unsigned i = 0; i < MC_KV_FLOORS; i++) {
		for (unsigned k = 0; k < MC_KV_PACKS; k++)
			free(log->floors[i].packs[k].buf);
		mc_kv_store_close(log->floors[i].store);
		mc_cond_done(&log->floors[i].wake);
	}
	mc_cond_done(&log->work);
	mc_cond_done(&log->ready);
	mc_cond_done(&log->moved);
	mc_mutex_done(&log->lock);
	free(log->rec);
	free(log->gone);
	free(log->held);
	free(log->op_buckets);
	free(log);
}

static void floor_init(struct mc_kv_floor *f, const struct mc_kv_log_opts *opts)
{
	f->next = 1;
	f->puts.floor = f->survivors.floor = f;
	f->survivors.spare = true;
	f->closed_last = &f->closed;
	mc_cond_init(&f->wake);
	mc_disk_health_init(&f->health, opts->probe_ms, opts->slow_ms);
}

struct mc_kv_log *mc_kv_log_new(const struct mc_kv_log_opts *opts)
{
	struct mc_kv_log *log = calloc(1, sizeof(*log));

	if (log == NULL)
		return NULL;
	log->rec = malloc(MC_KV_RECORD_ROOM);
	if (log->rec == NULL) {
		free(log);
		return NULL;
	}
	log->io = opts->io != NULL ? opts->io : mc_io_real();
	for (unsigned i = 0; i < MC_KV_FLOORS; i++)
		floor_init(&log->floors[i], opts);
	log->commit_ms = opts->commit_ms != 0 ? opts->commit_ms : COMMIT_MS;
	log->patience_ns =
		UINT64_C(1000000) * (opts->patience_ms != 0 ? opts->patience_ms : PATIENCE_MS);
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
			opts->dir != NULL ? opts->dir : opts->device, strerror(-r));
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

static void below_locked(const struct mc_kv_log *log, struct mc_kv_log_stats *ret)
	MC_REQUIRES(log->lock)
{
	const struct mc_kv_floor *f = &log->floors[1];

	if (f->store == NULL)
		return;
	ret->below.capacity = f->capacity;
	ret->below.bypassed = f->health.bypassed;
	ret->below.slow = f->health.slow;
	if (!log->replayed)
		return;
	ret->below.used = f->n_files * f->segment_bytes;
	for (uint32_t i = 1; i < log->n_segs; i++)
		if (log->segs[i] != NULL && log->segs[i]->floor == f)
			ret->below.live += log->segs[i]->live;
}

void mc_kv_log_stats(struct mc_kv_log *log, struct mc_kv_log_stats *ret)
{
	const struct mc_kv_floor *top = mc_kv_top(log);

	mc_mutex_lock(&log->lock);
	if (!log->replayed) { /* recovery fills the rest without the lock */
		*ret = (struct mc_kv_log_stats){.capacity = top->capacity,
			.recovering = true,
			.recovered_percent = recovered_locked(log)};
		below_locked(log, ret);
		mc_mutex_unlock(&log->lock);
		return;
	}
	*ret = log->stats;
	ret->capacity = top->capacity;
	ret->used = top->n_files * top->segment_bytes;
	below_locked(log, ret);
	/* Entry, its allocation's header, slot and bucket, checksums of one or two MiB, a key. */
	ret->index_bytes = log->table.n *
		(sizeof(struct mc_kv_entry) + 8 + sizeof(struct mc_kv_slot) + 6 + 8 + 48);
	ret->bypassed = top->health.bypassed;
	ret->slow = top->health.slow;
	ret->recovering = log->recovering;
	ret->recovered_percent = recovered_locked(log);
	mc_mutex_unlock(&log->lock);
}
