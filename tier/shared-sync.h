/*
 * fdatasync of a file that several write to, each in its own range. A failed sync may have lost
 * what any of them wrote before it, and the next one succeeds all the same: whoever counts on one
 * is told of every failure since he looked last.
 */
#pragma once

#include <stdint.h>

#include "tier/lock.h"

struct mc_io;

struct mc_shared_sync {
	struct mc_mutex lock;      /* leaf; held across the call, so that failures have an order */
	_Atomic uint64_t failures; /* read without it: a sync under way may hang */
};

void mc_shared_sync_init(struct mc_shared_sync *s);
void mc_shared_sync_done(struct mc_shared_sync *s);
/* Writes begin now. s NULL: nobody else writes to the file. */
void mc_shared_sync_begin(struct mc_shared_sync *s, uint64_t *ret_seen);
/* What was written since *seen is durable: 0; else -errno, -EIO when somebody else's sync failed
 * since then. *seen is now. */
int mc_shared_sync(struct mc_shared_sync *s, const struct mc_io *io, int fd, uint64_t *seen);
