/*
 * The NVMe side of the KV store: objects as records in preallocated segments, those above 8 MiB in
 * several, and the journal that names them. Who calls: kv*.c and block-cache.c.
 * Thread-safe.
 *
 * Invariants: data is durable before its PUT record, the record before the object counts as
 * flushed; a segment's space is reused only after SEG_FREE is durable and under a new generation; a
 * record carries key hash, store uuid, segment id, generation and its own offset, so stale or
 * misdirected blocks are recognised; at most one fdatasync of data per 64 MiB flushed.
 */
#pragma once

#include "tier/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mc_io;
struct mc_kv_log;

#define MC_KV_RECORD_MAX                                                                           \
	(UINT64_C(8) << 20) /* payload bytes of a record; larger objects have several */

/* Where an object lies on NVMe. 16 bytes; segment 0 = nowhere. */
struct mc_kv_loc {
	uint32_t segment;
	uint32_t generation;
	uint64_t off; /* bytes from the segment's start, of the record; objects in parts: bytes of
			 one */
};

/* In the number of a segment: of the lower floor, the device below a directory. */
#define MC_KV_BELOW (UINT32_C(1) << 24)

struct mc_kv_meta {
	const char *key; /* borrowed */
	uint8_t version[16];
	uint64_t size; /* bytes */
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint32_t n_crc;      /* one CRC32C per MiB of payload */
	uint8_t copies;      /* on remotes, as far as is known now */
	const uint32_t *crc; /* borrowed */
};

struct mc_kv_log_opts {
	const char *dir;    /* NULL = the device alone */
	const char *device; /* a formatted block device or file: below dir, or alone; NULL = none */
	const uint8_t *device_uuid; /* of the store it must hold; NULL = any */
	uint64_t capacity;          /* bytes: a hard cap; of a device alone 0 = all of it */
	uint64_t below_capacity;    /* the same of a device below dir; 0 = all of it */
	uint64_t segment_bytes;     /* of dir; 0 = by capacity: 128 MiB, less below 4 GiB. Objects
				       larger than a     quarter of it are split */
	const struct mc_io *io;     /* NULL = the real one */
	unsigned commit_ms;         /* longest wait of an item for others; 0 = 500 */
	unsigned probe_ms;          /* between attempts to end a bypass; 0 = 10,000 */
	unsigned slow_ms;       /* a write or sync that takes longer, beside its bytes, is slow; 0 =
				   4,000 */
	uint64_t journal_bytes; /* least length of the journal's log before a snapshot; 0 = 32 MiB
				 */
	unsigned patience_ms;   /* a segment that cannot be opened for so long at the start, though
				   the disk works, is set aside; 0 = 10,000 */
};

/* A segment that was set aside: it stays as it is, and a later life that can open it has it again.
 */
struct mc_kv_log_aside {
	const char *file;         /* borrowed */
	int error;                /* why it cannot be opened */
	uint64_t objects, copied; /* all of them; those of which a remote has a copy */
};

/*
 * What recovery finds: each live object, directory and pin once (put, then remote if copies are
 * known; removed and renamed are never called, their effect is in what is left). From the log's
 * background thread; the log is usable at once: puts queue, records of [blocks] calls wait for
 * done. Where the owner knows the key already from this life, its own knowledge is newer. done(ctx,
 * res) once, last; res < 0: nothing can be kept here (another format, another store; or what is
 * here could not be read until the log was closed), every put will fail. unread(ctx, res), before
 * that and as often as it happens: what is here could not be read, it is tried again; meanwhile
 * [blocks] calls answer -EIO. unreadable, after put and remote: of an object that lies, perhaps in
 * part, in a segment that was set aside: it is here like others, but reads of it are -EIO.
 */
