/*
 * Records beside the bytes: what each object in DRAM is, for the next daemon of the same boot.
 *
 * A record is written whole, its magic last; it is cleared by its magic first. Of two records for
 * one key, or for the same bytes, the one with the higher sequence number counts.
 */
#include "tier/kv-impl.h"

#include "tier/digest.h"

#include <string.h>

#define MAGIC UINT32_C(0x31564b4d) /* "MKV1" */
enum { IS_FILE = 1, IS_DIR = 2 };

struct record {
	uint32_t magic;
	uint8_t pinned, remotes; /* change in place, outside the checksum */
	uint8_t reserved[2];
	uint32_t crc; /* CRC32C of what follows */
	uint32_t flags;
	uint64_t seq;
	uint8_t version[16];
	uint64_t size;
	int64_t mtime_ns;
	uint64_t data;
	uint32_t n_crc;
	uint32_t key_len;
	/* uint32_t crc[n_crc], then the key and a NUL */
};
_Static_assert(sizeof(struct record) == 72, "no padding");

static uint32_t record_len(uint64_t n_crc, size_t key_len)
{
	return (uint32_t)(sizeof(struct record) + n_crc * sizeof(uint32_t) + key_len + 1);
}

static uint32_t record_crc(const struct record *rec)
{
	size_t from = offsetof(struct record, flags);

	return mc_crc32c(0, (const char *)rec + from, record_len(rec->n_crc, rec->key_len) - from);
}

static int write_record(struct mc_kv *kv, const struct record *head, const uint32_t *crc,
	const char *key, uint64_t *ret_meta)
{
	uint64_t len = sizeof(*head) + head->n_crc * sizeof(uint32_t) + head->key_len + 1;
	struct record *rec;
	int r;

	if (len > MC_SLAB_SLOT_MAX)
		return -EFBIG;
	r = mc_slab_alloc(kv->slab, MC_SLAB_META, (uint32_t)len, ret_meta);
	if (r < 0)
		return r;
	rec = mc_slab_ptr(kv->slab, *ret_meta);
	memcpy(rec, head, sizeof(*head));
	if (head->n_crc > 0)
		memcpy(rec + 1, crc, head->n_crc * sizeof(*crc));
	memcpy((char *)(rec + 1) + head->n_crc * sizeof(*crc), key, head->key_len + 1);
	rec->crc = record_crc(rec);
	__atomic_store_n(&rec->magic, MAGIC, __ATOMIC_RELEASE);
	return 0;
}

int kv_meta_write(struct mc_kv *kv, const struct kv_object *obj, const char *key,
	const struct kv_res *r, uint64_t *ret_meta)
{
	struct record head = {
		.pinned = (obj->flags & KV_PINNED) != 0,
		.remotes = obj->remotes,
		.flags = r->is_file ? IS_FILE : 0,
		.seq = atomic_fetch_add(&kv->next_seq, 1),
		.size = obj->size,
		.mtime_ns = obj->mtime_ns,
		.data = r->data,
		.key_len = (uint32_t)strlen(key),
	};

	if (mc_block_count(obj->size) > MC_SLAB_SLOT_MAX / sizeof(uint32_t))
		return -EFBIG;
	head.n_crc = (uint32_t)mc_block_count(obj->size);
	memcpy(head.version, obj->version, sizeof(head.version));
	return write_record(kv, &head, kv_crcs(obj), key, ret_meta);
}

int kv_meta_write_dir(struct mc_kv *kv, const char *key, uint64_t *ret_meta)
{
	struct record head = {
		.flags = IS_DIR,
		.seq = atomic_fetch_add(&kv->next_seq, 1),
		.key_len = (uint32_t)strlen(key),
	};

	return write_record(kv, &head, NULL, key, ret_meta);
}

void kv_meta_clear(struct mc_kv *kv, uint64_t meta)
{
	struct record *rec = mc_slab_ptr(kv->slab, meta);

	__atomic_store_n(&rec->magic, 0, __ATOMIC_RELEASE);
	mc_slab_free(kv->slab, meta);
}

void kv_meta_note(struct mc_kv *kv, const struct kv_object *obj)
{
	struct record *rec;

	if (obj->res == NULL || obj->res->meta == 0)
		return;
	rec = mc_slab_ptr(kv->slab, obj->res->meta);
	__atomic_store_n(&rec->pinned, (obj->flags & KV_PINNED) != 0, __ATOMIC_RELAXED);
	__atomic_store_n(&rec->remotes, obj->remotes, __ATOMIC_RELAXED);
}

struct each {
	struct mc_kv *kv;
	void (*fn)(void *ctx, const struct kv_found *f);
	void *ctx;
};

static void each_slot(void *ctx, uint64_t off, uint32_t slot_size)
{
	const struct each *e = ctx;
	const struct record *rec = mc_slab_ptr(e->kv->slab, off);
	struct kv_found f;
	const char *key;

	if (rec->magic != MAGIC || rec->key_len > KV_KEY_MAX ||
		rec->n_crc > MC_SLAB_SLOT_MAX / sizeof(uint32_t) ||
		record_len(rec->n_crc, rec->key_len) > slot_size || record_crc(rec) != rec->crc)
		return;
	key = (const char *)(rec + 1) + rec->n_crc * sizeof(uint32_t);
	if (key[rec->key_len] != '\0' || strlen(key) != rec->key_len || kv_key_check(key) < 0)
		return;
	f = (struct kv_found){
		.key = key,
		.is_dir = (rec->flags & IS_DIR) != 0,
		.is_file = (rec->flags & IS_FILE) != 0,
		.pinned = rec->pinned != 0,
		.size = rec->size,
		.data = rec->data,
		.seq = rec->seq,
		.meta = off,
		.mtime_ns = rec->mtime_ns,
		.remotes = rec->remotes,
		.n_crc = rec->n_crc,
		.crc = (const uint32_t *)(rec + 1),
	};
	memcpy(f.version, rec->version, sizeof(f.version));
	if (!f.is_dir && mc_block_count(f.size) != f.n_crc)
		return;
	e->fn(e->ctx, &f);
}

void kv_meta_each(struct mc_kv *kv, void (*each)(void *ctx, const struct kv_found *f), void *ctx)
{
	struct each e = {.kv = kv, .fn = each, .ctx = ctx};

	mc_slab_each(kv->slab, MC_SLAB_META, each_slot, &e);
}
