/*
 * The kernel's I/O table in a process that is killed right after its n-th changing call: what it
 * wrote stays, whatever it would have done next it does not do.
 */
#pragma once

#include "tier/io.h"

#include <stdatomic.h>

struct io_kill {
	struct mc_io io;         /* first */
	_Atomic uint64_t *calls; /* changing calls so far; borrowed, perhaps shared memory */
	uint64_t at;             /* SIGKILL after this one; 0 = never */
};

void io_kill_init(struct io_kill *k, _Atomic uint64_t *calls, uint64_t at);
