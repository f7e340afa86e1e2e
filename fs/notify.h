/*
 * The one thread that sends notifications to the kernel. A notification may wait for a page whose
 * read is in flight, so it is never sent from a request's thread or under a lock.
 */
#pragma once

#include "fs/fuse.h"

struct mc_notify;

int mc_notify_open(struct fuse_session *se, struct mc_notify **ret);
/* Sends nothing more; joins. Every request has been answered before. NULL allowed. */
void mc_notify_close(struct mc_notify *n);
/* Drops the page cache of an inode, soon. Best effort: lost when too many are queued. */
void mc_notify_drop_pages(struct mc_notify *n, fuse_ino_t ino);
