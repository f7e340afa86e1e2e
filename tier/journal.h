/*
 * The journal of a persistent tier: records appended in memory, made durable in groups, replayed at
 * start. It knows framing and durability; what a record means is its user's business.
 *
 * A generation is a snapshot (the whole state as records) and a log (what happened since). SUPER
 * names the current one in two pages written in turn. Log and snapshot consist of 4 KiB pages with
 * CRC, generation and number; a commit starts on a fresh page, so nothing durable is ever
 * rewritten. Reading stops at the first page that is not whole: what was acknowledged stands before
 * it.
 *
 * Failed write or fsync, no memory for a record: the log takes no more (the kernel forgets what it
 * could not write); the next snapshot starts a new generation from memory. Thread-safe but for
 * open, snapshot and close.
 */
#pragma once

#include "tier/error.h"
#include "tier/share.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mc_io;
struct mc_journal;

#define MC_JOURNAL_PAGE 4096        /* bytes */
#define MC_JOURNAL_RECORD_MAX 65536 /* payload bytes */

/* Types of records; a reader refuses what it does not know. Numbers are for ever (docs/FORMAT.md).
 */
enum mc_journal_type {
	MC_JOURNAL_BLOCKS =
		1, /* id, u64 first, u32 n, n × u32 CRC32C: durable blocks of an image */
	MC_JOURNAL_VERIFIED = 2, /* id: all blocks so far were read back and matched */
	MC_JOURNAL_EVICTED = 3,  /* id, u64 first, u64 n: blocks gone */
	MC_JOURNAL_DROP = 4,     /* id: the image gone */
	/* The KV log's; layouts in kv-log-journal.c. */
	MC_JOURNAL_KV_PUT = 16,     /* object and its place */
	MC_JOURNAL_KV_REMOVE = 17,  /* key, version: the object gone */
	MC_JOURNAL_KV_RENAME = 18,  /* from, to, version */
	MC_JOURNAL_KV_MARK = 19,    /* a directory or a pin, made or gone */
	MC_JOURNAL_KV_REMOTE = 20,  /* key, version, copies on remotes */
	MC_JOURNAL_KV_SEGMENT = 21, /* segment, generation: older records in it are dead */
	MC_JOURNAL_KV_PART = 22,    /* part of a large object and its place */
};

/* Bytes of a device, or of a file, in which a journal lies: [at, at + bytes) of fd. */
struct mc_journal_area {
	const char *name; /* borrowed while the journal is open: what errors are said about */
	int fd;           /* borrowed while the journal is open; O_DIRECT allowed */
	uint64_t at;      /* a multiple of MC_JOURNAL_PAGE */
	uint64_t bytes;   /* at least 64 KiB */
	struct mc_shared_sync *shared; /* borrowed: of fd, to which others write; NULL: nobody */
};
/* Room for a snapshot in an area of so many bytes. */
uint64_t mc_journal_area_snapshot_bytes(uint64_t bytes);

struct mc_journal_opts {
	const struct mc_io *io; /* borrowed */
	/* Made by the caller, owned by the journal: strangers in it are removed. NULL: in area. */
	const char *dir;
	struct mc_journal_area area;
	uint8_t uuid[16];   /* of the store; a journal of another one is refused */
	uint64_t max_bytes; /* of the log, then a snapshot is due; 0 = 4 MiB */
	/* Called at open for each record, oldest first. rec is borrowed. Non-zero ends the open:
	 * -EPROTONOSUPPORT for a type unknown, with a text in err. */
	int (*apply)(void *ctx, uint8_t type, const void *rec, size_t len, struct mc_err *err);
	void *ctx;
	/* Called at open, when given, for each place that is not whole, a torn tail among them.
	 * file: below dir. Then the log is read to its end for what lies behind the tail. */
	void (*damaged)(void *ctx, const char *file, const char *what);
	void *damaged_ctx;
	/* Bytes of snapshot and log, and how many were read; of an area, its room. Borrowed during
	 * the open; NULL allowed. */
	struct mc_share *share;
};

/*
 * Replays what is there; changes nothing on disk. -EPROTONOSUPPORT newer format, -ESTALE other
 * store, -errno. *ret_damaged counts places where reading stopped at something other than a torn
 * tail: records are missing. Where SUPER is damaged the newest complete generation is taken.
 * A snapshot is due at once: nothing may be appended before it is written.
 */
int mc_journal_open(const struct mc_journal_opts *opts, struct mc_journal **ret,
	unsigned *ret_damaged, struct mc_err *err);
void mc_journal_close(struct mc_journal *j); /* does not commit. NULL allowed */

/*
 * Takes a copy into the next group. 0, or -ENOMEM: the log takes no more, as after a failed write,
 * so that nothing said later is durable without this. Who made the change before it said so needs
 * to do nothing but commit.
 */
int mc_journal_append(struct mc_journal *j, uint8_t type, const void *rec, size_t len);
/*
 * Everything appended before the call is durable when it returns 0. Callers at the same time share
 * one write and one fdatasync. -errno: what was appended may or may not be found after a crash.
 */
int mc_journal_commit(struct mc_journal *j);
/* False from a failure until the next snapshot: what was appended last may not be found after a
 * crash. */
bool mc_journal_usable(struct mc_journal *j);
/* A snapshot is due: just opened, the log is long, or it failed. */
bool mc_journal_snapshot_due(struct mc_journal *j);
/*
 * Writes the state as a new generation. emit calls mc_journal_snapshot_add for each record and
 * returns 0 or the first error. What was appended before and meanwhile stands at its end and is
 * durable with it: replayed over the state. On failure the old generation stays in force.
 */
int mc_journal_snapshot(
	struct mc_journal *j, int (*emit)(void *ctx, struct mc_journal *j), void *ctx);
int mc_journal_snapshot_add(struct mc_journal *j, uint8_t type, const void *rec, size_t len);
/* A snapshot is due once the log has this many bytes: large states want rarer snapshots. Called
 * by the thread that writes snapshots. */
void mc_journal_set_max(struct mc_journal *j, uint64_t max_bytes);
/* Bytes of log in force, for tests and status. */
uint64_t mc_journal_log_bytes(struct mc_journal *j);
