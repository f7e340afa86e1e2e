/*
 * What the files of kv/ share. For fs/kv*.c only.
 *
 * One lock, k->lock, guards every field that is not marked otherwise; neither the store nor the
 * kernel is called with it.
 */
#pragma once

#include "fs/kv.h"
#include "fs/state.h"

#include <sys/stat.h>

#define MC_KEY_BYTES 4097 /* the longest key and its NUL */
#define MC_KSTAGE_BUCKETS 256
/* Bytes; smaller objects lie packed with others and are served by the daemon. */
#define MC_KV_PASSTHROUGH_MIN UINT64_C(65536)

enum mc_knode_kind {
	MC_KNODE_DIR,
	MC_KNODE_OBJECT,  /* one sealed version */
	MC_KNODE_STAGING, /* a version being written; stage NULL: promised to one open, see
			     mc_kintent */
	MC_KNODE_DEAD,    /* was staging and published nothing */
	MC_KNODE_LOST,    /* was being written when the process before this one ended */
};

/* What the kernel knows by number. A version is a nodeid: staging turns into the object in place.
 */
struct mc_knode {
	uint32_t slot, gen; /* fixed */
	uint64_t refs;      /* kernel lookups and references of our own */
	uint64_t lookups;   /* the kernel's among them */
	enum mc_knode_kind kind;
	uint64_t hash;           /* of the directory's key or the object's version */
	struct mc_knode *next;   /* chain; directories and objects */
	char *key;               /* owned; what it was called last */
	struct mc_kv_attr attr;  /* OBJECT */
	struct mc_kopen *opened; /* OBJECT: set while it is open */
	struct mc_kstage *stage; /* STAGING: set while it is open for writing or being published */
};

/* An object open for reading: its mode is fixed from the first open to the last release. */
struct mc_kopen {
	enum mc_open_mode mode;
	/* Owned reference; NULL: the process before this one opened it, so that reads look for it,
	 * and in PASSTHROUGH a lease alone keeps its bytes in place. */
	struct mc_kv_object *obj;
	uint64_t size;  /* bytes */
	int backing_id; /* PASSTHROUGH */
	uint64_t opens; /* the kernel's; never less, and perhaps more after a takeover */
	uint64_t reads; /* under way */
};

/* A put under way. Fields without a mark are guarded by k->lock. */
struct mc_kstage {
	struct mc_kvfs *k;           /* fixed */
	struct mc_knode *node;       /* fixed; owned reference */
	struct mc_kv_writer *writer; /* fixed; owned */
	int fd;                      /* fixed; the writer's */
	int backing_id;              /* fixed; 0 = the daemon writes */
	struct mc_kstage *next;      /* in the bucket of its key, newest first */
	uint64_t opens;              /* open file descriptions of the kernel */
	uint64_t users;              /* opens, and calls that use fd */
	/* The number of its last FLUSH: probably the RELEASE comes, so others wait; 0 = they do
	 * not.
	 */
	uint64_t flushed;
	uint64_t born;   /* mc_kv_full_count when it was begun or emptied; with a backing id */
	int failed;      /* -errno of a write that failed: nothing is published */
	bool orphan;     /* the name was removed or given away: nothing is published */
	bool publishing; /* the last RELEASE came */
	bool synced;     /* an fsync was answered */
	bool sealed;     /* being published: what follows was compared, and sealing changes times */
	bool sealable;   /* a FLUSH of a living task saw size and mtime as below */
	uint64_t size;   /* bytes */
	struct timespec mtime;
};

/* "The next LOOKUP of key by this task gets this node": it follows an answer of ESTALE. */
struct mc_kintent {
	struct mc_kintent *next;
	pid_t tid;
	uint64_t until_ns;
	struct mc_knode *node;    /* owned reference */
	struct mc_kv_object *obj; /* owned reference; the version that node is; NULL = for a put */
	char *key;                /* owned */
};

