/*
 * The kernel's I/O table with switches: calls fail while a test says so, from a count or a byte on,
 * or wait. Unlike io-fault.h nothing is lost or crashes. One at a time; switches are atomic.
 */
#pragma once

#include "tier/io.h"

#include <stdatomic.h>
#include <stdbool.h>

struct io_switch {
	struct mc_io io; /* first */
	/* Each 0, or what the calls of that kind answer: */
	_Atomic int syncs, writes, reads, space /* fallocate */, opens;
	_Atomic int segment_opens; /* likewise, of the segments of a KV log */
	_Atomic unsigned once;     /* so many syncs fail with -EIO, then none */
	/* The disk is full once this many bytes more were written. */
	_Atomic int64_t room;
	/* The n-th changing call from now on answers error, once; 0 = none. */
	_Atomic int64_t fail_at;
	_Atomic int error;
	_Atomic unsigned sync_ms; /* a sync takes so long at least */
	_Atomic bool hang;        /* writes and syncs wait until it is false */
	_Atomic bool syncs_hang;  /* syncs alone */
	_Atomic bool reads_hang;  /* likewise */
	_Atomic unsigned failed;  /* calls a switch made fail */
	const char *only;         /* end of a path: other files are spared. NULL: none is */
	_Atomic int only_fd;      /* its descriptor */
};

void io_switch_init(struct io_switch *s);
