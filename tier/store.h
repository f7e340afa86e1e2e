/*
 * The store: one door to DRAM → NVMe → remote. Files are named by identity; a source says where
 * their bytes come from; a read makes the blocks resident in DRAM, verified, and lends them out.
 *
 * Thread-safe. Callbacks run from any thread, possibly before the call returns, with no lock held.
 */
#pragma once

#include "tier/block-cache.h"
#include "tier/dram.h"
#include "tier/nvme.h"
#include "tier/remote.h"
#include "tier/source.h"
#include "tier/tier.h"

#include <sys/uio.h>

struct mc_store;
struct mc_file; /* reference-counted; one per identity */

struct mc_store_opts {
	struct mc_remote *remote; /* borrowed until mc_store_close returned */
	const char *dram_dir;     /* see mc_dram_opts */
	uint64_t dram_capacity;   /* bytes */
	bool dram_alone;          /* see mc_dram_opts */
	const char *nvme_dir;     /* NULL = no NVMe tier */
	uint64_t nvme_capacity;   /* bytes, 0 = see mc_nvme_opts */
	struct mc_block_cache
		*blocks;         /* a device, below nvme_dir or alone; borrowed; NULL = none */
	unsigned nvme_commit_ms; /* as nvme_capacity */
	uint64_t memory_budget;  /* bytes beyond the DRAM tier; 0 = 256 MiB */
	unsigned fetch_depth;    /* block fetches in flight; 0 = connections × depth = 16 */
	unsigned workers;        /* threads; 0 = online CPUs, 2 .. 4 */
	unsigned deadline_ms;    /* a read ends by then, well or not; 0 = 30,000 */
	/* One line per background failure, already rate-limited; may be NULL. */
	void (*event)(void *ctx, const char *event, const char *text);
	void *event_ctx;
};

struct mc_store_stats {
	uint64_t reads, read_bytes;                         /* asked by the caller */
	uint64_t hits_dram, hits_nvme, hits_block, fetches; /* blocks */
	uint64_t fetched_bytes;                             /* from the remote */
	uint64_t prefetched;                                /* blocks fetched ahead of a reader */
	uint64_t bad_blocks;                                /* failed verification, from any tier */
	uint64_t repaired_blocks;            /* put right in an image that a client reads past us */
	uint64_t unrepaired_blocks;          /* still to be put right so */
	uint64_t evicted_dram, evicted_nvme; /* bytes */
	uint64_t behind_skipped; /* blocks not written behind: backlog full or tier refused */
	uint64_t sunk;           /* blocks that left NVMe for the device */
	uint64_t sinking;        /* on their way there now */
	uint64_t in_flight, queued,
		no_room; /* block fetches now: running, waiting, waiting for memory */
	uint64_t read_errors;
	uint64_t files;            /* that hold something, or are open */
	uint64_t unverified;       /* images on NVMe still to be read through after a start */
	uint64_t verified_percent; /* of the blocks of all that were to be; 100 = none is left */
	struct mc_dram_stats dram;
	struct mc_nvme_stats nvme;          /* zero without the tier */
	struct mc_block_cache_stats device; /* likewise */
};

int mc_store_open(const struct mc_store_opts *opts, struct mc_store **ret, struct mc_err *err);
/* Ends everything in flight within the remote's deadline. All files are put and reads ended before.
 * keep_dram: leave the DRAM tier for the next daemon. */
void mc_store_close(struct mc_store *s, bool keep_dram);
void mc_store_stats(struct mc_store *s, struct mc_store_stats *ret);
/*
 * [blocks, for a second at most] Gives a local tier another capacity while it works. What no longer
 * fits is evicted now, or when room is needed. Bounds that follow from the DRAM tier's size at open
 * stay. 0, -EAGAIN: some is still to be evicted, -ENODEV: no such tier.
 */
int mc_store_resize(struct mc_store *s, enum mc_tier tier, uint64_t capacity);

/* The file of src->id; takes over the caller's reference of src in every case (also on error). */
int mc_store_file_get(struct mc_store *s, struct mc_source *src, struct mc_file **ret);
struct mc_file *mc_file_ref(struct mc_file *f);
void mc_file_put(struct mc_file *f);
const struct mc_file_id *mc_file_id(const struct mc_file *f);

