/*
 * What the files of the KV log share. Included by kv-log*.c only.
 *
 * kv-log.c          open, close, the directory, statistics
 * kv-log-op.c       puts under way, waiting for them
 * kv-log-record.c   records in segments: layout, building, checking
 * kv-log-entry.c    entries of the table and what counts them
 * kv-log-journal.c  journal records, snapshots
 * kv-log-replay.c   reading them
 * kv-log-name.c     changes that move no data
 * kv-log-segment.c  segments: making, freeing, accounting
 * kv-log-stream.c   records → large writes, groups
 * kv-log-pack.c     the packer: puts → the stream, room
 * kv-log-split.c    objects too large for one record
 * kv-log-split-read.c  reading them
 * kv-log-reclaim.c  the packer's other work: survivors of a segment move
 * kv-log-choose.c   of which segment
 * kv-log-commit.c   the committer: sync, journal, done
 * kv-log-apply.c    what a group that is durable does to the table
 * kv-log-below.c    the lower floor's own thread, and what becomes of groups when its disk hangs
 * kv-log-piece.c    reads that somebody waits for, and gives up
 * kv-log-recover.c  what is there at the start
 * kv-log-fsck.c     the same without a daemon: checking and repairing
 * kv-log-scan.c     reading records and images through, in order
 * kv-log-judge.c    one of them
 * kv-log-check.c    reading everything through beside the daemon's work
 * kv-log-mend.c     framing of a record written again
 * kv-log-read.c     reads
 * kv-log-hold.c     places kept for readers
 * kv-log-health.c   budgets of errors and latency, probe
 *
 * Two threads. The packer alone chooses segments, fills buffers and submits writes; what it wrote
 * since the last sync is the open group of a floor. A group that is closed goes to the committer,
 * which waits for its writes, syncs its files, journals its puts and runs their callbacks. What may
 * wait for the disk of the lower floor is done by a third thread, so that it holds up nobody else.
 *
 * Lock ranks: the log's, then the journal's (inside journal.c). Table and journal change together:
 * whoever appends a record changes the table under the same hold of the log's lock.
 */
#pragma once

#include "tier/journal.h"
#include "tier/kv-log-floor.h"
#include "tier/kv-log.h"
#include "tier/kv-store.h"
#include "tier/kv-table.h"
#include "tier/lock.h"
#include "tier/share.h"
#include "tier/uring.h"

#include <errno.h>

enum mc_kv_asked { MC_KV_ASKED_NOTHING, MC_KV_ASKED_SEAL, MC_KV_ASKED_RECLAIM };

/* Who looks without being the daemon: nothing on disk is changed, it is told instead. */
struct mc_kv_watch {
	/* An object that is about to be dropped, and its record or the part that is bad. */
	void (*bad)(void *ctx, uint32_t object, uint32_t record, const char *why);
	void *ctx;
};

struct mc_kv_log {
	const struct mc_kv_watch *watch;         /* borrowed; NULL: the daemon */
	const struct mc_io *io;                  /* borrowed */
	struct mc_kv_floor floors[MC_KV_FLOORS]; /* the upper one first */
	uint64_t record_max, journal_bytes;      /* bytes */
	unsigned commit_ms;
	struct mc_kv_log_replay replay;
	pthread_t packer, committer;
	bool packer_runs, committer_runs;

