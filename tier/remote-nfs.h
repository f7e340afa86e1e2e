/*
 * Inside of the remote kind "nfs": libnfs' raw NFSv3 calls over own connections. For remote-nfs*.c
 * only.
 *
 * Who knows what: proc = how each NFS procedure is encoded and read; conn = one TCP connection, its
 * thread and the calls on it; walk = from a path to a file handle; read, meta, put = the
 * operations. File handles mean the same on every connection, so what is known about paths is
 * shared.
 */
#pragma once

#include "tier/lock.h"
#include "tier/remote-backend.h"
#include "tier/remote-lru.h"

#include <nfsc/libnfs.h>
#include <nfsc/libnfs-raw.h>
#include <nfsc/libnfs-raw-mount.h>
#include <nfsc/libnfs-raw-nfs.h>

#define MC_NFS_XFER_MAX MC_REMOTE_READ_MAX /* bytes of one READ or WRITE */
#define MC_NFS_TTL_NS                                                                              \
	UINT64_C(3000000000) /* what a path leads to is looked up again after this                 \
			      */

struct mc_nfs;
struct mc_nfs_call;
struct mc_nfs_conn;

struct mc_nfs_fh {
	uint32_t len; /* bytes, ≤ 64 */
	char data[NFS3_FHSIZE];
};

static inline bool mc_nfs_fh_equal(const struct mc_nfs_fh *a, const struct mc_nfs_fh *b)
{
	return a->len == b->len && __builtin_memcmp(a->data, b->data, a->len) == 0;
}

/* An entry of a directory listing; a chain, owned by whom the call returns it to. */
struct mc_nfs_entry {
	struct mc_nfs_entry *next;
	uint64_t cookie;
	bool has_attr;
	struct mc_remote_attr attr;
	char name[];
};

struct mc_nfs_proc {
	const char *name;
	bool replay; /* may be sent again when the connection broke before the answer */
	/* Encodes and queues; 0 or negative. priv goes back to cb. */
	int (*send)(struct rpc_context *rpc, rpc_cb cb, struct mc_nfs_call *c, void *priv);
	/* Copies what the call wants out of a decoded answer with status NFS3_OK. 0 or -errno. */
	int (*reply)(struct mc_nfs_call *c, const void *res);
};

extern const struct mc_nfs_proc mc_nfs_getattr, mc_nfs_lookup, mc_nfs_readlink, mc_nfs_read_proc,
	mc_nfs_write, mc_nfs_commit, mc_nfs_create, mc_nfs_mkdir_proc, mc_nfs_remove, mc_nfs_rmdir,
	mc_nfs_rename, mc_nfs_link, mc_nfs_settime, mc_nfs_fsstat, mc_nfs_fsinfo,
	mc_nfs_readdirplus;

/*
 * One NFS call. The caller owns it, and what it points to, until done runs: exactly once, on the
 * connection's thread or inside mc_nfs_conn_submit, with no lock held. res: 0 or the server's
 * answer as -errno; -ECONNRESET a call without replay was sent and its answer lost: it may have run
 * or not; -ETIMEDOUT; -ESHUTDOWN.
 */
struct mc_nfs_call {
	const struct mc_nfs_proc *proc;
	struct mc_nfs_fh fh, fh2; /* fh2: directory of the new name */
	const char *name, *name2; /* borrowed */
	uint64_t off;             /* bytes; READDIRPLUS: cookie */
	uint32_t len;             /* bytes */
	int stable;               /* WRITE: enum stable_how, asked and then answered */
	void *buf;                /* borrowed: READ into, WRITE from */
	uint64_t deadline_ns;
	void (*done)(struct mc_nfs_call *c, int res);
	void *ctx;
	/* The answer. */
	struct mc_nfs_fh ofh;
	bool has_fh, has_attr, eof;
	struct mc_remote_attr attr;
	uint32_t count;  /* bytes moved; FSINFO: rtmax */
	uint32_t count2; /* FSINFO: wtmax */
	uint64_t total, avail;
	char verf[NFS3_WRITEVERFSIZE]; /* WRITE, COMMIT: the server's; READDIRPLUS: the cookie's */
	char *text;                    /* READLINK: owned by the caller, free() */
	struct mc_nfs_entry *entries;  /* READDIRPLUS: owned by the caller */
	/* The connection's, while it has the call. */
	struct mc_nfs_call *next;
	int res;
};

/* -errno of an NFS status. */
int mc_nfs_errno(int status);
void mc_nfs_entries_free(struct mc_nfs_entry *e);

struct mc_nfs_server {
	char *host;     /* owned: numeric address */
	int nfsport;    /* 0 = ask the port mapper */
	int mountport;  /* 0 = ask the port mapper */
	int uid, gid;   /* -1 = ours */
	char *export;   /* owned: what is mounted; shortened once while the first connection is made
			 */
	char *sub;      /* owned: the rest of the URL's path, below the export; "" when nothing */
	bool export_ok; /* the server has taken `export` once: it is not changed any more */
	unsigned inactivity_ms;
};

/* See remote-nfs-conn.c. */
int mc_nfs_conn_open(struct mc_nfs *n, unsigned depth, bool mounts, struct mc_nfs_conn **ret);
void mc_nfs_conn_stop(struct mc_nfs_conn *c);  /* fails everything, soon; does not wait */
void mc_nfs_conn_close(struct mc_nfs_conn *c); /* after stop: joins, frees. NULL allowed */
void mc_nfs_conn_submit(struct mc_nfs_conn *c, struct mc_nfs_call *call);
/* Waits until the connection stands, or its first attempt failed: 0 or -errno with err. */
int mc_nfs_conn_wait_up(struct mc_nfs_conn *c, uint64_t deadline_ns, struct mc_err *err);
/* The root's handle is no longer known to the server: mount again. */
void mc_nfs_conn_remount(struct mc_nfs_conn *c);
/* Calls queued and in flight; the smaller, the sooner a call is served. */
unsigned mc_nfs_conn_load(const struct mc_nfs_conn *c);

