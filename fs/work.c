/*
 * The pool for calls that block.
 *
 * Invariants: 1. n ≤ cap jobs lie in the ring from head on. 2. Every submitted job runs exactly
 * once.
 */
#include "fs/work.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "tier/lock.h"

struct job {
	void (*fn)(void *arg);
	void *arg;
};

struct mc_work {
	struct mc_mutex lock;
	struct mc_cond more;  /* a job was queued, or closing */
	struct mc_cond ended; /* a thread ended */
	struct job *ring;
	unsigned cap, head, n;
	bool closing;
	unsigned alive; /* threads that have not ended */
	pthread_t *threads;
	unsigned n_threads;
};

static void *work_main(void *arg)
{
	struct mc_work *w = arg;

	pthread_setname_np(pthread_self(), "mc-names");
	mc_mutex_lock(&w->lock);
	while (w->n > 0 || !w->closing) {
		struct job j;

		if (w->n == 0) {
			mc_cond_wait(&w->more, &w->lock);
			continue;
		}
		j = w->ring[w->head];
		w->head = (w->head + 1) % w->cap;
		w->n--;
		mc_mutex_unlock(&w->lock);
		j.fn(j.arg);
		mc_mutex_lock(&w->lock);
	}
	w->alive--;
	mc_cond_broadcast(&w->ended);
	mc_mutex_unlock(&w->lock);
	return NULL;
}

int mc_work_open(unsigned threads, unsigned max_queued, struct mc_work **ret)
{
	struct mc_work *w = calloc(1, sizeof(*w));
	int r = 0;

	if (w == NULL)
		return -ENOMEM;
	mc_mutex_init(&w->lock);
	mc_cond_init(&w->more);
	mc_cond_init(&w->ended);
	w->cap = max_queued;
	w->ring = calloc(max_queued, sizeof(*w->ring));
	w->threads = calloc(threads, sizeof(*w->threads));
	if (w->ring == NULL || w->threads == NULL)
		r = -ENOMEM;
	while (r == 0 && w->n_threads < threads) {
		mc_mutex_lock(&w->lock);
		w->alive++;
		mc_mutex_unlock(&w->lock);
		r = -pthread_create(&w->threads[w->n_threads], NULL, work_main, w);
		if (r == 0) {
			w->n_threads++;
		} else {
			mc_mutex_lock(&w->lock);
			w->alive--;
			mc_mutex_unlock(&w->lock);
		}
	}
	if (r < 0) {
		mc_work_close(w, UINT64_MAX);
		return r;
	}
	*ret = w;
	return 0;
}

int mc_work_submit(struct mc_work *w, void (*fn)(void *arg), void *arg)
{
	int r = 0;

	mc_mutex_lock(&w->lock);
	if (w->closing) {
		r = -ESHUTDOWN;
	} else if (w->n == w->cap) {
		r = -EBUSY;
	} else {
		w->ring[(w->head + w->n++) % w->cap] = (struct job){.fn = fn, .arg = arg};
		mc_cond_signal(&w->more);
	}
	mc_mutex_unlock(&w->lock);
	return r;
}

int mc_work_close(struct mc_work *w, uint64_t deadline_ns)
{
	int r = 0;

	if (w == NULL)
		return 0;
	mc_mutex_lock(&w->lock);
	w->closing = true;
	mc_cond_broadcast(&w->more);
	while (w->alive > 0 && r == 0)
		r = mc_cond_wait_until(&w->ended, &w->lock, deadline_ns);
	r = w->alive > 0 ? -ETIMEDOUT : 0;
	mc_mutex_unlock(&w->lock);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < w->n_threads; i++)
		pthread_join(w->threads[i], NULL);
	mc_cond_done(&w->more);
	mc_cond_done(&w->ended);
	mc_mutex_done(&w->lock);
	free(w->ring);
	free(w->threads);
	free(w);
	return 0;
}
