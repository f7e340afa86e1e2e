/*
 * Inside the store: what the files store*.c share. Nobody else includes this.
 *
 * One lock (rank 1), short sections; no tier, remote, source or caller is called under it.
 *
 * Invariants
 *  T1 A block is VALID only after its bytes matched the source's CRC (or were committed so by an
 *     earlier daemon of this boot), and only VALID blocks are lent out.
 *  T2 A pair with pins, or of a file with passthrough openers, is not evicted. Pins are held by
 * lent reads, by the job that fills a block and by a write-behind that reads from it. T3 A waiting
 * read holds no pin but on the block that has just come (so full memory cannot deadlock). T4 At
 * most one job fills a block; every other reader waits on it. T5 Both blocks of a pair are EVICTING
 * while its memory is punched, whatever they were before.
 */
#pragma once

#include "tier/lock.h"
#include "tier/policy.h"
#include "tier/store.h"
#include "tier/stream.h"

#include <errno.h>
#include <stdatomic.h>

#define MC_MAX_WORKERS 4
#define MC_RUN_SHIFT 3 /* NVMe space is evicted in runs of 8 blocks */
#define MC_RUN_BLOCKS (1u << MC_RUN_SHIFT)

struct mc_queue;
struct mc_sink;

struct mc_work {
	struct mc_work *prev, *next;
	struct mc_queue *on;   /* the queue it is on, NULL = none */
	struct mc_queue *home; /* jobs: the queue it starts from when somebody waits for it */
	void (*run)(struct mc_store *s, struct mc_work *w);
};

struct mc_queue {
	struct mc_work *head, *tail;
	uint64_t n;
};

enum mc_block_state { MC_BLK_ABSENT, MC_BLK_FILLING, MC_BLK_VALID, MC_BLK_EVICTING };
enum mc_behind { MC_BEHIND_NONE, MC_BEHIND_RUNNING, MC_BEHIND_DONE };

struct mc_job;

struct mc_pair_block {
	uint8_t state;                /* enum mc_block_state */
	uint8_t behind;               /* enum mc_behind: its way to NVMe */
	bool was_valid;               /* while EVICTING */
	bool ahead;                   /* fetched ahead and not read yet */
	struct mc_job *job;           /* while FILLING, borrowed */
	struct mc_file_wait *waiters; /* owned by their reads */
};

/* Two blocks, 2 MiB of the DRAM tier. */
struct mc_pair {
	struct mc_policy_entry entry; /* linked while memory may be reserved */
	struct mc_file *file;         /* borrowed: the file owns its pairs */
	uint32_t index;
	uint32_t pins;
	struct mc_work
		todo; /* on store->behind_todo while a block of it waits to be written behind */
	struct mc_pair_block blk[2];
};

/* Eight blocks of the NVMe tier. */
struct mc_run {
	struct mc_policy_entry entry;
	struct mc_file *file; /* borrowed */
	uint32_t index;
	uint32_t pins;   /* transfers in flight */
	uint32_t blocks; /* written */
	bool evicting;
};

struct mc_file {
	struct mc_store *store;
	struct mc_file *hash_next;
	struct mc_file_id id;
	struct mc_source *src; /* owned while refs > 0; set once per period of use */
	uint64_t refs;
	bool leaving; /* out of the table in a moment; nobody takes a reference any more */
	uint64_t blocks;
	struct mc_pair **pairs;   /* [(blocks + 1) / 2], owned */
	struct mc_run **runs;     /* [blocks / 8 rounded up], owned */
	uint32_t n_pairs, n_runs; /* that exist */
	uint64_t n_valid;         /* blocks VALID in DRAM */
	uint64_t data_blocks; /* blocks that are not wholly hole; UINT64_MAX = not counted yet */
	struct mc_dram_image *dram; /* owned, NULL until needed: see store-image.c */
	struct mc_nvme_image *nvme; /* owned, likewise */
	struct mc_work idle;        /* on store->idle: unreferenced, with an image open */
	uint32_t evicting_runs;     /* under way in NVMe */
	uint32_t sinking;           /* blocks on their way from NVMe to the device */
	uint32_t backing[2];        /* passthrough openers, by enum mc_tier */
	uint64_t held_until_ns[2];  /* the kernel still held the image then */
	struct mc_work verify_work; /* on store->verify while verify_queued */
	bool verify_queued;
	struct mc_work mend;   /* on store->mending while hurt > 0 */
	uint64_t hurt;         /* damaged blocks that a client reads past us */
	uint64_t mend_from;    /* the verifier's: where the next try begins */
	struct mc_work mapped; /* on store->mapped: a client may read it past us after its close */
	bool pinned;           /* stays in the table; see mc_pin_holds */
	uint64_t hits;         /* uses that found it in a local tier */
	struct mc_streams streams;
};

