/* The one answer of an asynchronous call, for a thread that waits for it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tier/lock.h"

struct mc_answer {
	struct mc_mutex lock;
	struct mc_cond over;
	bool is_over MC_GUARDED_BY(lock);
	int64_t res MC_GUARDED_BY(lock);
};

/* Before the call begins. */
static inline void mc_answer_init(struct mc_answer *a)
{
	*a = (struct mc_answer){.lock = MC_MUTEX_INIT};
	mc_cond_init(&a->over);
}

/* By its done, once. */
static inline void mc_answer_give(struct mc_answer *a, int64_t res)
{
	mc_mutex_lock(&a->lock);
	a->res = res;
	a->is_over = true;
	mc_cond_signal(&a->over);
	mc_mutex_unlock(&a->lock);
}

/* Waits for it, and ends a. */
static inline int64_t mc_answer_wait(struct mc_answer *a)
{
	int64_t res;

	mc_mutex_lock(&a->lock);
	while (!a->is_over)
		mc_cond_wait(&a->over, &a->lock);
	res = a->res;
	mc_mutex_unlock(&a->lock);
	mc_cond_done(&a->over);
	mc_mutex_done(&a->lock);
	return res;
}
