/*
 * What a KV log is made of: segments on one floor or two, puts and copies under way, and the groups
 * and buffers they are written by. Included by kv-log-impl.h.
 *
 * A segment:
 *   FREE     no content; generation is that of its next content and durable before it is used
 *   OPEN     being filled by a stream
 *   SEALED   full, or given up at a restart
 *   MOVING   the packer queued copies of its live records
 *   FREEING  nobody needs it; the record of its next generation is on the way
 *   CLEARING that is durable; the disk of the lower floor is being told that it is empty
 * failed: a write or sync of it failed; it is never written again and ends as a removed file.
 * aside: SEALED and nowhere; the table keeps its records for a life that can open it.
 *
 * Floors: the upper one has the journal and takes what is put. Where there is a lower one, reclaim
 * of the upper floor moves what lives in a segment down, and reclaim of the lower floor asks the
 * owner what to keep. Which floor a segment is of, its number says.
 */
#pragma once

#include "tier/disk-health.h"
#include "tier/kv-log.h"
#include "tier/kv-store.h"
#include "tier/lock.h"
#include "tier/uring.h"

#define MC_KV_ALIGN 4096u                    /* O_DIRECT transfers */
#define MC_KV_PACK_BYTES (UINT32_C(2) << 20) /* one write */
#define MC_KV_PACKS 8                        /* buffers, all the memory of writing to a floor */
#define MC_KV_PACK_PIECES 72                 /* of memory in one write */
#define MC_KV_ALIGNED_FROM 65536u            /* bytes: payloads that begin at MC_KV_ALIGN */
#define MC_KV_HEADER 128u                    /* bytes */
#define MC_KV_KEY_MAX 4096u                  /* bytes */
#define MC_KV_CRC_MAX 14000u                 /* MiB of the largest object: one journal record */
#define MC_KV_OP_BUCKETS 65536u
#define MC_KV_OPS_PER_HOLD                                                                         \
	64u                /* of the log's lock: many at once, and nobody waits for thousands      \
			    */
#define MC_KV_PART_KEY 72u /* bytes of a part's key, with its NUL, at most */
#define MC_KV_NO_FILE UINT32_MAX
#define MC_KV_FLOORS 2u

enum mc_kv_seg_state {
	MC_KV_SEG_FREE,
	MC_KV_SEG_OPEN,
	MC_KV_SEG_SEALED,
	MC_KV_SEG_MOVING,
	MC_KV_SEG_FREEING,
	MC_KV_SEG_CLEARING
};

struct mc_kv_segment {
	uint32_t id, generation;
	struct mc_kv_floor *floor;
	uint64_t taken; /* its turn to be filled; 0: in an earlier life */
	enum mc_kv_seg_state state;
	bool failed;              /* atomic */
	bool made;                /* its name was not synced by this life */
	int aside;                /* it is there and cannot be opened, why; 0 = it can */
	struct mc_kv_place place; /* fd -1 = none */
	uint32_t head;            /* entries in it */
	uint64_t live;            /* bytes of them */
	uint64_t filled; /* bytes of all records in it, counted as live is; all of it if unknown */
	unsigned readers;
	unsigned writers; /* queued copies out of it, and ops of uncommitted groups in it */
};

/* A put under way, a part of one, or the copy of a record out of a segment. */
enum mc_kv_op_kind { MC_KV_OP_PUT, MC_KV_OP_PART, MC_KV_OP_COPY };

/* In the order of use: of 100,000 under way each line of the cache is far away. */
struct mc_kv_op {
	struct mc_kv_op *next;          /* queue, or group */
	struct mc_kv_op *chain, **link; /* bucket by key; what points to this one */
	uint64_t hash;                  /* of the key, while chained */
	enum mc_kv_op_kind kind;
	unsigned file; /* of its group */
	unsigned attempts;
	int part_res; /* puts: first error of a part */
	int res;
	bool cancelled;
	bool entered; /* the table has it, or may have it: also where its record is not durable */
	bool of_part; /* copies: the record is a part */
	char *key;    /* owned: after a rename */
	uint64_t seq;
	struct mc_kv_op *older, *newer; /* all puts under way by seq */
	struct mc_kv_item *item;        /* puts: borrowed */
	struct mc_kv_meta meta;         /* item's, or owned in mem */
	struct mc_kv_loc loc;           /* where it goes */
	void *mem;                      /* owned: key and checksums of a copy or part */
	struct mc_kv_op *whole;         /* parts: the put, which ends after them */
	uint64_t parts;                 /* puts: parts queued so far */
	struct mc_kv_loc from;          /* copies */
	struct mc_kv_segment *from_seg;
	uint32_t slot; /* copies: the entry */
};

