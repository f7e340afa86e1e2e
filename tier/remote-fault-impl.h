/* The state of a remote that misbehaves on order. For remote-fault.c and remote-fault-read.c only.
 */
#pragma once

#include "tier/lock.h"
#include "tier/remote-backend.h"
#include "tier/remote-fault.h"

#define FAULT_RULES 16
#define FAULT_FOREVER UINT64_MAX

struct fault_rule {
	struct mc_fault_rule r;
	uint64_t seen;
};

/* What is to be done to one operation. */
struct fault_verdict {
	bool hit;
	struct mc_fault_rule r;
	uint64_t due_ns;     /* when it may begin; 0 = now, FAULT_FOREVER = at a release */
	uint64_t generation; /* then */
};

struct mc_fault {
	struct mc_backend base;
	struct mc_remote *inner; /* owned */
	struct mc_remote_counters *counters;
	pthread_t thread;
	struct mc_mutex lock;
	struct mc_cond change;
	struct fault_rule rules[FAULT_RULES] MC_GUARDED_BY(lock);
	unsigned n_rules MC_GUARDED_BY(lock);
	uint64_t seen[MC_FAULT_OPS + 1] MC_GUARDED_BY(lock);
	uint64_t hits MC_GUARDED_BY(lock);
	uint64_t generation MC_GUARDED_BY(lock);
	unsigned held MC_GUARDED_BY(lock);
	struct fault_read *held_reads MC_GUARDED_BY(lock);
	bool stopping MC_GUARDED_BY(lock);
};

/* Counts the operation and says what is to be done to it. */
struct fault_verdict mc_fault_judge(struct mc_fault *f, enum mc_fault_op op, const char *path)
	MC_EXCLUDES(f->lock);
/* Whether something held may go on: 1, not yet: 0, or why it ends. */
int mc_fault_ripe_locked(struct mc_fault *f, const struct fault_verdict *v, uint64_t deadline_ns,
	uint64_t now) MC_REQUIRES(f->lock);
/* To bytes that are on their way. */
void mc_fault_damage(const struct fault_verdict *v, void *buf, size_t len);

static inline uint64_t mc_fault_earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ---- remote-fault-read.c */
/* The backend's read. */
void mc_fault_read(struct mc_backend *b, struct mc_remote_read *req);
/* The thread of the reads that are held. */
void *mc_fault_main(void *fault);