/* How much of a derived file was read without an image, by a hash of its identity. */
struct mc_seen {
	uint64_t hash;
	uint64_t bytes;
};
#define MC_SEEN 256

struct mc_store {
	struct mc_store_opts opts;
	struct mc_dram *dram;
	struct mc_nvme *nvme; /* NULL = no tier */
	uint8_t *zeros;       /* MC_BLOCK_SIZE, read-only */
	struct mc_mutex lock;
	struct mc_cond wake;        /* workers */
	struct mc_cond tick;        /* the maintenance thread */
	struct mc_cond left;        /* a file has left the table */
	struct mc_cond verify_more; /* the verifier */
	struct mc_mutex pin_lock;   /* before lock: one change of pins at a time */
	struct mc_mutex event_lock; /* a leaf: guards limits */
	struct mc_event_limit {
		const char *event; /* a literal; NULL: not used yet */
		uint64_t next_ns;  /* no line before */
		uint64_t suppressed;
	} limits[16];
	/* All below guarded by lock. */
	struct mc_policy *dram_policy;
	struct mc_policy *nvme_policy;
	struct mc_file **hash; /* owned */
	size_t hash_size;      /* power of two */
	size_t n_files;
	struct mc_queue ready;  /* completions */
	struct mc_queue demand; /* jobs somebody waits for */
	struct mc_queue prefetch;
	struct mc_queue derive;      /* jobs that synthesise a block from other files' blocks */
	struct mc_queue no_room;     /* jobs waiting for memory */
	struct mc_queue behind_todo; /* pairs whose blocks found the backlog full */
	struct mc_queue sink_wait;   /* write-behinds that need room in NVMe; see store-sink.c */
	struct mc_queue idle;        /* files whose images may be closed, the oldest first */
	struct mc_queue verify;      /* NVMe images to read through, for the verifier */
	uint64_t verify_blocks;      /* of the images that ever were on it */
	bool verifying;              /* one was taken off and is being read */
	struct mc_queue mending;     /* files with damaged blocks that a client reads; references */
	struct mc_queue mapped;      /* files closed and still reached by a client; references */
	uint64_t mend_ns;            /* no try to mend before */
	unsigned mends;              /* threads that read to mend */
	unsigned sleeping;           /* workers with nothing to do */
	unsigned in_flight;          /* jobs started and not finished, but for: */
	unsigned gathering; /* jobs of derived files, which wait for jobs of the other kind */
	struct mc_seen seen[MC_SEEN];
	struct mc_buffer_link *buffers; /* that nobody uses; owned */
	unsigned n_buffers;
	unsigned turns;         /* left to give; see T3 */
	unsigned behind_blocks; /* blocks on their way to NVMe */
	unsigned sinking;       /* from there to the device, each with a buffer */
	struct mc_sink *sinks;  /* these; store-sink.c's */
	uint64_t sink_ns;       /* when the last of them ended, or the first began */
	uint64_t kept_bytes[2]; /* of files that are pinned or have passthrough openers, whole */
	uint64_t pinned_bytes;  /* of pinned files, whole */
	bool stopping;
	struct mc_store_stats st;
	atomic_uint posting; /* threads about to signal wake, without the lock */
	/* Set at open. */
	unsigned max_in_flight, max_gathering, max_prefetch, max_window, max_behind, max_idle,
		max_sinking;
	uint64_t capacity[2]; /* bytes, by enum mc_tier */
	unsigned n_workers;
	pthread_t threads[MC_MAX_WORKERS + 2]; /* the keeper, the verifier, workers */
	unsigned n_threads;
};

/* Whether there is a tier between DRAM and the remote. */
static inline bool mc_store_has_lower(const struct mc_store *s)
{
	return s->nvme != NULL || s->opts.blocks != NULL;
}

static inline struct mc_pair *mc_pair_of(struct mc_policy_entry *e)
{
	return (struct mc_pair *)((char *)e - offsetof(struct mc_pair, entry));
}

static inline struct mc_run *mc_run_of(struct mc_policy_entry *e)
{
	return (struct mc_run *)((char *)e - offsetof(struct mc_run, entry));
}

/* Bytes of the pair as the policy weighs them. */
static inline uint64_t mc_pair_weight(const struct mc_pair *p)
{
	uint64_t left = p->file->id.size - ((uint64_t)p->index << MC_PAIR_SHIFT);

	return left < UINT64_C(1) << MC_PAIR_SHIFT ? left : UINT64_C(1) << MC_PAIR_SHIFT;
}

