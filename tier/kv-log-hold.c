/*
 * Places that outlive their record: readers of a version that was removed or replaced go on
 * reading it. A held segment is not reused; a held object in parts keeps them, and both stay
 * counted.
 */
#include "tier/kv-log-impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static size_t find_locked(const struct mc_kv_log *log, const uint8_t version[16], uint32_t number)
	MC_REQUIRES(log->lock)
{
	size_t i = 0;

	while (i < log->n_held &&
		(log->held[i].number != number || memcmp(log->held[i].version, version, 16) != 0))
		i++;
	return i;
}

bool mc_kv_split_held_locked(
	const struct mc_kv_log *log, const uint8_t version[16], uint32_t number)
{
	return find_locked(log, version, number) < log->n_held;
}

static int hold_split_locked(struct mc_kv_log *log, const uint8_t version[16], uint32_t number)
	MC_REQUIRES(log->lock)
{
	struct mc_kv_gone *grown;
	char key[MC_KV_PART_KEY];

	mc_kv_part_key(version, number, 0, key);
	if (mc_kv_table_find(&log->table, MC_KV_PART, key) == 0)
		return -ESTALE;
	grown = reallocarray(log->held, log->n_held + 1, sizeof(*grown));
	if (grown == NULL)
		return -ENOMEM;
	log->held = grown;
	log->held[log->n_held] = (struct mc_kv_gone){.number = number};
	memcpy(log->held[log->n_held++].version, version, 16);
	return 0;
}

int mc_kv_log_hold(struct mc_kv_log *log, const uint8_t version[16], const struct mc_kv_loc *loc)
{
	struct mc_kv_segment *seg;
	int r = 0;

	mc_mutex_lock(&log->lock);
	seg = mc_kv_segment_get(log, loc->segment);
	if (loc->segment == MC_KV_SPLIT)
		r = hold_split_locked(log, version, loc->generation);
	else if (seg == NULL || !mc_kv_segment_holds_locked(seg, loc->generation))
		r = -ESTALE;
	else
		seg->readers++;
	mc_mutex_unlock(&log->lock);
	return r;
}

void mc_kv_log_release(
	struct mc_kv_log *log, const uint8_t version[16], const struct mc_kv_loc *loc)
{
	mc_mutex_lock(&log->lock);
	if (loc->segment == MC_KV_SPLIT) {
		size_t i = find_locked(log, version, loc->generation);

		assert(i < log->n_held);
		log->held[i] = log->held[--log->n_held];
	} else {
		struct mc_kv_segment *seg = mc_kv_segment_get(log, loc->segment);

		assert(seg->readers > 0);
		seg->readers--;
	}
	mc_kv_poke_locked(log);
	mc_mutex_unlock(&log->lock);
}
