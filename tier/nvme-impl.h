/*
 * What the files of the NVMe tier share. Included by nvme*.c only.
 *
 * nvme.c          open, close, statistics
 * nvme-image.c    the table of images, references
 * nvme-verify.c   looking at what lies in them
 * nvme-io.c       asynchronous block reads and writes
 * nvme-log.c      journal records and snapshots
 * nvme-commit.c   the committer: group commit
 * nvme-health.c   error budget and probe
 * nvme-space.c    evict, drop, reap
 * nvme-recover.c  replay and the look at what lies in the directory
 * nvme-fsck.c     the same without a daemon: checking and repairing
 *
 * Lock ranks: an image's lock, then the tier's, then the journal's (inside journal.c).
 *
 * A block of an image, by its bits (all under the tier's lock, present readable without):
 *   allocated  its space is accounted in used (and may be allocated in the file)
 *   busy       being written, or written and not yet journalled; not evictable
 *   present    durable and journalled
 *   punching   its space is being given back; not writable
 * present and busy exclude each other; both imply allocated. Allocated alone is space without
 * content: after a bad checksum, a failed sync or a failed punch; a write reuses it, an eviction
 * frees it.
 */
#pragma once

#include "tier/bitmap.h"
#include "tier/dir-id.h"
#include "tier/disk-health.h"
#include "tier/image-name.h"
#include "tier/journal.h"
#include "tier/lock.h"
#include "tier/nvme.h"
#include "tier/uring.h"

#include <stdatomic.h>
#include <sys/stat.h>

#define MC_NVME_BUCKETS 16384
/* Blocks pending: then a group is committed, and writes wait for that. Each keeps its file open. */
#define MC_NVME_GROUP 64
#define MC_NVME_ALIGN 4096u /* bytes: O_DIRECT transfers, and the unit of space */

struct mc_nvme_image {
	struct mc_nvme *nvme; /* borrowed: all images are put before the tier closes */
	struct mc_file_id id;
	uint64_t n_blocks;
	char *path;           /* owned: images/<2>/<name> in the tier's directory */
	char *held_path;      /* owned: once dropped while a client held it */
	struct mc_mutex lock; /* outer rank: opening the file, evict, drop, verify's end */
	int fd;               /* owned, -1 without references; the image's only descriptor */

	/* Under the tier's lock. */
	unsigned refs;
	struct mc_nvme_image *next; /* bucket, or list of held ones */
	bool on_disk;               /* the file exists: made by us or found by recovery */
	bool dropped;
	bool verified;
	bool verified_logged; /* what replaying the journal would say */
	bool name_dirty;      /* its directory entry is not durable yet */
	unsigned in_flight;   /* reads and writes under way */
	uint64_t gave_up; /* grows with each eviction: tells a read that its block was punched */
	uint64_t added;   /* grows with each group of blocks journalled */
	uint64_t
		overhead; /* bytes the file system allocated beyond the blocks, accounted in used */
	uint64_t n_allocated; /* blocks */
	uint64_t n_present;   /* blocks; atomic, readable without the lock */
	uint64_t *present, *busy, *allocated, *punching; /* owned bitmaps */
	uint32_t *crc; /* owned: CRC32C of present and busy blocks */
};

struct mc_nvme_pending {
	struct mc_nvme_image *img; /* one reference */
	uint64_t block;
	struct mc_nvme_op *op; /* told when its group is taken; NULL = told already */
};

struct mc_nvme {
	const struct mc_io *io;     /* borrowed */
	struct mc_uring *uring;     /* owned */
	struct mc_journal *journal; /* owned */
	char *dir;                  /* owned */
	int lock_fd;                /* owned */
	bool direct, leases;
	bool checking; /* by fsck: failed I/O never ends in a bypass */
	atomic_bool no_verify;
	uint64_t disk_bytes;     /* as in mc_nvme_stats; set at open */
	_Atomic uint64_t looked; /* blocks that were read to verify them */
	uint64_t capacity;       /* bytes */
	uint64_t journal_bytes;
	uint8_t uuid[16];
	unsigned commit_ms;
	struct mc_file_id *recovered; /* owned */
	size_t n_recovered, cap_recovered;

	struct mc_mutex lock; /* everything below, and the images' fields named so */
	struct mc_cond idle;  /* in_flight of an image or epoch fell to zero, or a sync ended */
	struct mc_nvme_image *buckets[MC_NVME_BUCKETS];
	struct mc_nvme_image *held_images; /* dropped, each with one reference */
	uint64_t held_seq;
	uint64_t used, held;        /* bytes */
	struct mc_nvme_stats stats; /* the counters of it */

	/* Group commit. */
	struct mc_cond work; /* for the committer */
	pthread_t committer;
	bool committer_runs, stopping;
	struct mc_nvme_pending *pending; /* owned: written, not yet journalled */
	size_t n_pending, cap_pending;   /* room for every write in flight is kept */
	size_t writing;                  /* writes in flight */
	size_t n_fresh;                  /* of them, written since the last group was taken */
	uint64_t oldest_ns;              /* when the first pending one was written; 0 = none */
	bool log_dirty;                  /* records without a waiter were appended */
	unsigned epoch;                  /* writes belong to the epoch of their submission */
	unsigned in_epoch[2];            /* writes in flight of each */
	bool sync_busy;                  /* one mc_nvme_sync at a time */
	uint64_t sync_wanted, sync_done;
	int sync_error; /* of groups since the last sync returned */

