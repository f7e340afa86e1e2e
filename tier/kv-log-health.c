/*
 * The error budget of the KV log: too many failed I/Os within a minute and puts fail at once, so
 * that a dying disk costs nobody time; a probe ends that. Reads go on: theirs may be the only copy.
 */
#include "tier/kv-log-impl.h"

#include <errno.h>

#define ERROR_BUDGET 16
#define ERROR_WINDOW_NS (UINT64_C(60) * 1000000000)

void mc_kv_failed(struct mc_kv_log *log, int res)
{
	uint64_t now = mc_now_ns();

	if (res == 0 || res == -ENOSPC || res == -EDQUOT || res == -ENOMEM || res == -EMFILE ||
		res == -ENFILE)
		return;
	mc_mutex_lock(&log->lock);
	log->stats.errors++;
	if (now - log->window_ns > ERROR_WINDOW_NS) {
		log->window_ns = now;
		log->errors_in_window = 0;
	}
	if (++log->errors_in_window >= ERROR_BUDGET && !log->bypassed) {
		log->bypassed = true;
		log->probe_at_ns = now + log->probe_ms * UINT64_C(1000000);
		mc_kv_poke_locked(log);
	}
	mc_mutex_unlock(&log->lock);
}

void mc_kv_probe(struct mc_kv_log *log)
{
	int r = mc_kv_store_probe(log->store);

	if (r == 0 && mc_journal_snapshot_due(log->journal))
		r = mc_kv_snapshot(log);
	mc_mutex_lock(&log->lock);
	log->probe_at_ns = mc_now_ns() + log->probe_ms * UINT64_C(1000000);
	if (r == 0) {
		log->bypassed = false;
		log->errors_in_window = 0;
	}
	mc_mutex_unlock(&log->lock);
}
