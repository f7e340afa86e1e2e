/*
 * Open directories and generated files. What FUSE carries around is a number: slot + 1 in the low
 * 32 bits, the slot's generation above, so that a number from an earlier use is recognised.
 * Bounded. Thread-safe.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mc_answer;
struct mc_handles;

/* Exactly one of the two is set. Fixed from add on; reference-counted. */
struct mc_handle {
	_Atomic uint32_t refs;    /* the table's */
	struct mc_answer *answer; /* owned reference: the names of a directory */
	char *text;               /* owned, malloced: a generated file */
	size_t len;               /* bytes of text */
};

/* So many directories may be open: -ENFILE. Of texts so many are kept, and the one opened first
 * goes when there are more: the kernel holds the RELEASE of files back while as many reads wait for
 * a dead remote as it allows at a time. */
#define MC_HANDLES_MAX 65536
#define MC_HANDLE_TEXTS_MAX 256

int mc_handles_open(struct mc_handles **ret);
/* With what is still open. NULL allowed. */
void mc_handles_close(struct mc_handles *t);

/* Takes over what h owns in every case. -ENFILE: too many are open; -ENOMEM. */
int mc_handles_add(struct mc_handles *t, const struct mc_handle *h, uint64_t *ret_id);
/* A reference, for mc_handle_put. NULL: no such handle (any more). */
struct mc_handle *mc_handles_find(struct mc_handles *t, uint64_t id);
void mc_handle_put(struct mc_handle *h); /* NULL allowed */
/* 0 and unknown numbers are allowed. */
void mc_handles_remove(struct mc_handles *t, uint64_t id);
uint64_t mc_handles_count(struct mc_handles *t);
