/*
 * Changes that move no data: remove, evict, rename, directories, pins, remote copies. Record and
 * table change under one hold of the lock; then the caller waits until the record is durable.
 */
#include "tier/kv-log-journal.h"

#include "tier/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Waits until the table may be changed. 0, or why it will not be soon. */
static int begin_locked(struct mc_kv_log *log) MC_REQUIRES(log->lock)
{
	while (log->recovering && log->unread == 0)
		mc_cond_wait(&log->moved, &log->lock);
	return log->dead != 0 || log->unread != 0 ? -EIO : 0;
}

/*
 * Ends a change: durable through the log, or through the snapshot of the committer. Also where
 * nothing was changed: the record by which reclaim evicted the object may not be durable yet.
 */
static int commit_unlocked(struct mc_kv_log *log) MC_EXCLUDES(log->lock)
{
	uint64_t tried;
	int r = mc_journal_commit(log->journal);

	if (r == 0)
		return 0;
	mc_kv_failed(log, mc_kv_top(log), r);
	mc_mutex_lock(&log->lock);
	/* One under way may have passed the change: then the one after it counts. */
	tried = log->snapshots_tried + (log->snapshotting ? 2 : 1);
	log->want_snapshot = true;
	mc_kv_poke_locked(log);
	while (log->snapshots_tried < tried)
		mc_cond_wait(&log->moved, &log->lock);
	r = log->snapshot_res;
	mc_mutex_unlock(&log->lock);
	return mc_kv_journal_error(r);
}

int mc_kv_log_remove(struct mc_kv_log *log, const char *key, const uint8_t version[16],
	const struct mc_kv_loc *loc)
{
	bool all = loc == NULL || loc->segment == 0;
	const struct mc_kv_entry *e;
	uint32_t slot;
	int r;

	mc_mutex_lock(&log->lock);
	r = begin_locked(log);
	if (r != 0) {
		mc_mutex_unlock(&log->lock);
		return r;
	}
	mc_kv_ops_cancel_locked(log, key, all ? NULL : version);
	slot = mc_kv_table_find(&log->table, MC_KV_OBJECT, key);
	e = mc_kv_table_get(&log->table, slot);
	if (e != NULL && (all || memcmp(e->version, version, sizeof(e->version)) == 0))
		mc_kv_drop_locked(log, slot);
	mc_kv_poke_locked(log);
	mc_mutex_unlock(&log->lock);
	return commit_unlocked(log);
}

int mc_kv_log_evict(struct mc_kv_log *log, const char *key, const uint8_t version[16],
	const struct mc_kv_loc *loc)
{
	const struct mc_kv_entry *e;
	uint32_t slot;
	int r;

	(void)loc; /* a copy may just have moved: the version decides */
	mc_mutex_lock(&log->lock);
	r = begin_locked(log);
	slot = r == 0 ? mc_kv_table_find(&log->table, MC_KV_OBJECT, key) : 0;
	e = mc_kv_table_get(&log->table, slot);
	if (r == 0 && (e == NULL || memcmp(e->version, version, sizeof(e->version)) != 0))
		r = -ENOENT;
	if (r == 0)
		mc_kv_drop_locked(log, slot);
	mc_kv_poke_locked(log);
	mc_mutex_unlock(&log->lock);
	return r == 0 ? commit_unlocked(log) : r;
}

int mc_kv_log_set_mtime(struct mc_kv_log *log, const char *key, const uint8_t version[16],
	int64_t mtime_s, uint32_t mtime_ns)
{
	struct mc_kv_entry *e;
	uint32_t slot;
	int r;

	mc_mutex_lock(&log->lock);
	r = begin_locked(log);
	slot = r == 0 ? mc_kv_table_find(&log->table, MC_KV_OBJECT, key) : 0;
	e = mc_kv_table_get(&log->table, slot);
	if (r == 0 && e != NULL && memcmp(e->version, version, sizeof(e->version)) == 0) {
		e->mtime_s = mtime_s;
		e->mtime_ns = mtime_ns;
		/* The object again, where it is. */
		mc_kv_journal_put_locked(log, e);
	}
	mc_mutex_unlock(&log->lock);
	return r == 0 ? commit_unlocked(log) : r;
}

