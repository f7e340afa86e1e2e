/*
 * A small pool of threads for calls that may block on a backend (the catalogue, free space of the
 * remote). The queue is bounded. Loop threads never call those themselves.
 */
#pragma once

#include <stdint.h>

struct mc_work;

int mc_work_open(unsigned threads, unsigned max_queued, struct mc_work **ret);
/* Runs fn(arg) once on a pool thread. -EBUSY: the queue is full; -ESHUTDOWN: closing. */
int mc_work_submit(struct mc_work *w, void (*fn)(void *arg), void *arg);
/*
 * Takes no more work, runs what is queued, and joins. -ETIMEDOUT when a job still ran at
 * deadline_ns (CLOCK_MONOTONIC): the pool stays allocated and the process has to end. NULL allowed.
 */
int mc_work_close(struct mc_work *w, uint64_t deadline_ns);