	struct mc_disk_health health;
};

static inline uint64_t mc_nvme_space(const struct mc_nvme_image *img, uint64_t block)
{
	return (mc_block_len(img->id.size, block) + MC_NVME_ALIGN - 1) &
		~(uint64_t)(MC_NVME_ALIGN - 1);
}

/* ---- nvme.c */
/* Not open: no file was looked at. NULL = no memory. */
struct mc_nvme *mc_nvme_new(const struct mc_nvme_opts *opts);
void mc_nvme_free(struct mc_nvme *n);
struct mc_dir_id mc_nvme_dir_id(const struct mc_nvme *n);
/* Our folders, durable before anything is put in them. */
int mc_nvme_make_layout(struct mc_nvme *n);
void mc_nvme_find_direct(struct mc_nvme *n);

/* ---- nvme-image.c */
/* In memory, outside the table, with one reference. NULL = no memory. */
struct mc_nvme_image *mc_nvme_image_new(struct mc_nvme *n, const struct mc_file_id *id);
/* Finds, or makes in memory only. One reference. -ENOENT, -ENOMEM, -EAGAIN: being dropped, wait on
 * idle. */
int mc_nvme_image_find_locked(struct mc_nvme *n, const struct mc_file_id *id, bool create,
	struct mc_nvme_image **ret) MC_REQUIRES(n->lock);
void mc_nvme_image_unlist_locked(struct mc_nvme_image *img);
void mc_nvme_image_free(struct mc_nvme_image *img);
/* The image's lock is held by the caller, or nobody else knows the image. */
int mc_nvme_image_open_file(struct mc_nvme_image *img, bool create);

/* ---- nvme-health.c */
/* One failed I/O: counted, and when the budget is spent the tier is bypassed. */
void mc_nvme_failed(struct mc_nvme *n);
/* Ends the bypass when a test write and the journal succeed. The committer only. */
void mc_nvme_probe(struct mc_nvme *n);

/* ---- nvme-io.c */
/* Takes the block out of what is present because its bytes are wrong. Caller journals. */
void mc_nvme_quarantine_locked(struct mc_nvme_image *img, uint64_t block);

/* ---- nvme-log.c */
#define MC_NVME_RUN_MAX 4096 /* blocks in one record */
#define MC_NVME_RECORD_MAX                                                                         \
	(MC_SHA256_SIZE + 8 + 12 + MC_NVME_RUN_MAX * sizeof(uint32_t)) /* bytes */
int mc_nvme_snapshot(struct mc_nvme *n);
/* Builds the BLOCKS record of a run, at most MC_NVME_RUN_MAX, in rec; its length. */
size_t mc_nvme_blocks_record(
	const struct mc_nvme_image *img, uint64_t first, uint32_t count, unsigned char *rec);
/* EVICTED for a run of blocks; VERIFIED or DROP. Into the next group: 0 or -ENOMEM. */
int mc_nvme_log_evicted(struct mc_nvme_image *img, uint64_t first, uint64_t count);
int mc_nvme_log_id(struct mc_nvme_image *img, uint8_t type);
int mc_nvme_log_commit(struct mc_nvme *n);

/* ---- nvme-commit.c */
int mc_nvme_committer_start(struct mc_nvme *n);
void mc_nvme_committer_stop(struct mc_nvme *n);
/* Like mc_nvme_sync, but leaves its error to be reported there. */
void mc_nvme_flush(struct mc_nvme *n);

/* ---- nvme-space.c */
int mc_nvme_punch_file(struct mc_nvme_image *img, uint64_t first, uint64_t count);
/* Asks the file system what the image takes and accounts what goes beyond its blocks. */
void mc_nvme_account_overhead(struct mc_nvme_image *img);

/* ---- nvme-recover.c */
int mc_nvme_recover(struct mc_nvme *n, struct mc_err *err);
/* Its first part: the journal opened and its records in the table. Changes nothing on disk.
 * damaged: as in journal.h, may be NULL. */
int mc_nvme_replay(struct mc_nvme *n,
	void (*damaged)(void *ctx, const char *file, const char *what), void *ctx,
	struct mc_err *err);
/* Its second part: removes what nobody owns, trims images, forgets records without a file. */
int mc_nvme_settle(struct mc_nvme *n);

enum mc_nvme_found_kind {
	MC_NVME_STRANGER, /* no name of ours */
	MC_NVME_HELD,     /* a dropped image that a client may have */
	MC_NVME_ORPHAN,   /* an image without a record */
	MC_NVME_IMAGE
};
/* What lies in one of our folders. */
struct mc_nvme_found {
	enum mc_nvme_found_kind kind;
	const char *path, *name; /* borrowed */
	struct stat st;
	struct mc_file_id id;      /* not of a stranger */
	uint64_t seq;              /* of what is held */
	struct mc_nvme_image *img; /* of an image, borrowed */
};
/* Everything in held/ and images/. each may remove or rename what it is told; its error ends the
 * walk. A folder that is not there is empty. */
int mc_nvme_walk(
	struct mc_nvme *n, int (*each)(void *ctx, const struct mc_nvme_found *f), void *ctx);
