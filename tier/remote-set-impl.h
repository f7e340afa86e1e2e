/*
 * Several remotes as one, from inside. For remote-set*.c only.
 *
 * Who does what: remote-set.c opening and closing;
 * -place the homes of a path; -member whether a member is fenced, how fast it is, its thread;
 * -read reads and their hedges, -choose whom they are asked of; -put puts, removes and the notes
 * they leave; -ask what is asked of one or all; -note the table of notes and their markers on the
 * members; -mend bringing copies to where notes say.
 *
 * Invariants
 * 1. `lock` is a leaf: no member is called, and no callback run, with it held.
 * 2. member.remote goes from NULL to an open remote once, and is closed only by the set's close.
 * 3. A member with a MISSED note for a path is not read from for that path: its copy is older than
 *    what was acknowledged, or was removed.
 * 4. A path is mended only while no put of this process to it is under way, and the other way
 *    round (gates).
 * 5. Bytes of a member arrive in a buffer of the try that asked for them. The caller's buffer is
 *    written once, by the try that won; tries that lost may end long after the caller has gone.
 */
#pragma once

#include "tier/lock.h"
#include "tier/remote-backend.h"
#include "tier/remote-lru.h"
#include "tier/remote-set.h"

#define SET_RING 128 /* latencies remembered of each member */
#define SET_GATES 256
#define SET_STATED 1024
#define SET_TOKENS_FIRST 100             /* four hedges, see remote-set-read.c */
#define SET_NOTES UINT64_C(65536)        /* of one member; more is left to `repair` */
#define SET_MS UINT64_C(1000000)         /* ns */
#define SET_QUICK_MS 1500                /* how long stat and the like wait for a member */
#define SET_SILENT_MIN_NS (500 * SET_MS) /* a member that owes answers is fenced after … */
#define SET_SILENT_MAX_NS (1000 * SET_MS)
#define SET_LATE_NS (1000 * SET_MS)     /* a second member is asked in any case */
#define SET_PROBE_MIN_NS (250 * SET_MS) /* from a fence to the first probe */
#define SET_LOOK_NS (5000 * SET_MS)     /* between two looks for markers of others */

enum set_note_kind {
	SET_CHECK,  /* the copy may be missing or bad */
	SET_MISSED, /* it is missing, or older than what was acknowledged */
	SET_GONE,   /* the object was removed, the copy has to go, too */
};

struct set_note {
	struct mc_lru_node node; /* first member; its key is the path */
	enum set_note_kind kind;
	bool marked;     /* a marker on other members says the same */
	uint64_t due_ns; /* to be tried (again) then */
};

struct set_member {
	struct mc_set *set;
	unsigned index;
	struct mc_set_url url;
	char id[17]; /* hex, from the name: of its markers */
	pthread_t thread;
	bool has_thread;
	struct mc_remote *_Atomic remote; /* owned; NULL until it was reached */
	struct mc_cond wake;              /* its thread's */
	/* What follows: under the set's lock. */
	bool up;      /* not fenced; implies remote != NULL */
	bool tried;   /* its thread tried to open it once */
	int open_res; /* how that ended, and why: */
	struct mc_err open_err;
	unsigned failures;  /* in a row */
	unsigned in_flight; /* reads */
	uint64_t last_ns;   /* when it last answered, or when the oldest read was sent after that */
	uint64_t used_ns;   /* when a read was last sent */
	uint64_t each_ns;   /* what one more read costs: moving average of the time between answers
			       while   there was something to answer; 0 = unknown */
	uint64_t p98_ns;    /* of the last SET_RING of them; 0 = unknown */
	uint32_t ring_us[SET_RING];
	uint64_t n_ring;     /* so far */
	uint64_t backoff_ns; /* between probes */
	uint64_t probe_ns;   /* when to probe next, while fenced */
	uint64_t look_ns;    /* when to look for markers next */
	struct mc_lru notes; /* of struct set_note */
	uint64_t n_fenced, n_reads, n_caught_up;
	bool overflow;     /* notes had no room: nothing but chunks is believed there */
	uint64_t mend_ns;  /* nothing is brought before */
	uint64_t again_ns; /* how long after a failure; 0 = the last one succeeded */
};

