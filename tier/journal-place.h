/*
 * Where a journal lies: a directory of its own with SUPER, snapshot.<n> and log.<n>, or an area of
 * a device with room for two of each, which take turns. The journal's.
 *
 * An area: two pages SUPER, two snapshots, two logs. Generation n uses the (n & 1)-th of either:
 * those of generation n - 1 are whole until SUPER has named n. What an earlier life left in an area
 * is told by its generations: the first one of a new journal is drawn at random.
 */
#pragma once

#include "tier/journal.h"

enum mc_journal_kind { MC_JOURNAL_SUPER, MC_JOURNAL_SNAPSHOT, MC_JOURNAL_LOG };

struct mc_journal_place {
	const struct mc_io *io; /* borrowed */
	char *dir;              /* owned; NULL: the area counts */
	struct mc_journal_area area;
};

/* An open file, or what stands for one. */
struct mc_journal_file {
	const struct mc_io *io;
	int fd;                        /* owned by a file of a directory; -1 = none */
	uint64_t at;                   /* bytes of fd: where it begins */
	uint64_t limit;                /* bytes it may have */
	bool owned;                    /* fd */
	struct mc_shared_sync *shared; /* borrowed; NULL: nobody else writes to fd */
	uint64_t seen;                 /* its failures when writes began */
};

/* 0 or -ENOMEM. */
int mc_journal_place_init(struct mc_journal_place *p, const struct mc_journal_opts *o);
void mc_journal_place_done(struct mc_journal_place *p);
/* What errors are said about. */
const char *mc_journal_place_name(const struct mc_journal_place *p);

/* To read, and SUPER to write. generation does not matter for SUPER. -ENOENT, -errno. */
int mc_journal_file_open(const struct mc_journal_place *p, enum mc_journal_kind kind,
	uint64_t generation, struct mc_journal_file *ret);
/* A new one without content; bytes: of a log, reserved. */
int mc_journal_file_make(const struct mc_journal_place *p, enum mc_journal_kind kind,
	uint64_t generation, uint64_t bytes, struct mc_journal_file *ret);
/* Content and name durable, under its proper name. Closes a snapshot whatever happens. */
int mc_journal_file_keep(const struct mc_journal_place *p, enum mc_journal_kind kind,
	uint64_t generation, struct mc_journal_file *f);
/* What was written to it is durable. */
int mc_journal_file_sync(struct mc_journal_file *f);
void mc_journal_file_close(struct mc_journal_file *f);
/* Removes what belongs to other generations. Failures wait for the next time. */
void mc_journal_place_clean(const struct mc_journal_place *p, uint64_t generation);
/* Of the first generation; 0: no randomness. */
uint64_t mc_journal_place_first(const struct mc_journal_place *p);
/* Bytes of snapshot and log of a generation; of an area, their room. */
uint64_t mc_journal_place_bytes(const struct mc_journal_place *p, uint64_t generation);
/* Bytes of log that there is room for. */
uint64_t mc_journal_place_log_bytes(const struct mc_journal_place *p);