/* A request that cannot be answered at once. */
struct mc_kreq {
	struct mc_call call;
	struct mc_kvfs *k;
	struct mc_kreq *next; /* waiting for a gate, or in k->beginning */
	uint64_t until_ns;
	const char *gate; /* key or to; of a listing the directory */
	void (*run)(struct mc_kreq *q);
	struct mc_knode *node; /* owned reference; NULL allowed */
	struct fuse_file_info fi;
	pid_t tid;
	char *key, *to; /* owned; NULL allowed */
	unsigned flags;
	bool is_list, plus;
	uint64_t flushed;  /* a listing: waits for puts that had so many FLUSHes before them, */
	uint64_t limit_ns; /* while they are published until then */
	bool is_create;    /* CREATE, else OPEN */
	bool begins;       /* it is in k->beginning */
	bool on;           /* open: waits for room until until_ns */
	bool repeated;     /* a process before this one may have done it, and not answered */
	bool done;         /* open for writing: it has */
	struct timespec mtime;
	struct mc_kv_read read;
};

struct mc_kslot {
	struct mc_knode *node; /* owned; NULL = free */
	uint32_t gen;
	uint32_t next_free;
};

struct mc_kvfs {
	struct mc_fs *fs; /* borrowed */
	struct mc_kv *kv; /* borrowed */
	struct mc_work *work;
	struct mc_mutex lock;
	struct mc_cond timer; /* waiting or intents changed, or closing */
	pthread_t timer_thread;
	bool has_timer, closing;
	struct mc_kslot *slots;
	uint32_t n_slots, cap_slots, free_slot;
	struct mc_knode **buckets; /* power of two */
	uint64_t n_buckets, n_nodes;
	struct mc_kstage *stages[MC_KSTAGE_BUCKETS]; /* by key */
	uint64_t n_stages;
	uint64_t seq; /* puts ended: what a LOOKUP read before may be old */
	uint64_t flushes;
	struct mc_kreq *waiting;
	struct mc_kreq *beginning; /* puts that have no file yet: they may wait for room */
	struct mc_kintent *intents;
	struct {
		uint64_t until_ns;
		unsigned searches;
	} restoring; /* before requests are served */
	struct mc_charges *charges;
	char error[400]; /* the last failure of a put, for user.mooncake.error */
};

static inline struct mc_kvfs *mc_kvfs_of(fuse_req_t req)
{
	const struct mc_fs *fs = fuse_req_userdata(req);

	return fs->kvfs;
}

/* kv-run.c: the errno a client sees, positive; and the last failure of a put, logged too. */
int mc_kvfs_errno(int r);
void mc_kvfs_failed(struct mc_kvfs *k, const char *key, int r, const char *what);
/* For the log: a client is told EIO, or that what it has open is gone. key may be NULL. */
void mc_kvfs_told(struct mc_kvfs *k, const char *key, int r);

/* kv-node.c */
/* A node with one reference, outside the table; and away with it. */
struct mc_knode *mc_knode_alloc(const char *key, enum mc_knode_kind kind);
void mc_knode_free(struct mc_knode *n); /* NULL allowed */
/* Before requests are served: the next slot holds n with that generation; NULL: it is free. n is
 * taken over, but for -ENOMEM. */
int mc_knode_restore(struct mc_kvfs *k, struct mc_knode *n, uint32_t gen);
int mc_knodes_open(struct mc_kvfs *k);
void mc_knodes_close(struct mc_kvfs *k);
/* Borrowed while the kernel holds a reference; NULL: no such node (any more). */
struct mc_knode *mc_knode_find(struct mc_kvfs *k, fuse_ino_t ino);
uint64_t mc_knode_id(const struct mc_knode *n);
/* One more reference, the caller's. */
int mc_knode_get(
	struct mc_kvfs *k, const char *key, const struct mc_kv_attr *attr, struct mc_knode **ret);
