/*
 * The one thread that sends notifications to the kernel. A notification may wait for a page whose
 * read is in flight, so it is never sent from a request's thread or under a lock.
 */
#pragma once

#include "fs/fuse.h"

struct mc_notify;

int mc_notify_open(struct fuse_session *se, struct mc_notify **ret);
/* Sends nothing more; joins. Every request has been answered before. What still asks for something
 * is heard by nobody. NULL allowed. */
void mc_notify_stop(struct mc_notify *n);
/* After it, when nobody asks any more. NULL allowed. */
void mc_notify_free(struct mc_notify *n);
/* Drops the page cache of an inode, soon. Best effort: lost when too many are queued. */
void mc_notify_drop_pages(struct mc_notify *n, fuse_ino_t ino);
