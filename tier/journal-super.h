/* SUPER: which generation of a journal is in force. Two pages written in turn, so that one of them
 * is whole whatever happens. The journal's. */
#pragma once

#include "tier/error.h"

#include <stdint.h>

struct mc_io;
struct mc_journal_place;

struct mc_journal_super {
	const struct mc_journal_place *place; /* borrowed */
	uint8_t uuid[16];                     /* of the store */
	uint64_t sequence;                    /* of the page that counts; 0 = there is none */
	uint64_t generation;                  /* of snapshot and log in force; 0 = none */
	unsigned whole, bad; /* pages read; bad: neither whole nor not yet written */
};

/* Fills sequence, generation, whole and bad. 0 also when there is no file or no page is whole;
 * -EPROTONOSUPPORT another format, -ESTALE another store, -errno. */
int mc_journal_super_read(struct mc_journal_super *s, struct mc_err *err);
/* The newest generation that is complete, if it is newer than s says. 0 or -errno. */
int mc_journal_super_find(struct mc_journal_super *s);
/* The store whose journal this is, from a page that is whole: 0, -ENOENT there is none, -errno. */
int mc_journal_super_uuid(const struct mc_io *io, const char *dir, uint8_t ret_uuid[16]);
/* Names generation, durable on return. On failure either may stand there; the next call writes the
 * same page again. generation itself is the caller's to set. */
int mc_journal_super_write(struct mc_journal_super *s, uint64_t generation);