struct mc_kv_log_replay {
	void (*put)(void *ctx, const struct mc_kv_meta *meta, const struct mc_kv_loc *loc);
	void (*removed)(void *ctx, const char *key, const uint8_t version[16]);
	void (*renamed)(void *ctx, const char *from, const char *to);
	void (*dir)(void *ctx, const char *key, bool made);
	void (*pin)(void *ctx, const char *key, bool pinned);
	void (*remote)(void *ctx, const char *key, const uint8_t version[16], unsigned copies);
	void (*unreadable)(void *ctx, const char *key, const uint8_t version[16]);
	void (*aside)(void *ctx, const struct mc_kv_log_aside *what);
	void (*unread)(void *ctx, int res);
	void (*done)(void *ctx, int res);
	void *ctx;
};

int mc_kv_log_open(const struct mc_kv_log_opts *opts, const struct mc_kv_log_replay *replay,
	struct mc_kv_log **ret, struct mc_err *err);
void mc_kv_log_close(struct mc_kv_log *log); /* writes a snapshot */

/*
 * One object to be flushed; the caller owns it and buf until done runs. done(item, 0): durable and
 * journalled at item->loc. -ENOSPC: nothing could be reclaimed; -EIO: also where the tier is
 * bypassed; with a loc all the same where the bytes are durable but the journal fails: it may be
 * found after a crash, and will be once the journal works; -ECANCELED: removed, or a newer version
 * of the key became durable first; -EFBIG. done must not call what [blocks].
 */
struct mc_kv_item {
	struct mc_kv_meta meta;
	const void *buf; /* meta.size bytes */
	bool below;      /* goes to the lower floor at once, if there is one */
	struct mc_kv_loc loc;
	void (*done)(struct mc_kv_item *item, int res);
	void *ctx;
	struct mc_kv_item *next; /* the log's */
};
/* Queues n items; they are packed into large writes together with what else is queued. */
void mc_kv_log_put(struct mc_kv_log *log, struct mc_kv_item *const *items, size_t n);
/* Everything queued is made durable without waiting for more. */
void mc_kv_log_hasten(struct mc_kv_log *log);
/* [blocks] Everything queued durable now. */
int mc_kv_log_sync(struct mc_kv_log *log);

/* One range of an object's payload into buf; aligned or not. Whole MiB blocks that are covered are
 * checked by the caller against meta.crc; record framing is checked here (-EBADMSG, -ESTALE). */
struct mc_kv_log_read {
	struct mc_kv_loc loc;
	uint8_t version[16];
	uint64_t size; /* of the object */
	uint64_t off;
	uint32_t len;
	void *buf;
	void (*done)(struct mc_kv_log_read *r, int res);
	void *ctx;
	void *priv[4];
};
void mc_kv_log_read(struct mc_kv_log *log, struct mc_kv_log_read *r);
/* A read was given up on and its done has not run: the disk is slow until a probe is quick, and is
 * not probed before mc_kv_log_answered says that the read has ended. below: the disk of the lower
 * floor, if there is one. */
void mc_kv_log_hangs(struct mc_kv_log *log, bool below);
void mc_kv_log_answered(struct mc_kv_log *log, bool below);

/* Where the object of this key, version and size lies, and the first of its checksums. -ENOENT. */
int mc_kv_log_find(struct mc_kv_log *log, const char *key, const uint8_t version[16], uint64_t size,
	struct mc_kv_loc *ret, uint32_t *ret_crc);

/* Bytes of the object that lie on the lower floor; *ret_any: whether some of it does. */
uint64_t mc_kv_log_below(struct mc_kv_log *log, const uint8_t version[16],
	const struct mc_kv_loc *loc, uint64_t size, bool *ret_any);

/* The place stays readable, whatever becomes of the record, until it is released: 0, -ESTALE it is
 * gone already, -ENOMEM. All are released before the log is closed. */
int mc_kv_log_hold(struct mc_kv_log *log, const uint8_t version[16], const struct mc_kv_loc *loc);
void mc_kv_log_release(
	struct mc_kv_log *log, const uint8_t version[16], const struct mc_kv_loc *loc);

