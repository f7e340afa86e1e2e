/*
 * What the KV log writes to its journal, how it is replayed, and the changes that only touch names.
 *
 * Layouts (little endian, as journal-page.c requires): PUT is struct put, n_crc × u32, the key to
 * the end. REMOVE and REMOTE: version, u32 copies, key. RENAME: version, u32 length of from, from,
 * to. MARK: u8 kind, u8 made, key. SEGMENT: u32 id, u32 generation.
 *
 * Every record names a version, so that replaying it over a state that has its effect changes
 * nothing: a snapshot is taken while others append.
 */
#include "tier/kv-log-impl.h"

#include "tier/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct put {
	uint8_t version[16];
	uint32_t segment, generation;
	uint64_t off, size;
	int64_t mtime_s;
	uint32_t mtime_ns, n_crc;
	uint32_t copies, zero;
};
_Static_assert(sizeof(struct put) == 64, "a PUT has a fixed front");

struct named {
	uint8_t version[16];
	uint32_t n; /* copies, or length of from */
};

/* ---- encoding; rec has MC_KV_RECORD_ROOM bytes */

static size_t put_record(const struct mc_kv_entry *e, unsigned char *rec)
{
	struct put p = {.segment = e->segment,
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

static size_t named_record(
	const uint8_t version[16], uint32_t n, const char *key, const char *to, unsigned char *rec)
{
	struct named m = {.n = n};
	size_t len = strlen(key), to_len = to != NULL ? strlen(to) : 0;

	memcpy(m.version, version, sizeof(m.version));
	memcpy(rec, &m, sizeof(m));
	memcpy(rec + sizeof(m), key, len);
	if (to_len > 0)
		memcpy(rec + sizeof(m) + len, to, to_len);
	return sizeof(m) + len + to_len;
}

static size_t mark_record(enum mc_kv_kind kind, bool made, const char *key, unsigned char *rec)
{
	size_t len = strlen(key);

	rec[0] = (unsigned char)kind;
	rec[1] = made;
	memcpy(rec + 2, key, len);
	return 2 + len;
}

/* ---- the table */

void mc_kv_entry_drop_locked(struct mc_kv_log *log, uint32_t slot)
{
	struct mc_kv_entry *e = mc_kv_table_get(&log->table, slot);
	uint64_t space = mc_kv_space(e->size, e->n_crc, e->segment);

	if (e->kind == MC_KV_OBJECT) {
		log->stats.live -= space;
		log->stats.objects--;
		log->deaths++;
		if (e->segment == MC_KV_IMAGE) {
			mc_kv_table_unlink(&log->table, &log->image_head, slot);
			mc_kv_image_gone_locked(log, e->version, e->generation, e->size);
		} else {
			struct mc_kv_segment *seg = mc_kv_segment_get(log, e->segment);

			seg->live -= space;
			mc_kv_table_unlink(&log->table, &seg->head, slot);
		}
	}
	mc_kv_table_remove(&log->table, slot);
}

static void link_entry(struct mc_kv_log *log, uint32_t slot)
{
	struct mc_kv_entry *e = mc_kv_table_get(&log->table, slot);
	uint64_t space = mc_kv_space(e->size, e->n_crc, e->segment);
	struct mc_kv_segment *seg;

	log->stats.live += space;
	log->stats.objects++;
	if (e->segment == MC_KV_IMAGE) {
		mc_kv_table_link(&log->table, &log->image_head, slot);
		return;
	}
	seg = mc_kv_segment_get(log, e->segment);
	seg->live += space;
	mc_kv_table_link(&log->table, &seg->head, slot);
}

/* The key holds this object now, and nothing else. */
static int enter(struct mc_kv_log *log, const struct mc_kv_meta *m, const struct mc_kv_loc *loc,
	uint32_t *ret_slot)
{
	uint32_t old = mc_kv_table_find(&log->table, MC_KV_OBJECT, m->key);
	int r = mc_kv_table_add(&log->table, MC_KV_OBJECT, m, loc, ret_slot);

	if (r != 0)
		return r;
	link_entry(log, *ret_slot);
	if (old != 0)
		mc_kv_entry_drop_locked(log, old);
	return 0;
}

static int rename_entry(struct mc_kv_log *log, uint32_t slot, const char *to)
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

static int mark(struct mc_kv_log *log, enum mc_kv_kind kind, const char *key, bool made)
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

/* ---- replay: the committer's thread alone, before anybody else touches the table */

static int apply_put(struct mc_kv_log *log, const unsigned char *p, size_t len, char *key)
{
	struct put put;
	struct mc_kv_meta m = {.key = key};
	struct mc_kv_segment *seg;
	struct mc_kv_loc loc;
	cleanup_free uint32_t *crc = NULL;
	size_t crc_len;
	uint32_t slot;
	int r;

	if (len < sizeof(put))
		return 0;
	memcpy(&put, p, sizeof(put));
	crc_len = 4 * (size_t)put.n_crc;
	if (len - sizeof(put) <= crc_len || len - sizeof(put) - crc_len > MC_KV_KEY_MAX)
		return 0;
	crc = malloc(crc_len + 1);
	if (crc == NULL)
		return -ENOMEM;
	memcpy(crc, p + sizeof(put), crc_len);
	len -= sizeof(put) + crc_len;
	memcpy(key, p + sizeof(put) + crc_len, len);
	key[len] = '\0';
	if (put.segment != MC_KV_IMAGE) {
		seg = mc_kv_segment_note(log, put.segment);
		if (seg == NULL)
			return 0;
		if (put.generation < seg->generation)
			return 0;
		seg->generation = put.generation;
	} else if (put.generation >= log->image_seq) {
		log->image_seq = put.generation + 1;
	}
	m.size = put.size;
	m.mtime_s = put.mtime_s;
	m.mtime_ns = put.mtime_ns;
	m.n_crc = put.n_crc;
	m.crc = crc;
	memcpy(m.version, put.version, sizeof(m.version));
	loc = (struct mc_kv_loc){put.segment, put.generation, put.off};
	r = enter(log, &m, &loc, &slot);
	if (r == 0)
		mc_kv_table_get(&log->table, slot)->copies = (uint8_t)put.copies;
	return r;
}

static int apply_named(
	struct mc_kv_log *log, uint8_t type, const unsigned char *p, size_t len, char *key)
{
	struct named m;
	struct mc_kv_entry *e;
	size_t from_len;
	uint32_t slot;

	if (len <= sizeof(m))
		return 0;
	memcpy(&m, p, sizeof(m));
	p += sizeof(m);
	len -= sizeof(m);
	from_len = type == MC_JOURNAL_KV_RENAME ? m.n : len;
	if (from_len > len || from_len > MC_KV_KEY_MAX || len - from_len > MC_KV_KEY_MAX)
		return 0;
	memcpy(key, p, from_len);
	key[from_len] = '\0';
	slot = mc_kv_table_find(&log->table, MC_KV_OBJECT, key);
	e = mc_kv_table_get(&log->table, slot);
	if (e == NULL || memcmp(e->version, m.version, sizeof(m.version)) != 0)
		return 0;
	if (type == MC_JOURNAL_KV_REMOTE) {
		e->copies = (uint8_t)m.n;
	} else if (type == MC_JOURNAL_KV_REMOVE) {
		mc_kv_entry_drop_locked(log, slot);
	} else {
		memcpy(key, p + from_len, len - from_len);
		key[len - from_len] = '\0';
		return rename_entry(log, slot, key);
	}
	return 0;
}

static int apply_segment(struct mc_kv_log *log, const unsigned char *p, size_t len)
{
	struct mc_kv_segment *seg;
	uint32_t v[2];

	if (len != sizeof(v))
		return 0;
	memcpy(v, p, sizeof(v));
	seg = mc_kv_segment_note(log, v[0]);
	if (seg == NULL)
		return 0;
	if (v[1] > seg->generation) {
		while (seg->head != 0)
			mc_kv_entry_drop_locked(log, seg->head);
		seg->generation = v[1];
	}
	return 0;
}

int mc_kv_journal_apply(void *ctx, uint8_t type, const void *rec, size_t len, struct mc_err *err)
{
	struct mc_kv_log *log = ctx;
	char key[MC_KV_KEY_MAX + 1];
	const unsigned char *p = rec;

	switch (type) {
	case MC_JOURNAL_KV_PUT:
		return apply_put(log, p, len, key);
	case MC_JOURNAL_KV_REMOVE:
	case MC_JOURNAL_KV_RENAME:
	case MC_JOURNAL_KV_REMOTE:
		return apply_named(log, type, p, len, key);
	case MC_JOURNAL_KV_MARK:
		if (len <= 2 || len - 2 > MC_KV_KEY_MAX || (p[0] != MC_KV_DIR && p[0] != MC_KV_PIN))
			return 0;
		memcpy(key, p + 2, len - 2);
		key[len - 2] = '\0';
		return mark(log, p[0], key, p[1] != 0);
	case MC_JOURNAL_KV_SEGMENT:
		return apply_segment(log, p, len);
	default:
		return mc_err_set(err, -EPROTONOSUPPORT,
			"KV log %s: journal record of type %u was written by a newer version; use "
			"that, or remove the directory",
			log->dir, type);
	}
}

/* ---- changes while running */

int mc_kv_put_locked(
	struct mc_kv_log *log, const struct mc_kv_meta *meta, const struct mc_kv_loc *loc)
{
	cleanup_free unsigned char *rec =
		malloc(MC_KV_HEADER + mc_kv_record_bytes(meta) - meta->size);
	uint32_t slot;
	int r;

	if (rec == NULL)
		return -ENOMEM;
	r = enter(log, meta, loc, &slot);
	if (r != 0)
		return r;
	/* No memory for the record: the entry stays and the next snapshot has it. */
	return mc_journal_append(log->journal, MC_JOURNAL_KV_PUT, rec,
		put_record(mc_kv_table_get(&log->table, slot), rec));
}

int mc_kv_move_locked(struct mc_kv_log *log, uint32_t slot, const struct mc_kv_loc *loc)
{
	struct mc_kv_entry *e = mc_kv_table_get(&log->table, slot);
	struct mc_kv_segment *from = mc_kv_segment_get(log, e->segment);
	struct mc_kv_segment *to = mc_kv_segment_get(log, loc->segment);
	uint64_t space = mc_kv_space(e->size, e->n_crc, e->segment);
	cleanup_free unsigned char *rec =
		malloc(sizeof(struct put) + 4 * (size_t)e->n_crc + e->key_len);

	if (rec == NULL)
		return -ENOMEM;
	from->live -= space;
	to->live += space;
	mc_kv_table_unlink(&log->table, &from->head, slot);
	e->segment = loc->segment;
	e->generation = loc->generation;
	e->off = loc->off;
	mc_kv_table_link(&log->table, &to->head, slot);
	return mc_journal_append(log->journal, MC_JOURNAL_KV_PUT, rec, put_record(e, rec));
}

int mc_kv_drop_locked(struct mc_kv_log *log, uint32_t slot)
{
	const struct mc_kv_entry *e = mc_kv_table_get(&log->table, slot);
	unsigned char rec[sizeof(struct named) + MC_KV_KEY_MAX];
	size_t len = named_record(e->version, 0, mc_kv_entry_key(e), NULL, rec);

	mc_kv_entry_drop_locked(log, slot);
	return mc_journal_append(log->journal, MC_JOURNAL_KV_REMOVE, rec, len);
}

int mc_kv_log_segment_locked(struct mc_kv_log *log, const struct mc_kv_segment *seg)
{
	uint32_t v[2] = {seg->id, seg->generation};

	return mc_journal_append(log->journal, MC_JOURNAL_KV_SEGMENT, v, sizeof(v));
}

/* Waits until the table may be changed. 0, or why it never will. */
static int begin_locked(struct mc_kv_log *log) MC_REQUIRES(log->lock)
{
	while (log->recovering)
		mc_cond_wait(&log->moved, &log->lock);
	return log->dead != 0 ? -EIO : 0;
}

/* Ends a change: durable through the log, or through the snapshot of the committer. */
static int commit_unlocked(struct mc_kv_log *log, int appended) MC_EXCLUDES(log->lock)
{
	uint64_t tried;
	bool ok;

	if (appended == 0 && mc_journal_commit(log->journal) == 0)
		return 0;
	mc_kv_failed(log);
	mc_mutex_lock(&log->lock);
	/* One under way may have passed the change: then the one after it counts. */
	tried = log->snapshots_tried + (log->snapshotting ? 2 : 1);
	log->want_snapshot = true;
	mc_kv_poke_locked(log);
	while (log->snapshots_tried < tried)
		mc_cond_wait(&log->moved, &log->lock);
	ok = log->snapshot_ok;
	mc_mutex_unlock(&log->lock);
	return ok ? 0 : -EIO;
}

int mc_kv_log_remove(struct mc_kv_log *log, const char *key, const uint8_t version[16],
	const struct mc_kv_loc *loc)
{
	bool all = loc == NULL || loc->segment == 0, changed = false;
	const struct mc_kv_entry *e;
	uint32_t slot;
	int r, appended = 0;

	mc_mutex_lock(&log->lock);
	r = begin_locked(log);
	if (r != 0) {
		mc_mutex_unlock(&log->lock);
		return r;
	}
	mc_kv_ops_cancel_locked(log, key, all ? NULL : version);
	slot = mc_kv_table_find(&log->table, MC_KV_OBJECT, key);
	e = mc_kv_table_get(&log->table, slot);
	if (e != NULL && (all || memcmp(e->version, version, sizeof(e->version)) == 0)) {
		appended = mc_kv_drop_locked(log, slot);
		changed = true;
	}
	mc_kv_poke_locked(log);
	mc_mutex_unlock(&log->lock);
	return changed ? commit_unlocked(log, appended) : 0;
}

int mc_kv_log_evict(struct mc_kv_log *log, const char *key, const uint8_t version[16],
	const struct mc_kv_loc *loc)
{
	const struct mc_kv_entry *e;
	uint32_t slot;
	int r, appended = 0;

	(void)loc; /* a copy may just have moved: the version decides */
	mc_mutex_lock(&log->lock);
	r = begin_locked(log);
	slot = mc_kv_table_find(&log->table, MC_KV_OBJECT, key);
	e = mc_kv_table_get(&log->table, slot);
	if (r == 0 && (e == NULL || memcmp(e->version, version, sizeof(e->version)) != 0))
		r = -ENOENT;
	if (r == 0)
		appended = mc_kv_drop_locked(log, slot);
	mc_kv_poke_locked(log);
	mc_mutex_unlock(&log->lock);
	return r == 0 ? commit_unlocked(log, appended) : r;
}

int mc_kv_log_rename(struct mc_kv_log *log, const char *from, const char *to)
{
	cleanup_free unsigned char *rec = malloc(sizeof(struct named) + 2 * MC_KV_KEY_MAX);
	bool changed = false;
	uint32_t slot;
	int r, appended = 0;

	if (rec == NULL)
		return -ENOMEM;
	mc_mutex_lock(&log->lock);
	r = begin_locked(log);
	if (r == 0 && strcmp(from, to) != 0) {
		mc_kv_ops_cancel_locked(log, to, NULL);
		r = mc_kv_ops_rename_locked(log, from, to);
	}
	slot = mc_kv_table_find(&log->table, MC_KV_OBJECT, from);
	if (r == 0 && slot != 0 && strcmp(from, to) != 0) {
		const struct mc_kv_entry *e = mc_kv_table_get(&log->table, slot);
		size_t len = named_record(e->version, (uint32_t)strlen(from), from, to, rec);

		r = rename_entry(log, slot, to);
		if (r == 0)
			appended = mc_journal_append(log->journal, MC_JOURNAL_KV_RENAME, rec, len);
		changed = r == 0;
	}
	mc_kv_poke_locked(log);
	mc_mutex_unlock(&log->lock);
	return r == 0 && changed ? commit_unlocked(log, appended) : r;
}

static int log_mark(struct mc_kv_log *log, enum mc_kv_kind kind, const char *key, bool made)
{
	unsigned char rec[2 + MC_KV_KEY_MAX];
	bool there;
	int r, appended = 0;

	mc_mutex_lock(&log->lock);
	r = begin_locked(log);
	there = mc_kv_table_find(&log->table, kind, key) != 0;
	if (r == 0 && there != made) {
		r = mark(log, kind, key, made);
		if (r == 0)
			appended = mc_journal_append(log->journal, MC_JOURNAL_KV_MARK, rec,
				mark_record(kind, made, key, rec));
	}
	mc_mutex_unlock(&log->lock);
	return r == 0 && there != made ? commit_unlocked(log, appended) : r;
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
	unsigned char rec[sizeof(struct named) + MC_KV_KEY_MAX];
	struct mc_kv_entry *e;
	int r, appended = 0;
	bool changed;

	mc_mutex_lock(&log->lock);
	r = begin_locked(log);
	e = mc_kv_table_get(&log->table, mc_kv_table_find(&log->table, MC_KV_OBJECT, key));
	changed = r == 0 && e != NULL && memcmp(e->version, version, sizeof(e->version)) == 0 &&
		e->copies != copies;
	if (changed) {
		e->copies = copies < UINT8_MAX ? (uint8_t)copies : UINT8_MAX;
		appended = mc_journal_append(log->journal, MC_JOURNAL_KV_REMOTE, rec,
			named_record(version, e->copies, key, NULL, rec));
	}
	mc_mutex_unlock(&log->lock);
	return changed ? commit_unlocked(log, appended) : r;
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
	if (e != NULL && e->kind == MC_KV_OBJECT) {
		len = put_record(e, rec);
	} else if (e != NULL) {
		type = MC_JOURNAL_KV_MARK;
		len = mark_record(e->kind, true, mc_kv_entry_key(e), rec);
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

	for (uint32_t id = 1; r == 0; id++) {
		const struct mc_kv_segment *seg;
		uint32_t v[2] = {id, 0};

		mc_mutex_lock(&log->lock);
		end = id >= log->n_segs;
		seg = end ? NULL : log->segs[id];
		if (seg != NULL)
			v[1] = seg->generation;
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
	log->snapshot_ok = r == 0;
	mc_cond_broadcast(&log->moved);
	mc_mutex_unlock(&log->lock);
	return r;
}

int mc_kv_commit(struct mc_kv_log *log)
{
	int r = mc_journal_commit(log->journal);

	if (r == 0)
		return 0;
	mc_kv_failed(log);
	return mc_kv_snapshot(log);
}
