/*
 * What the files of the KV store share: the store itself and its memory; kv-object.h has the
 * objects.
 *
 * Invariants
 * 1. kv->lock guards every field of struct mc_kv, of objects, residents and directories that is not
 * marked otherwise. No system call and no call out of kv-*.c runs under it, but for slab.h (inner
 * lock), policy.h, and emptying kv-deletes.
 * 2. An object in the index has a directory and one reference of the index's; a version that was
 * removed or replaced has dir = NULL and lives as long as its references.
 * 3. Who changes what a key names holds the key's gate (kv_gate_enter): one change of a key at a
 * time, and none while a flush or an eviction of the object is under way.
 * 4. dirty counts the reserved bytes of writers and the bytes of objects without a persistent copy;
 * only clean objects, with a copy below, are evicted.
 * 5. A resident that is ready has its bytes in memory and a meta record in the slab that says so.
 */
#pragma once

#include "tier/kv.h"

#include "tier/block-read.h"
#include "tier/cleanup.h"
#include "tier/kv-dram.h"
#include "tier/kv-log.h"
#include "tier/kv-object.h"
#include "tier/lock.h"
#include "tier/slab.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#define KV_GATES 256
#define KV_REMOTE_PATH 80    /* bytes of a path on the remote */
#define KV_UNREAD (-ENODATA) /* of NVMe: its recovery fails, and is tried again */
#define KV_BYPASS 10 /* × retry_ns: NVMe is left out after a failure where there is a remote */
#define KV_STALL 20  /* × retry_ns: NVMe has failed if no flush ended for so long */

/* Waits for a promotion. */
struct kv_wait {
	void (*done)(void *ctx, int res, struct mc_kv_object *obj);
	void *ctx;
	struct mc_kv_object *handle; /* owned, until it is handed out */
	unsigned tries;              /* versions that were gone when they were to be read */
	bool counted;                /* as a hit of a lower tier */
	bool whole;                  /* into DRAM, however large */
	struct kv_wait *next;
	char key[];
};

/* A handle. */
struct mc_kv_object {
	struct mc_kv *kv;
	struct kv_object *obj; /* a reference; see kv_now */
	struct kv_block *last; /* the block read by range last, a reference */
};

struct mc_kv_writer {
	struct mc_kv *kv;
	struct kv_file *file;    /* owned */
	struct mc_mutex growing; /* guards file->room while clients write */
	uint64_t reserved;       /* bytes in kv->dirty */
	bool synced;             /* an intent stands on the persistent tier */
};

struct kv_room_wait {
	void (*done)(void *ctx, int res);
	void *ctx;
	uint64_t deadline_ns;
	int res;
	struct kv_room_wait *next;
};

/* kv-trouble.c */
enum kv_tier { KV_NVME, KV_BLOCK, KV_REMOTE, KV_TIERS };
struct kv_trouble {
	int error;        /* why the tier fails now; 0 = it does not */
	int told;         /* what the log was told last */
	uint64_t at_ns;   /* of the last failure */
	uint64_t told_ns; /* 0 = never */
};

/* kv-hang.c: by where the object lies */
enum kv_reads { KV_READS_ABOVE, KV_READS_BELOW, KV_READS_PARTS, KV_READS };

struct mc_full_watch;
struct kv_work;   /* kv-work.c */
struct kv_delete; /* kv-delete.c */
struct kv_ask;    /* kv-ask.c */

/* A key the remote did not know. */
struct kv_absent {
	uint64_t hash, until_ns;
};
#define KV_ABSENT 4096