int mc_knode_new_staging(struct mc_kvfs *k, const char *key, struct mc_knode **ret);
void mc_knode_ref_locked(struct mc_knode *n);
void mc_knode_put(struct mc_kvfs *k, struct mc_knode *n, uint64_t refs);
/* STAGING becomes the OBJECT of attr. */
void mc_knode_seal_locked(struct mc_kvfs *k, struct mc_knode *n, const struct mc_kv_attr *attr);
/* The kernel gets one more reference, the caller's. */
void mc_knode_given(struct mc_kvfs *k, struct mc_knode *n);
/* It gave n back, or did not get one. With its last one nothing is open any more. */
void mc_knode_forget(struct mc_kvfs *k, struct mc_knode *n, uint64_t lookups);
/* The node of a version, borrowed, or NULL. */
struct mc_knode *mc_knode_of_version_locked(struct mc_kvfs *k, const uint8_t version[16]);
/* Takes key, which is malloced. */
void mc_knode_rename_locked(struct mc_kvfs *k, struct mc_knode *n, char *key);
/* The key of name in the directory ino, malloced: 0, -ESTALE, -ENOTDIR, -ENAMETOOLONG, -ENOMEM. */
int mc_knode_child_key(struct mc_kvfs *k, fuse_ino_t ino, const char *name, char **ret);
/* A copy of the node's key, malloced, or NULL. */
char *mc_knode_key(struct mc_kvfs *k, const struct mc_knode *n);

/* kv-wait.c */
int mc_kwait_open(struct mc_kvfs *k);
void mc_kwait_close(struct mc_kvfs *k);
/* Takes a reference of n and key, which is malloced; both may be NULL. NULL: answered already. */
struct mc_kreq *mc_kreq_new(struct mc_kvfs *k, fuse_req_t req, struct mc_knode *n, char *key);
/* On n and its key, or on the key of a name. NULL: answered already. */
struct mc_kreq *mc_kreq_of_node(struct mc_kvfs *k, fuse_req_t req, struct mc_knode *n);
struct mc_kreq *mc_kreq_of_name(
	struct mc_kvfs *k, fuse_req_t req, fuse_ino_t parent, const char *name);
void mc_kreq_end(struct mc_kreq *q);
/* From now to its end it counts as a put of q->key that may wait for room. */
void mc_kreq_begins(struct mc_kreq *q);
/* Whether there is one, or one was promised: the kernel may not remember what key is now. */
bool mc_kreq_begins_locked(struct mc_kvfs *k, const char *key);
/* Answers with an error, 0 or -errno, and ends. */
void mc_kreq_err(struct mc_kreq *q, int r);
/* Runs run once no put of that key waits for its end; key is q->key or q->to. */
void mc_kreq_gate(struct mc_kreq *q, const char *key, void (*run)(struct mc_kreq *q));
/* Likewise, of a listing of q->key: of the puts in that directory that were closed before now. */
void mc_kreq_gate_list(struct mc_kreq *q, void (*run)(struct mc_kreq *q));
/* Whether a request for key has to wait. */
bool mc_kgate_closed_locked(struct mc_kvfs *k, const char *key);
/* A put ended: those who waited for it go on. */
void mc_kreqs_wake(struct mc_kvfs *k);
/* Runs run on the pool. */
void mc_kreq_work(struct mc_kreq *q, void (*run)(struct mc_kreq *q));

/* kv-intent.c */
/* node's and obj's references are taken over. */
void mc_kintent_add(struct mc_kvfs *k, pid_t tid, const char *key, struct mc_knode *node,
	struct mc_kv_object *obj);
/* What the task's LOOKUP of key was promised, with a reference of the caller's, or NULL. */
struct mc_knode *mc_kintent_find(struct mc_kvfs *k, pid_t tid, const char *key);
/* The task opens node: what was promised is used up. The caller's reference, or NULL. */
struct mc_kv_object *mc_kintent_take(struct mc_kvfs *k, pid_t tid, const struct mc_knode *node);
/* Drops what is older than now; returns when the next one is due, UINT64_MAX = none. */
uint64_t mc_kintents_expire(struct mc_kvfs *k, uint64_t now_ns);

/* kv-stage.c */
/* The put of a writer, open once, by that task; takes w in every case, and a reference of n. */
int mc_kstage_open(struct mc_kvfs *k, struct mc_knode *n, struct mc_kv_writer *w, pid_t tid);
/* The put that the record of another process tells of; takes w but for -ENOMEM. One whose last
 * RELEASE came is to be ended by mc_kstage_leave. */
struct mc_knode_record;
int mc_kstage_restore(struct mc_kvfs *k, struct mc_knode *n, struct mc_kv_writer *w,
	const struct mc_knode_record *was);