static int mark_locked(struct mc_kv_log *log, enum mc_kv_kind kind, const char *key, bool made)
	MC_REQUIRES(log->lock)
{
	unsigned char rec[2 + MC_KV_KEY_MAX];
	int r = 0;

	if ((mc_kv_table_find(&log->table, kind, key) != 0) == made)
		return 0;
	r = mc_kv_entry_mark_locked(log, kind, key, made);
	if (r == 0)
		mc_kv_journal_locked(
			log, MC_JOURNAL_KV_MARK, rec, mc_kv_mark_record(kind, made, key, rec));
	return r;
}

int mc_kv_log_rename(struct mc_kv_log *log, const char *from, const char *to)
{
	cleanup_free unsigned char *rec =
		malloc(sizeof(struct mc_kv_named_front) + 2 * MC_KV_KEY_MAX);
	uint32_t slot;
	int r;

	if (rec == NULL)
		return -ENOMEM;
	mc_mutex_lock(&log->lock);
	r = begin_locked(log);
	if (r == 0 && strcmp(from, to) != 0) {
		mc_kv_ops_cancel_locked(log, to, NULL);
		r = mc_kv_ops_rename_locked(log, from, to);
	}
	slot = r == 0 ? mc_kv_table_find(&log->table, MC_KV_OBJECT, from) : 0;
	if (r == 0 && slot != 0 && strcmp(from, to) != 0) {
		const struct mc_kv_entry *e = mc_kv_table_get(&log->table, slot);
		size_t len = mc_kv_named_record(e->version, (uint32_t)strlen(from), from, to, rec);

		r = mc_kv_entry_rename_locked(log, slot, to);
		if (r == 0)
			mc_kv_journal_locked(log, MC_JOURNAL_KV_RENAME, rec, len);
	}
	if (r == 0 && mc_kv_table_find(&log->table, MC_KV_PIN, from) != 0) {
		r = mark_locked(log, MC_KV_PIN, to, true);
		if (r == 0)
			r = mark_locked(log, MC_KV_PIN, from, strcmp(from, to) == 0);
	}
	mc_kv_poke_locked(log);
	mc_mutex_unlock(&log->lock);
	return r == 0 ? commit_unlocked(log) : r;
}

static int log_mark(struct mc_kv_log *log, enum mc_kv_kind kind, const char *key, bool made)
{
	int r;

	mc_mutex_lock(&log->lock);
	r = begin_locked(log);
	if (r == 0)
		r = mark_locked(log, kind, key, made);
	mc_mutex_unlock(&log->lock);
	return r == 0 ? commit_unlocked(log) : r;
}

int mc_kv_log_dir(struct mc_kv_log *log, const char *key, bool made)
{
	return log_mark(log, MC_KV_DIR, key, made);
}

int mc_kv_log_pin(struct mc_kv_log *log, const char *key, bool pinned)
{
	return log_mark(log, MC_KV_PIN, key, pinned);
}

int mc_kv_log_remote(
	struct mc_kv_log *log, const char *key, const uint8_t version[16], unsigned copies)
{
	unsigned char rec[sizeof(struct mc_kv_named_front) + MC_KV_KEY_MAX];
	struct mc_kv_entry *e;
	uint32_t slot;
	int r;
	bool changed;

	mc_mutex_lock(&log->lock);
	r = begin_locked(log);
	slot = r == 0 ? mc_kv_table_find(&log->table, MC_KV_OBJECT, key) : 0;
	e = mc_kv_table_get(&log->table, slot);
	changed = r == 0 && e != NULL && memcmp(e->version, version, sizeof(e->version)) == 0 &&
		e->copies != copies;
	if (changed) {
		e->copies = copies < UINT8_MAX ? (uint8_t)copies : UINT8_MAX;
		mc_kv_journal_locked(log, MC_JOURNAL_KV_REMOTE, rec,
			mc_kv_named_record(version, e->copies, key, NULL, rec));
	}
	mc_mutex_unlock(&log->lock);
	return r == 0 ? commit_unlocked(log) : r;
}
