/*
 * Our own event loop on one device descriptor (no clone_fd): a restarted daemon can take such a
 * session over, and it stops within a bound whatever clients and backends do.
 */
#pragma once

#include "fs/fuse.h"

#include <stdbool.h>

struct mc_loop;

/* served: called by a loop thread after each request it processed. */
int mc_loop_open(struct fuse_session *se, unsigned threads, void (*served)(void *ctx), void *ctx,
	struct mc_loop **ret);
/* Readable once the kernel ended the session (unmounted) or a loop thread failed. Borrowed. */
int mc_loop_ended_fd(const struct mc_loop *l);
/* Stops taking requests and joins; each thread ends after the request it is at. NULL allowed. */
void mc_loop_close(struct mc_loop *l);
