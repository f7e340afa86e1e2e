/*
 * To whom memory counts that a client takes by itself, writing past us: to its memory cgroup, and
 * to those that are above it. What is above the daemon too would count there in any case; any other
 * limit may end the client. Thread-safe.
 */
#pragma once

#include <sys/types.h>

struct mc_charges;

/* root is put before /proc and /sys (for tests), borrowed; "" otherwise. 0 or -ENOMEM. */
int mc_charges_open(const char *root, struct mc_charges **ret);
void mc_charges_close(struct mc_charges *c); /* NULL allowed */

enum mc_charge {
	MC_CHARGE_FREE,    /* no limit but the daemon's own */
	MC_CHARGE_LIMITED, /* there is one, or the machine overcommits nothing */
	MC_CHARGE_UNKNOWN, /* the task cannot be seen, or its groups */
};

/* Of the task tid, as the daemon sees it (0: it does not). A limit that was set or lifted within
 * the last second may not be seen yet. */
enum mc_charge mc_charges_of(struct mc_charges *c, pid_t tid);