struct mc_kv_op_list {
	struct mc_kv_op *first, **last;
};

/* An object in parts, by what their keys are made of. */
struct mc_kv_gone {
	uint8_t version[16];
	uint32_t number;
	uint64_t part_bytes, size; /* bytes */
};

/* A file written since the last sync. */
struct mc_kv_file {
	struct mc_kv_segment *seg;
	int res;           /* first error */
	unsigned given_up; /* ops in it that ended before the I/O: still among its writers */
};

/* What was written to a floor since its last sync. */
struct mc_kv_group {
	struct mc_kv_log *log;
	struct mc_kv_floor *floor;
	struct mc_kv_group *next;
	struct mc_kv_op_list ops; /* the packer's, then the committer's */
	struct mc_kv_file *files; /* owned */
	unsigned n_files;
	unsigned writing;       /* packs in flight */
	bool synced;            /* by the lower floor's thread */
	bool given_up;          /* its ops end, or ended, before its I/O has */
	bool ops_over, io_over; /* of one given up: who is last frees it */
	uint64_t payload;       /* bytes */
	uint64_t opened_ns, last_ns, first_seq;
};

struct mc_kv_pack {
	struct mc_uring_req req;
	struct mc_kv_log *log;
	struct mc_kv_group *group;
	unsigned file;
	struct mc_kv_floor *floor; /* once it is submitted */
	struct mc_kv_pack *next;
	uint64_t begun_ns;
	uint64_t off;  /* of the file */
	uint32_t len;  /* what it writes */
	uint32_t used; /* of buf */
	unsigned char *buf;
	struct iovec iov[MC_KV_PACK_PIECES]; /* of buf, and of payloads where they lie */
	unsigned n_iov;
};

/* An open segment and the buffer at its end. */
struct mc_kv_stream {
	struct mc_kv_floor *floor;
	bool spare; /* it may take the last segment */
	struct mc_kv_segment *seg;
	uint64_t off;
	struct mc_kv_pack *pack;
	unsigned writers; /* not yet in seg's own */
	uint64_t filled;
	bool in_group; /* it has a file in the open group: */
	unsigned file;
};

struct mc_kv_floor {
	struct mc_kv_store *store;        /* owned; NULL: there is no such floor */
	struct mc_uring *uring;           /* owned: one disk that hangs holds up no other */
	uint64_t capacity, segment_bytes; /* bytes */
	/* With the log's lock. */
	uint32_t next;    /* the number that the next segment made gets, without MC_KV_BELOW */
	uint32_t n_files; /* segments that have space */
	bool disk_full;   /* the last new segment failed */
	uint64_t taken;   /* segments, to be filled */
	uint64_t freed;   /* segments */
	struct mc_disk_health health;
	struct mc_kv_pack *free_packs;
	struct mc_kv_group *open; /* the packer's, handed over with closed */
	unsigned lost;            /* reads given up, and not ended yet */
	/* Of the lower one, with the log's lock; see kv-log-below.c. */
	struct mc_kv_group *closed, **closed_last; /* groups that are to be synced, in order */
	unsigned pending;                          /* of them, those whose ops are not over */
	unsigned clearing;                         /* segments */
	unsigned busy;                             /* writes, syncs and others under way */
	uint64_t answered_ns; /* when the last one ended, or the first one began */
	bool hangs;           /* none has ended for long; until all have */
	struct mc_cond wake;  /* for its thread */
	pthread_t thread;
	bool started; /* it has one */
	bool runs;    /* which has not ended */
	/* The packer's. */
	struct mc_kv_stream puts, survivors;
	struct mc_kv_segment *looked_for;      /* at which it last reclaimed early */
	size_t asked_from;                     /* where reclaim goes on asking */
	uint64_t hopeless_deaths, hopeless_ns; /* when reclaim last found nothing */
	uint64_t freed_seen;                   /* freed, when it last looked for room */
	struct mc_kv_pack packs[MC_KV_PACKS];
};
