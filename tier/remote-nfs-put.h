/* A put to an NFS server from inside: shared by remote-nfs-{put,write,sync}.c. */
#pragma once

#include "tier/remote-nfs.h"

#define MC_NFS_WINDOW 8 /* WRITEs of one put, COMMITs of one sync in flight */

/* A put on its way. */
struct mc_nfs_putting {
	struct mc_nfs *n;
	const char *buf;
	size_t len;
	uint64_t deadline_ns;
	char tmp[MC_REMOTE_PATH_MAX];
	struct mc_nfs_fh dir; /* tmp/<node> */
	const char *tmp_name; /* into tmp */
	struct mc_nfs_fh fh;  /* of the file */
	uint64_t fileid;
	char verf[NFS3_WRITEVERFSIZE];
	bool have_verf, stable;
	bool have_size; /* of the file, from an answer after the last byte was written */
	uint64_t size;
};

/* A window of calls from one thread; the answers come on others. */
struct mc_nfs_window {
	struct mc_mutex lock;
	struct mc_cond change;
	struct mc_nfs_call calls[MC_NFS_WINDOW];
	unsigned char state[MC_NFS_WINDOW]; /* under lock */
};

void mc_nfs_window_init(struct mc_nfs_window *w);
void mc_nfs_window_done(struct mc_nfs_window *w);
/* Submits one of the window's calls, filled in but for done and ctx. */
void mc_nfs_window_send(struct mc_nfs_window *w, struct mc_nfs_call *c, struct mc_nfs_conn *conn);
/* An answered call (its result in res), else a free one if want_free, else waits for an answer;
 * NULL: nothing is in flight any more. */
struct mc_nfs_call *mc_nfs_window_next(struct mc_nfs_window *w, bool want_free, bool *ret_answered);

/* Writes p->buf to p->fh; 0 when the server has it on stable storage. */
int mc_nfs_write_durably(struct mc_nfs_putting *p);

/* The name is made: it has to be committed by the next sync. */
int mc_nfs_sync_note(struct mc_nfs_putting *p, const char *path);
