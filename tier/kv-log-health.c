/*
 * The budgets of the KV log's disks, one for each floor. While the upper one is bypassed puts fail
 * at once, while the lower one is nothing moves down; that the upper one is slow is told the owner,
 * who may heed it, and puts go on. Reads go on in any case: theirs may be the only copy.
 */
#include "tier/kv-log-impl.h"

#include <errno.h>

void mc_kv_failed(struct mc_kv_log *log, struct mc_kv_floor *f, int res)
{
	if (res == 0 || res == -ENOSPC || res == -EDQUOT || res == -ENOMEM || res == -EMFILE ||
		res == -ENFILE)
		return;
	mc_mutex_lock(&log->lock);
	log->stats.errors++;
	if (mc_disk_failed(&f->health))
		mc_kv_poke_locked(log);
	mc_mutex_unlock(&log->lock);
}

void mc_kv_took(struct mc_kv_log *log, struct mc_kv_floor *f, uint64_t begun_ns, uint64_t bytes)
{
	if (!mc_disk_is_slow(&f->health, mc_now_ns() - begun_ns, bytes))
		return;
	mc_mutex_lock(&log->lock);
	if (mc_disk_took(&f->health, begun_ns, bytes))
		mc_kv_poke_locked(log);
	mc_mutex_unlock(&log->lock);
}

void mc_kv_log_hangs(struct mc_kv_log *log, bool below)
{
	struct mc_kv_floor *f = below ? mc_kv_bottom(log) : mc_kv_top(log);

	mc_mutex_lock(&log->lock);
	mc_kv_lost_locked(log, f);
	mc_mutex_unlock(&log->lock);
}

void mc_kv_log_answered(struct mc_kv_log *log, bool below)
{
	struct mc_kv_floor *f = below ? mc_kv_bottom(log) : mc_kv_top(log);

	mc_mutex_lock(&log->lock);
	mc_kv_found_locked(log, f);
	mc_mutex_unlock(&log->lock);
}

void mc_kv_lost_locked(struct mc_kv_log *log, struct mc_kv_floor *f)
{
	f->lost++;
	mc_disk_hangs(&f->health);
	mc_kv_poke_locked(log);
}

void mc_kv_found_locked(struct mc_kv_log *log, struct mc_kv_floor *f)
{
	if (--f->lost > 0)
		return;
	f->health.probe_at_ns = mc_now_ns();
	mc_kv_poke_locked(log);
}

bool mc_kv_probe_due_locked(const struct mc_kv_floor *f)
{
	return !f->hangs && f->lost == 0 && mc_disk_probe_due(&f->health);
}

uint64_t mc_kv_probe_at_locked(const struct mc_kv_floor *f)
{
	return !f->hangs && f->lost == 0 && mc_disk_ails(&f->health) ? f->health.probe_at_ns
								     : UINT64_MAX;
}

void mc_kv_probe(struct mc_kv_log *log, struct mc_kv_floor *f)
{
	uint64_t begun = mc_now_ns(), took;
	int r = mc_kv_store_probe(f->store);

	took = mc_now_ns() - begun;
	if (r == 0 && f == mc_kv_top(log) && mc_journal_snapshot_due(log->journal))
		r = mc_kv_snapshot(log);
	mc_mutex_lock(&log->lock);
	mc_disk_probed(&f->health, r, took);
	mc_mutex_unlock(&log->lock);
}