/* fsync was answered: the put that follows has to be as durable. */
void mc_kstage_synced(struct mc_kstage *s);
/* The newest put of key that will be published, or NULL. */
struct mc_kstage *mc_kstage_find_locked(struct mc_kvfs *k, const char *key);
/* The node's put, held so that its descriptor stays; NULL when it is not being written. */
struct mc_kstage *mc_kstage_hold(struct mc_kvfs *k, struct mc_knode *n);
void mc_kstage_drop(struct mc_kstage *s);
/* The put of a node that is open once and was not closed yet: what a repeated request began. */
bool mc_kstage_is_begun(struct mc_kvfs *k, struct mc_knode *n, int *ret_backing);
/* One open file description more: false when the node is not being written (any more); one less. */
bool mc_kstage_join(struct mc_kvfs *k, struct mc_knode *n, int *ret_backing);
void mc_kstage_leave(struct mc_kvfs *k, struct mc_knode *n);
/* Nothing is published under key; returns how many puts that concerns. */
unsigned mc_kstage_orphan(struct mc_kvfs *k, const char *key);
/* The newest put of from goes on under to: 0, -ENOENT, -ENOMEM. */
int mc_kstage_rename(struct mc_kvfs *k, const char *from, const char *to);
bool mc_kstage_below(struct mc_kvfs *k, const char *dir_key); /* a put in that directory */
/* All descriptions are gone, whatever the kernel said. */
void mc_kstages_end(struct mc_kvfs *k);

/* kv-close.c */
/* Whether that task may take the memory for what it writes by itself; counts where not. */
bool mc_kstage_may_pass(struct mc_kvfs *k, pid_t tid);
/* A write failed with r: the log and whoever asks for the key's error are told. */
void mc_kstage_fail(struct mc_kstage *s, int r, const char *what);
/* 0, or -errno of a write that failed or may have, past us. */
int mc_kstage_check(struct mc_kstage *s);
/* To nothing: whatever failed is forgotten. */
int mc_kstage_truncate(struct mc_kstage *s, uint64_t size);
/* A FLUSH by that task; returns what mc_kstage_check does. */
int mc_kstage_flush(struct mc_kstage *s, pid_t tid);

/* kv-attr.c */
void mc_kvfs_attr(struct mc_kvfs *k, struct mc_knode *n, struct stat *st);
/* Answers LOOKUP and the like with a node whose reference goes to the kernel. */
void mc_kvfs_reply_entry(
	struct mc_kvfs *k, fuse_req_t req, struct mc_knode *n, double entry_timeout);
void mc_kvfs_entry(
	struct mc_kvfs *k, struct mc_knode *n, double entry_timeout, struct fuse_entry_param *e);

/* kv-kopen.c */
void mc_kopen_free(struct mc_kvfs *k, struct mc_kopen *o); /* NULL allowed */
/* The kernel's open, or a read, ended; the node need not be open. */
void mc_kopen_release(struct mc_kvfs *k, struct mc_knode *n);
void mc_kopen_read_end(struct mc_kvfs *k, struct mc_knode *n);
/* Nothing of the kernel's is open. */
void mc_kopen_end(struct mc_kvfs *k, struct mc_knode *n);

/* kv-record.c: what the next process needs to know of a node, in the table of takeover.h. */
void mc_knode_record_add_locked(struct mc_kvfs *k, const struct mc_knode *n);
void mc_knode_record_lookups_locked(struct mc_kvfs *k, const struct mc_knode *n);
void mc_knode_record_key_locked(struct mc_kvfs *k, const struct mc_knode *n);
void mc_knode_record_kind_locked(struct mc_kvfs *k, const struct mc_knode *n);
void mc_knode_record_drop_locked(struct mc_kvfs *k, const struct mc_knode *n);
/* The kernel's opens of an object, or of a put under way. */
void mc_knode_record_opens_locked(struct mc_kvfs *k, const struct mc_knode *n);
void mc_knode_record_closed(struct mc_kvfs *k, const struct mc_knode *n, int backing_id);
/* What a process that goes on with the node's put has to know of it. */
void mc_knode_record_put_locked(struct mc_kvfs *k, const struct mc_knode *n);
