/*
 * Numbered pieces of work on a few threads.
 *
 * Invariants: 1. next only grows, so an item is begun once; 2. res and err are those of the first
 * failure; -ECANCELED, the failure of an item that waited for another, gives way to that
 * other's; 3. running counts threads that will still take the lock.
 */
#include "manifest/crew.h"

#include "tier/lock.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#define TICK_NS UINT64_C(200000000)

struct state {
	const struct mc_crew *work;
	struct mc_mutex lock;
	struct mc_cond ended; /* running fell to 0 */
	uint64_t next MC_GUARDED_BY(lock);
	unsigned running MC_GUARDED_BY(lock);
	int res MC_GUARDED_BY(lock);
	struct mc_err err MC_GUARDED_BY(lock);
};

struct member {
	struct state *crew;
	unsigned worker;
	pthread_t thread;
};

static bool take(struct state *c, uint64_t *ret_item)
{
	bool taken = false;

	mc_mutex_lock(&c->lock);
	if (c->res == 0 && c->next < c->work->items) {
		*ret_item = c->next++;
		taken = true;
	}
	mc_mutex_unlock(&c->lock);
	return taken;
}

static void fail(struct state *c, int res, const struct mc_err *err)
{
	mc_mutex_lock(&c->lock);
	if (c->res == 0 || c->res == -ECANCELED) {
		c->res = res;
		c->err = *err;
	}
	mc_mutex_unlock(&c->lock);
}

static void *member_main(void *arg)
{
	struct member *m = arg;
	struct state *c = m->crew;
	uint64_t item;

	pthread_setname_np(pthread_self(), "mc-crew");
	while (take(c, &item)) {
		struct mc_err err = {0};
		int r = c->work->run(c->work->ctx, m->worker, item, &err);

		if (r < 0)
			fail(c, r, &err);
	}
	mc_mutex_lock(&c->lock);
	c->running--;
	if (c->running == 0)
		mc_cond_signal(&c->ended);
	mc_mutex_unlock(&c->lock);
	return NULL;
}

static void wait_for_end(struct state *c)
{
	uint64_t next_tick = mc_now_ns() + TICK_NS;

	mc_mutex_lock(&c->lock);
	while (c->running > 0) {
		if (mc_cond_wait_until(&c->ended, &c->lock, next_tick) != ETIMEDOUT)
			continue;
		next_tick = mc_now_ns() + TICK_NS;
		if (c->work->tick == NULL)
			continue;
		mc_mutex_unlock(&c->lock);
		c->work->tick(c->work->ctx);
		mc_mutex_lock(&c->lock);
	}
	mc_mutex_unlock(&c->lock);
}

/* Threads the system refuses are done without, as long as there is one. */
static unsigned start(struct state *c, struct member *members)
{
	unsigned n = 0;

	for (; n < c->work->workers && n < c->work->items; n++) {
		members[n] = (struct member){.crew = c, .worker = n};
		mc_mutex_lock(&c->lock);
		c->running++;
		mc_mutex_unlock(&c->lock);
		if (pthread_create(&members[n].thread, NULL, member_main, &members[n]) == 0)
			continue;
		mc_mutex_lock(&c->lock);
		c->running--;
		mc_mutex_unlock(&c->lock);
		break;
	}
	return n;
}

int mc_crew_run(const struct mc_crew *w, struct mc_err *err)
{
	struct state c = {.work = w};
	struct member *members;
	unsigned n;

	if (w->items == 0)
		return 0;
	members = calloc(w->workers, sizeof(*members));
	if (members == NULL)
		return mc_err_set(err, -ENOMEM, "out of memory");
	mc_mutex_init(&c.lock);
	mc_cond_init(&c.ended);
	n = start(&c, members);
	if (n == 0)
		c.res = mc_err_set(&c.err, -EAGAIN, "the system lets us start no thread");
	wait_for_end(&c);
	for (unsigned i = 0; i < n; i++)
		pthread_join(members[i].thread, NULL);
	free(members);
	mc_cond_done(&c.ended);
	mc_mutex_done(&c.lock);
	return c.res < 0 ? mc_err_set(err, c.res, "%s", c.err.text) : 0;
}
