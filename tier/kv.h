/*
 * The KV store: named, immutable objects that are put whole, read by range, replaced whole and
 * removed. Beside store.h (which caches what a remote holds) this is the other public door of
 * tier/: here the data is born, in a DRAM tier of its own, and moves down: DRAM → NVMe → remote.
 *
 * A key is the path under kv/: 1 … 4096 bytes, components of 1 … 255 bytes, none "." or "..", no
 * NUL. Thread-safe. Calls marked [blocks] may wait for a disk or a remote, up to the deadline; the
 * others answer from memory. Callbacks run exactly once, from any thread, perhaps before the call
 * returns, with no lock held.
 */
#pragma once

#include "tier/error.h"
#include "tier/remote.h"
#include "tier/tier.h"

#include <sys/uio.h>

struct mc_io;
struct mc_block_cache;
struct mc_kv;
struct stat;

enum mc_kv_ack { MC_KV_ACK_DRAM, MC_KV_ACK_NVME, MC_KV_ACK_REMOTE };

struct mc_kv_opts {
	const char *dram_dir;   /* mount point of the KV DRAM tier's tmpfs */
	uint64_t dram_capacity; /* bytes, staging included */
	uint64_t dirty_bound;   /* bytes not yet on a persistent tier; 0 = half of dram_capacity */
	const char *nvme_dir;   /* NULL = none: the next persistent tier is the remote */
	uint64_t nvme_capacity; /* bytes for KV */
	const char *device; /* a formatted block device or file below nvme_dir, or instead of it;
			       NULL = none */
	uint64_t device_capacity; /* bytes of it; 0 = all */
	const uint8_t
		*device_uuid; /* of the store it must hold, borrowed for the call; NULL = any */
	struct mc_block_cache *blocks; /* has blocks of files in the log; borrowed; NULL = nobody */
	struct mc_remote *remote;      /* borrowed; NULL = none */
	const char *node;              /* node id, hex */
	unsigned replicas;      /* remote copies wanted soon after the put; 0 = only at eviction */
	enum mc_kv_ack ack;     /* how far an object is before close() returns */
	unsigned deadline_ms;   /* 0 = 30,000 */
	unsigned revalidate_ms; /* the remote's copy may have been replaced by another node after
				   so long; in steps of 250 ms; 0 = 10,000 */
	unsigned retry_ms;      /* a tier that failed is tried again after so long; 20 times that
				   without an answer is a failure, too; 0 = 500 */
	unsigned slow_ms;       /* an NVMe write or sync that takes longer is slow; 0 = 4,000 */
	unsigned patience_ms;   /* a file on NVMe that cannot be opened for so long at the start is
				   left   out; 0 = 10,000 */
	const struct mc_io *io; /* for NVMe; NULL = the real one */
	/* Files of puts that an earlier process had under way, for mc_kv_writer_adopt; borrowed. */
	const uint64_t *puts;
	size_t n_puts;
	void (*event)(void *ctx, const char *event, const char *text); /* as in store.h */
	void *event_ctx;
};

/* Ready at once; the index is completed in the background (see mc_kv_stats.recovering). */
int mc_kv_open(const struct mc_kv_opts *opts, struct mc_kv **ret, struct mc_err *err);
/* [blocks] Flushes dirty objects for at most drain_ms. 0, or the number of objects that stay dirty:
 * then the DRAM tier is left mounted for the next daemon. All objects and writers are put before.
 */
int64_t mc_kv_close(struct mc_kv *kv, unsigned drain_ms);

enum mc_kv_state { MC_KV_DIRTY, MC_KV_FLUSHING, MC_KV_CLEAN, MC_KV_EVICTING };

struct mc_kv_attr {
	bool is_dir;
	uint8_t version[16]; /* uuid of this version; zeros for a directory */
	uint64_t size;       /* bytes */
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint64_t ino; /* stable for the version (or the directory) */
	enum mc_kv_state state;
	uint64_t dram, nvme, block; /* bytes resident */
	unsigned tiers;   /* those that have it: bits 1 << enum mc_tier; empty objects too */
	unsigned remotes; /* copies */
	uint64_t hits;
	bool pinned;
	bool ask; /* the remote was not asked for long: mc_kv_ask may find another one */
};