/* A path known to lead to a file. Shared by reads; freed with its last reference. */
struct mc_nfs_handle;

struct mc_nfs {
	struct mc_backend base;
	struct mc_nfs_server server;
	struct mc_remote_counters *counters;
	struct mc_nfs_conn *meta;  /* owned: metadata and path walks, never bulk */
	struct mc_nfs_conn **bulk; /* owned array of owned: reads and writes */
	unsigned n_bulk;
	_Atomic unsigned turn; /* of equally loaded connections */
	_Atomic bool stopping;
	uint32_t rtmax, wtmax; /* bytes, what the server takes at once; set at open */
	struct mc_mutex lock;  /* of what follows */
	struct mc_nfs_fh root MC_GUARDED_BY(lock);
	struct mc_lru dirs MC_GUARDED_BY(lock);    /* of struct nfs_dir (walk) */
	struct mc_lru handles MC_GUARDED_BY(lock); /* of struct mc_nfs_handle (read) */
	/* Publishing, see remote-nfs-put.c and remote-nfs-sync.c. */
	char *tmp; /* owned: "tmp/<node>" */
	uint64_t salt;
	_Atomic uint64_t serial;
	struct mc_cond synced;
	bool syncing MC_GUARDED_BY(lock);
	struct mc_lru unsynced MC_GUARDED_BY(lock); /* of struct nfs_published (sync) */
};

/* The bulk connection with the least to do. */
struct mc_nfs_conn *mc_nfs_bulk(struct mc_nfs *n);
/* Makes a call and waits; not from a connection's thread. */
int mc_nfs_call_run(struct mc_nfs_conn *c, struct mc_nfs_call *call);

/* Where a path leads. */
struct mc_nfs_node {
	struct mc_nfs_fh fh;
	struct mc_remote_attr attr;
};

/*
 * From path to handle, asynchronously, on the metadata connection. The caller fills the upper part
 * and owns the struct until done runs (exactly once, perhaps before start returns, no lock held).
 */
struct mc_nfs_walk {
	const char *path; /* borrowed until done */
	bool follow;      /* a symbolic link at the end */
	bool fresh;       /* trust no directory known from before */
	uint64_t deadline_ns;
	void (*done)(struct mc_nfs_walk *w, int res);
	void *ctx;
	struct mc_nfs_node node; /* the answer */
	/* The walk's. */
	struct mc_nfs *n;
	char *full;        /* owned: path below the export, links replaced as they are met */
	size_t pos, end;   /* the component being looked up: full[pos .. end) */
	unsigned links;    /* followed so far */
	unsigned restarts; /* from the root, because a known directory misled us */
	bool from_known;   /* started from a known directory */
	struct mc_nfs_call call;
	char name[MC_REMOTE_NAME_MAX + 1];
};
void mc_nfs_walk_start(struct mc_nfs *n, struct mc_nfs_walk *w);
/* The same, waiting; not from a connection's thread. */
int mc_nfs_walk_run(struct mc_nfs *n, const char *path, bool follow, uint64_t deadline_ns,
	struct mc_nfs_node *ret);
/* The directory that holds path; *ret_name points into path. */
int mc_nfs_walk_parent(struct mc_nfs *n, const char *path, uint64_t deadline_ns,
	struct mc_nfs_node *ret, const char **ret_name);
/* Only the directory's handle; from memory when it was seen lately and fresh does not forbid it. */
int mc_nfs_walk_dir_of(struct mc_nfs *n, const char *path, bool fresh, uint64_t deadline_ns,
	struct mc_nfs_fh *ret, const char **ret_name);
/* Forgets every known directory. */
void mc_nfs_dirs_forget(struct mc_nfs *n);
int mc_nfs_dirs_init(struct mc_nfs *n);
void mc_nfs_dirs_done(struct mc_nfs *n);

int mc_nfs_reads_init(struct mc_nfs *n);
void mc_nfs_reads_done(struct mc_nfs *n);
void mc_nfs_read(struct mc_backend *b, struct mc_remote_read *req);
/* The path may be another object now; unless it is still the one behind that handle (may be NULL).
 */
void mc_nfs_reads_forget(struct mc_nfs *n, const char *path, const struct mc_nfs_fh *unless);

int mc_nfs_stat(struct mc_backend *b, const struct mc_remote_call *c, struct mc_remote_attr *ret);
int mc_nfs_list(
	struct mc_backend *b, const struct mc_remote_call *c, mc_remote_each *each, void *ctx);
int mc_nfs_mkdir(struct mc_backend *b, const struct mc_remote_call *c);
int mc_nfs_unlink(struct mc_backend *b, const struct mc_remote_call *c);
int mc_nfs_move(struct mc_backend *b, const struct mc_remote_call *c);
int mc_nfs_touch(struct mc_backend *b, const struct mc_remote_call *c);
int mc_nfs_space(struct mc_backend *b, const struct mc_remote_call *c, struct mc_remote_space *ret);
/* mkdir of the directories above path, of path too when self. */
int mc_nfs_make_dirs(struct mc_nfs *n, const char *path, bool self, uint64_t deadline_ns);

int mc_nfs_puts_init(struct mc_nfs *n);
void mc_nfs_puts_done(struct mc_nfs *n);
int mc_nfs_put(struct mc_backend *b, const struct mc_remote_call *c, const void *buf, size_t len,
	unsigned flags);
int mc_nfs_sync(struct mc_backend *b, const struct mc_remote_call *c);
