/* Whether the worker works. For tools/keeper.c. */
#pragma once

struct mc_keeper;

/* Before the first worker. */
void mc_watch_open(struct mc_keeper *k);
/* Another worker begins. */
void mc_watch_begin(struct mc_keeper *k);
/* Until the next look: ms. */
int mc_watch_wait_ms(const struct mc_keeper *k);
/* Looks, if it is time: kills a worker that hangs; a service manager is told that all is well. */
void mc_watch_look(struct mc_keeper *k);
/* The worker has died. Why the mount is to be given up, if workers hang again and again: static
 * text; NULL = it is not. */
const char *mc_watch_judge(struct mc_keeper *k);