struct mc_kv {
	struct mc_kv_opts opts; /* strings owned */
	bool mounted;
	struct mc_slab *slab;
	struct mc_full_watch *full; /* all memory is given back through it */
	struct mc_kv_log *log;      /* NULL = no NVMe */
	struct mc_block_reads reads[KV_READS];
	struct kv_work *work; /* for what blocks */
	struct kv_work *asks; /* for questions to the remote */
	uint64_t deadline_ns; /* length of one operation */
	uint64_t retry_ns;    /* pause after a failure */
	struct mc_mutex lock;
	struct mc_cond change; /* gates, flushes, recovery, close */
	struct mc_cond wake;   /* of the keeper */
	struct mc_cond flush;  /* of the flusher */
	struct kv_index *index MC_GUARDED_BY(lock);
	struct kv_index *replay MC_GUARDED_BY(lock); /* filled by the log's recovery, then merged */
	uint8_t gates[KV_GATES] MC_GUARDED_BY(lock);
	struct mc_policy *policy MC_GUARDED_BY(lock);
	struct kv_blocks blocks MC_GUARDED_BY(lock);
	struct kv_object *garbage MC_GUARDED_BY(lock); /* without references, memory to free */
	struct kv_res dirty_list MC_GUARDED_BY(lock);  /* head; oldest first */
	struct kv_res replica_list MC_GUARDED_BY(
		lock); /* clean, remote copies wanted; oldest first */
	struct kv_file *pool MC_GUARDED_BY(lock);
	/* Owned: files of puts that are left to be adopted, 0 = it was. */
	uint64_t *left MC_GUARDED_BY(lock);
	size_t n_left MC_GUARDED_BY(lock);
	struct kv_file *held MC_GUARDED_BY(lock); /* dropped, but somebody reads them still */
	struct kv_room_wait *room MC_GUARDED_BY(lock), **room_tail MC_GUARDED_BY(lock);
	uint64_t used MC_GUARDED_BY(lock);     /* bytes of files: objects', writers', pool, held */
	uint64_t unseen MC_GUARDED_BY(lock);   /* see kv_look */
	uint64_t reserved MC_GUARDED_BY(lock); /* writers', in dirty */
	uint64_t lent MC_GUARDED_BY(lock);     /* bytes of objects that are read past us */
	uint64_t dirty MC_GUARDED_BY(lock);
	bool leaving MC_GUARDED_BY(lock);   /* nobody waits for room any more */
	unsigned hurry MC_GUARDED_BY(lock); /* calls that wait for flushes: no pause before them */
	uint64_t refused MC_GUARDED_BY(lock); /* bytes the last writer found no room for, else 0 */
	uint64_t typical MC_GUARDED_BY(lock); /* bytes to allocate for a put of unknown size */
	uint64_t likely MC_GUARDED_BY(lock);  /* bytes that it may come to: as typical, unbounded */
	uint64_t n_pool MC_GUARDED_BY(lock), n_writers MC_GUARDED_BY(lock);
	uint64_t flights MC_GUARDED_BY(lock); /* bytes of flushes under way */
	uint64_t n_flights MC_GUARDED_BY(lock);
	uint64_t n_remote_flights MC_GUARDED_BY(lock); /* of them */
	uint64_t landed_ns MC_GUARDED_BY(lock); /* a flight to the log landed, or the first began */
	uint64_t retry_at MC_GUARDED_BY(lock);  /* no flush before, after a failure */
	uint64_t n_copies MC_GUARDED_BY(lock);  /* replicas under way */
	uint64_t copy_retry_ns MC_GUARDED_BY(lock);
	uint64_t cold_retry_ns MC_GUARDED_BY(lock); /* likewise, of those read from NVMe */
	struct kv_absent absent[KV_ABSENT] MC_GUARDED_BY(lock);
	unsigned n_asks MC_GUARDED_BY(lock); /* questions to the remote under way */
	struct kv_ask *waiting MC_GUARDED_BY(lock);
	bool asks_late MC_GUARDED_BY(lock); /* one was not answered in time, and none since */
	struct kv_delete *deletes MC_GUARDED_BY(lock);
	/* Owned: not pending any more, and the file does not say so yet. */
	struct kv_delete *settled MC_GUARDED_BY(lock);
	uint64_t n_held_deletes MC_GUARDED_BY(lock);
	uint64_t n_moves MC_GUARDED_BY(lock); /* an earlier daemon's renames, outcome unknown */
	/* Removals on the remote that have ended, by hash of their key. */
	uint32_t removals[KV_GATES] MC_GUARDED_BY(lock);
	bool deleting MC_GUARDED_BY(lock);
	uint64_t delete_retry_ns MC_GUARDED_BY(lock);
	int deletes_fd;                                   /* -1 = none */
	struct mc_mutex deletes_lock;                     /* leaf: appends are whole */
	uint64_t deletes_end MC_GUARDED_BY(deletes_lock); /* bytes */
	uint64_t bypass_ns MC_GUARDED_BY(
		lock); /* NVMe failed: dirty objects go to the remote until */
	uint64_t cold_bytes MC_GUARDED_BY(lock); /* on NVMe, seen cold and not reclaimed yet */
	bool stalled MC_GUARDED_BY(lock);        /* so they do while NVMe does not answer */
	bool slow MC_GUARDED_BY(lock);           /* and while it is slow and the remote is well */
	bool unreadable MC_GUARDED_BY(lock);     /* it has objects that it could not open */
	uint64_t sweep MC_GUARDED_BY(lock); /* bucket where the search for cold objects goes on */
	uint64_t held_bytes MC_GUARDED_BY(lock);
	struct kv_trouble trouble[KV_TIERS] MC_GUARDED_BY(lock);
	uint64_t failures MC_GUARDED_BY(lock); /* so far */
	bool recovering MC_GUARDED_BY(lock), closing MC_GUARDED_BY(lock),
		stopping MC_GUARDED_BY(lock);
	int unread MC_GUARDED_BY(lock); /* what is said while recovery fails and is tried again */
	pthread_t keeper, flusher;
	bool has_keeper, has_flusher;
	int lock_fd; /* flock: one daemon to a directory */
	_Atomic uint64_t next_file, next_seq;
	_Atomic uint64_t tell_bad_ns;               /* no line about bad bytes before */
	_Atomic uint64_t tell_lost_ns, lost_untold; /* likewise about lost objects */
	_Atomic uint64_t puts, gets, hits_dram, hits_nvme, hits_block, hits_remote, misses, flushed,
		evicted;
};

