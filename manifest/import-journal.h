/*
 * What an import (or a reshard) has finished, kept in a local file so that the next run after a
 * kill reads nothing twice but the chunks that were in work. A note says: this range of this file
 * (recognised by path, size, time and inode) has this SHA-256 and these block checksums. It never
 * says that a chunk is on the remote: whoever uses a note asks there.
 */
#pragma once

#include "tier/digest.h"
#include "tier/error.h"

#include <stdbool.h>

#define MC_CHUNK_BLOCKS 9 /* 1 MiB blocks of the file that a chunk of up to 8 MiB touches */

struct mc_scan_entry;
struct mc_import_journal;

struct mc_import_note {
	uint8_t file[MC_SHA256_SIZE];  /* mc_import_journal_key */
	uint64_t off;                  /* bytes in the file */
	uint32_t len;                  /* bytes */
	uint32_t crc[MC_CHUNK_BLOCKS]; /* CRC32C of the chunk's part of each block it touches */
	uint8_t sha256[MC_SHA256_SIZE];
};

/*
 * Opens or makes the journal of doing work ("import", "reshard") from root to url, in the local
 * state directory (local-state.h). -EBUSY when the same work from there to there is being done.
 */
int mc_import_journal_open(const char *work, const char *url, const char *root,
	struct mc_import_journal **ret, struct mc_err *err);
/* finished: the file is removed, there is nothing to resume. NULL allowed. */
void mc_import_journal_close(struct mc_import_journal *j, bool finished);

/* Calls each for every note in the journals of unfinished imports on this machine until it returns
 * non-zero, which is then returned; -errno when they cannot be read. */
int mc_import_journals_each(int (*each)(void *ctx, const struct mc_import_note *note), void *ctx);

int mc_import_journal_key(const struct mc_scan_entry *e, uint8_t ret[MC_SHA256_SIZE]);
/* The note that an earlier run left about this range, or NULL. Borrowed. */
const struct mc_import_note *mc_import_journal_find(const struct mc_import_journal *j,
	const uint8_t file[MC_SHA256_SIZE], uint64_t off, uint32_t len);
/* Appends; from any thread. Failure costs only the resume, so it is not reported. */
void mc_import_journal_add(struct mc_import_journal *j, const struct mc_import_note *note);