/* The members in the order of a path's hash; the first `copies` are its homes. */
struct set_order {
	unsigned copies;
	uint8_t at[MC_SET_MAX];
};

struct set_gate {
	unsigned puts;
	bool mending;
};

struct set_read;

struct mc_set {
	struct mc_backend base;
	struct mc_set_opts opts;
	struct mc_remote_opts remote_opts;
	char *node; /* owned: of remote_opts */
	struct mc_remote_counters *counters;
	uint64_t deadline_ns; /* length of an operation */
	unsigned n;
	unsigned n_homes;           /* members of a weight above 0: the others are being emptied */
	struct set_member *members; /* owned, n */
	pthread_t timer;            /* remote-set-read.c */
	bool has_timer;
	struct mc_mutex lock;
	struct mc_cond change; /* a member went up or down, a note or a gate went */
	struct mc_cond tick;   /* the timer's */
	bool stopping MC_GUARDED_BY(lock);
	uint64_t changes MC_GUARDED_BY(lock);       /* members fenced or back, so far */
	uint64_t tick_ns MC_GUARDED_BY(lock);       /* when the timer wakes by itself */
	struct set_read *reads MC_GUARDED_BY(lock); /* unanswered, doubly linked */
	uint64_t n_live MC_GUARDED_BY(lock);        /* struct set_read that are not freed */
	uint64_t n_hedges MC_GUARDED_BY(lock);
	unsigned hedge_tokens MC_GUARDED_BY(lock); /* 25 are a hedge */
	struct set_gate gates[SET_GATES] MC_GUARDED_BY(lock);
	struct mc_cond gate MC_GUARDED_BY(lock);
	void *spare[64] MC_GUARDED_BY(lock); /* owned buffers of 1 MiB */
	unsigned n_spare MC_GUARDED_BY(lock);
	/* Who answered the stat of a path last (index + 1), by hash: a guard of its answer fits
	 * there. */
	_Atomic uint8_t stated[SET_STATED];
};

static inline unsigned set_bit(const struct set_member *m)
{
	return 1u << m->index;
}

static inline _Atomic uint8_t *set_stated(struct mc_set *s, const char *path)
{
	return &s->stated[mc_lru_hash(path, __builtin_strlen(path)) % SET_STATED];
}

/* ---- remote-set.c */
/* The set behind the door, or NULL. */
struct mc_set *set_of(struct mc_remote *r);

/* ---- remote-set-ask.c */
int set_stat(struct mc_backend *b, const struct mc_remote_call *c, struct mc_remote_attr *ret);
int set_mkdir(struct mc_backend *b, const struct mc_remote_call *c);
int set_space(struct mc_backend *b, const struct mc_remote_call *c, struct mc_remote_space *ret);

/* ---- remote-set-list.c */
typedef int set_each(
	void *ctx, const char *name, const struct mc_remote_attr *attr, unsigned holders);
int set_list(struct mc_backend *b, const struct mc_remote_call *c, mc_remote_each *each, void *ctx);
/* The same with the members that have each name, as bits. */
int set_list_all(struct mc_set *s, const char *path, set_each *each, void *ctx);
/* Whether a was changed after b. */
bool set_is_newer(const struct mc_remote_attr *a, const struct mc_remote_attr *b);

/* ---- remote-set-place.c */
/* Copies wanted of the object (or of the objects below the directory) at path. */
unsigned set_copies(const struct mc_set *s, const char *path);
int set_order(const struct mc_set *s, const char *path, struct set_order *ret);
/* Whether the name says what the content is: such an object is never another one. */
bool set_is_content_named(const char *path);
/* Whether the product keeps copies of it; other files on a member are the users'. */
bool set_is_ours(const char *path);
/* 0 the bytes are what the path asks for, 1 the path does not say, -EBADMSG they are not. */
int set_check_bytes(const char *path, const void *buf, size_t len);

