/* What the KV log writes to its journal: records while running, and snapshots of the whole table.
 */
#include "tier/kv-log-journal.h"

#include "tier/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- encoding; rec has MC_KV_RECORD_ROOM bytes */

size_t mc_kv_put_record(const struct mc_kv_entry *e, unsigned char *rec)
{
	struct mc_kv_put_front p = {.segment = e->segment,
		.generation = e->generation,
		.off = e->off,
		.size = e->size,
		.mtime_s = e->mtime_s,
		.mtime_ns = e->mtime_ns,
		.n_crc = e->n_crc,
		.copies = e->copies};
	size_t crc_len = 4 * (size_t)e->n_crc;

	memcpy(p.version, e->version, sizeof(p.version));
	memcpy(rec, &p, sizeof(p));
	memcpy(rec + sizeof(p), e->crc, crc_len);
	memcpy(rec + sizeof(p) + crc_len, mc_kv_entry_key(e), e->key_len);
	return sizeof(p) + crc_len + e->key_len;
}

size_t mc_kv_named_record(
	const uint8_t version[16], uint32_t n, const char *key, const char *to, unsigned char *rec)
{
	struct mc_kv_named_front m = {.n = n};
	size_t len = strlen(key), to_len = to != NULL ? strlen(to) : 0;

	memcpy(m.version, version, sizeof(m.version));
	memcpy(rec, &m, sizeof(m));
	memcpy(rec + sizeof(m), key, len);
	if (to_len > 0)
		memcpy(rec + sizeof(m) + len, to, to_len);
	return sizeof(m) + len + to_len;
}

size_t mc_kv_mark_record(enum mc_kv_kind kind, bool made, const char *key, unsigned char *rec)
{
	size_t len = strlen(key);

	rec[0] = (unsigned char)kind;
	rec[1] = made;
	memcpy(rec + 2, key, len);
	return 2 + len;
}

/* ---- changes while running */

void mc_kv_journal_locked(struct mc_kv_log *log, uint8_t type, const void *rec, size_t len)
{
	(void)mc_journal_append(log->journal, type, rec, len);
}

static uint8_t type_of(enum mc_kv_kind kind)
{
	return kind == MC_KV_PART ? MC_JOURNAL_KV_PART : MC_JOURNAL_KV_PUT;
}

void mc_kv_journal_put_locked(struct mc_kv_log *log, const struct mc_kv_entry *e)
{
	mc_kv_journal_locked(log, type_of(e->kind), log->rec, mc_kv_put_record(e, log->rec));
}

int mc_kv_put_locked(struct mc_kv_log *log, enum mc_kv_kind kind, const struct mc_kv_meta *meta,
	const struct mc_kv_loc *loc)
{
	uint32_t slot;
	int r = mc_kv_entry_enter_locked(log, kind, meta, loc, &slot);

	if (r == 0)
		mc_kv_journal_put_locked(log, mc_kv_table_get(&log->table, slot));
	return r;
}

void mc_kv_move_locked(struct mc_kv_log *log, uint32_t slot, const struct mc_kv_loc *loc)
{
	struct mc_kv_entry *e = mc_kv_table_get(&log->table, slot);
	struct mc_kv_segment *from = mc_kv_segment_get(log, e->segment);
	struct mc_kv_segment *to = mc_kv_segment_get(log, loc->segment);
	uint64_t space = mc_kv_space(e->size, e->n_crc, e->segment);

	from->live -= space;
	to->live += space;
	mc_kv_table_unlink(&log->table, &from->head, slot);
	e->segment = loc->segment;
	e->generation = loc->generation;
	e->off = loc->off;
	mc_kv_table_link(&log->table, &to->head, slot);
	mc_kv_journal_put_locked(log, e);
}

void mc_kv_drop_locked(struct mc_kv_log *log, uint32_t slot)
{
	const struct mc_kv_entry *e = mc_kv_table_get(&log->table, slot);
	unsigned char rec[sizeof(struct mc_kv_named_front) + MC_KV_KEY_MAX];
	size_t len = mc_kv_named_record(e->version, 0, mc_kv_entry_key(e), NULL, rec);

	mc_kv_entry_drop_locked(log, slot);
	mc_kv_journal_locked(log, MC_JOURNAL_KV_REMOVE, rec, len);
}

void mc_kv_log_segment_locked(struct mc_kv_log *log, const struct mc_kv_segment *seg)
{
	uint32_t v[2] = {seg->id, seg->generation};

	mc_kv_journal_locked(log, MC_JOURNAL_KV_SEGMENT, v, sizeof(v));
}

/* ---- snapshots */

static int emit_entry(struct mc_kv_log *log, struct mc_journal *j, uint32_t slot,
	unsigned char *rec, bool *ret_end)
{
	const struct mc_kv_entry *e;
	uint8_t type = MC_JOURNAL_KV_PUT;
	size_t len = 0;

	mc_mutex_lock(&log->lock);
	*ret_end = slot >= log->table.n_slots;
	e = mc_kv_table_get(&log->table, slot);
	if (e != NULL && (e->kind == MC_KV_OBJECT || e->kind == MC_KV_PART)) {
		type = type_of(e->kind);
		len = mc_kv_put_record(e, rec);
	} else if (e != NULL) {
		type = MC_JOURNAL_KV_MARK;
		len = mc_kv_mark_record(e->kind, true, mc_kv_entry_key(e), rec);
	}
	mc_mutex_unlock(&log->lock);
	return len > 0 ? mc_journal_snapshot_add(j, type, rec, len) : 0;
}

static int emit_all(void *ctx, struct mc_journal *j)
{
	struct mc_kv_log *log = ctx;
	cleanup_free unsigned char *rec = malloc(MC_KV_RECORD_ROOM);
	bool end = false;
	int r = rec == NULL ? -ENOMEM : 0;

	for (uint32_t i = 1; r == 0; i++) {
		const struct mc_kv_segment *seg;
		uint32_t v[2] = {0, 0};

		mc_mutex_lock(&log->lock);
		end = i >= log->n_segs;
		seg = end ? NULL : log->segs[i];
		if (seg != NULL) {
			v[0] = seg->id;
			v[1] = seg->generation;
		}
		mc_mutex_unlock(&log->lock);
		if (end)
			break;
		if (seg != NULL)
			r = mc_journal_snapshot_add(j, MC_JOURNAL_KV_SEGMENT, v, sizeof(v));
	}
	end = false;
	for (uint32_t slot = 1; r == 0 && !end; slot++)
		r = emit_entry(log, j, slot, rec, &end);
	return r;
}

int mc_kv_snapshot(struct mc_kv_log *log)
{
	uint64_t bytes;
	int r;

	mc_mutex_lock(&log->lock);
	log->want_snapshot = false;
	log->snapshotting = true;
	/* As long as the state itself: what snapshots write is then at most what the log does. */
	bytes = log->table.n * UINT64_C(128);
	mc_mutex_unlock(&log->lock);
	mc_journal_set_max(log->journal, bytes > log->journal_bytes ? bytes : log->journal_bytes);
	r = mc_journal_snapshot(log->journal, emit_all, log);
	mc_mutex_lock(&log->lock);
	log->snapshots_tried++;
	log->snapshotting = false;
	log->snapshot_res = r;
	mc_cond_broadcast(&log->moved);
	mc_mutex_unlock(&log->lock);
	return r;
}

int mc_kv_commit(struct mc_kv_log *log)
{
	int r = mc_journal_commit(log->journal);

	if (r == 0)
		return 0;
	mc_kv_failed(log, mc_kv_top(log), r);
	return mc_kv_snapshot(log);
}
