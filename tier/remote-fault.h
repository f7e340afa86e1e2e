/*
 * A remote that wraps another one and misbehaves on order: the same interface, for tests of
 * whatever stands above a remote. Without rules it is transparent.
 */
#pragma once

#include "tier/remote.h"

struct mc_fault; /* the control; lives as long as the remote */

enum mc_fault_op {
	MC_FAULT_READ, /* also those of mc_remote_get, which is a STAT and READs */
	MC_FAULT_STAT,
	MC_FAULT_PUT,
	MC_FAULT_SYNC,
	MC_FAULT_LIST,
	MC_FAULT_MKDIR,
	MC_FAULT_UNLINK,
	MC_FAULT_RENAME,
	MC_FAULT_TOUCH,
	MC_FAULT_SPACE,
	MC_FAULT_OPS, /* how many there are; in a rule: any of them */
};

enum mc_fault_kind {
	MC_FAULT_FAIL,  /* answers error and does nothing: -EIO, -ENOSPC, -ESTALE, … */
	MC_FAULT_LOST,  /* does it, and answers error all the same */
	MC_FAULT_FLIP,  /* READ, PUT: bit `value` (modulo the length) is the other one */
	MC_FAULT_SHORT, /* READ: zeros from byte `value` on; PUT: only that many bytes */
	MC_FAULT_DELAY, /* begins value milliseconds later */
	MC_FAULT_HANG,  /* begins at mc_fault_release; -ETIMEDOUT at its deadline */
};

struct mc_fault_rule {
	enum mc_fault_op op;
	enum mc_fault_kind kind;
	const char *path; /* only paths that contain this; borrowed for ever; NULL = all */
	uint64_t first;   /* from the n-th matching operation after mc_fault_add on; 0 = 1 */
	uint64_t count;   /* how many; 0 = all from there */
	int error;        /* FAIL, LOST: a negative errno */
	uint64_t value;
};

/* inner belongs to *ret from success on and is closed with it. */
int mc_remote_fault_open(
	struct mc_remote *inner, struct mc_fault **ret_control, struct mc_remote **ret);

/* At most 16 rules; of those that match, the first added decides. */
void mc_fault_add(struct mc_fault *f, const struct mc_fault_rule *rule);
/* Takes all rules away; what hangs goes on. */
void mc_fault_clear(struct mc_fault *f);
/* What hangs now goes on; the rules stay. */
void mc_fault_release(struct mc_fault *f);
/* Operations that came in so far (MC_FAULT_OPS: all), and how many of them a rule changed. */
uint64_t mc_fault_seen(struct mc_fault *f, enum mc_fault_op op);
uint64_t mc_fault_hits(struct mc_fault *f);
/* Operations that are held back now by HANG or DELAY; waits until there are at least n. */
void mc_fault_wait_held(struct mc_fault *f, unsigned n);
