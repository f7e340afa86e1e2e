/* The private tmpfs under the DRAM tier: mounted, taken over from an earlier daemon, or done
 * without. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct mc_dram_mount {
	bool mounted; /* own tmpfs at dir; false = dir is used as it is */
	bool fresh;   /* mounted just now, empty */
	bool huge;    /* its files get huge pages */
};

/*
 * Makes dir (0700, parents too) and puts a tmpfs of capacity bytes and room for the map files over
 * it. What an earlier daemon left mounted there is resized and kept with its content. Without the
 * right to mount, or when dir is in use otherwise, it stays a plain directory: no error.
 */
void mc_dram_mount_open(const char *dir, uint64_t capacity, struct mc_dram_mount *ret);
/* Makes dir (0700) and the parents it lacks. */
int mc_dram_mount_mkdir(const char *dir);
/* Gives a mount that was taken over the new capacity, where that is possible. */
void mc_dram_mount_resize(const char *dir, uint64_t capacity);
/* Unmounts; what clients still hold lives on, detached, until they let go. */
void mc_dram_mount_close(const char *dir);
