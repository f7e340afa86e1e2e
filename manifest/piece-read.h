/* A synchronous read of a range of an object on the remote, with its 1 MiB requests all in flight.
 */
#pragma once

#include "tier/remote.h"

#define MC_RANGE_MAX (UINT32_C(8) << 20) /* bytes */

/*
 * Reads [off, off + len), 0 < len ≤ MC_RANGE_MAX, into buf. guard may be NULL. 0, or -errno as
 * mc_remote_read has it, with a text that names the object.
 */
int mc_range_read(struct mc_remote *r, const char *path, uint64_t off, uint32_t len,
	const struct mc_guard *guard, void *buf, struct mc_err *err);