	struct mc_mutex lock; /* everything below */
	struct mc_cond work;  /* for the packer */
	struct mc_cond ready; /* for the committer */
	struct mc_cond
		moved; /* for everybody else: an op ended, recovery ended, a pack came back */
	struct mc_journal *journal; /* owned; NULL until recovery read it */
	bool recovering, stopping, packer_done;
	bool closing;               /* recovery that fails is not tried again */
	int unread;                 /* why recovery failed last, while it is tried again */
	uint64_t patience_ns;       /* from which on segments that cannot be opened are set aside */
	bool impatient;             /* recovery has failed for so long, and the disk works */
	bool replayed;              /* the table and the figures are complete */
	int dead;                   /* recovery failed with this */
	struct mc_share read, told; /* of recovery: bytes of the journal, slots of the table */
	struct mc_kv_table table;
	unsigned char *rec;          /* owned: room for one journal record */
	uint64_t table_max;          /* its bytes: what a snapshot has room for */
	struct mc_kv_segment **segs; /* owned, both floors' in turn; for walks: NULL among them */
	uint32_t n_segs, cap_segs;
	uint32_t split_seq;
	struct mc_kv_gone *gone; /* owned: objects in parts without an entry */
	size_t n_gone, cap_gone;
	struct mc_kv_gone *held; /* owned: those that somebody reads though their entry may go */
	size_t n_held;
	uint64_t deaths; /* entries dropped so far */

	struct mc_kv_op *oldest, *newest; /* puts under way */
	struct mc_kv_op **op_buckets;     /* owned */
	uint64_t seq;
	struct mc_kv_op_list queue, retry;
	unsigned sync_waiters;
	uint64_t sync_upto;
	int sync_error;
	unsigned n_moving; /* copies under way */

	struct mc_kv_group *closed, **closed_last; /* for the committer */
	bool table_full;                           /* the packer's: when it last looked */
	bool committing;
	bool syncing;     /* it waits for the upper floor: nothing is submitted there meanwhile */
	bool attention;   /* something for the committer since it last looked */
	bool free_wanted; /* the packer waits until the committer has freed what is empty */
	enum mc_kv_asked asked;
	int asked_res;

	bool snapshotting;
	bool want_snapshot; /* the journal failed and somebody waits for it */
	uint64_t snapshots_tried;
	int snapshot_res; /* of the last one */

	struct mc_kv_log_owner owner;
	struct mc_kv_log_stats stats;
};

static inline struct mc_kv_floor *mc_kv_top(struct mc_kv_log *log)
{
	return &log->floors[0];
}
/* The floor whose reclaim drops things. */
static inline struct mc_kv_floor *mc_kv_bottom(struct mc_kv_log *log)
{
	return log->floors[1].store != NULL ? &log->floors[1] : &log->floors[0];
}

static inline uint64_t mc_kv_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

/* What an object counts for in live: the key, which may change, is left out. */
static inline uint64_t mc_kv_space(uint64_t size, uint32_t n_crc, uint32_t segment)
{
	return segment == MC_KV_SPLIT ? mc_kv_up(size, MC_KV_ALIGN)
				      : mc_kv_up(MC_KV_HEADER + size + 4 * (uint64_t)n_crc, 64);
}

static inline void mc_kv_poke_locked(struct mc_kv_log *log) MC_REQUIRES(log->lock)
{
	log->attention = true;
	mc_cond_signal(&log->ready);
	mc_cond_signal(&log->floors[1].wake);
}

static inline bool mc_kv_is_lower(const struct mc_kv_log *log, const struct mc_kv_floor *f)
{
	return f == &log->floors[1];
}

/* ---- kv-log.c */
/* Not open: without a store and threads. NULL = no memory. */
struct mc_kv_log *mc_kv_log_new(const struct mc_kv_log_opts *opts);
void mc_kv_log_free(struct mc_kv_log *log);
/* The floor owns the store. capacity 0: as much as it has. */
void mc_kv_floor_set(struct mc_kv_floor *f, struct mc_kv_store *store, uint64_t capacity);

/* ---- kv-log-op.c */
void mc_kv_list_init(struct mc_kv_op_list *l);
void mc_kv_list_add(struct mc_kv_op_list *l, struct mc_kv_op *op);
struct mc_kv_op *mc_kv_list_take(struct mc_kv_op_list *l);
/* Up to so many of the first ones; 0: it is empty. */
unsigned mc_kv_list_take_batch(
	struct mc_kv_op_list *l, struct mc_kv_op *ret_ops[MC_KV_OPS_PER_HOLD]);