/* From this node's index: 0, -ENOENT (unknown here). */
int mc_kv_lookup(struct mc_kv *kv, const char *key, struct mc_kv_attr *ret);
/* [blocks] The same once that is known: while the index is completed, and while nobody knows what
 * an earlier daemon's rename came to. -ETIMEDOUT, -EIO, -ESHUTDOWN. */
int mc_kv_find(struct mc_kv *kv, const char *key, struct mc_kv_attr *ret);
/* Whether lists are as they should be; [blocks] waits for that, in vain where it takes too long. */
bool mc_kv_is_whole(struct mc_kv *kv);
void mc_kv_wait_whole(struct mc_kv *kv);
/* The same after the remote was asked, where that is due: of a key unknown here each second, of one
 * with a remote copy each revalidate_ms. What another node has put, replaced or removed is so here
 * then, too. A remote that does not answer within a second is not waited for: the answer is what is
 * known here. attr: borrowed; NULL with -ENOENT, -ETIMEDOUT (recovery took too long), -ESHUTDOWN.
 */
void mc_kv_ask(struct mc_kv *kv, const char *key,
	void (*done)(void *ctx, int res, const struct mc_kv_attr *attr), void *ctx);
/* Calls each for the entries of directory key ("" = kv/) after position *cursor (0 = start) in a
 * stable order, until it returns non-zero; *cursor is the position after the last one it took.
 * -ENOENT, -ENOTDIR. */
int mc_kv_list(struct mc_kv *kv, const char *key, uint64_t *cursor,
	int (*each)(void *ctx, const char *name, const struct mc_kv_attr *attr, uint64_t next),
	void *ctx);
/* The same without the objects that do not lie in the tier. */
int mc_kv_list_in(struct mc_kv *kv, const char *key, enum mc_tier tier, uint64_t *cursor,
	int (*each)(void *ctx, const char *name, const struct mc_kv_attr *attr, uint64_t next),
	void *ctx);
int mc_kv_mkdir(struct mc_kv *kv, const char *key);
int mc_kv_rmdir(struct mc_kv *kv, const char *key);
/* Removes the name on this node and on the remote (in the background, journalled). [blocks] for the
 * journal where the object was durable. */
int mc_kv_unlink(struct mc_kv *kv, const char *key);
/* Moves no data. With MC_KV_NOREPLACE -EEXIST. Directories: -EXDEV. */
enum { MC_KV_NOREPLACE = 1 };
int mc_kv_rename(struct mc_kv *kv, const char *from, const char *to, unsigned flags);

/* Times of objects are kept in nanoseconds: one before 1677 or after 2262 becomes the nearest. */
#define MC_KV_TIME_MAX_S INT64_C(9223372035)
static inline struct timespec mc_kv_time(struct timespec t)
{
	if (t.tv_sec > MC_KV_TIME_MAX_S)
		return (struct timespec){.tv_sec = MC_KV_TIME_MAX_S};
	if (t.tv_sec < -MC_KV_TIME_MAX_S)
		return (struct timespec){.tv_sec = -MC_KV_TIME_MAX_S};
	return t;
}

/* Gives the version that key has now another mtime. [blocks] for the journal where the object was
 * durable. -ENOENT, -EISDIR. */
int mc_kv_set_mtime(struct mc_kv *kv, const char *key, const struct timespec *mtime);

/* A put under way: a preallocated file in the DRAM tier that the client writes to directly. */
struct mc_kv_writer;
/* hint: bytes expected, 0 = unknown. -EAGAIN: no room below the dirty bound now; wait_room tells
 * when to try again (res 0) or that the deadline passed (-ENOSPC). */
