/*
 * How an open file is served: by the daemon with kernel caching, or in passthrough. One inode never
 * mixes the two: the first open fixes the mode until the last release.
 */
#pragma once

#include "fs/node-record.h"
#include "fs/state.h"
#include "tier/store.h"

/* Fixed from the first open of an inode to its last release. */
struct mc_opened {
	enum mc_open_mode mode;
	struct mc_file *file; /* owned reference; NULL for an empty file */
	uint64_t size;        /* bytes */
	int backing_id;       /* PASSTHROUGH: shared by all opens, > 0 */
	enum mc_tier tier;    /* PASSTHROUGH: which tier keeps the image for us */
	bool kept;            /* PASSTHROUGH: it does */
	uint64_t opens;       /* guarded by the stripe */
};

/* One more open of a file's node: fills fi for the reply. 0 or -errno. */
int mc_mode_open(struct mc_fs *fs, struct mc_node *n, struct fuse_file_info *fi);
void mc_mode_release(struct mc_fs *fs, struct mc_node *n);

/* Before requests are served: n was open in another process, as its record says. */
void mc_mode_restore(struct mc_fs *fs, struct mc_node *n, const struct mc_node_record *was);
/* Ends what mc_nodes_forget left. */
void mc_mode_end(struct mc_fs *fs, struct mc_opened *o); /* NULL allowed */

/* The store's file behind a FILE entry with size > 0; the caller's reference. */
int mc_mode_entry_file(
	struct mc_fs *fs, struct mc_place *place, uint32_t entry, struct mc_file **ret);
/* The mode in effect while the file is open, else the one an open would get now. */
enum mc_open_mode mc_mode_now(struct mc_fs *fs, struct mc_node *n);

/* Decides whether passthrough may be used; after INIT was negotiated. */
void mc_mode_init(struct mc_fs *fs, bool offered);
/* Has the kernel read and write fd itself for an open file: an id > 0, or -EOPNOTSUPP. */
int mc_mode_backing_open(struct mc_fs *fs, int fd);
void mc_mode_backing_close(struct mc_fs *fs, int id); /* 0 = none */
/* Ends what is still open, when the session is gone. */
void mc_mode_drop(struct mc_fs *fs, struct mc_node *n);
