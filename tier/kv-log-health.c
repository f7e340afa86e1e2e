/*
 * The budgets of the KV log. Errors: too many failed I/Os within a minute and puts fail at once, so
 * that a dying disk costs nobody time. Latency: several writes or syncs within a minute that took
 * long and the disk counts as slow, which the owner may heed; puts go on. A probe ends either.
 * Reads go on: theirs may be the only copy.
 */
#include "tier/kv-log-impl.h"

#include <errno.h>

#define ERROR_BUDGET 16
#define SLOW_BUDGET 3
#define WINDOW_NS (UINT64_C(60) * 1000000000)
#define LEAST_RATE (UINT64_C(16) << 20) /* bytes a second, beyond slow_ms */

void mc_kv_failed(struct mc_kv_log *log, int res)
{
	uint64_t now = mc_now_ns();

	if (res == 0 || res == -ENOSPC || res == -EDQUOT || res == -ENOMEM || res == -EMFILE ||
		res == -ENFILE)
		return;
	mc_mutex_lock(&log->lock);
	log->stats.errors++;
	if (now - log->window_ns > WINDOW_NS) {
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

static bool is_slow(const struct mc_kv_log *log, uint64_t ns, uint64_t bytes)
{
	return ns >= log->slow_ms * UINT64_C(1000000) + bytes * 1000 / LEAST_RATE * 1000000;
}

void mc_kv_took(struct mc_kv_log *log, uint64_t begun_ns, uint64_t bytes)
{
	uint64_t now = mc_now_ns();

	if (!is_slow(log, now - begun_ns, bytes))
		return;
	mc_mutex_lock(&log->lock);
	if (now - log->slow_window_ns > WINDOW_NS) {
		log->slow_window_ns = now;
		log->slow_in_window = 0;
	}
	/* What was under way at once waited for the same thing. */
	if (begun_ns >= log->slow_at_ns) {
		log->slow_at_ns = now;
		log->slow_in_window++;
	}
	if (log->slow_in_window >= SLOW_BUDGET && !log->slow) {
		log->slow = true;
		log->probe_at_ns = now + log->probe_ms * UINT64_C(1000000);
		mc_kv_poke_locked(log);
	}
	mc_mutex_unlock(&log->lock);
}

void mc_kv_probe(struct mc_kv_log *log)
{
	uint64_t begun = mc_now_ns();
	int r = mc_kv_store_probe(log->store);
	bool quick = r == 0 && !is_slow(log, mc_now_ns() - begun, MC_KV_PROBE_BYTES);

	if (r == 0 && mc_journal_snapshot_due(log->journal))
		r = mc_kv_snapshot(log);
	mc_mutex_lock(&log->lock);
	log->probe_at_ns = mc_now_ns() + log->probe_ms * UINT64_C(1000000);
	if (r == 0) {
		log->bypassed = false;
		log->errors_in_window = 0;
	}
	if (quick) {
		log->slow = false;
		log->slow_in_window = 0;
	}
	mc_mutex_unlock(&log->lock);
}
