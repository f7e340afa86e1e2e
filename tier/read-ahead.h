/* Reads pieces of a file in order, with several of them under way. One thread uses it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct mc_io;
struct mc_ahead;

#define MC_AHEAD_PIECE (UINT32_C(1) << 20) /* bytes, the largest piece */

struct mc_ahead_user {
	/* The next piece; off and len are multiples of 4096. False: there is no more. */
	bool (*next)(void *ctx, uint64_t *ret_off, uint32_t *ret_len);
	/* In the same order. buf holds len bytes, fewer than asked where the file ends; res: -errno
	 * where they could not be read, buf is NULL then and len what was asked. */
	void (*take)(void *ctx, uint64_t off, const void *buf, uint32_t len, int res);
	void *ctx;
};

/* io: NULL = the real one. 0, -ENOMEM, -EAGAIN. */
int mc_ahead_open(const struct mc_io *io, struct mc_ahead **ret);
void mc_ahead_close(struct mc_ahead *a); /* NULL allowed */
/* fd may be O_DIRECT. */
void mc_ahead_read(struct mc_ahead *a, int fd, const struct mc_ahead_user *user);