static inline const char *mc_kv_op_key(const struct mc_kv_op *op)
{
	return op->key != NULL ? op->key : op->meta.key;
}
/* Where a put goes. */
static inline struct mc_kv_floor *mc_kv_floor_of(struct mc_kv_log *log, const struct mc_kv_op *op)
{
	return op->item->below ? mc_kv_bottom(log) : mc_kv_top(log);
}
/* Runs done of ops whose res is their outcome, and frees them; the list is empty then. */
void mc_kv_ops_end(struct mc_kv_log *log, struct mc_kv_op_list *ops) MC_EXCLUDES(log->lock);
void mc_kv_op_fail(struct mc_kv_log *log, struct mc_kv_op *op, int res) MC_EXCLUDES(log->lock);
/* Puts under way: cancels those of key (NULL version: any; else that one), renames them. True if
 * there was one. */
bool mc_kv_ops_cancel_locked(struct mc_kv_log *log, const char *key, const uint8_t *version)
	MC_REQUIRES(log->lock);
int mc_kv_ops_rename_locked(struct mc_kv_log *log, const char *from, const char *to)
	MC_REQUIRES(log->lock);
/* Cancels those of the same key that are older. The log's lock is held. */
void mc_kv_op_supersede_locked(struct mc_kv_op *by);

void mc_kv_op_free(struct mc_kv_op *op);

/* ---- kv-log-record.c */
/* Where a record for this object starts at or after at. */
uint64_t mc_kv_record_start(uint64_t at, uint64_t size);
uint64_t mc_kv_record_bytes(const struct mc_kv_meta *m);
void mc_kv_record_header(const struct mc_kv_log *log, const struct mc_kv_meta *m,
	const struct mc_kv_loc *loc, unsigned char out[MC_KV_HEADER]);
/* 0, -EBADMSG damaged or misdirected, -ESTALE whole but another record. */
int mc_kv_record_check(const struct mc_kv_log *log, const void *header, const struct mc_kv_loc *loc,
	const uint8_t version[16], uint64_t size);
/* Of a header that was checked: bytes of key and checksums, and their CRC32C. */
uint64_t mc_kv_record_tail(const void *header, uint32_t *ret_crc);

/* ---- kv-log-entry.c: nothing here is journalled */
void mc_kv_entry_drop_locked(struct mc_kv_log *log, uint32_t slot) MC_REQUIRES(log->lock);
/* The key holds this object or part now, and nothing else. 0 or -ENOMEM. */
int mc_kv_entry_enter_locked(struct mc_kv_log *log, enum mc_kv_kind kind,
	const struct mc_kv_meta *m, const struct mc_kv_loc *loc, uint32_t *ret_slot)
	MC_REQUIRES(log->lock);
/* Replaces what to held. 0 or -ENOMEM. */
int mc_kv_entry_rename_locked(struct mc_kv_log *log, uint32_t slot, const char *to)
	MC_REQUIRES(log->lock);
int mc_kv_entry_mark_locked(struct mc_kv_log *log, enum mc_kv_kind kind, const char *key, bool made)
	MC_REQUIRES(log->lock);

/* ---- kv-log-replay.c */
int mc_kv_journal_apply(void *ctx, uint8_t type, const void *rec, size_t len, struct mc_err *err);

/* ---- kv-log-journal.c */
#define MC_KV_RECORD_ROOM (80 + 4 * MC_KV_CRC_MAX + MC_KV_KEY_MAX)
/* The table was changed so. Where there is no memory for the record the next commit fails, and the
 * snapshot after it says what the record was to say: nothing else is durable before. */
void mc_kv_journal_locked(struct mc_kv_log *log, uint8_t type, const void *rec, size_t len)
	MC_REQUIRES(log->lock);
