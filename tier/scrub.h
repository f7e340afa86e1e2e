/*
 * Scrubbing: everything on NVMe is read and compared with its checksums, pass after pass, by one
 * thread at a bounded rate; what is damaged is dealt with by the stores (store-scrub.h). Where a
 * pass is survives a restart. A pass may be ordered and watched. Thread-safe.
 */
#pragma once

#include "tier/store-scrub.h"

struct mc_scrub;

struct mc_scrub_opts {
	struct mc_store *store; /* these are borrowed until mc_scrub_close returned */
	struct mc_kv *kv;       /* NULL = none */
	const char *dir;        /* where the file "scrub" keeps the place; NULL = nowhere */
	uint64_t rate;          /* bytes a second in the background; 0 = only on order */
	unsigned pause_s;       /* from the begin of a pass to the next one at least; 0 = 3,600 */
};

int mc_scrub_open(const struct mc_scrub_opts *opts, struct mc_scrub **ret);
/* [blocks] Ends a read under way; before the stores are closed. NULL allowed. */
void mc_scrub_close(struct mc_scrub *s);
void mc_scrub_set_rate(struct mc_scrub *s, uint64_t rate);

struct mc_scrub_status {
	uint64_t rate;              /* bytes a second now, 0 = no limit, or off where not running */
	bool running;               /* a pass is under way */
	bool ordered;               /* somebody waits for it */
	uint64_t passes;            /* that ended since the start */
	uint64_t total;             /* bytes there are to read in a pass, about */
	int64_t ended_s;            /* when the last one ended, since the epoch; 0 = never */
	struct mc_scrub_counts now; /* of the pass under way */
	struct mc_scrub_counts last; /* of the last one that ended */
	struct mc_scrub_counts ever; /* since the start; waiting and lost: what is so as far as the
					last look at it went */
};
void mc_scrub_status(struct mc_scrub *s, struct mc_scrub_status *ret);

/*
 * Orders a pass from the beginning at rate (0 = no limit), or joins one that was ordered and is
 * under way. Until leave, which follows in any case; then it goes on at the background's rate.
 */
uint64_t mc_scrub_start(struct mc_scrub *s, uint64_t rate);
/* Waits until that pass has ended (true; last is its result), or until_ns. */
bool mc_scrub_wait(struct mc_scrub *s, uint64_t pass, uint64_t until_ns);
void mc_scrub_leave(struct mc_scrub *s, uint64_t pass);
