/*
 * The table of what the KV log holds: objects, their parts, directories and pins by key, what has
 * bytes also by the segment they lie in, objects in parts by version and number. About 90 bytes for
 * an object, plus key and checksums. Callers lock.
 *
 * A slot is the entry's number while it lives; slot 0 is none.
 */
#pragma once

#include "tier/kv-log.h"

#define MC_KV_SPLIT UINT32_MAX /* the segment of objects that lie in parts */

enum mc_kv_kind { MC_KV_OBJECT, MC_KV_DIR, MC_KV_PIN, MC_KV_PART };

struct mc_kv_entry {
	uint32_t seg_prev, seg_next; /* entries of the same segment */
	uint32_t segment, generation;
	uint64_t off; /* bytes */
	uint64_t size;
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint32_t n_crc;
	uint16_t key_len;
	uint8_t kind : 7;
	uint8_t unreadable : 1; /* an object: it lies in a segment that was set aside */
	uint8_t copies;         /* on remotes */
	uint8_t version[16];
	uint32_t crc[]; /* n_crc of them, then the key and a NUL */
};

/* What looking for a key reads: the entry itself is far away and not needed before its hash fits.
 */
struct mc_kv_slot {
	struct mc_kv_entry *entry; /* owned; NULL: the slot is free */
	uint32_t hash;             /* of kind and key */
	uint32_t next;             /* chain of the bucket, or of the free slots */
};

struct mc_kv_table {
	struct mc_kv_slot *slots; /* owned */
	uint32_t n_slots, cap_slots;
	uint32_t free_slot;               /* the first one */
	uint32_t *buckets;                /* owned */
	uint32_t n_buckets;               /* a power of two */
	uint32_t n;                       /* entries */
	uint64_t bytes;                   /* of all of them, without slots and buckets */
	uint32_t *heads;                  /* owned: buckets of the objects in parts */
	uint32_t n_head_buckets, n_heads; /* a power of two */
};

int mc_kv_table_init(struct mc_kv_table *t);
/* No entry is left. */
void mc_kv_table_clear(struct mc_kv_table *t);
void mc_kv_table_done(struct mc_kv_table *t);

/* NULL where the slot is free. */
struct mc_kv_entry *mc_kv_table_get(const struct mc_kv_table *t, uint32_t slot);
uint32_t mc_kv_table_find(const struct mc_kv_table *t, enum mc_kv_kind kind, const char *key);
/* finds of these will follow: what they read is brought near, for all of them at once. */
void mc_kv_table_expect(
	const struct mc_kv_table *t, enum mc_kv_kind kind, const uint64_t *key_hashes, size_t n);
/* Copies everything; not in any segment's list. *ret_old: what has the key, too, which the caller
 * removes; 0: nothing. 0 or -ENOMEM. */
int mc_kv_table_enter(struct mc_kv_table *t, enum mc_kv_kind kind, const struct mc_kv_meta *meta,
	const struct mc_kv_loc *loc, uint32_t *ret_slot, uint32_t *ret_old);
/* The same of a key that is not there. */
int mc_kv_table_add(struct mc_kv_table *t, enum mc_kv_kind kind, const struct mc_kv_meta *meta,
	const struct mc_kv_loc *loc, uint32_t *ret_slot);
/* The entry must be in no segment's list. */
void mc_kv_table_remove(struct mc_kv_table *t, uint32_t slot);
/* The new key must not be there. 0 or -ENOMEM: nothing changed. */
int mc_kv_table_rekey(struct mc_kv_table *t, uint32_t slot, const char *key);

void mc_kv_table_link(struct mc_kv_table *t, uint32_t *head, uint32_t slot);
void mc_kv_table_unlink(struct mc_kv_table *t, uint32_t *head, uint32_t slot);

/* The same for objects in parts, which are in no segment. */
void mc_kv_table_link_head(struct mc_kv_table *t, uint32_t slot);
void mc_kv_table_unlink_head(struct mc_kv_table *t, uint32_t slot);
/* 0: there is none. */
uint32_t mc_kv_table_find_head(
	const struct mc_kv_table *t, const uint8_t version[16], uint32_t number);
/* The one after slot, in no order that means anything; 0: the first one, or none is left. */
uint32_t mc_kv_table_next_head(const struct mc_kv_table *t, uint32_t slot);

uint64_t mc_kv_key_hash(const char *key);

static inline const char *mc_kv_entry_key(const struct mc_kv_entry *e)
{
	return (const char *)(e->crc + e->n_crc);
}

static inline struct mc_kv_loc mc_kv_entry_loc(const struct mc_kv_entry *e)
{
	return (struct mc_kv_loc){e->segment, e->generation, e->off};
}

/* Pointers into the entry. */
static inline struct mc_kv_meta mc_kv_entry_meta(const struct mc_kv_entry *e)
{
	struct mc_kv_meta m = {.key = mc_kv_entry_key(e),
		.size = e->size,
		.mtime_s = e->mtime_s,
		.mtime_ns = e->mtime_ns,
		.n_crc = e->n_crc,
		.copies = e->copies,
		.crc = e->crc};

	__builtin_memcpy(m.version, e->version, sizeof(m.version));
	return m;
}

static inline bool mc_kv_loc_same(const struct mc_kv_loc *a, const struct mc_kv_loc *b)
{
	return a->segment == b->segment && a->generation == b->generation && a->off == b->off;
}
