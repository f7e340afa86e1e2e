/* The one result of an asynchronous call, for a thread that waits for it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tier/lock.h"

struct mc_future {
	struct mc_mutex lock;
	struct mc_cond over;
	bool is_over MC_GUARDED_BY(lock);
	int64_t res MC_GUARDED_BY(lock);
};

/* Before the call begins. */
static inline void mc_future_init(struct mc_future *f)
{
	*f = (struct mc_future){.lock = MC_MUTEX_INIT};
	mc_cond_init(&f->over);
}

/* By its done, once; what it wrote before is seen by the one who waits. */
static inline void mc_future_set(struct mc_future *f, int64_t res)
{
	mc_mutex_lock(&f->lock);
	f->res = res;
	f->is_over = true;
	mc_cond_signal(&f->over);
	mc_mutex_unlock(&f->lock);
}

/* Waits for it, and ends f. */
static inline int64_t mc_future_wait(struct mc_future *f)
{
	int64_t res;

	mc_mutex_lock(&f->lock);
	while (!f->is_over)
		mc_cond_wait(&f->over, &f->lock);
	res = f->res;
	mc_mutex_unlock(&f->lock);
	mc_cond_done(&f->over);
	mc_mutex_done(&f->lock);
	return res;
}