/* Appends the PUT, or PART, of an entry of the table. */
void mc_kv_journal_put_locked(struct mc_kv_log *log, const struct mc_kv_entry *e)
	MC_REQUIRES(log->lock);
/* Appends the PUT, or PART, and makes the table say so; replaces what the key had. 0; -ENOMEM:
 * nothing happened. */
int mc_kv_put_locked(struct mc_kv_log *log, enum mc_kv_kind kind, const struct mc_kv_meta *meta,
	const struct mc_kv_loc *loc) MC_REQUIRES(log->lock);
/* The same for a copy: the entry of slot lies at loc now. */
void mc_kv_move_locked(struct mc_kv_log *log, uint32_t slot, const struct mc_kv_loc *loc)
	MC_REQUIRES(log->lock);
/* Appends REMOVE and drops the entry. */
void mc_kv_drop_locked(struct mc_kv_log *log, uint32_t slot) MC_REQUIRES(log->lock);
void mc_kv_log_segment_locked(struct mc_kv_log *log, const struct mc_kv_segment *seg)
	MC_REQUIRES(log->lock);
int mc_kv_snapshot(struct mc_kv_log *log);
/* Everything appended durable; through a snapshot where the log failed. The committer only. */
int mc_kv_commit(struct mc_kv_log *log);

/* ---- kv-log-segment.c */
struct mc_kv_segment *mc_kv_segment_get(const struct mc_kv_log *log, uint32_t id);
/* Without MC_KV_BELOW: its number on its floor. */
static inline uint32_t mc_kv_segment_number(uint32_t id)
{
	return id & ~MC_KV_BELOW;
}
/* The segment of that id, made if need be (replay). NULL: no memory, or not a number of ours. */
struct mc_kv_segment *mc_kv_segment_note(struct mc_kv_log *log, uint32_t id);
/* One of the floor to be filled, OPEN. -EAGAIN: reclaim first; -EIO and others. spare: may take the
 * last one. */
int mc_kv_segment_take(
	struct mc_kv_log *log, struct mc_kv_floor *f, bool spare, struct mc_kv_segment **ret);
/* A disk that was full may have room again: one more is made, if it has. The packer only. */
void mc_kv_segments_look(struct mc_kv_log *log, struct mc_kv_floor *f);
/* How many a put to the floor could still take without reclaim. */
uint32_t mc_kv_segments_left_locked(const struct mc_kv_log *log, const struct mc_kv_floor *f)
	MC_REQUIRES(log->lock);
/* Journals the next generation of what is empty, and makes it FREE. The committer only. */
void mc_kv_segments_free(struct mc_kv_log *log);
/* One that is CLEARING is FREE. */
void mc_kv_segment_clear(struct mc_kv_log *log, struct mc_kv_segment *seg);
/* Gives back the space of a segment that nobody needs. */
void mc_kv_segment_remove(struct mc_kv_log *log, struct mc_kv_segment *seg);
/* None is known any more; what they hold stays. */
void mc_kv_segments_leave(struct mc_kv_log *log);
/* Whether what was written to it under this generation is still there. */
static inline bool mc_kv_segment_holds_locked(const struct mc_kv_segment *seg, uint32_t generation)
{
	return seg->generation == generation && seg->place.fd >= 0 &&
		seg->state < MC_KV_SEG_FREEING && seg->state != MC_KV_SEG_FREE;
}

static inline bool mc_kv_segment_failed(const struct mc_kv_segment *seg)
{
	return __atomic_load_n(&seg->failed, __ATOMIC_RELAXED);
}
static inline void mc_kv_segment_set_failed(struct mc_kv_segment *seg, bool failed)
{
	__atomic_store_n(&seg->failed, failed, __ATOMIC_RELAXED);
}

/* ---- kv-log-pack.c */
int mc_kv_packer_start(struct mc_kv_log *log);