/* ---- remote-set-member.c */
/* Whether an error speaks of the member, not of the object. */
bool set_is_trouble(int res);
/* What a call of a member came to; fences it when it has to. */
void set_outcome(struct set_member *m, int res) MC_EXCLUDES(m->set->lock);
void set_outcome_locked(struct mc_set *s, struct set_member *m, int res) MC_REQUIRES(s->lock);
void set_fence_locked(struct mc_set *s, struct set_member *m) MC_REQUIRES(s->lock);
/* A read was answered with bytes after so long, and so long after the answer before. */
void set_latency_locked(struct mc_set *s, struct set_member *m, uint64_t ns, uint64_t gap_ns)
	MC_REQUIRES(s->lock);
/* Members that are not fenced, as bits. */
unsigned set_up_locked(const struct mc_set *s);
unsigned set_up(struct mc_set *s) MC_EXCLUDES(s->lock);
void *set_member_main(void *arg);

/* ---- remote-set-read.c */
void set_read(struct mc_backend *b, struct mc_remote_read *req);
void *set_timer_main(void *arg);

/* ---- remote-set-put.c */
int set_put(struct mc_backend *b, const struct mc_remote_call *c, const void *buf, size_t len,
	unsigned flags);
int set_unlink(struct mc_backend *b, const struct mc_remote_call *c);
int set_rename(struct mc_backend *b, const struct mc_remote_call *c);
int set_touch(struct mc_backend *b, const struct mc_remote_call *c);
int set_sync(struct mc_backend *b, const struct mc_remote_call *c);

/* ---- remote-set-note.c */
/* The note about the member's copy, or NULL. */
struct set_note *set_note_find_locked(struct mc_set *s, struct set_member *m, const char *path)
	MC_REQUIRES(s->lock);
/* Whether the member's copy must not be read: a note says it is old, or there are too many notes.
 */
bool set_is_stale_locked(struct mc_set *s, struct set_member *m, const char *path)
	MC_REQUIRES(s->lock);
/* Notes something unless something graver is known; past SET_NOTES nothing. */
void set_note_add(struct set_member *m, const char *path, enum set_note_kind kind, bool marked)
	MC_EXCLUDES(m->set->lock);
void set_note_add_locked(struct mc_set *s, struct set_member *m, const char *path,
	enum set_note_kind kind, bool marked) MC_REQUIRES(s->lock);
/* The copy is right: takes the note away, and its markers. */
void set_note_settle(struct set_member *m, const char *path) MC_EXCLUDES(m->set->lock);
void set_notes_done(struct set_member *m);
/* [blocks] Tells other nodes what m missed, beside the copies on `holders`. */
void set_mark(struct set_member *m, const char *path, enum set_note_kind kind, unsigned holders);
/* [blocks] Learns what other members say that m missed. 0, or why one of them could not be asked.
 */
int set_look(struct set_member *m);
/* [blocks] Learns what m says that others missed, before it is up: what both sides of a partition
 * wrote is known as such before any of it is mended. */
void set_look_there(struct set_member *m);

/* ---- remote-set-mend.c */
/* When the next note of m is due; UINT64_MAX: none is, or m is fenced. */
uint64_t set_next_mend_locked(struct mc_set *s, struct set_member *m) MC_REQUIRES(s->lock);
/* [blocks] m has a right copy afterwards: its own, or one of `others`; *ret_bytes is what was
 * written. kind says what is wrong with its own. 1 it was written, 0 it did not have to be, or
 * there is none to be had; -errno. */
int set_bring(struct set_member *m, const char *path, enum set_note_kind kind, unsigned others,
	uint64_t *ret_bytes);
/* [blocks] m has no copy afterwards. */
int set_remove_copy(struct set_member *m, const char *path);
void set_gate_mend(struct mc_set *s, const char *path) MC_EXCLUDES(s->lock);
void set_gate_mend_end(struct mc_set *s, const char *path) MC_EXCLUDES(s->lock);
/* [blocks] Works on one note of m that is due; false: there is none. */
bool set_mend_one(struct set_member *m);
/* [blocks] A verified copy of path from a member in `from`; the caller frees *ret_buf. */
int set_fetch_good(
	struct mc_set *s, const char *path, unsigned from, void **ret_buf, size_t *ret_len);
/* Puts to a path and its mending exclude each other. */
void set_gate_put(struct mc_set *s, const char *path) MC_EXCLUDES(s->lock);
void set_gate_put_end(struct mc_set *s, const char *path) MC_EXCLUDES(s->lock);
