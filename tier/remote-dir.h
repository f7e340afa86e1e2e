/* Inside of the remote kind "dir": a directory of a mounted file system. For remote-dir*.c only. */
#pragma once

#include "tier/lock.h"
#include "tier/remote-backend.h"
#include "tier/remote-lru.h"
#include "tier/uring.h"

#include <sys/stat.h>

/* Open descriptors for reads, and the queue of reads that wait for one. See remote-dir-read.c. */
struct mc_dir_reads {
	struct mc_mutex lock;
	struct mc_cond wake;
	struct mc_lru fds MC_GUARDED_BY(lock);           /* of struct dir_fd */
	struct mc_remote_read *head MC_GUARDED_BY(lock); /* FIFO, through next */
	struct mc_remote_read **tail MC_GUARDED_BY(lock);
	bool stopping MC_GUARDED_BY(lock);
	pthread_t threads[2];
	unsigned n_threads;
	struct mc_uring *uring;     /* owned */
	_Atomic uint64_t instances; /* handed out */
};

/* Directories whose entries are not durable yet. See remote-dir-put.c. */
struct mc_dir_puts {
	struct mc_mutex lock;
	struct mc_cond synced;
	struct mc_lru touched MC_GUARDED_BY(lock); /* of bare nodes */
	bool syncing MC_GUARDED_BY(lock);
	_Atomic uint64_t serial; /* of temporary names */
	uint64_t salt;
};

struct mc_dir {
	struct mc_backend base;
	int root;  /* owned descriptor */
	char *tmp; /* owned: "tmp/<node>" */
	struct mc_remote_counters *counters;
	_Atomic bool stopping;
	struct mc_dir_reads reads;
	struct mc_dir_puts puts;
};

/*
 * Opens a path below the root; symbolic links may be followed but not lead out of it (-EACCES).
 * Returns the descriptor or -errno. "" is the root.
 */
int mc_dir_open_at(struct mc_dir *d, const char *path, int flags, mode_t mode);
/* Opens the directory that holds path; *ret_name points at the last component inside path. */
int mc_dir_open_parent(struct mc_dir *d, const char *path, const char **ret_name);
/* 0, or why an operation may not go on: -ESHUTDOWN, -ETIMEDOUT. */
int mc_dir_check(struct mc_dir *d, const struct mc_remote_call *c);

int mc_dir_reads_init(struct mc_dir *d, const struct mc_remote_opts *opts);
void mc_dir_reads_stop(struct mc_dir *d);
void mc_dir_reads_done(struct mc_dir *d);
void mc_dir_read(struct mc_backend *b, struct mc_remote_read *req);
/* The path may be another object now: no later read uses the descriptor kept for it, unless that is
 * of the inode in unless (may be NULL). */
void mc_dir_reads_forget(struct mc_dir *d, const char *path, const struct stat *unless);

int mc_dir_puts_init(struct mc_dir *d);
void mc_dir_puts_done(struct mc_dir *d);
int mc_dir_put(struct mc_backend *b, const struct mc_remote_call *c, const void *buf, size_t len,
	unsigned flags);
int mc_dir_sync(struct mc_backend *b, const struct mc_remote_call *c);
/* A name was made: its directory goes on the list of those to sync, or is synced here. */
int mc_dir_name_made(struct mc_dir *d, const char *path);
/* What happened to the name of the call's path is durable on return. */
int mc_dir_name_sync(struct mc_dir *d, const struct mc_remote_call *c);
/* mkdir with parents; each new name is remembered for sync. */
int mc_dir_mkdir(struct mc_backend *b, const struct mc_remote_call *c);
