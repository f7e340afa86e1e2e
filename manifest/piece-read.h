/* A synchronous read of a piece of a plan, with the 1 MiB requests of an object all in flight. */
#pragma once

#include "tier/plan.h"
#include "tier/remote.h"

#define MC_PIECE_MAX (UINT32_C(8) << 20) /* bytes of an object that are read at once */

/*
 * A HOLE, INLINE or OBJECT into buf; an OBJECT has at most MC_PIECE_MAX bytes. 0, or -errno as
 * mc_remote_read has it, with a text that names the object; -EINVAL for a FILE.
 */
int mc_piece_read(struct mc_remote *r, const struct mc_piece *p, void *buf, struct mc_err *err);
