/*
 * Entries of the KV log's table together with what they are counted in: live bytes, the list of
 * their segment, the list of objects in parts.
 */
#include "tier/kv-log-impl.h"

#include <string.h>

void mc_kv_entry_drop_locked(struct mc_kv_log *log, uint32_t slot)
{
	struct mc_kv_entry *e = mc_kv_table_get(&log->table, slot);
	uint64_t space = mc_kv_space(e->size, e->n_crc, e->segment);

	if (e->kind == MC_KV_OBJECT) {
		log->stats.live -= space;
		log->stats.objects--;
	}
	log->stats.parts -= e->kind == MC_KV_PART;
	log->stats.unreadable -= e->unreadable;
	if (e->segment == MC_KV_SPLIT) {
		struct mc_kv_loc loc = mc_kv_entry_loc(e);

		mc_kv_table_unlink_head(&log->table, slot);
		mc_kv_split_gone_locked(log, e->version, &loc, e->size);
	} else if (e->segment != 0) {
		struct mc_kv_segment *seg = mc_kv_segment_get(log, e->segment);

		seg->live -= space;
		mc_kv_table_unlink(&log->table, &seg->head, slot);
	}
	log->deaths += e->segment != 0;
	mc_kv_table_remove(&log->table, slot);
}

static void link_locked(struct mc_kv_log *log, uint32_t slot) MC_REQUIRES(log->lock)
{
	struct mc_kv_entry *e = mc_kv_table_get(&log->table, slot);
	uint64_t space = mc_kv_space(e->size, e->n_crc, e->segment);
	struct mc_kv_segment *seg;

	if (e->kind == MC_KV_OBJECT) {
		log->stats.live += space;
		log->stats.objects++;
	}
	log->stats.parts += e->kind == MC_KV_PART;
	if (e->segment == MC_KV_SPLIT) {
		mc_kv_table_link_head(&log->table, slot);
		return;
	}
	seg = mc_kv_segment_get(log, e->segment);
	seg->live += space;
	mc_kv_table_link(&log->table, &seg->head, slot);
}

int mc_kv_entry_enter_locked(struct mc_kv_log *log, enum mc_kv_kind kind,
	const struct mc_kv_meta *m, const struct mc_kv_loc *loc, uint32_t *ret_slot)
{
	uint32_t old;
	int r = mc_kv_table_enter(&log->table, kind, m, loc, ret_slot, &old);

	if (r != 0)
		return r;
	link_locked(log, *ret_slot);
	if (old != 0)
		mc_kv_entry_drop_locked(log, old);
	return 0;
}

int mc_kv_entry_rename_locked(struct mc_kv_log *log, uint32_t slot, const char *to)
{
	uint32_t old = mc_kv_table_find(&log->table, MC_KV_OBJECT, to);
	int r;

	if (old == slot)
		return 0;
	r = mc_kv_table_rekey(&log->table, slot, to);
	if (r == 0 && old != 0)
		mc_kv_entry_drop_locked(log, old);
	return r;
}

int mc_kv_entry_mark_locked(struct mc_kv_log *log, enum mc_kv_kind kind, const char *key, bool made)
{
	static const struct mc_kv_loc nowhere;
	struct mc_kv_meta m = {.key = key};
	uint32_t slot = mc_kv_table_find(&log->table, kind, key);

	if (made && slot == 0)
		return mc_kv_table_add(&log->table, kind, &m, &nowhere, &slot);
	if (!made && slot != 0)
		mc_kv_table_remove(&log->table, slot);
	return 0;
}
