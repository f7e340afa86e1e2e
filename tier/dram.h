/*
 * The DRAM tier: a private tmpfs with huge pages, holding one sparse image per file. Reads of a
 * wholly resident file go to the image in passthrough; the daemon itself reads and fills it through
 * a mapping.
 *
 * Memory is taken in units ("pairs") of 2 MiB, two blocks, one huge page: reserved, accounted and
 * evicted together. Which blocks are valid is kept in a small map file beside the image on the same
 * tmpfs, so a daemon that starts after a crash of its predecessor (same boot) adopts the content.
 *
 * All calls are thread-safe. Who calls: store.c only.
 */
#pragma once

#include "tier/error.h"
#include "tier/source.h"

#define MC_PAIR_SHIFT 21 /* 2 MiB */

struct mc_dram;
struct mc_dram_image; /* reference-counted; one per file id */

struct mc_dram_opts {
	const char
		*dir; /* where to mount the tmpfs, made if missing (0700); a directory that cannot
			 be mounted over is used as it is, its capacity kept by accounting */
	uint64_t capacity; /* bytes */
	bool alone;        /* nobody takes it over: its memory ends with the process, however that
			      ends. Its capacity cannot be raised. */
};

struct mc_dram_stats {
	uint64_t capacity; /* bytes */
	uint64_t used; /* bytes allocated (st_blocks), held ones included; above capacity only after
			  a resize */
	uint64_t held; /* bytes of unlinked images that a client's descriptor or mapping keeps */
	bool mounted;  /* own tmpfs; false = plain directory */
	bool huge;     /* huge pages in effect */
};

/* Mounts or takes over what an earlier daemon of this boot left at dir. */
int mc_dram_open(const struct mc_dram_opts *opts, struct mc_dram **ret, struct mc_err *err);
/* keep: leave tmpfs and content for the next daemon; otherwise unmount. All images are put before.
 */
void mc_dram_close(struct mc_dram *d, bool keep);
void mc_dram_stats(struct mc_dram *d, struct mc_dram_stats *ret);
/* Another capacity from now on. What is above it stays until the caller evicts: reservations are
 * -ENOSPC meanwhile. */
void mc_dram_resize(struct mc_dram *d, uint64_t capacity);
/* Calls each for every image adopted at open. */
void mc_dram_adopted(
	struct mc_dram *d, void (*each)(void *ctx, const struct mc_file_id *id), void *ctx);

/* The image of a file; created empty when create, else -ENOENT. id->size > 0. */
int mc_dram_image_get(
	struct mc_dram *d, const struct mc_file_id *id, bool create, struct mc_dram_image **ret);
void mc_dram_image_put(struct mc_dram_image *img);

/* Memory for the pair of blocks {block & ~1, block | 1}. 0 (also when there already), -ENOSPC when
 * the capacity or the tmpfs is full: the caller evicts and tries again; -ESTALE when it was
 * dropped. */
int mc_dram_reserve(struct mc_dram_image *img, uint64_t block);
/* Where a reserved block lies. Valid until its pair is punched; the caller prevents that. */
void *mc_dram_ptr(struct mc_dram_image *img, uint64_t block);
/* The block's bytes are in place and verified: valid from now on, across a crash of the daemon. */
void mc_dram_commit(struct mc_dram_image *img, uint64_t block);
bool mc_dram_present(struct mc_dram_image *img, uint64_t block);
uint64_t mc_dram_present_blocks(struct mc_dram_image *img);
uint64_t mc_dram_resident_bytes(struct mc_dram_image *img); /* valid bytes, for xattrs */
/* The backing file, borrowed, the image's only descriptor (dup it, never open the file again: a
 * second description of ours would look like a client's). -EOPNOTSUPP when the file system grants
 * no leases: then nobody may be given it. */
int mc_dram_fd(struct mc_dram_image *img);

/*
 * Frees the pair (2 MiB units: pair p holds blocks 2p, 2p+1). Takes F_SETLEASE/F_WRLCK first:
 * returns bytes freed, or -EAGAIN when a client's descriptor or mapping (also one opened through an
 * earlier daemon) still reaches the image: then nothing was changed.
 */
int64_t mc_dram_punch(struct mc_dram_image *img, uint64_t pair);
/* Unlinks the image: a later image_get makes a new one. What a client still holds stays accounted
 * as held until mc_dram_reap sees it gone. Returns bytes freed at once. */
int64_t mc_dram_drop(struct mc_dram_image *img);
/* Looks at held images again; returns bytes freed. */
uint64_t mc_dram_reap(struct mc_dram *d);