/* ---- kv-log-stream.c: the packer's */
/* Writes the record of op to the stream and enters op in the open group. data: its payload; of a
 * copy borrowed for the call, else until the op ends. */
int mc_kv_stream_record(
	struct mc_kv_log *log, struct mc_kv_stream *s, struct mc_kv_op *op, const void *data);
void mc_kv_stream_seal(struct mc_kv_log *log, struct mc_kv_stream *s);
void mc_kv_group_close(struct mc_kv_log *log, struct mc_kv_floor *f);
void mc_kv_groups_close(struct mc_kv_log *log);

/* ---- kv-log-split.c */
void mc_kv_part_key(
	const uint8_t version[16], uint32_t number, uint64_t i, char ret[MC_KV_PART_KEY]);
/* Queues the parts and, with the last one, the put. -EAGAIN: call again once there is room; it goes
 * on where it was. */
int mc_kv_split_write(struct mc_kv_log *log, struct mc_kv_op *op);
/* It is written anew, under another number. */
void mc_kv_split_retry(struct mc_kv_op *op);
void mc_kv_split_gone_locked(struct mc_kv_log *log, const uint8_t version[16],
	const struct mc_kv_loc *loc, uint64_t size) MC_REQUIRES(log->lock);
/* Drops the parts of objects gone whose end is durable. The committer only. */
void mc_kv_splits_remove(struct mc_kv_log *log);
/* The slot of the object to which a part belongs; 0: it is gone. */
uint32_t mc_kv_split_find_locked(const struct mc_kv_log *log, const uint8_t version[16],
	const char *part_key) MC_REQUIRES(log->lock);
/* At the start: parts without an object go, and objects without all their parts. */
int mc_kv_splits_settle(struct mc_kv_log *log);

/* ---- kv-log-split-read.c */
void mc_kv_split_read(struct mc_kv_log *log, struct mc_kv_log_read *r);

/* ---- kv-log-hold.c */
bool mc_kv_split_held_locked(const struct mc_kv_log *log, const uint8_t version[16],
	uint32_t number) MC_REQUIRES(log->lock);

/* ---- kv-log-reclaim.c */
enum mc_kv_reclaim {
	MC_KV_RECLAIM_GAIN,  /* copies what the owner keeps, on the same floor, if that is worth it
			      */
	MC_KV_RECLAIM_FORCE, /* the same with the lowest live ratio, whatever the gain */
	MC_KV_RECLAIM_DOWN   /* copies all that lives to the lower floor */
};
/* Queues copies out of one segment of the floor. 0; -ENOENT: no segment is worth it; -EAGAIN: the
 * lower floor has no room for one. The packer only. */
int mc_kv_reclaim(struct mc_kv_log *log, struct mc_kv_floor *f, enum mc_kv_reclaim how);

/* ---- kv-log-commit.c */
int mc_kv_committer_start(struct mc_kv_log *log);
/* first: g, or groups up to g of which each is synced, after the writes of all of them. */
void mc_kv_group_sync(
	struct mc_kv_log *log, const struct mc_kv_group *first, struct mc_kv_group *g);
/* Its I/O has not ended: its ops end, without success. The committer only. */
void mc_kv_group_give_up(struct mc_kv_log *log, struct mc_kv_group *g);

/* ---- kv-log-apply.c */
/* Its writes and its sync have ended. What is to be tried again leaves the group. */
void mc_kv_group_apply(struct mc_kv_log *log, struct mc_kv_group *g);