/* ---- kv-mem.c: files, records and accounts of the DRAM tier. Without kv->lock unless _locked. */
/* A file with room bytes allocated, empty; counted in kv->used. 0, -ENOSPC, -errno. */
int kv_file_take(struct mc_kv *kv, uint64_t room, struct kv_file **ret);
/* Allocates what is missing of its first room bytes, counted. 0, -ENOSPC, -errno. */
int kv_file_grow(struct mc_kv *kv, struct kv_file *f, uint64_t room);
/* One that an earlier process left; want as in mc_kv_writer_adopt. */
int kv_file_adopt(struct mc_kv *kv, uint64_t id, const struct stat *want, struct kv_file **ret);
/* Gives one back, emptied, if nobody else holds it: to the pool, or to the system. */
void kv_file_give(struct mc_kv *kv, struct kv_file *f);
/* Likewise, and never to the pool. */
void kv_file_remove(struct mc_kv *kv, struct kv_file *f);
/* Makes it the object's backing file, which has size bytes; f is consumed. */
void kv_file_to_object(struct mc_kv *kv, struct kv_file *f, struct kv_res *res, uint64_t size);
/* Its end is at size, without memory beyond; what lies before has memory. 0, -ENOSPC. */
int kv_file_cut(struct mc_kv *kv, int fd, uint64_t size);
void kv_file_path(const struct mc_kv *kv, uint64_t id, char *path, size_t len);
int kv_file_open(const struct mc_kv *kv, uint64_t id, int flags);
/* Whether somebody let go of a file that was dropped; its memory is free then. */
void kv_held_check(struct mc_kv *kv);
/* Gives a pooled file's memory back. False: there is none. */
bool kv_pool_shrink(struct mc_kv *kv) MC_EXCLUDES(kv->lock);
void kv_pool_done(struct mc_kv *kv);
uint64_t kv_total_locked(struct mc_kv *kv) MC_REQUIRES(kv->lock);
/* Asks the file system what there is: clients who write past us take more than their puts reserved,
 * and that is unseen until they are published. */
