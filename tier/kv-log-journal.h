/*
 * Journal records of the KV log. Included by kv-log*.c only.
 *
 * Layouts (little endian, as journal-page.c requires): PUT and PART are mc_kv_put_front, n_crc ×
 * u32, the key to the end. REMOVE and REMOTE: mc_kv_named_front with the number of copies, key.
 * RENAME: the same with the length of from, then from, then to. MARK: u8 kind, u8 made, key.
 * SEGMENT: u32 id, u32 generation: older records in it are dead.
 *
 * Every record names a version, so that replaying it over a state that has its effect changes
 * nothing: a snapshot is taken while others append.
 */
#pragma once

#include "tier/kv-log-impl.h"

struct mc_kv_put_front {
	uint8_t version[16];
	uint32_t segment, generation;
	uint64_t off, size;
	int64_t mtime_s;
	uint32_t mtime_ns, n_crc;
	uint32_t copies, zero;
};
_Static_assert(sizeof(struct mc_kv_put_front) == 64, "a PUT has a fixed front");

struct mc_kv_named_front {
	uint8_t version[16];
	uint32_t n; /* copies, or length of from */
};

/* Build a record in rec, which has MC_KV_RECORD_ROOM bytes, or as many as the record takes; its
 * length. */
size_t mc_kv_put_record(const struct mc_kv_entry *e, unsigned char *rec);
size_t mc_kv_named_record(
	const uint8_t version[16], uint32_t n, const char *key, const char *to, unsigned char *rec);
size_t mc_kv_mark_record(enum mc_kv_kind kind, bool made, const char *key, unsigned char *rec);