int mc_kv_create(struct mc_kv *kv, uint64_t hint, struct mc_kv_writer **ret);
void mc_kv_wait_room(struct mc_kv *kv, void (*done)(void *ctx, int res), void *ctx);
/* Before close: whoever waits for room is told -ESHUTDOWN, now and from now on. */
void mc_kv_leave(struct mc_kv *kv);
int mc_kv_writer_fd(const struct mc_kv_writer *w); /* O_RDWR, borrowed until publish or discard */
/* Writes what it can, with room made for what is not preallocated; *ret_error: why not all, 0 or
 * -errno. Beside each other, and with what follows. */
size_t mc_kv_writer_write(
	struct mc_kv_writer *w, const char *buf, size_t len, uint64_t off, int *ret_error);
/* Its size, and fallocate: what they free or take of DRAM is known then. 0 or -errno. */
int mc_kv_writer_truncate(struct mc_kv_writer *w, uint64_t size);
int mc_kv_writer_allocate(struct mc_kv_writer *w, int mode, uint64_t off, uint64_t len);
/*
 * How often DRAM may have been full to the last page so far. A client that writes past us may have
 * been told -ENOSPC, and we have not, if this is not what it was before it could write. Goes on in
 * the next process of this boot.
 */
uint64_t mc_kv_full_count(struct mc_kv *kv);
/* Whether that holds: DRAM is a file system of its own. Else nobody is to write past us. */
bool mc_kv_is_watched(const struct mc_kv *kv);
/* The number of its file, for a process that follows this one. */
uint64_t mc_kv_writer_file(const struct mc_kv_writer *w);
/*
 * The put of an earlier process: its file is one of mc_kv_opts.puts, once. want: what size and
 * mtime (nanoseconds UTIME_OMIT: any) the file must have; NULL = any. -ENOENT: there is no such
 * file, it is an object's by now, or has another size or time.
 */
int mc_kv_writer_adopt(
	struct mc_kv *kv, uint64_t file, const struct stat *want, struct mc_kv_writer **ret);
/* The others are not to be adopted any more. */
void mc_kv_adopted(struct mc_kv *kv);
/*
 * Publishes what the file holds now as a new version of key; whole or not at all. Consumes w in
 * every case. copy: somebody may still store through a mapping: seal a copy. Size and checksums are
 * taken here. -EEXIST (NOREPLACE), -ENOSPC, -EISDIR, -ENOENT (parent directory). [blocks] as far as
 * ack says.
 */
int mc_kv_publish(struct mc_kv_writer *w, const char *key, const struct timespec *mtime,
	unsigned flags, bool copy, struct mc_kv_attr *ret);
void mc_kv_discard(struct mc_kv_writer *w);
/* [blocks] fsync of an unfinished put: bytes and the intent to publish as key durable on the first
 * persistent tier, so that the publish that follows is durable before anything later on key is
 * answered. -EIO without a persistent tier. */
int mc_kv_writer_sync(struct mc_kv_writer *w, const char *key);
/* [blocks] fsync of a published object. */
int mc_kv_sync(struct mc_kv *kv, const char *key);

/* An open object: bound to one version for ever; reference-counted. */
struct mc_kv_object;
/* Opens for reading. Objects up to 8 MiB are promoted whole to DRAM first; larger ones are read by
 * range. done(ctx, 0, obj) hands a reference; -ENOENT, -EIO, -ETIMEDOUT. */
void mc_kv_get(struct mc_kv *kv, const char *key,
	void (*done)(void *ctx, int res, struct mc_kv_object *obj), void *ctx);
/* [blocks] The version that an earlier process had open under key, as it lies: it is not brought
 * anywhere. Waits for the end of recovery until then. search: by all keys, which takes a
 * millisecond for 50,000 objects: a rename may have been under way. -ENOENT, -ENOMEM. */
int mc_kv_bind(struct mc_kv *kv, const char *key, const uint8_t version[16], uint64_t until_ns,
	bool search, struct mc_kv_object **ret);
void mc_kv_object_put(struct mc_kv_object *obj);
void mc_kv_object_attr(struct mc_kv_object *obj, struct mc_kv_attr *ret);
/* For passthrough: *ret_fd is the caller's. Not evicted until backing_put. -EAGAIN: use mc_kv_read.
 */
int mc_kv_object_backing_get(struct mc_kv_object *obj, int *ret_fd);
void mc_kv_object_backing_put(struct mc_kv_object *obj);

