/* What the KV store has in DRAM: objects, spare files, blocks of objects. Included by kv-impl.h. */
#pragma once

#include "tier/policy.h"

#include <stddef.h>
#include <stdint.h>

struct kv_object;
struct kv_wait;

/* An object's presence in DRAM. */
struct kv_res {
	struct mc_policy_entry policy; /* linked while ready */
	bool is_block;                 /* false, see struct kv_cached */
	struct kv_object *obj;
	struct kv_res *next, *prev; /* in the list of dirty objects; NULL = not listed */
	uint64_t data;              /* offset in the slab, or number of the file; 0 = none */
	uint64_t meta;              /* offset in the slab; 0 = none */
	char *map;                  /* of the file, while maps > 0 */
	uint64_t dirty_ns;          /* CLOCK_MONOTONIC, of the last close or rename */
	uint64_t later_ns;          /* not to be evicted before */
	struct kv_wait *waiters;
	uint32_t pins; /* lent bytes, backing descriptors, flushes */
	uint32_t maps;
	uint32_t lent; /* of the pins: backing descriptors */
	bool is_file;
	bool ready;
};

/* A file of the DRAM tier that has no object: a writer's, or a warm one in the pool. */
struct kv_file {
	struct kv_file *next;
	uint64_t id;
	uint64_t room; /* bytes allocated */
	int fd;        /* negative: held, and cannot be opened now */
};

/* A block of an object that is not in DRAM whole, see kv-block.c. */
struct kv_block {
	struct mc_policy_entry policy; /* linked while it is in the table */
	bool is_block;                 /* true */
	_Atomic unsigned refs;
	struct kv_block *next; /* in its bucket, or of the garbage */
	uint64_t index;
	uint8_t version[16];
	uint64_t slot; /* in the slab; 0: bytes are owned */
	char *bytes;   /* MC_BLOCK_SIZE */
};

/* How both begin that the policy knows of. */
struct kv_cached {
	struct mc_policy_entry policy;
	bool is_block;
};
_Static_assert(offsetof(struct kv_res, policy) == 0 && offsetof(struct kv_block, policy) == 0 &&
		offsetof(struct kv_res, is_block) == offsetof(struct kv_cached, is_block) &&
		offsetof(struct kv_block, is_block) == offsetof(struct kv_cached, is_block),
	"one beginning");

struct kv_blocks {
	struct kv_block **buckets; /* owned */
	uint64_t n_buckets, n;     /* a power of two; blocks in it */
	struct kv_block *garbage;  /* out of it, a reference each */
};