/* store.c */
void mc_queue_push(struct mc_queue *q, struct mc_work *w);
void mc_queue_take(struct mc_queue *q, struct mc_work *w);
/* Hands a completion to a worker. */
void mc_store_post(struct mc_store *s, struct mc_work *w) MC_EXCLUDES(s->lock);
/* Wakes a sleeping worker when something may start: after each change that may have made it so. */
void mc_store_wake_locked(struct mc_store *s) MC_REQUIRES(s->lock);
/* How long a device may take: then there is time for the remote. */
uint64_t mc_store_patience_ns(const struct mc_store *s);
/* Lets jobs that wait for memory try again. */
void mc_store_room_locked(struct mc_store *s) MC_REQUIRES(s->lock);

/* store-event.c */
/* At most one line a second for each event (a literal); the next one says how many were left out.
 */
void mc_store_event(struct mc_store *s, const char *event, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The same about a file on NVMe, or on the device where it is in its place. */
void mc_event_nvme(struct mc_store *s, const struct mc_file *f, const char *event, const char *fmt,
	...) __attribute__((format(printf, 4, 5)));
/* The same about one on the device. */
void mc_event_device(struct mc_store *s, const struct mc_file *f, const char *event,
	const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* A block that the remote did not give well; object NULL: none is known. */
void mc_event_remote(
	struct mc_store *s, const struct mc_file *f, uint64_t block, const char *object, int res);

/* store-file.c */
int mc_file_adopt_dram(struct mc_store *s, const struct mc_file_id *id);
int mc_file_adopt_nvme(struct mc_store *s, const struct mc_file_id *id);
struct mc_file *mc_file_find_locked(struct mc_store *s, const struct mc_file_id *id)
	MC_REQUIRES(s->lock); /* NULL: unknown, or leaving */
/* The file of that identity, made when missing; the reference is the caller's. NULL: no memory. */
struct mc_file *mc_file_make(struct mc_store *s, const struct mc_file_id *id);
/* The pair or run of a block, made when missing; NULL: no memory. */
struct mc_pair *mc_pair_make_locked(struct mc_store *s, struct mc_file *f, uint64_t block)
	MC_REQUIRES(s->lock);
struct mc_run *mc_run_make_locked(struct mc_store *s, struct mc_file *f, uint64_t block)
	MC_REQUIRES(s->lock);
void mc_pair_free_locked(struct mc_store *s, struct mc_pair *p) MC_REQUIRES(s->lock);
void mc_run_free_locked(struct mc_store *s, struct mc_run *r) MC_REQUIRES(s->lock);
static inline struct mc_pair *mc_file_pair(const struct mc_file *f, uint64_t block)
{
	return f->pairs[block >> 1];
}
/* The first reference: mc_file_images_open follows before blocks are looked at. */
struct mc_file *mc_file_ref_locked(struct mc_store *s, struct mc_file *f) MC_REQUIRES(s->lock);
bool mc_file_block_is_hole(const struct mc_file *f, uint64_t block);
/* Frees every file, at close. */
void mc_file_free_all(struct mc_store *s);

/* store-image.c */
/* Opens the file's image, or makes it when create; the caller holds a reference of the file. */
int mc_file_dram_open(struct mc_file *f, bool create) MC_EXCLUDES(f->store->lock);
int mc_file_nvme_open(struct mc_file *f, bool create) MC_EXCLUDES(f->store->lock);
/* Opens what the tiers hold of the file; fails when its VALID blocks cannot be reached. */
int mc_file_images_open(struct mc_file *f) MC_EXCLUDES(f->store->lock);
struct mc_images {
	struct mc_dram_image *dram;
	struct mc_nvme_image *nvme;
};
/* The last reference has gone: *ret is what to close now, of the file idle for longest. */
void mc_file_idle_locked(struct mc_store *s, struct mc_file *f, struct mc_images *ret)
	MC_REQUIRES(s->lock);
void mc_images_close(const struct mc_images *im);
unsigned mc_store_max_idle(void);

/* store-read.c */
/* A block came (or failed): moves the reads that wait for nothing else to *ret_ready. */
void mc_read_block_done_locked(struct mc_store *s, struct mc_pair *p, unsigned i, int res,
	struct mc_file_wait **ret_ready) MC_REQUIRES(s->lock);
/* Has an absent block fetched before anybody asks; false when enough is queued already. */
bool mc_read_fetch_ahead(struct mc_file *f, uint64_t block) MC_EXCLUDES(f->store->lock);
/* Goes on with those reads. */
void mc_read_resume(struct mc_file_wait *ready);

/* store-fetch.c */
/* Starts filling an ABSENT block; the file has a source. -ENOMEM. */
int mc_fetch_block_locked(struct mc_store *s, struct mc_file *f, uint64_t block, bool prefetch,
	uint64_t deadline_ns) MC_REQUIRES(s->lock);
/* A reader waits for a block that was queued as prefetch. */
void mc_fetch_urgent_locked(struct mc_job *job, uint64_t deadline_ns);
/* What a reader is told: lateness, the end and limits of ours as they are, all else as -EIO. */
static inline int mc_read_error(int r)
{
	return r == -ETIMEDOUT || r == -ESHUTDOWN || r == -ENOMEM || r == -EMFILE || r == -ENFILE
		? r
		: -EIO;
}

/* store-pin.c: reads the pins of an earlier daemon; without NVMe there are none. */
int mc_pins_load(struct mc_store *s);
/* What is kept in a tier leaves a quarter of it for the blocks of other files. */
static inline uint64_t mc_keep_limit(const struct mc_store *s, enum mc_tier tier)
{
	return s->capacity[tier] / 4 * 3;
}
/* Pins keep a tier's blocks while there is room for the others. */
static inline bool mc_pin_holds(const struct mc_file *f, enum mc_tier tier)
{
	return f->pinned && f->store->kept_bytes[tier] <= mc_keep_limit(f->store, tier);
}

/* store-evict.c */
/* The run of NVMe that has the block stays until it is unpinned; NULL: there is none, or it goes.
 */
struct mc_run *mc_run_pin(struct mc_file *f, uint64_t block);
void mc_run_unpin(struct mc_store *s, struct mc_run *run);
/* EVICTING (T5), then gone: bytes freed, or -EAGAIN: a client holds the image. The caller has seen
 * that the pair may leave, has a reference of the file, and its image is open. */
void mc_pair_mark_locked(struct mc_store *s, struct mc_pair *p) MC_REQUIRES(s->lock);
int64_t mc_pair_evict(struct mc_pair *p);
/* The same for a run. */
void mc_run_mark_locked(struct mc_store *s, struct mc_run *run) MC_REQUIRES(s->lock);
int64_t mc_run_evict(struct mc_run *run);
/* Frees some DRAM; bytes, or 0 when nothing may leave now. */
uint64_t mc_evict_dram(struct mc_store *s) MC_EXCLUDES(s->lock);
uint64_t mc_evict_nvme(struct mc_store *s) MC_EXCLUDES(s->lock);

/* store-sink.c */
/* [blocks] Sends what a run that is marked holds on to the device, where there is one below. */
void mc_sink_run(struct mc_store *s, const struct mc_run *run) MC_EXCLUDES(s->lock);
/* Whether w has to wait before more leaves NVMe: then it is posted once there is room. */
bool mc_sink_wait(struct mc_store *s, struct mc_work *w) MC_EXCLUDES(s->lock);
/* Whether the block is on that way, or may be in a moment; not when it takes too long. */
bool mc_sink_brings_locked(struct mc_store *s, const struct mc_file *f, uint64_t block)
	MC_REQUIRES(s->lock);
/* Lets those go on that wait for a device which hangs, or all. */
void mc_sink_look_locked(struct mc_store *s, bool all) MC_REQUIRES(s->lock);

/* store-verify.c */
void *mc_verify_main(void *store);

/* store-mend.c */
enum mc_mended { MC_MEND_DROPPED, MC_MEND_REPAIRED, MC_MEND_WAITS };
/* [blocks] The block was found damaged just now; the caller has a reference, the image is open. */
enum mc_mended mc_file_damaged(struct mc_file *f, uint64_t block) MC_EXCLUDES(f->store->lock);
/* [blocks] Another try, with a file from s->mending. */
void mc_mend_again(struct mc_store *s, struct mc_work *w) MC_EXCLUDES(s->lock);
/* The last passthrough opener of the file's image has closed it, but a mapping may go on: then the
 * file is kept, with the source by which it could be mended. look: those that no client reaches any
 * more, or all, are kept no longer. */
void mc_file_keep_mapped(struct mc_file *f) MC_EXCLUDES(f->store->lock);
void mc_mapped_look(struct mc_store *s, bool all) MC_EXCLUDES(s->lock);
/* At close: nothing runs any more. */
void mc_mend_leave(struct mc_store *s) MC_EXCLUDES(s->lock);

/* store-behind.c */
/* Writes a VALID block to NVMe from its DRAM image, later when the backlog is full. */
void mc_behind_start(struct mc_file *f, uint64_t block) MC_EXCLUDES(f->store->lock);
/* NVMe has the block no more: a copy in DRAM goes there again, when it leaves at the latest. */
void mc_behind_forget(struct mc_file *f, uint64_t block) MC_EXCLUDES(f->store->lock);
