/*
 * One sequence of operations on two keys of a KV store, DRAM, log and remote, that ends in a crash;
 * then the store recovers and is held against what had been acknowledged.
 *
 * Two kinds of crash. Power: what was not synced is lost in part, and DRAM is. Kill: the process
 * ends right after a call, what it wrote stays; DRAM stays as well, or not.
 *
 * I1 an object that is there is whole. I2 what was acknowledged durable is there, with DRAM all
 * that was acknowledged. I3 what was removed or renamed away is not, see kv-judge.h. I4 used is
 * what the files take, and the store works.
 */
#pragma once

#include "tests/kv-judge.h"

#include <stdatomic.h>

#define KV_SEQUENCE_MAX 3

enum kv_step {
	PUT_A,
	PUT_B,
	RENAME_AB,
	RENAME_BA,
	REMOVE_A,
	REMOVE_B,
	FSYNC_A,
	FSYNC_B,
	FLUSH,
	EVICT_A,
	EVICT_B,
	DROP_A, /* out of NVMe, to the remote first */
	DROP_B,
	SEAL,
	RECLAIM,
	RESTART,
	STEPS
};

enum kv_crash { POWER, KILL, KILL_REBOOT, CRASHES };

/* When objects get a copy on the remote: before a put is acknowledged, or when they leave NVMe. */
enum kv_crash_remote { KV_REMOTE_NEVER, KV_REMOTE_FIRST, KV_REMOTE_LAST, KV_REMOTES };

struct kv_sequence {
	enum kv_step steps[KV_SEQUENCE_MAX];
	unsigned n;
	bool full; /* starts with both keys durable, in a sealed segment */
	enum kv_crash_remote remote;
	enum kv_crash crash;
};

/* What the store's user was told. Shared with the process that is killed. */
struct kv_told {
	struct kv_held held[2];
	struct kv_deed open; /* not answered */
	bool has_open;
	uint32_t next;          /* content of the next put */
	uint64_t before, calls; /* changing calls before the last step, and in all */
	_Atomic uint64_t call;
	uint64_t at; /* the process ends after this call; 0 = never */
	bool idle;   /* the last step changed nothing */
};

extern const char *const kv_crash_names[CRASHES];

/* MC_SEED, or 1. */
unsigned kv_crash_seed(void);
/* Plays and checks the sequence with a crash after changing call at, 0 = at its end. *t: shared
 * memory, filled anew. */
void kv_crash_explore(const struct kv_sequence *s, uint64_t at, struct kv_told *t);
