/*
 * Drafts: files that are being written in layouts/. They live in memory, under a name of their own,
 * until the layout in them is published or they are dropped. Pure bookkeeping, no FUSE, no remote;
 * thread-safe.
 */
#pragma once

#include "tier/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define MC_DRAFTS 16             /* at once; the oldest that nobody has open makes room */
#define MC_DRAFT_NAME_BYTES 256  /* NUL included */
#define MC_DRAFT_ERROR_BYTES 512 /* NUL included */

struct mc_drafts;

struct mc_draft_attr {
	uint64_t size; /* bytes */
	struct timespec mtime;
};

int mc_drafts_open(struct mc_drafts **ret);
void mc_drafts_close(struct mc_drafts *ds); /* NULL allowed */

/* Whether closing a file of that name publishes it: "<layout>.json", not hidden. Others are
 * temporary names, for a rename to follow. */
bool mc_draft_publishes(const char *name);

/* Drafts are known by number, which is never used again. -ESTALE: the draft is gone. */
int mc_draft_find(struct mc_drafts *ds, const char *name, uint32_t *ret); /* -ENOENT */
/* The draft of that name, made when missing, open once more. -EEXIST: excl and there is one;
 * -ENOSPC: too many are open. */
int mc_draft_create(struct mc_drafts *ds, const char *name, bool excl, uint32_t *ret);
int mc_draft_open(struct mc_drafts *ds, uint32_t number, bool truncate);
/* One open less. The last one drops a draft whose name says that it should be a layout by now; true
 * when it was empty, so that no try was made. */
bool mc_draft_release(struct mc_drafts *ds, uint32_t number);

int mc_draft_stat(struct mc_drafts *ds, uint32_t number, struct mc_draft_attr *ret);
/* Bytes read. */
int64_t mc_draft_read(struct mc_drafts *ds, uint32_t number, void *buf, size_t len, uint64_t off);
/* -EFBIG past MC_LAYOUT_MAX_BYTES, -ENOMEM. */
int mc_draft_write(
	struct mc_drafts *ds, uint32_t number, const void *buf, size_t len, uint64_t off);
int mc_draft_truncate(struct mc_drafts *ds, uint32_t number, uint64_t size);

/* What is to be published. */
struct mc_draft_copy {
	char *text; /* owned, len bytes; NULL: nothing is to be published */
	size_t len;
	char name[MC_DRAFT_NAME_BYTES];
	int last; /* with text NULL: what the last try gave; 0 = there was none */
};
/* always: whatever the name, and also what was tried before. -ESTALE, -ENOMEM; -EFBIG after a write
 * that was refused. */
int mc_draft_copy(struct mc_drafts *ds, uint32_t number, bool always, struct mc_draft_copy *ret);
/* How publishing it under name ended. After 0 no draft is found by the name: it is a layout's. */
void mc_draft_settle(
	struct mc_drafts *ds, uint32_t number, const char *name, int res, const char *why);

/* The draft takes the name, from another draft too. */
int mc_draft_rename(struct mc_drafts *ds, uint32_t number, const char *to);
/* The draft of that name has none any more. -ENOENT. */
int mc_draft_unlink(struct mc_drafts *ds, const char *name);

/* The last thing that was refused in layouts/, "" = none yet. */
void mc_drafts_fail(struct mc_drafts *ds, const char *why);
void mc_drafts_error(struct mc_drafts *ds, char out[MC_DRAFT_ERROR_BYTES]);
/* The same of one draft. */
int mc_draft_error(struct mc_drafts *ds, uint32_t number, char out[MC_DRAFT_ERROR_BYTES]);
