/*
 * The NVMe tier: a directory on a local file system with one sparse image per file, a bitmap and a
 * CRC32C for each block of it, and a journal that says which blocks are there.
 *
 * Invariants: a block is in the journal only after its data is durable (data, fdatasync, record); a
 * block's space is reused only after its EVICTED record is durable; a read returns bytes only after
 * their CRC matched; the bytes allocated never pass the capacity. One daemon per directory.
 *
 * All calls are thread-safe. Who calls: store.c only.
 */
#pragma once

#include "tier/error.h"
#include "tier/source.h"

struct mc_io;
struct mc_nvme;
struct mc_nvme_image; /* reference-counted; one per file id */

struct mc_nvme_opts {
	const char *dir;
	uint64_t capacity; /* bytes; 0 = 90 % of what the file system has free and we use already */
	const struct mc_io *io; /* I/O table (io.h), NULL = the real one; tests inject faults */
	unsigned commit_ms; /* how long a written block waits for others before its group is made
			       durable; 0 = 1,000 */
	uint64_t journal_bytes; /* of its log, then a snapshot is written; 0 = 4 MiB. Not part of
				   used */
	unsigned probe_ms;      /* between probes of a bypassed tier; 0 = 10,000 */
};

struct mc_nvme_stats {
	uint64_t capacity, used, held; /* bytes, as in dram.h */
	uint64_t bytes_read, bytes_written;
	uint64_t flushes;    /* fdatasync on data files */
	uint64_t bad_blocks; /* CRC mismatches found, quarantined */
	uint64_t errors;     /* failed I/O */
	uint64_t looked;     /* blocks that mc_nvme_verify has read */
	uint64_t disk_bytes; /* size of the file system it lies on; 0 = unknown */
	bool bypassed;       /* the error budget is spent; probing */
	bool uring, direct;  /* effective modes */
};

/* Opens or makes the directory, takes its lock (-EBUSY with the holder's pid in err), recovers. */
int mc_nvme_open(const struct mc_nvme_opts *opts, struct mc_nvme **ret, struct mc_err *err);
/* Waits for writes in flight, makes them durable, writes a snapshot, unlocks. */
void mc_nvme_close(struct mc_nvme *n);
void mc_nvme_stats(struct mc_nvme *n, struct mc_nvme_stats *ret);
/* Another capacity from now on. What is above it stays until the caller evicts: writes are -ENOSPC
 * meanwhile. */
void mc_nvme_resize(struct mc_nvme *n, uint64_t capacity);
void mc_nvme_recovered(
	struct mc_nvme *n, void (*each)(void *ctx, const struct mc_file_id *id), void *ctx);
/* The tier's root, for files that belong beside it (manifest indexes). Borrowed. */
const char *mc_nvme_dir(const struct mc_nvme *n);

int mc_nvme_image_get(
	struct mc_nvme *n, const struct mc_file_id *id, bool create, struct mc_nvme_image **ret);
void mc_nvme_image_put(struct mc_nvme_image *img);

bool mc_nvme_present(struct mc_nvme_image *img, uint64_t block); /* durable and journalled */
uint64_t mc_nvme_present_blocks(struct mc_nvme_image *img);
uint64_t mc_nvme_resident_bytes(struct mc_nvme_image *img);
/* The same by identity, from memory; 0: there is none. */
uint64_t mc_nvme_resident(struct mc_nvme *n, const struct mc_file_id *id);
/* The backing file for passthrough, borrowed, the image's only descriptor: dup it, never open the
 * file again (a second description of ours would look like a client's). -EOPNOTSUPP when the file
 * system grants no leases: then nobody may be given it. */
int mc_nvme_fd(struct mc_nvme_image *img);

/*
 * One asynchronous block transfer; the caller owns the struct and buf (MC_BLOCK_SIZE bytes, page
 * aligned) until done runs: exactly once, any thread, perhaps before the call returns, no lock
 * held. Read: 0; -ENOENT not here; -EBADMSG wrong bytes (the block is dropped); -EIO. Write: res 0
 * = buf is no longer needed; durability and presence follow by themselves (group commit). -ENOSPC
 * when the capacity is reached or the file system full: evict and try again; -EAGAIN the block is
 * being evicted at this moment; -ESTALE the image was dropped; -EIO (at once while bypassed).
 * A tail is padded with zeros in buf to whole pages.
 */
struct mc_nvme_op {
	struct mc_nvme_image *img; /* the caller's reference outlives the operation */
	uint64_t block;
	void *buf;
	uint32_t crc; /* write: CRC32C of the block, verified by the caller */
	void (*done)(struct mc_nvme_op *op, int res);
	void *ctx;
	void *next;       /* the tier's, while in flight */
	uint64_t priv[4]; /* the tier's */
};
void mc_nvme_read(struct mc_nvme_op *op);
void mc_nvme_write(struct mc_nvme_op *op);
/* Everything written so far durable and journalled. */
int mc_nvme_sync(struct mc_nvme *n);

/* An image read back by a restarted daemon is unverified until mc_nvme_verify found every present
 * block good (bad ones are dropped); the result is journalled. Synchronous, for a background
 * thread. */
bool mc_nvme_verified(struct mc_nvme_image *img);
/* bad (may be NULL) is told each block that was found damaged, and may use the image. */
int mc_nvme_verify(struct mc_nvme_image *img, void (*bad)(void *ctx, uint64_t block), void *ctx);
/* Before close: a verification under way ends with -ECANCELED at the next block, as later ones do.
 */
void mc_nvme_verify_stop(struct mc_nvme *n);

/* mc_nvme_read and mc_nvme_write for threads that may wait. */
int mc_nvme_check(struct mc_nvme_image *img, uint64_t block, void *buf);
int mc_nvme_put(struct mc_nvme_image *img, uint64_t block, void *buf, uint32_t crc);
/* Whether a client reads or maps the backing file past us, as far as the file system tells. */
bool mc_nvme_held(struct mc_nvme_image *img);
/* The image that follows in an order that is the same after a restart; after NULL: the first one.
 * False: there is none. */
bool mc_nvme_next(struct mc_nvme *n, const struct mc_file_id *after, struct mc_file_id *ret);

/* Like mc_dram_punch for blocks [first, first + n): bytes freed, -EAGAIN (held by a client), or
 * -EIO when the eviction could not be recorded or punched (call again: what is left is freed then).
 * Blocks written and not yet journalled are committed first; only those being written at this
 * moment stay. Waits for the disk: not from a done callback, as image_get, drop, verify and sync.
 */
int64_t mc_nvme_evict(struct mc_nvme_image *img, uint64_t first, uint64_t n);
int64_t mc_nvme_drop(struct mc_nvme_image *img); /* like mc_dram_drop */
uint64_t mc_nvme_reap(struct mc_nvme *n);
