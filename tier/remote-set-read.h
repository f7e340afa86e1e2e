/* Reads of a set from inside: shared by remote-set-choose.c (whom to ask, and when a second one)
 * and remote-set-read.c. */
#pragma once

#include "tier/remote-set-impl.h"

#define SET_FOREVER UINT64_MAX

struct set_try {
	struct mc_remote_read req; /* at the member */
	struct set_read *g;
	struct set_member *m;
	uint64_t sent_ns;
};

struct set_read {
	struct mc_set *s;
	struct mc_remote_read *outer; /* NULL once answered */
	struct set_read *prev, *next; /* in s->reads */
	struct set_order order;
	uint64_t deadline_ns;
	uint64_t hedge_ns; /* when another member is asked if none has answered */
	uint64_t sent_ns;  /* of the try sent last */
	unsigned tried;    /* members, bits; those to be avoided too */
	unsigned pending;  /* tries under way */
	unsigned avoid;    /* gave wrong bytes to the caller earlier */
	unsigned missing;  /* answered -ENOENT */
	unsigned stale;    /* answered -ESTALE */
	int trouble;       /* the last error of another kind */
	unsigned refs;
	uint64_t seen; /* s->changes, when it was last looked at for that */
	char *path;    /* into the memory behind the tries */
	struct set_try tries[];
};

/* The member to ask next, or NULL: nobody now. second: while another one works on it. */
struct set_member *set_choose_locked(struct mc_set *s, struct set_read *g, bool second)
	MC_REQUIRES(s->lock);
/* How long after it was sent a read may be asked of a second member, and is in any case. ns */
uint64_t set_hedge_after_locked(const struct mc_set *s);
uint64_t set_late_after_locked(const struct mc_set *s);