/* ---- kv-log-below.c */
int mc_kv_below_start(struct mc_kv_log *log);
/* The packer has ended, and nothing is closed any more. */
void mc_kv_below_join(struct mc_kv_log *log);
/* A call of the floor's disk begins, and ends. */
void mc_kv_busy_locked(struct mc_kv_log *log, struct mc_kv_floor *f) MC_REQUIRES(log->lock);
void mc_kv_answered_locked(struct mc_kv_log *log, struct mc_kv_floor *f) MC_REQUIRES(log->lock);
/* Looks whether the lower floor hangs, and gives up its groups if so. The committer only. */
void mc_kv_below_watch(struct mc_kv_log *log);
static inline bool mc_kv_hangs(struct mc_kv_log *log, const struct mc_kv_floor *f)
{
	bool hangs;

	mc_mutex_lock(&log->lock);
	hangs = f->hangs;
	mc_mutex_unlock(&log->lock);
	return hangs;
}
/* When to do so next; UINT64_MAX: when something changes. */
uint64_t mc_kv_below_due_locked(const struct mc_kv_log *log) MC_REQUIRES(log->lock);
/* Nothing of the lower floor is to be waited for. */
bool mc_kv_below_idle_locked(const struct mc_kv_log *log) MC_REQUIRES(log->lock);

/* ---- kv-log-piece.c */
/* [blocks] Bytes [off, off + len) of the segment, of which the caller is a reader or writer, into
 * *buf, which has room for whole multiples of MC_KV_ALIGN. How many there are before the file ends,
 * or -errno. -ETIMEDOUT: the disk hangs; where *buf is NULL then, the read has taken it over. */
int64_t mc_kv_piece_read(struct mc_kv_log *log, struct mc_kv_segment *seg, uint64_t off,
	uint32_t len, unsigned char **buf);

/* ---- kv-log-recover.c */
/* An object is told, counted and dropped because its record, or a part of it, is bad. */
void mc_kv_bad_drop(struct mc_kv_log *log, uint32_t slot, const char *why);
/* 0 or -errno: then the log is as before, and it may be called again. */
int mc_kv_recover(struct mc_kv_log *log, struct mc_err *err);
/* Its first part: the journal's records in the table. damaged: as in journal.h, may be NULL. */
int mc_kv_replay(struct mc_kv_log *log,
	void (*damaged)(void *ctx, const char *file, const char *what), void *ctx,
	struct mc_err *err);
/* Its second part: what lies there is found, what nobody owns removed, entries without a place
 * dropped. */
int mc_kv_settle(struct mc_kv_log *log);

/* ---- kv-log-health.c */
/* An I/O of the floor ended so: 0, a full disk and limits of ours do not count against the disk. */
void mc_kv_failed(struct mc_kv_log *log, struct mc_kv_floor *f, int res);
/* A write or sync of bytes (0 = unknown) has ended that began then (mc_now_ns). */
void mc_kv_took(struct mc_kv_log *log, struct mc_kv_floor *f, uint64_t begun_ns, uint64_t bytes);
/* What is said of a change that is made and not durable: 0, -ENOSPC, -EMFILE, -ENFILE, else -EIO.
 */
static inline int mc_kv_journal_error(int r)
{
	return r == 0 || r == -ENOSPC || r == -EMFILE || r == -ENFILE ? r : -EIO;
}
/* A read is given up, and ends after all: when none is left the disk is probed. */
void mc_kv_lost_locked(struct mc_kv_log *log, struct mc_kv_floor *f) MC_REQUIRES(log->lock);
void mc_kv_found_locked(struct mc_kv_log *log, struct mc_kv_floor *f) MC_REQUIRES(log->lock);
void mc_kv_probe(struct mc_kv_log *log, struct mc_kv_floor *f);
/* Not while something hangs there: a probe would, too. The log's lock is held. */
bool mc_kv_probe_due_locked(const struct mc_kv_floor *f);
/* When; UINT64_MAX: never. */
uint64_t mc_kv_probe_at_locked(const struct mc_kv_floor *f);
/* Whether puts to the floor fail: the journal is the upper one's, which nobody else stands in for.
 */
static inline bool mc_kv_bypassed_locked(const struct mc_kv_log *log, const struct mc_kv_floor *f)
	MC_REQUIRES(log->lock)
{
	return f->health.bypassed || f->hangs || log->floors[0].health.bypassed;
}