#define MC_KV_READ_IOV 4
struct mc_kv_read {
	struct mc_kv_object *obj; /* the caller's reference outlives the read */
	uint64_t off;
	uint32_t len; /* bytes, inside the object, ≤ 1 MiB + one page */
	void (*done)(struct mc_kv_read *r, int res);
	void *ctx;
	struct iovec iov[MC_KV_READ_IOV]; /* lent until mc_kv_read_end; exactly len bytes */
	unsigned n_iov;
	void *priv[4]; /* the store's */
};
void mc_kv_read(struct mc_kv_read *r);
void mc_kv_read_end(struct mc_kv_read *r); /* only after done(r, 0) */

/* Administration: pins survive restarts. -ENOSPC: more would be pinned than half of NVMe, or of
 * DRAM without it. */
int mc_kv_pin(struct mc_kv *kv, const char *key, bool pinned);
/*
 * [blocks] Takes the object's copy out of a tier, never the last good one: what is dirty is flushed
 * before it leaves DRAM, and copied to the remote before it leaves NVMe or the block tier. 0 (also
 * when it is not there), -ENOENT no such key, -EBUSY with a sentence in *ret_why (static text; may
 * be NULL): pinned, in use, or the last copy; or the failure of the flush.
 */
int mc_kv_evict_from(struct mc_kv *kv, const char *key, enum mc_tier tier, const char **ret_why);
static inline int mc_kv_evict(struct mc_kv *kv, const char *key)
{
	const char *why;

	return mc_kv_evict_from(kv, key, MC_TIER_DRAM, &why);
}
/* Whether there is such a tier for objects. */
bool mc_kv_has(const struct mc_kv *kv, enum mc_tier tier);
/* Whether directory key, or one below it, holds an object that lies in the tier; true also when
 * that is not found out within 65,536 entries. */
bool mc_kv_dir_holds(struct mc_kv *kv, const char *key, enum mc_tier tier);
static inline bool mc_kv_attr_in(const struct mc_kv_attr *a, enum mc_tier tier)
{
	return (a->tiers >> tier & 1) != 0;
}
static inline uint64_t mc_kv_attr_bytes(const struct mc_kv_attr *a, enum mc_tier tier)
{
	return tier == MC_TIER_DRAM     ? a->dram
		: tier == MC_TIER_NVME  ? a->nvme
		: tier == MC_TIER_BLOCK ? a->block
		: a->remotes > 0        ? a->size
					: 0;
}

struct mc_kv_stats {
	uint64_t objects, bytes;
	uint64_t puts, gets, hits_dram, hits_nvme, hits_block, hits_remote, misses;
	uint64_t dirty_bytes, dirty_bound;
	uint64_t dram_used, dram_capacity; /* bytes */
	/* What may keep DRAM full, beside what is dirty: files being written, objects that clients
	 * read past the daemon, files of objects that are gone and still open, keys that are
	 * pinned, wherever they lie. */
	uint64_t written_bytes, open_bytes, held_bytes, pinned_bytes;
	uint64_t nvme_used, nvme_capacity;   /* of the directory; capacity 0: there is none */
	uint64_t block_used, block_capacity; /* of the device; likewise */
	uint64_t log_live;                   /* of objects on both */
	uint64_t nvme_unreadable; /* objects there in files that could not be opened at the start */
	uint64_t flushed_bytes, nvme_written_bytes, nvme_syncs;
	uint64_t reclaimed_segments, evicted_objects;
	uint64_t index_bytes; /* memory of the index, keys included */
	bool recovering;
	uint64_t recovered_percent; /* 100 when it is over */
	/* NULL, or what is wrong with the tier and what to do (static text); degraded: the first.
	 */
	const char *degraded, *nvme_trouble, *block_trouble, *remote_trouble;
};
void mc_kv_stats(struct mc_kv *kv, struct mc_kv_stats *ret);
/* Of what ended with r: which tier is the reason, and the way out. Static text. */
const char *mc_kv_why(struct mc_kv *kv, int r);
