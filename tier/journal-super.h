/* SUPER: which generation of a journal is in force. Two pages written in turn, so that one of them
 * is whole whatever happens. The journal's. */
#pragma once

#include "tier/error.h"

#include <stdint.h>

struct mc_io;

struct mc_journal_super {
	const struct mc_io *io; /* borrowed */
	const char *dir;        /* borrowed */
	uint8_t uuid[16];       /* of the store */
	uint64_t sequence;      /* of the page that counts; 0 = there is none */
	uint64_t generation;    /* snapshot.<n> and log.<n>; 0 = none */
};

/* Fills sequence and generation. 0 also when there is none or none is whole (that adds to
 * *damaged); -EPROTONOSUPPORT another format, -ESTALE another store, -errno. */
int mc_journal_super_read(struct mc_journal_super *s, unsigned *damaged, struct mc_err *err);
/* Names generation, durable on return. On failure either may stand there; the next call writes the
 * same page again. generation itself is the caller's to set. */
int mc_journal_super_write(struct mc_journal_super *s, uint64_t generation);
