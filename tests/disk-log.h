/*
 * What was done to a disk, in order, and what a power failure may leave of it.
 *
 * Model: everything before the last flush is on the disk. Of what was written after it any part may
 * be, in any order, torn between sectors; a sector is old or new.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define DISK_SECTOR 4096u /* bytes */

struct disk_op {
	uint64_t off;
	uint32_t len; /* bytes; 0 = a flush */
	char *data;   /* owned */
};

struct disk_log {
	struct disk_op *ops; /* owned */
	size_t n, cap;
};

void disk_log_write(struct disk_log *l, uint64_t off, const void *data, uint32_t len);
void disk_log_flush(struct disk_log *l);
void disk_log_clear(struct disk_log *l);
/* The number of operations that are certain when the power goes after the first cut: up to and
 * including the last flush among them. */
size_t disk_log_certain(const struct disk_log *l, size_t cut);
/* Operations [from, to) into image, as they were. */
void disk_log_apply(const struct disk_log *l, size_t from, size_t to, char *image);
/* A choice, by seed, among what operations [from, to) may have left. */
void disk_log_tear(const struct disk_log *l, size_t from, size_t to, char *image, uint64_t seed);