void kv_look(struct mc_kv *kv) MC_EXCLUDES(kv->lock);
bool kv_room_locked(struct mc_kv *kv, uint64_t bytes) MC_REQUIRES(kv->lock);
/* Bytes a resident occupies. */
uint64_t kv_res_bytes(const struct kv_object *obj);
/* Frees what r holds in memory: nobody uses it and no index names it. */
void kv_res_free(struct mc_kv *kv, struct kv_res *r, uint64_t size);
/* Its bytes, mapped until kv_res_unmap; the caller has a pin. 0, -ENOMEM, -EMFILE. */
int kv_res_map(struct mc_kv *kv, struct kv_res *r, uint64_t size, char **ret);
void kv_res_unmap(struct mc_kv *kv, struct kv_res *r, uint64_t size);
/* Records what an object is, for the next daemon of this boot. 0, -ENOSPC, -EFBIG. */
int kv_meta_write(struct mc_kv *kv, const struct kv_object *obj, const char *key,
	const struct kv_res *r, uint64_t *ret_meta);
int kv_meta_write_dir(struct mc_kv *kv, const char *key, uint64_t *ret_meta);
void kv_meta_clear(struct mc_kv *kv, uint64_t meta);
/* In place: whether pinned, how many remote copies. */
void kv_meta_note(struct mc_kv *kv, const struct kv_object *obj);
struct kv_found {
	const char *key; /* NUL-terminated, valid during the call */
	bool is_dir, is_file, pinned;
	uint8_t version[16];
	uint64_t size, data, seq, meta;
	int64_t mtime_ns;
	uint8_t remotes;
	uint32_t n_crc;
	const uint32_t *crc;
};
/* Each record an earlier daemon left. */
void kv_meta_each(struct mc_kv *kv, void (*each)(void *ctx, const struct kv_found *f), void *ctx);

/* ---- kv-figures.c */
/* Of the log, as far as objects go: without blocks of files. */
void kv_log_figures(struct mc_kv *kv, struct mc_kv_log_stats *ret);

/* ---- kv.c: life of objects and threads. */
/* Drops a reference; the last one puts it on kv->garbage. */
void kv_object_drop_locked(struct mc_kv *kv, struct kv_object *obj) MC_REQUIRES(kv->lock);
/* Frees the garbage. Every public call that dropped a reference ends with it. */
void kv_reap(struct mc_kv *kv) MC_EXCLUDES(kv->lock);
/* Bits 1 << enum mc_tier; *ret_block: bytes of it on the device, of one that lies there. */
unsigned kv_tiers_locked(struct mc_kv *kv, const struct kv_object *obj, uint64_t *ret_block)
	MC_REQUIRES(kv->lock);
void kv_attr_locked(struct mc_kv *kv, const struct kv_object *obj, struct mc_kv_attr *ret)
	MC_REQUIRES(kv->lock);
void kv_dir_attr_locked(const struct kv_dir *d, struct mc_kv_attr *ret);
/* One change of a key at a time: waits until the keys' gates are free and closes them. */
static inline uint8_t kv_gate_of(const char *key)
{
	return (uint8_t)(kv_key_hash(key) >> 40);
}
struct kv_gate {
	uint8_t a, b;
	bool closed; /* by us */
};
void kv_gate_enter_locked(struct mc_kv *kv, const char *key, const char *other, struct kv_gate *ret)
	MC_REQUIRES(kv->lock);
void kv_gate_leave_locked(struct mc_kv *kv, const struct kv_gate *g) MC_REQUIRES(kv->lock);
/* [blocks] Around every change of what a key names: locks; 0 with the gates of key and other (or
 * NULL) closed, else why there can be no change now. change_end in every case. */
int kv_change_begin(struct mc_kv *kv, const char *key, const char *other, struct kv_gate *ret)
	MC_ACQUIRE(kv->lock);
