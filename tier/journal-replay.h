/* Replay: the generation in force and the records of its snapshot and log. The journal's. */
#pragma once

#include "tier/error.h"

struct mc_journal_opts;
struct mc_journal_place;
struct mc_journal_super;

/* Fills super and passes every record to opts; super->generation is 0 where there is none. Adds to
 * *damaged for each thing that is missing or not whole. 0 or -errno, also of mc_journal_super_read
 * and the records' receiver. */
int mc_journal_replay(const struct mc_journal_opts *opts, const struct mc_journal_place *place,
	struct mc_journal_super *super, unsigned *damaged, struct mc_err *err);
