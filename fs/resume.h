/* Taking a mount over from a process that was killed or replaced: fs/run.c calls this. */
#pragma once

#include <stdint.h>

struct fuse_buf;
struct mc_fs;

/* When the first process began to serve the mount: seconds since the epoch. */
int64_t mc_resume_start(struct mc_fs *fs);
/* ctx is the mc_fs, which received a request: the first one, INIT, is kept for those who follow. */
void mc_resume_received(void *ctx, const struct fuse_buf *buf);

/*
 * The device is open and nothing is served yet: what the kernel knows is known here again, as far
 * as that is to be had within seconds; the kernel is asked to send again what nobody answered.
 * Nodes whose place cannot be loaded are ESTALE from then on. 0 or -errno.
 */
int mc_resume(struct mc_fs *fs);