/*
 * A read of [off, off + len), inside the file, len ≤ 1 MiB + one page (at most MC_READ_IOV blocks).
 * The caller fills the upper part and owns the struct until done ran and mc_file_read_end was
 * called. done(r, 0): iov[0 .. n_iov) holds exactly len bytes, borrowed until mc_file_read_end; the
 * blocks stay resident so long. done(r, -errno) (-EIO, -ETIMEDOUT, -ESHUTDOWN, -ENOMEM): nothing to
 * end.
 */
#define MC_READ_IOV 4
struct mc_file_read {
	struct mc_file *file; /* the caller's reference outlives the read */
	uint64_t off;
	uint32_t len;
	void (*done)(struct mc_file_read *r, int res);
	void *ctx;
	bool direct;  /* bytes of a derived file need not become resident; see store-through.h */
	bool planned; /* the caller knows what comes next: no stream is looked for */
	struct iovec iov[MC_READ_IOV];
	unsigned n_iov;
	/* The store's. */
	struct mc_file_wait {
		struct mc_file_wait *next;
		struct mc_file_read *read;
	} wait[MC_READ_IOV];
	uint64_t deadline_ns;
	unsigned waiting;           /* blocks not there yet */
	unsigned pinned;            /* bit i: block i is pinned while the others are looked at */
	unsigned tries;             /* times it had to wait */
	bool turn;                  /* may keep its pins while it waits */
	struct mc_through *through; /* served without an image */
	int res;
};
void mc_file_read(struct mc_file_read *r);
void mc_file_read_end(struct mc_file_read *r);

/* SEEK_DATA / SEEK_HOLE answers come from the source. */
int mc_file_next_data(
	const struct mc_file *f, uint64_t off, uint64_t *ret_start, uint64_t *ret_end);

/*
 * The backing file of a wholly resident and verified file, for passthrough: *ret_fd is the caller's
 * to close. Until mc_file_backing_put nothing of that image is evicted. -EAGAIN: not wholly
 * resident in one image, or has holes, or half the tier is held already: serve it through
 * mc_file_read.
 */
int mc_file_backing_get(struct mc_file *f, int *ret_fd, enum mc_tier *ret_tier);
void mc_file_backing_put(struct mc_file *f, enum mc_tier tier);
/* Whether mc_file_backing_get would succeed now; for user.mooncake.io. */
bool mc_file_backing_ready(struct mc_file *f);

/* What the store knows of a file, from memory and whether or not it is open. */
struct mc_residency {
	uint64_t dram, nvme, block; /* bytes valid there */
	uint64_t hits;              /* uses that found it in a local tier, since it came */
	bool pinned;
};
void mc_store_residency(struct mc_store *s, const struct mc_file_id *id, struct mc_residency *ret);
void mc_file_residency(struct mc_file *f, struct mc_residency *ret);
static inline uint64_t mc_residency_bytes(const struct mc_residency *r, enum mc_tier tier)
{
	return tier == MC_TIER_DRAM     ? r->dram
		: tier == MC_TIER_NVME  ? r->nvme
		: tier == MC_TIER_BLOCK ? r->block
					: 0;
}

/* Whether there is such a tier for checkpoints. */
bool mc_store_has(const struct mc_store *s, enum mc_tier tier);

/*
 * [blocks] Takes the file out of a local tier; the remote has all of it. 0 (also when nothing is
 * there), -EBUSY with a sentence in *ret_why (static text): pinned, or a client reads it past us,
 * or it is being filled without end; then a part of it may have left. -EIO: see mc_nvme_evict.
 */
int mc_store_evict(
	struct mc_store *s, const struct mc_file_id *id, enum mc_tier tier, const char **ret_why);
/*
 * [blocks] A pinned file is not evicted from a tier of which all that is pinned or open in
 * passthrough takes no more than three quarters. Survives a restart where there is NVMe. 0,
 * -ENOSPC: together with the others it is more than half of the larger tier; -ENOMEM, or the
 * failure to record it.
 */
int mc_store_pin(struct mc_store *s, const struct mc_file_id *id, bool pinned);
