/*
 * Blocks of a remote's files as records in the KV log of a device: what lies above the remote,
 * below DRAM or the images of an NVMe directory (docs/BLOCK.md). A block is a clean copy: it is
 * dropped when the log needs its room, and copied only when it was read since.
 *
 * The KV store owns the log and tells what becomes of records with keys of ours; store*.c reads and
 * writes blocks. Thread-safe.
 */
#pragma once

#include "tier/block-key.h"
#include "tier/kv-log.h"
#include "tier/source.h"

struct mc_block_cache;

/* Without a log until mc_block_cache_attach: holds nothing, takes nothing. -ENOMEM. */
int mc_block_cache_open(struct mc_block_cache **ret);
/* NULL allowed. Nothing is under way any more. */
void mc_block_cache_close(struct mc_block_cache *c);

/*
 * One transfer; the caller owns the struct and buf (page-aligned) until done runs: exactly once,
 * any thread, perhaps before the call returns, no lock held; done must not block. Read: 0; -ENOENT
 * not here; -EBADMSG wrong bytes, and the block is not here any more; -EIO; -ETIMEDOUT the device
 * does not answer, and buf is not touched by what it may say later. Write: 0 durable; -ENOSPC,
 * -EIO, … not kept; -ESHUTDOWN, too, while a read that was given up has not ended. Both: -ESHUTDOWN
 * without a log.
 */
struct mc_block_op {
	struct mc_block_cache *cache;
	const struct mc_file_id *id; /* borrowed until done */
	uint64_t block;
	void *buf;
	uint32_t crc; /* write: CRC32C of the block, verified by the caller */
	bool again;   /* read, when it is done: not for the first time since it came or moved */
	void (*done)(struct mc_block_op *op, int res);
	void *ctx;
	/* The cache's. */
	char key[MC_BLOCK_KEY];
	struct mc_kv_item item;
};
void mc_block_cache_read(struct mc_block_op *op);
/* hurry: what is queued is made durable without waiting for more. */
void mc_block_cache_write(struct mc_block_op *op, bool hurry);
/* The same for what was written already. */
void mc_block_cache_hasten(struct mc_block_cache *c);

/* Gives up reads that take longer than that: the device hangs, and has nothing until they end. */
void mc_block_cache_look(struct mc_block_cache *c, uint64_t patience_ns);

/* Whether it can be read from here. */
bool mc_block_cache_has(struct mc_block_cache *c, const struct mc_file_id *id, uint64_t block);
/* Bytes of the file that are here. */
uint64_t mc_block_cache_resident(struct mc_block_cache *c, const struct mc_file_id *id);
/* [blocks] Drops what is here of the file, durably. Bytes dropped, or -EIO and others. */
int64_t mc_block_cache_drop(struct mc_block_cache *c, const struct mc_file_id *id);

struct mc_block_cache_stats {
	uint64_t capacity; /* bytes of the device, shared with objects; 0 = no log */
	uint64_t used;     /* bytes of records */
	uint64_t blocks;
	uint64_t lost; /* reads that were given up and have not ended */
};
/* NULL: zeros. */
void mc_block_cache_stats(struct mc_block_cache *c, struct mc_block_cache_stats *ret);

/* ---- the KV store's; c NULL: nobody wants blocks, they go */

/* No object of kv/ can have such a key: it begins with an empty name. */
static inline bool mc_block_cache_owns(const char *key)
{
	return key[0] == '/';
}
void mc_block_cache_attach(struct mc_block_cache *c, struct mc_kv_log *log);
/* [blocks] Waits for what is under way; the log is not used any more. */
void mc_block_cache_detach(struct mc_block_cache *c);
/* What the log is told by struct mc_kv_log_replay and asks by struct mc_kv_log_owner. */
void mc_block_cache_found(struct mc_block_cache *c, const struct mc_kv_meta *meta);
bool mc_block_cache_keep(struct mc_block_cache *c, const char *key, const uint8_t version[16]);
bool mc_block_cache_moved(struct mc_block_cache *c, const char *key, const uint8_t version[16]);
void mc_block_cache_evicted(struct mc_block_cache *c, const char *key, const uint8_t version[16]);
