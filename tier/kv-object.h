/* The KV store's objects and directories, and the table of keys (kv-index.c). All under kv->lock.
 */
#pragma once

#include "tier/kv.h"

#include "tier/kv-log.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KV_KEY_MAX 4096
#define KV_SMALL UINT64_C(65536)     /* from here on an object has a file of its own */
#define KV_WHOLE (UINT64_C(8) << 20) /* up to here an object is promoted whole */
#define KV_WARM 7 /* rounds until what was used is cold: that many classes of recency */
#define KV_NEW 4  /* and what was only put: most of it is never used */

struct mc_kv;
struct kv_res;
struct kv_index;
struct kv_dir;

enum {
	KV_PINNED = 1,
	KV_BUSY = 2, /* a remote copy is being made */
	KV_MOVED = 4,
	KV_DEAD = 8,
	KV_SHADOWS =
		16,   /* an older version of the key lies below: this one is to be durable first */
	KV_HELD = 32, /* loc is held in the log for those who have the version open */
	KV_HELD_REMOTE = 64, /* likewise its copy on the remote, see kv-delete.c */
	KV_WANTED = 128,     /* somebody waits until it is durable */
};

/* struct mc_kv_loc in 12 bytes: a segment is shorter than 4 GiB, an image has no offset. */
struct kv_place {
	uint32_t segment, generation, off;
};

/* One version of a key: 96 bytes and its name. What other threads may change is under kv->lock;
 * version, size, name and checksums never change once it is in the index. */
struct kv_object {
	struct kv_object *next; /* in its hash chain or in kv->garbage; MOVED: what it is now */
	struct kv_dir *dir;     /* NULL once it has lost its name */
	uint64_t seq;           /* its place in the directory */
	uint8_t version[16];
	uint64_t size : 56; /* bytes */
	uint64_t name_len : 8;
	int64_t mtime_ns; /* since the epoch */
	union {
		uint32_t one;   /* size ≤ 1 MiB */
		uint32_t *many; /* owned */
	} crc;
	struct kv_res *res;  /* owned; NULL = not in DRAM */
	struct kv_place loc; /* segment 0 = not on NVMe */
	uint32_t refs;
	uint16_t hits;
	uint8_t state : 4;    /* enum mc_kv_state */
	uint8_t unsure : 1;   /* there may be a remote copy that nothing tells of: an earlier daemon
				 ended before it noted it, or a put there failed half way */
	uint8_t was_nvme : 1; /* it lies on NVMe or did once */
	uint8_t kept : 1;     /* dirty, only to be read from NVMe once more: see kv_keep_locked */
	uint8_t lost : 1;     /* the log has its record and cannot read it; loc is nowhere where the
				 remote has a copy */
	uint8_t flags;
	uint8_t remotes; /* copies */
	uint8_t warm;    /* KV_NEW when put, KV_WARM when used, one less each round of the sweep */
	uint16_t asked;  /* remotes > 0: when it was last seen there, see kv-ask.c */
	char name[];     /* NUL-terminated */
};
_Static_assert(offsetof(struct kv_object, name) == 96, "the budget of the index");

struct kv_dir {
	struct kv_dir *next; /* in its hash chain */
	struct kv_dir *parent;
	struct kv_index *index;
	uint64_t hash; /* of the whole path */
	uint64_t seq, next_seq;
	/* Objects, directories (bit 0), or holes (bit 1, seq << 2), by rising seq. */
	uintptr_t *child;
	uint32_t n, cap, live;
	uint64_t meta; /* record in the slab, 0 = none */
	uint16_t name_len;
	bool on_remote; /* other nodes find it there */
	char name[];
};

struct kv_index {
	struct mc_kv *kv;
	struct kv_object **objects; /* buckets */
	struct kv_dir **dirs;
	uint64_t n_buckets, n_dir_buckets; /* powers of two */
	uint64_t n_objects, n_dirs;
	uint64_t bytes;        /* payload */
	uint64_t pinned_bytes; /* of it */
	uint64_t memory;
	struct kv_dir *root;
};

struct kv_index *kv_index_open(struct mc_kv *kv);
void kv_index_close(struct kv_index *ix); /* with every object and directory in it */
uint64_t kv_hash(uint64_t dir_hash, const char *name, size_t len);
struct kv_object *kv_index_find(struct kv_index *ix, const char *key);
struct kv_dir *kv_index_dir(struct kv_index *ix, const char *key, size_t len);
/* The directory that key lies in, and key's last component. NULL: there is none. */
struct kv_dir *kv_index_parent(
	struct kv_index *ix, const char *key, const char **ret_name, size_t *ret_len);