void kv_change_end(struct mc_kv *kv, const struct kv_gate *g) MC_RELEASE(kv->lock);
bool kv_gate_closed_locked(struct mc_kv *kv, const struct kv_object *obj) MC_REQUIRES(kv->lock);
/* Waits until nothing moves the object's bytes between tiers. The gate is closed. */
void kv_settle_locked(struct mc_kv *kv, struct kv_object *obj) MC_REQUIRES(kv->lock);
/* Waits for the end of recovery, at most until the deadline: 0, -ETIMEDOUT, -ESHUTDOWN. */
int kv_ready_locked(struct mc_kv *kv) MC_REQUIRES(kv->lock);
void kv_event(struct mc_kv *kv, const char *event, const char *text) MC_EXCLUDES(kv->lock);

/* Out of the index: not dirty any more, not to be adopted, no victim. */
void kv_unlist_locked(struct mc_kv *kv, struct kv_object *obj) MC_REQUIRES(kv->lock);
/* ---- kv-forget.c: the end of a version. The gate is closed and the object settled. */
struct kv_parting {
	struct kv_object *obj;
	uint8_t version[16];
	struct mc_kv_loc held; /* segment 0 = nothing */
};
/* [blocks] What readers of the version need outlives its name; then parted_locked if it lost it,
 * and part_end in every case. */
void kv_part(struct mc_kv *kv, const char *key, struct kv_object *obj, struct kv_parting *ret)
	MC_EXCLUDES(kv->lock);
void kv_parted_locked(struct mc_kv *kv, const char *key, struct kv_parting *p)
	MC_REQUIRES(kv->lock);
void kv_part_end(struct mc_kv *kv, const struct kv_parting *p) MC_EXCLUDES(kv->lock);
/* The last reference is gone. */
void kv_release_place(struct mc_kv *kv, const struct kv_object *obj) MC_EXCLUDES(kv->lock);
/* [blocks] Ends the durable copies of everything key names or named: the journal knows, and remote
 * copies go in the background. */
int kv_forget(struct mc_kv *kv, const char *key, const struct kv_object *obj) MC_EXCLUDES(kv->lock);
/* [blocks] Another version takes old's place, with *ret_flags; old's copies go once that one is
 * durable. */
int kv_replaced(struct mc_kv *kv, const char *key, const struct kv_object *old, uint8_t *ret_flags)
	MC_EXCLUDES(kv->lock);
/* [blocks] obj is durable beside the log: what the log has of key goes. */
int kv_unshadow(struct mc_kv *kv, const char *key, const struct kv_object *obj)
	MC_EXCLUDES(kv->lock);
bool kv_shadowed_locked(struct mc_kv *kv, const char *key) MC_REQUIRES(kv->lock);

/* ---- kv-recover.c */
/* What an earlier daemon of this boot left in DRAM. Before the threads start. */
int kv_adopt(struct mc_kv *kv) MC_EXCLUDES(kv->lock);
void kv_replay_ops(struct mc_kv *kv, struct mc_kv_log_replay *ret);

/* ---- kv-get.c */
void kv_get_handle_locked(struct mc_kv *kv, struct kv_wait *w, struct kv_object *obj)
	MC_REQUIRES(kv->lock);
void kv_get_step(struct mc_kv *kv, struct kv_wait *w) MC_EXCLUDES(kv->lock);
/* [blocks] Into DRAM, however large; 0 also where there is no room. */
int kv_bring(struct mc_kv *kv, const char *key) MC_EXCLUDES(kv->lock);
/* Answers and frees w. */
void kv_wait_end(struct kv_wait *w, int res, struct mc_kv_object *h);

/* ---- kv-hang.c: reads of the log, given up while the disk hangs */
void kv_reads_init(struct mc_kv *kv);
void kv_reads_done(struct mc_kv *kv); /* the log is closed */
/* Where the object lies now. False: not in the log, or there it is not to be read, since the disk
 * hangs. awaited: by somebody who rather waits than does without, if it is the only copy. */
