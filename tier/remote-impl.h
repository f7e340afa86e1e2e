/* The state of the door to a remote. For remote.c and remote-call.c only. */
#pragma once

#include "tier/lock.h"
#include "tier/remote-backend.h"

struct mc_remote {
	struct mc_backend *b;                /* owned */
	char *url;                           /* owned */
	struct mc_remote_counters *counters; /* owned */
	_Atomic uint64_t deadline_ns;        /* length of one operation */
	_Atomic uint64_t quick_ns;           /* of one that moves no data */
	struct mc_mutex lock;
	struct mc_cond idle;
	uint64_t active MC_GUARDED_BY(lock);
	bool closing MC_GUARDED_BY(lock);
	_Atomic uint64_t bytes_read, bytes_written, errors, in_flight;
};

/* An operation begins: 0, or -ESHUTDOWN and nothing to leave. */
int mc_remote_enter(struct mc_remote *r) MC_EXCLUDES(r->lock);
/* It is over; r may be freed now. */
void mc_remote_leave(struct mc_remote *r) MC_EXCLUDES(r->lock);
