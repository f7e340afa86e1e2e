/* What dram.c (the tier) and dram-image.c (one image) share. Included by these two only. */
#pragma once

#include "tier/bitmap.h"
#include "tier/dram-map.h"
#include "tier/dram.h"
#include "tier/image-name.h"
#include "tier/lock.h"

#define MC_PAIR_SIZE (UINT64_C(1) << MC_PAIR_SHIFT)
#define MC_DRAM_BUCKETS 4096

struct mc_dram_image {
	struct mc_dram *dram; /* borrowed: all images are put before the tier closes */
	struct mc_file_id id;
	unsigned refs;              /* under dram->lock */
	struct mc_dram_image *next; /* bucket or held list, under dram->lock */
	bool dropped;               /* renamed away or gone; set under both locks */
	struct mc_mutex lock;       /* outer rank: reserve, punch and drop of this image */
	int fd;                     /* owned, the only descriptor of the image */
	char *base;                 /* owned mapping of map_len bytes, from the same description */
	size_t map_len;             /* bytes */
	struct mc_dram_map map;     /* owned */
	uint64_t *reserved;         /* owned bitmap of pairs that have memory, under lock */
	uint64_t n_present;         /* atomic: valid blocks */
	char *held_path;            /* owned: where a dropped image waits for its clients */
};

struct mc_dram {
	struct mc_mutex lock; /* inner rank: the fields below and bytes accounting */
	struct mc_dram_image *buckets[MC_DRAM_BUCKETS];
	struct mc_dram_image *held_images; /* dropped, each with one reference */
	uint64_t used;                     /* bytes */
	uint64_t held;                     /* bytes, part of used */
	uint64_t held_seq;                 /* makes names under held/ unique */
	uint64_t capacity;                 /* bytes */
	char *dir;                         /* owned */
	int dir_fd;  /* owned: flock on what lay at dir before mounting: one daemon mounts at a time
		      */
	int root_fd; /* owned: what dir names when it is no place in the tree any more; -1 */
	int lock_fd; /* owned: flock on dir/LOCK, one daemon per directory */
	bool mounted, huge, leases;
	bool fresh;                 /* mounted by this daemon, not taken over */
	struct mc_file_id *adopted; /* owned */
	size_t n_adopted, cap_adopted;
};

/* Bytes that pair p of an image of size bytes takes: 2 MiB, the last one whole pages only. */
static inline uint64_t mc_pair_bytes(uint64_t size, uint64_t pair)
{
	uint64_t left = ((size + 4095) & ~UINT64_C(4095)) - (pair << MC_PAIR_SHIFT);

	return left < MC_PAIR_SIZE ? left : MC_PAIR_SIZE;
}

static inline uint64_t mc_pair_count(uint64_t size)
{
	return (size + MC_PAIR_SIZE - 1) >> MC_PAIR_SHIFT;
}

/*
 * Opens the image's files, or makes them. -ENOENT, -EBADMSG (the two files do not belong together:
 * both are removed), -ENOSPC, -ENOMEM. One reference. Memory of pairs without a valid block is
 * returned to the file system; *ret_bytes is what the image has, not yet accounted in dram->used.
 */
int mc_dram_image_open(struct mc_dram *d, const struct mc_file_id *id, bool create,
	struct mc_dram_image **ret, uint64_t *ret_bytes);
/* Closes descriptors and mappings, frees. Files stay. */
void mc_dram_image_close(struct mc_dram_image *img);
/* Removes the image's files by name. */
void mc_dram_image_unlink(struct mc_dram_image *img);
/* Returns the memory of reserved pairs without a valid block; bytes freed. Nobody else uses img. */
uint64_t mc_dram_image_trim(struct mc_dram_image *img);