bool kv_reads_place(struct mc_kv *kv, struct kv_object *obj, bool awaited, struct mc_kv_loc *ret)
	MC_EXCLUDES(kv->lock);
/* As mc_block_reads_begin; the grace and the object's version and size are set here. */
int kv_reads_begin(struct mc_kv *kv, struct kv_object *obj, bool awaited,
	struct mc_block_order *order) MC_EXCLUDES(kv->lock);
/* The keeper's: gives up what takes too long. */
void kv_reads_tick(struct mc_kv *kv) MC_EXCLUDES(kv->lock);

/* ---- kv-range.c: reads of what is not in DRAM. */
void kv_range_read(struct mc_kv_read *r);
void kv_range_end(struct mc_kv_read *r);
/* ---- kv-block.c */
int kv_blocks_open(struct kv_blocks *t, uint64_t capacity);
/* No handle is open any more. */
void kv_blocks_close(struct mc_kv *kv) MC_EXCLUDES(kv->lock);
/* A reference to a block that is here, or NULL. */
struct kv_block *kv_block_find(struct mc_kv *kv, const struct kv_object *obj, uint64_t index)
	MC_EXCLUDES(kv->lock);
/* An empty one with one reference; room is made for it if possible. NULL: no memory. */
struct kv_block *kv_block_new(struct mc_kv *kv, const struct kv_object *obj, uint64_t index)
	MC_EXCLUDES(kv->lock);
/* Its bytes have arrived and are right; obj is what its version is now. Whether it is kept. */
bool kv_block_keep_locked(struct mc_kv *kv, const struct kv_object *obj, struct kv_block *b)
	MC_REQUIRES(kv->lock);
void kv_block_put(struct mc_kv *kv, struct kv_block *b) MC_EXCLUDES(kv->lock);
/* The policy's victim leaves; the table's reference becomes the caller's. */
void kv_block_evict_locked(struct mc_kv *kv, struct kv_block *b) MC_REQUIRES(kv->lock);
/* The object's blocks go; kv_reap frees them. */
void kv_blocks_forget_locked(struct mc_kv *kv, const struct kv_object *obj) MC_REQUIRES(kv->lock);

/* ---- kv-put.c */
/* A writer is there that may write so many bytes. */
void kv_reserve_locked(struct mc_kv *kv, uint64_t bytes) MC_REQUIRES(kv->lock);

/* ---- kv-promote.c */
/* The object is not in DRAM: brings it there for h, whose done runs once. */
void kv_promote(struct mc_kv *kv, struct kv_wait *w);

/* ---- kv-flush.c: dirty objects go down. */
void kv_dirty_add_locked(struct mc_kv *kv, struct kv_res *r) MC_REQUIRES(kv->lock);
void kv_dirty_remove_locked(struct mc_kv *kv, struct kv_res *r) MC_REQUIRES(kv->lock);
void *kv_flusher_main(void *kv);
/* [blocks] Until the object is on a persistent tier (remote: on the remote), or gone. */
int kv_wait_safe(struct mc_kv *kv, struct kv_object *obj, bool remote) MC_EXCLUDES(kv->lock);
/* A clean object without a copy below is dirty again. */
void kv_redirty_locked(struct mc_kv *kv, struct kv_object *obj) MC_REQUIRES(kv->lock);
/* A clean object in DRAM goes down once more, whatever copies it has. */
void kv_dirty_again_locked(struct mc_kv *kv, struct kv_object *obj) MC_REQUIRES(kv->lock);
/* Fetched from the remote: goes to NVMe once more if it is used again, while nobody waits for room.
 */
