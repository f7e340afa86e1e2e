/*
 * A KV log to which steps are done on two keys, and a model of what the keys may hold if the power
 * goes now: what was acknowledged, and either state of what was not.
 */
#pragma once

#include "tests/io-fault.h"
#include "tests/kv-log-fixture.h"

#define CRASH_SEGMENT 65536u
#define CRASH_CAPACITY (8 * CRASH_SEGMENT)

enum crash_step {
	PUT_A,
	PUT_B,
	RENAME_AB,
	RENAME_BA,
	REMOVE_A,
	REMOVE_B,
	SYNC,
	EVICT_A,
	EVICT_B,
	SEAL,
	RECLAIM,
	RESTART,
	STEPS
};

extern const char *const crash_step_names[STEPS];
extern const char *const crash_keys[2];

/* What the keys may hold after a crash: allowed[a][b]. */
#define CONTENTS 8
struct crash_model {
	unsigned held[2];    /* durable, and in the log's table */
	unsigned evicted[2]; /* by reclaim, perhaps not durably yet: may come back; 0 none */
	unsigned queued[2];  /* put and not yet synced; 0 none */
	unsigned next;       /* content of the next put */
	bool allowed[CONTENTS][CONTENTS];
};

struct crash_log {
	char *dir;
	char *device; /* NULL: the log lies in dir alone */
	bool below;   /* the device lies below dir, else it is instead */
	struct io_fault *fault;
	struct kv_owner owner;
	struct mc_kv_log *log;
	struct crash_model m;
	struct kv_put *puts[CONTENTS];
	unsigned n_puts;
	bool failed;
	uint64_t before; /* calls before the last step */
	bool idle;       /* the last step changed nothing in the model */
};

/* What a content takes in a segment, bytes. */
uint64_t crash_space(unsigned content);
/* Nothing but what the keys are known to hold, and what is under way. */
void crash_model_allow_only(struct crash_model *m);
/* 0, or -errno of a log that does not come up: then r->log is NULL. */
int crash_log_open(struct crash_log *r);
void crash_log_close(struct crash_log *r);
/* What the log told its owner at the start: a content, 0 = the key is absent. */
unsigned crash_log_told(struct crash_log *r, unsigned k);
/* Does a step and adjusts the model; after one that failed it does nothing. */
void crash_log_step(struct crash_log *r, enum crash_step s);
