/*
 * Replay of the KV log's journal: the committer's thread, before anybody else changes the table.
 * Records that contradict themselves are passed over: the page's checksum held, so they are ours
 * and mean nothing.
 */
#include "tier/kv-log-journal.h"

#include "tier/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int apply_put(struct mc_kv_log *log, enum mc_kv_kind kind, const unsigned char *p,
	size_t len, char *key) MC_REQUIRES(log->lock)
{
	struct mc_kv_put_front put;
	struct mc_kv_meta m = {.key = key};
	struct mc_kv_segment *seg;
	struct mc_kv_loc loc;
	cleanup_free uint32_t *crc = NULL;
	size_t crc_len;
	uint32_t slot;

	if (len < sizeof(put))
		return 0;
	memcpy(&put, p, sizeof(put));
	crc_len = 4 * (size_t)put.n_crc;
	if (put.n_crc > MC_KV_CRC_MAX || len - sizeof(put) <= crc_len ||
		len - sizeof(put) - crc_len > MC_KV_KEY_MAX)
		return 0;
	crc = malloc(crc_len + 1);
	if (crc == NULL)
		return -ENOMEM;
	memcpy(crc, p + sizeof(put), crc_len);
	len -= sizeof(put) + crc_len;
	memcpy(key, p + sizeof(put) + crc_len, len);
	key[len] = '\0';
	/* Of a head that contradicts itself the parts could not be counted. */
	if (put.segment == MC_KV_SPLIT &&
		(kind != MC_KV_OBJECT || put.off < MC_KV_ALIGN ||
			put.size > (uint64_t)put.n_crc << 20))
		return 0;
	if (put.segment != MC_KV_SPLIT) {
		seg = mc_kv_segment_note(log, put.segment);
		if (seg == NULL)
			return 0;
		if (put.generation < seg->generation)
			return 0;
		seg->generation = put.generation;
	} else if (put.generation >= log->split_seq) {
		log->split_seq = put.generation + 1;
	}
	m.size = put.size;
	m.mtime_s = put.mtime_s;
	m.mtime_ns = put.mtime_ns;
	m.n_crc = put.n_crc;
	m.copies = (uint8_t)put.copies;
	m.crc = crc;
	memcpy(m.version, put.version, sizeof(m.version));
	loc = (struct mc_kv_loc){put.segment, put.generation, put.off};
	return mc_kv_entry_enter_locked(log, kind, &m, &loc, &slot);
}

static int apply_named(struct mc_kv_log *log, uint8_t type, const unsigned char *p, size_t len,
	char *key) MC_REQUIRES(log->lock)
{
	struct mc_kv_named_front m;
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
		return mc_kv_entry_rename_locked(log, slot, key);
	}
	return 0;
}

static int apply_segment(struct mc_kv_log *log, const unsigned char *p, size_t len)
	MC_REQUIRES(log->lock)
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

static int apply_mark(struct mc_kv_log *log, const unsigned char *p, size_t len, char *key)
	MC_REQUIRES(log->lock)
{
	if (len <= 2 || len - 2 > MC_KV_KEY_MAX || (p[0] != MC_KV_DIR && p[0] != MC_KV_PIN))
		return 0;
	memcpy(key, p + 2, len - 2);
	key[len - 2] = '\0';
	return mc_kv_entry_mark_locked(log, p[0], key, p[1] != 0);
}

int mc_kv_journal_apply(void *ctx, uint8_t type, const void *rec, size_t len, struct mc_err *err)
{
	struct mc_kv_log *log = ctx;
	char key[MC_KV_KEY_MAX + 1];
	int r;

	if (type < MC_JOURNAL_KV_PUT || type > MC_JOURNAL_KV_PART)
		return mc_err_set(err, -EPROTONOSUPPORT,
			"KV log %s: journal record of type %u was written by a newer version; use "
			"that, or remove the directory",
			log->floors[0].store->name, type);
	mc_mutex_lock(&log->lock);
	if (type == MC_JOURNAL_KV_PUT || type == MC_JOURNAL_KV_PART)
		r = apply_put(
			log, type == MC_JOURNAL_KV_PUT ? MC_KV_OBJECT : MC_KV_PART, rec, len, key);
	else if (type == MC_JOURNAL_KV_MARK)
		r = apply_mark(log, rec, len, key);
	else if (type == MC_JOURNAL_KV_SEGMENT)
		r = apply_segment(log, rec, len);
	else
		r = apply_named(log, type, rec, len, key);
	mc_mutex_unlock(&log->lock);
	return r;
}
