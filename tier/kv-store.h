/*
 * Where a KV log lies: segments of one size by number, and a journal. Two kinds: files in a
 * directory (kv-store-files.c) and extents of a device (kv-store-device.c). What is in a segment or
 * a journal is the log's business. Included by kv-log*.c and kv-store*.c only.
 *
 * Calls may block. make, remove and find are serialised by the log; a place may be read and written
 * by anybody until it is removed.
 */
#pragma once

#include "tier/dir-id.h"
#include "tier/error.h"

#include <stdbool.h>
#include <stdint.h>

struct mc_io;
struct mc_journal_opts;
struct mc_kv_store;

/* The segment is [at, at + segment_bytes) of fd, which is the store's. fd -1: nowhere. */
struct mc_kv_place {
	int fd;
	uint64_t at; /* bytes */
};

/* A segment that may be there. */
struct mc_kv_found {
	uint32_t id;
	int error; /* it is there and cannot be opened: nowhere */
	struct mc_kv_place place;
	bool whole; /* it has segment_bytes */
};

struct mc_kv_store_ops {
	int (*make)(struct mc_kv_store *s, uint32_t id, struct mc_kv_place *ret);
	int (*remove)(struct mc_kv_store *s, uint32_t id, const struct mc_kv_place *p);
	void (*leave)(struct mc_kv_store *s, const struct mc_kv_place *p);
	int (*sync)(struct mc_kv_store *s, const struct mc_kv_place *p, bool made);
	void (*discard)(struct mc_kv_store *s, const struct mc_kv_place *p);
	int (*find)(struct mc_kv_store *s, int (*each)(void *ctx, const struct mc_kv_found *f),
		void *ctx);
	int (*probe)(struct mc_kv_store *s);
	int (*bind)(struct mc_kv_store *s, const uint8_t uuid[16]);
	void (*close)(struct mc_kv_store *s);
};

struct mc_kv_store {
	const struct mc_kv_store_ops *ops;
	const struct mc_io *io; /* borrowed */
	char *name;             /* owned: the directory or the device, for messages */
	uint8_t uuid[16];
	uint8_t bound[16];      /* of a directory: uuid of the device below it; of a device: of the
				   directory above it; zeros: none */
	bool used;              /* of a device: it has had a journal of its own */
	uint64_t segment_bytes; /* a multiple of 4096 */
	uint64_t capacity; /* bytes there is room for in segments; UINT64_MAX: not its business */
	bool direct;       /* O_DIRECT: transfers are aligned to 4096 */
	const char *journal_dir;            /* owned by the kind; NULL: in the area */
	uint64_t journal_at, journal_bytes; /* of journal_fd */
	int journal_fd;
	struct mc_shared_sync *journal_shared; /* owned by the kind; NULL: the journal's alone */
	/* Given: nobody owns these bytes of path; otherwise such a file is removed. */
	void (*spare)(void *ctx, const char *path, uint64_t bytes);
	void *spare_ctx;
};

/* Opens or makes the directory and takes its lock (-EBUSY, its holder in err). segment_bytes: of
 * new segments. */
int mc_kv_store_files_open(const char *dir, const struct mc_io *io, uint64_t segment_bytes,
	struct mc_kv_store **ret, struct mc_err *err);
/*
 * The same for a check, by somebody who has the lock: nothing is made or removed, segment_bytes is
 * that of most of what lies there, uuid is the caller's to fill in. write: of what is there.
 */
int mc_kv_store_files_look(
	const char *dir, const struct mc_io *io, bool write, struct mc_kv_store **ret);
/* What names the store of a directory. Borrowed from s. */
struct mc_dir_id mc_kv_store_files_id(const struct mc_kv_store *s);
/* Our folders, durable before anything is put in them. */
int mc_kv_store_files_layout(const struct mc_kv_store *s);
/* Whether they are bound to each other, or both to nobody; lower NULL: to nobody. -ESTALE, err says
 * to whom. Writes nothing. */
int mc_kv_store_together(
	const struct mc_kv_store *upper, const struct mc_kv_store *lower, struct mc_err *err);
bool mc_kv_store_is_bound(const struct mc_kv_store *s);
/* A device, or a file, that was formatted (block-super.h). uuid: of the store it must be, NULL =
 * any; -ESTALE else. */
int mc_kv_store_device_open(const char *path, const struct mc_io *io, const uint8_t *uuid,
	struct mc_kv_store **ret, struct mc_err *err);
/* The same for a check: nothing is written, *ret_bad superblocks of two are damaged. */
int mc_kv_store_device_look(const char *path, const struct mc_io *io, unsigned *ret_bad,
	struct mc_kv_store **ret, struct mc_err *err);
/* Writes the damaged superblock again. */
int mc_kv_store_device_mend(struct mc_kv_store *s);
/*
 * Whether the log that lies there is the one of these two floors, or of upper alone: lower NULL. A
 * directory and a device that know nobody are bound to each other for good, durably. -ESTALE: they
 * belong to others; -EEXIST: the device has a log of its own.
 */
int mc_kv_store_bind(struct mc_kv_store *upper, struct mc_kv_store *lower, struct mc_err *err);
/* NULL allowed. No place is in use any more. */
void mc_kv_store_close(struct mc_kv_store *s);

/* Space for a segment that is not there, content undefined. -ENOSPC. */
int mc_kv_store_make(struct mc_kv_store *s, uint32_t id, struct mc_kv_place *ret);
/* Gives it back, whatever it returns. */
int mc_kv_store_remove(struct mc_kv_store *s, uint32_t id, const struct mc_kv_place *p);
/* The segment stays, its place is not used any more. */
void mc_kv_store_leave(struct mc_kv_store *s, const struct mc_kv_place *p);
/* What was written to it so far is durable; made: it was made since the last sync. */
int mc_kv_store_sync(struct mc_kv_store *s, const struct mc_kv_place *p, bool made);
/* Its content is of no use any more. */
void mc_kv_store_discard(struct mc_kv_store *s, const struct mc_kv_place *p);
/* Once, at the start, before any make: the segments that may be there. each answers 1 keep it, 0
 * nothing is known of it, or an error, which ends the walk. */
int mc_kv_store_find(
	struct mc_kv_store *s, int (*each)(void *ctx, const struct mc_kv_found *f), void *ctx);
/* Fills io, uuid and place of the journal. */
void mc_kv_store_journal(const struct mc_kv_store *s, struct mc_journal_opts *ret);
/* mc_disk_probe of the device. */
int mc_kv_store_probe(struct mc_kv_store *s);

/* Of a store with so much room: a part of a small one, so that there are segments to choose from.
 */
uint64_t mc_kv_store_segment_bytes(uint64_t capacity);
