/*
 * Requests whose answer comes later. Every request has a deadline; it is answered exactly once: by
 * the one who takes it, by the deadline (EIO), or, when the client is being killed, at once
 * (EINTR).
 */
#pragma once

#include "fs/fuse.h"
#include "tier/lock.h"

#include <stdatomic.h>
#include <stdbool.h>

struct mc_calls {
	struct mc_mutex lock;
	struct mc_cond idle;
	struct mc_call *first, *last; /* unanswered, oldest first, hence by deadline */
	uint64_t open;                /* begun and not ended */
	uint64_t deadline_ns;         /* of each request, from its begin */
	_Atomic uint64_t expired;     /* answered with EIO by their deadline */
};

/* Embedded in what the asynchronous operation carries. */
struct mc_call {
	struct mc_calls *calls;
	struct mc_call *prev, *next;
	fuse_req_t req; /* NULL once answered */
	uint64_t begun_ns;
	bool armed; /* begin is done with req: others may answer it */
	bool late;  /* interrupted before that */
};

void mc_calls_init(struct mc_calls *cs, uint64_t deadline_ns);
void mc_calls_done(struct mc_calls *cs);

/* From now on only the holder of mc_call_take's result may answer req. */
void mc_call_begin(struct mc_calls *cs, struct mc_call *c, fuse_req_t req);
/* The request, for the caller to answer; NULL when it has been answered already. */
fuse_req_t mc_call_take(struct mc_call *c);
/* The operation is over, its memory may go. After mc_call_take. */
void mc_call_end(struct mc_call *c);

/* Answers what began deadline_ns before now with EIO; now_ns = UINT64_MAX: everything. Returns how
 * many. */
unsigned mc_calls_expire(struct mc_calls *cs, uint64_t now_ns);
/* Operations begun and not ended. */
uint64_t mc_calls_open(struct mc_calls *cs);
/* Waits until every request is answered, or until_ns. */
void mc_calls_wait_answered(struct mc_calls *cs, uint64_t until_ns);
/* Waits until every operation has ended: 0, or -ETIMEDOUT at deadline_ns. */
int mc_calls_wait(struct mc_calls *cs, uint64_t deadline_ns);
