/*
 * Sequential streams within one file: which blocks to fetch ahead of its readers.
 *
 * The pattern is kept per file, not per handle: forked readers that share a descriptor, and mapped
 * readers that have none, count as streams of their own. Pure state machine; the owner locks.
 */
#pragma once

#include <stdint.h>

#define MC_STREAMS 8 /* per file: readers striding one file at once, e.g. 8 ranks of a node */

struct mc_stream {
	uint64_t next;   /* byte offset after the furthest read */
	uint64_t ahead;  /* first block not yet asked for ahead */
	uint64_t used;   /* when it last moved, in notes */
	uint32_t run;    /* sequential reads seen in a row */
	uint32_t window; /* blocks to stay ahead */
};

struct mc_streams {
	struct mc_stream s[MC_STREAMS];
	uint64_t notes;
};

/*
 * Notes a read and returns how many blocks, from *ret_first, should be fetched ahead now (0 =
 * none). max_window: blocks. The caller clips to the end of the file.
 */
uint32_t mc_streams_note(
	struct mc_streams *t, uint64_t off, uint32_t len, uint32_t max_window, uint64_t *ret_first);
