/*
 * Our own event loop on one device descriptor (no clone_fd): a restarted daemon can take such a
 * session over, and it stops within a bound whatever clients and backends do.
 */
#pragma once

#include "fs/fuse.h"

#include <stdbool.h>

struct mc_loop;

/* Called by a loop thread around each request. */
struct mc_loop_calls {
	void (*received)(void *ctx, const struct fuse_buf *buf);
	void (*served)(void *ctx);
	void *ctx;
};
int mc_loop_open(struct fuse_session *se, unsigned threads, const struct mc_loop_calls *calls,
	struct mc_loop **ret);
/* Whether the kernel has sent the request that this thread is processing before, to a process that
 * may have done it and not answered. */
bool mc_loop_is_repeated(void);
/* For how long a loop thread has been at one request: the longest, 0 = all wait for one. They never
 * wait for a remote or a disk, so seconds mean that they hang. */
uint64_t mc_loop_busy_ns(const struct mc_loop *l, uint64_t now_ns);
/* Readable once the kernel ended the session (unmounted) or a loop thread failed. Borrowed. */
int mc_loop_ended_fd(const struct mc_loop *l);
/* Stops taking requests and joins; each thread ends after the request it is at. NULL allowed. */
void mc_loop_close(struct mc_loop *l);
/* The same, once what clients had sent is served; more of it than a second's work is left. */
void mc_loop_finish(struct mc_loop *l);
/* The kernel has nothing to say: it is connected, and every request was taken, the RELEASE of each
 * close that has returned among them. */
bool mc_session_is_idle(struct fuse_session *se);