/* Makes the directories that key's path lacks. 0, -ENOMEM, -ENOTDIR. */
int kv_index_make_parents(struct kv_index *ix, const char *key);
int kv_index_add_dir(struct kv_dir *parent, const char *name, size_t len, struct kv_dir **ret);
void kv_index_remove_dir(struct kv_dir *d);
/* A new object, without a place in the index; one reference, the caller's. */
struct kv_object *kv_object_new(const char *name, size_t len, uint64_t size);
/* Enters obj under its name; an object there before is returned in *ret_old, without a
 * directory, with the index's reference now the caller's. 0, -ENOMEM, -EISDIR. */
int kv_index_insert(struct kv_dir *dir, struct kv_object *obj, struct kv_object **ret_old);
/* Takes it out; the index's reference becomes the caller's. */
void kv_index_remove(struct kv_object *obj);
/* obj is in a table: there KV_PINNED is changed by this alone. */
void kv_index_pin(struct kv_object *obj, bool pinned);
size_t kv_key_of(const struct kv_object *obj, char key[KV_KEY_MAX + 1]);
size_t kv_dir_key_of(const struct kv_dir *d, char key[KV_KEY_MAX + 1]);
int kv_key_check(const char *key);
uint64_t kv_key_hash(const char *key);

/* What a handle stands for now: a rename makes a new struct for the same version. */
static inline struct kv_object *kv_now(struct kv_object *obj)
{
	while ((obj->flags & KV_MOVED) != 0)
		obj = obj->next;
	return obj;
}

static inline struct mc_kv_loc kv_loc(const struct kv_object *obj)
{
	return (struct mc_kv_loc){.segment = obj->loc.segment,
		.generation = obj->loc.generation,
		.off = obj->loc.off};
}

static inline void kv_loc_set(struct kv_object *obj, const struct mc_kv_loc *loc)
{
	assert(loc->off <= UINT32_MAX);
	obj->was_nvme = 1;
	obj->lost = 0;
	obj->loc = (struct kv_place){
		.segment = loc->segment, .generation = loc->generation, .off = (uint32_t)loc->off};
}

static inline const uint32_t *kv_crcs(const struct kv_object *obj)
{
	return obj->size <= MC_BLOCK_SIZE ? &obj->crc.one : obj->crc.many;
}

uint64_t kv_child_seq(uintptr_t child);
/* First child at or after seq. */
uint32_t kv_dir_from(const struct kv_dir *d, uint64_t seq);

static inline int64_t kv_time_ns(int64_t s, int64_t ns)
{
	struct timespec t = mc_kv_time((struct timespec){.tv_sec = s, .tv_nsec = ns});

	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static inline int64_t kv_floor_s(int64_t ns)
{
	return ns / INT64_C(1000000000) - (ns % INT64_C(1000000000) < 0);
}

/* Whether it lies on the device below the NVMe directory; false of one in parts, of which
 * kv_tiers_locked tells more. */
static inline bool kv_is_below(const struct kv_object *obj)
{
	return obj->loc.segment < 2 * MC_KV_BELOW && (obj->loc.segment & MC_KV_BELOW) != 0;
}

/* Whether it goes to NVMe only to be read from there: it is safe without. */
static inline bool kv_is_kept(const struct kv_object *obj)
{
	return obj->kept && (obj->remotes > 0 || kv_is_below(obj)) &&
		(obj->flags & KV_SHADOWS) == 0;
}

/* Whether a copy on the remote has to go when the version loses its name. */
static inline bool kv_may_be_remote(const struct kv_object *obj)
{
	return obj->remotes > 0 || obj->unsure;
}

static inline bool kv_has_copy(const struct kv_object *obj)
{
	return obj->loc.segment != 0 || obj->remotes > 0;
}

/* What is recorded of obj as key; both borrowed. */
static inline struct mc_kv_meta kv_meta_of(const struct kv_object *obj, const char *key)
{
	int64_t s = kv_floor_s(obj->mtime_ns);
	struct mc_kv_meta m = {.key = key,
		.size = obj->size,
		.mtime_s = s,
		.mtime_ns = (uint32_t)(obj->mtime_ns - s * INT64_C(1000000000)),
		.n_crc = (uint32_t)mc_block_count(obj->size),
		.copies = obj->remotes,
		.crc = kv_crcs(obj)};

	memcpy(m.version, obj->version, sizeof(m.version));
	return m;
}

static inline void kv_crcs_copy(struct kv_object *obj, const uint32_t *crc)
{
	uint32_t *to = obj->size <= MC_BLOCK_SIZE ? &obj->crc.one : obj->crc.many;

	for (uint64_t b = 0; b < mc_block_count(obj->size); b++)
		to[b] = crc[b];
}
