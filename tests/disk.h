/*
 * A block device for tests that records what is done to it and shows what a power failure at any
 * point may leave: a loop device over the one file of a FUSE file system that this process serves.
 *
 * Sectors have 4 KiB, as torn writes have: file systems count on their blocks being whole.
 *
 * The content is that of an image file (base) and, over it, changes in memory: showing a state
 * costs a mapping. Two records, so that the power may also go during recovery.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct disk;

struct disk_opts {
	const char *image;      /* a file with a file system; becomes the base, is changed */
	const char *mountpoint; /* directory for the file system that has the file */
};

/* NULL: there are no loop devices here, or no FUSE; *ret_why says so. */
struct disk *disk_open(const struct disk_opts *o, const char **ret_why);
/* Nothing of the device is in use. */
void disk_close(struct disk *d);
/* In a child that will not serve the disk. */
void disk_forget(struct disk *d);
const char *disk_device(const struct disk *d);
/* Anywhere: a mount namespace that was copied has a file system that was unmounted here. */
bool disk_is_mounted(const struct disk *d);
/* Operations recorded; children see it move. */
uint64_t disk_position(const struct disk *d);

/* The base is shown, what is done to it is recorded from 0 on. */
void disk_record(struct disk *d);
/* No longer recorded, and lost when the next state is shown. */
void disk_pause(struct disk *d);
#define DISK_CERTAIN 0 /* seed: of what is not certain nothing was left */
/* What a power failure after cut operations may leave, by seed. cut does not become smaller from
 * one call to the next. What is done to the state is recorded anew, in a second record. */
void disk_show(struct disk *d, uint64_t cut, uint64_t seed);
/* The power goes again, while that state is being recovered: after a part of what was done to it.
 */
void disk_show_again(struct disk *d, uint64_t seed);
