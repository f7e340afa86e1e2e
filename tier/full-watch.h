/*
 * Whether a tmpfs was full at some time while others wrote to it past us: the kernel tells them so,
 * and not us. Thread-safe; the process that comes after one that was killed goes on with its count.
 *
 * Everybody takes memory of the file system, and this process alone gives any back, all of it
 * through here: what others free (a hole punched through a mapping) is not seen.
 */
#pragma once

#include <stdint.h>

struct mc_full_watch;

/* path: a file in the tmpfs that holds the count; it is made where it is missing. 0 or -errno. */
int mc_full_watch_open(const char *path, struct mc_full_watch **ret);
void mc_full_watch_close(struct mc_full_watch *w); /* NULL allowed; the file stays */

/* How often it may have been full so far: unchanged between two calls = it was not between them. */
uint64_t mc_full_watch_count(struct mc_full_watch *w);

/* Around what gives at most so many bytes back. w may be NULL in all that follow. */
void mc_full_watch_begin(struct mc_full_watch *w, uint64_t bytes);
void mc_full_watch_end(struct mc_full_watch *w, uint64_t bytes);
/* Something was given back without that. */
void mc_full_watch_missed(struct mc_full_watch *w);
/* ftruncate and fallocate, which may leave a part allocated when it fails. 0 or -errno. */
int mc_full_watch_truncate(struct mc_full_watch *w, int fd, uint64_t size);
int mc_full_watch_allocate(struct mc_full_watch *w, int fd, int mode, uint64_t off, uint64_t len);
/* Closes a file that nobody else has open, after unlinking path. */
void mc_full_watch_remove(struct mc_full_watch *w, int fd, const char *path);