/*
 * [blocks] Journal records; durable on return, or -EIO, -ENOSPC, -EMFILE: a crash may find either
 * state; -ENOMEM: nothing happened. Where
 * nothing is known of the key they do nothing. A record superseded or removed makes its space dead.
 * remove with loc NULL or nowhere: whatever is held or queued under key goes, older versions too;
 * with a loc: only that version. Queued items follow a rename.
 */
int mc_kv_log_remove(struct mc_kv_log *log, const char *key, const uint8_t version[16],
	const struct mc_kv_loc *loc);
int mc_kv_log_rename(struct mc_kv_log *log, const char *from, const char *to);
int mc_kv_log_dir(struct mc_kv_log *log, const char *key, bool made);
int mc_kv_log_pin(struct mc_kv_log *log, const char *key, bool pinned);
int mc_kv_log_remote(
	struct mc_kv_log *log, const char *key, const uint8_t version[16], unsigned copies);
/* The version has another mtime. */
int mc_kv_log_set_mtime(struct mc_kv_log *log, const char *key, const uint8_t version[16],
	int64_t mtime_s, uint32_t mtime_ns);
/* Evicts the object's NVMe copy. -ENOENT: that version does not lie there.
 * The record is durable before the space is
 * reused. */
int mc_kv_log_evict(struct mc_kv_log *log, const char *key, const uint8_t version[16],
	const struct mc_kv_loc *loc);

/*
 * Reclaim asks the owner about each live record of the segment that promises the most room: keep =
 * copy it (the log tells the new place through moved), otherwise it is evicted. To choose the
 * segment it asks about a few records of many: keep must not change what the owner thinks of the
 * object, moved and evicted may. Set once after open.
 */
struct mc_kv_log_owner {
	bool (*keep)(void *ctx, const char *key, const uint8_t version[16]);
	/* The record moved; false: the owner no longer has this version there, the copy is dead. */
	bool (*moved)(void *ctx, const char *key, const uint8_t version[16],
		const struct mc_kv_loc *from, const struct mc_kv_loc *to);
	void (*evicted)(void *ctx, const char *key, const uint8_t version[16],
		const struct mc_kv_loc *from);
	void *ctx;
};
void mc_kv_log_set_owner(struct mc_kv_log *log, const struct mc_kv_log_owner *owner);

struct mc_kv_log_stats {
	uint64_t capacity, used, live; /* bytes; live: of both floors */
	struct {
		uint64_t capacity, used, live; /* bytes; capacity 0: there is no lower floor */
		bool bypassed;                 /* nothing goes there until a probe succeeds */
		bool slow;                     /* it does not answer: likewise */
	} below;
	uint64_t written;     /* bytes to data files, reclaim included */
	uint64_t put_bytes;   /* payload bytes asked to be put */
	uint64_t syncs;       /* fdatasync on data files */
	uint64_t reclaimed;   /* segments */
	uint64_t bad;         /* records that did not verify */
	uint64_t objects;     /* held here */
	uint64_t parts;       /* of large ones, also of those gone that somebody reads */
	uint64_t unreadable;  /* of the objects: in segments that were set aside */
	uint64_t index_bytes; /* memory, estimated */
	uint64_t errors;      /* failed I/Os */
	bool bypassed;        /* error budget spent: puts fail until a probe succeeds */
	bool slow;            /* latency budget spent, until a probe is quick */
	bool recovering;
	uint64_t recovered_percent; /* half of it is the journal, half what is told; 100 at the end
				     */
};
void mc_kv_log_stats(struct mc_kv_log *log, struct mc_kv_log_stats *ret);

/* [blocks] For tests and the administrator: the open segments are sealed; one reclaim of the
 * segment with the lowest live ratio, whatever it is. Both sync first. reclaim: -ENOENT no segment.
 */
int mc_kv_log_seal(struct mc_kv_log *log);
int mc_kv_log_reclaim(struct mc_kv_log *log);