void kv_keep_locked(struct mc_kv *kv, struct kv_object *obj) MC_REQUIRES(kv->lock);
/* Listed by kv_keep and not taken yet: it is clean again. */
void kv_unkeep_locked(struct mc_kv *kv, struct kv_object *obj) MC_REQUIRES(kv->lock);
/* ---- kv-trouble.c: what is wrong below DRAM */
/* Something succeeded there (0) or failed. */
void kv_trouble_locked(struct mc_kv *kv, enum kv_tier tier, int res) MC_REQUIRES(kv->lock);
/* A read of the remote ended so. */
void kv_trouble_read(struct mc_kv *kv, int res) MC_EXCLUDES(kv->lock);
/* 0, or why nothing can be made durable now. */
int kv_persist_error_locked(struct mc_kv *kv) MC_REQUIRES(kv->lock);
/* Static text that says what to do; NULL for 0. */
const char *kv_trouble_text(enum kv_tier tier, int error);
void kv_trouble_tick(struct mc_kv *kv) MC_EXCLUDES(kv->lock);
/* What a caller is told: limits, lack of room and lateness as they are, all else as -EIO. */
static inline int kv_caller_error(int r)
{
	return r == -ENOMEM || r == -EMFILE || r == -ENFILE || r == -ENOSPC || r == -ETIMEDOUT ||
			r == -ESHUTDOWN
		? r
		: -EIO;
}

/* ---- kv-work.c: threads for what blocks */
int kv_work_open(unsigned n_threads, struct kv_work **ret);
/* Runs fn(ctx) on one of them. -ENOMEM, -ESHUTDOWN: it will not run. */
int kv_work_add(struct kv_work *w, void (*fn)(void *ctx), void *ctx);
void kv_work_close(struct kv_work *w); /* after everything queued has run; NULL allowed */

/* ---- kv-drop.c */
/* The key's gate is closed and the object, which is as it was asked for, settled; or -ENOENT. */
int kv_drop_enter_locked(struct mc_kv *kv, const char *key, const struct kv_object *obj,
	struct kv_gate *ret_gate) MC_REQUIRES(kv->lock);
/* [blocks] The log drops its record; -EAGAIN: it has just moved it. The gate is closed. */
int kv_drop_record_locked(struct mc_kv *kv, const char *key, struct kv_object *obj)
	MC_REQUIRES(kv->lock);

/* ---- kv-scrub.c */
/* An object has lost its last copy, or keeps only one that is damaged: for the log. */
void kv_tell_lost(struct mc_kv *kv, const char *key) MC_EXCLUDES(kv->lock);

/* ---- kv-seal.c */
/* The writer's bytes become the object's, res says where. copy: its file may still be stored to. */
int kv_seal(struct mc_kv_writer *w, struct kv_object *obj, struct kv_res *res, const char *key,
	bool copy) MC_EXCLUDES(w->kv->lock);

/* ---- kv-evict.c */
/* [blocks] See mc_kv_evict_from; the caller has a reference. */
int kv_evict_dram(struct mc_kv *kv, struct kv_object *obj, const char **ret_why)
	MC_EXCLUDES(kv->lock);
void *kv_keeper_main(void *kv);
/* Frees memory until bytes more fit, as far as clean objects go. */
void kv_make_room(struct mc_kv *kv, uint64_t bytes) MC_EXCLUDES(kv->lock);
/* The same for a block in the slab. False: there is no room. */
bool kv_make_block_room(struct mc_kv *kv) MC_EXCLUDES(kv->lock);
void kv_room_changed_locked(struct mc_kv *kv) MC_REQUIRES(kv->lock);

/* A hit in the log; of an object in parts in both floors, on NVMe. */
static inline void kv_hit_log_locked(struct mc_kv *kv, const struct kv_object *obj)
	MC_REQUIRES(kv->lock)
{
	atomic_fetch_add(
		kv->opts.nvme_dir == NULL || kv_is_below(obj) ? &kv->hits_block : &kv->hits_nvme,
		1);
}

/* It was used: the sweep comes by KV_WARM times before it may leave NVMe. */
static inline void kv_warm_locked(struct mc_kv *kv, struct kv_object *obj) MC_REQUIRES(kv->lock)
{
	if (obj->warm == 0 && obj->loc.segment != 0)
		kv->cold_bytes -= obj->size < kv->cold_bytes ? obj->size : kv->cold_bytes;
	obj->warm = KV_WARM;
}
