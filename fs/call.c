/*
 * Requests whose answer comes later.
 *
 * Invariants: 1. A call is in the list exactly while its req is not NULL. 2. Whoever removes it
 * from the list under the lock answers it, after the lock is released. 3. open counts calls between
 * begin and end. 4. Until begin is done with the request nobody else answers it.
 */
#include "fs/call.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tier/cleanup.h"

/* libfuse may run the interrupt callback inside fuse_req_interrupt_func, holding a lock that lies
 * in the request: answering there would free it. */
static _Thread_local bool arming;
static _Thread_local bool missed;

void mc_calls_init(struct mc_calls *cs, uint64_t deadline_ns)
{
	*cs = (struct mc_calls){.deadline_ns = deadline_ns};
	mc_mutex_init(&cs->lock);
	mc_cond_init(&cs->idle);
}

void mc_calls_done(struct mc_calls *cs)
{
	mc_cond_done(&cs->idle);
	mc_mutex_done(&cs->lock);
}

static fuse_req_t remove_locked(struct mc_calls *cs, struct mc_call *c) MC_REQUIRES(cs->lock)
{
	fuse_req_t req = c->req;

	if (req == NULL)
		return NULL;
	*(c->prev != NULL ? &c->prev->next : &cs->first) = c->next;
	*(c->next != NULL ? &c->next->prev : &cs->last) = c->prev;
	c->prev = NULL;
	c->next = NULL;
	c->req = NULL;
	if (cs->first == NULL)
		mc_cond_broadcast(&cs->idle);
	return req;
}

/* A thread that has SIGKILL pending: every fatal signal becomes that one in each thread of its
 * group. */
static bool task_is_dying(pid_t tid)
{
	char path[64], line[128];
	bool dying = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
	f = fopen(path, "re");
	if (f == NULL)
		return true;
	while (fgets(line, sizeof(line), f) != NULL) {
		if (strncmp(line, "SigPnd:", 7) == 0)
			dying = (strtoull(line + 7, NULL, 16) & 0x100) != 0;
	}
	fclose(f);
	return dying;
}

/*
 * The kernel passes on every signal. Only a dying client is answered early: EINTR from open or read
 * would break programs that use timers or SIGCHLD with SA_RESTART.
 */
static void interrupted(fuse_req_t req, void *data)
{
	struct mc_calls *cs = data;
	struct mc_call *c;

	if (arming) {
		missed = true;
		return;
	}
	if (!task_is_dying(fuse_req_ctx(req)->pid))
		return;
	mc_mutex_lock(&cs->lock);
	for (c = cs->first; c != NULL && c->req != req; c = c->next)
		;
	if (c != NULL && !c->armed) {
		c->late = true;
		c = NULL;
	}
	if (c != NULL)
		remove_locked(cs, c);
	mc_mutex_unlock(&cs->lock);
	if (c != NULL)
		fuse_reply_err(req, EINTR);
}

void mc_call_begin(struct mc_calls *cs, struct mc_call *c, fuse_req_t req)
{
	bool late;

	*c = (struct mc_call){.calls = cs, .req = req, .begun_ns = mc_now_ns()};
	mc_mutex_lock(&cs->lock);
	c->prev = cs->last;
	*(cs->last != NULL ? &cs->last->next : &cs->first) = c;
	cs->last = c;
	cs->open++;
	mc_mutex_unlock(&cs->lock);
	arming = true;
	missed = false;
	fuse_req_interrupt_func(req, interrupted, cs);
	arming = false;
	mc_mutex_lock(&cs->lock);
	c->armed = true;
	late = missed || c->late;
	mc_mutex_unlock(&cs->lock);
	if (late)
		interrupted(req, cs);
}

fuse_req_t mc_call_take(struct mc_call *c)
{
	struct mc_calls *cs = c->calls;
	fuse_req_t req;

	mc_mutex_lock(&cs->lock);
	req = remove_locked(cs, c);
	mc_mutex_unlock(&cs->lock);
	return req;
}

void mc_call_end(struct mc_call *c)
{
	struct mc_calls *cs = c->calls;

	mc_mutex_lock(&cs->lock);
	cs->open--;
	if (cs->open == 0)
		mc_cond_broadcast(&cs->idle);
	mc_mutex_unlock(&cs->lock);
}

unsigned mc_calls_expire(struct mc_calls *cs, uint64_t now_ns)
{
	unsigned n = 0;

	for (;;) {
		fuse_req_t req = NULL;

		mc_mutex_lock(&cs->lock);
		/* One that is being begun by a loop thread comes next time. */
		if (cs->first != NULL && cs->first->armed &&
			(now_ns == UINT64_MAX || cs->first->begun_ns + cs->deadline_ns <= now_ns))
			req = remove_locked(cs, cs->first);
		mc_mutex_unlock(&cs->lock);
		if (req == NULL)
			return n;
		fuse_reply_err(req, EIO);
		atomic_fetch_add_explicit(&cs->expired, 1, memory_order_relaxed);
		n++;
	}
}

uint64_t mc_calls_open(struct mc_calls *cs)
{
	uint64_t n;

	mc_mutex_lock(&cs->lock);
	n = cs->open;
	mc_mutex_unlock(&cs->lock);
	return n;
}

void mc_calls_wait_answered(struct mc_calls *cs, uint64_t until_ns)
{
	int r = 0;

	mc_mutex_lock(&cs->lock);
	while (cs->first != NULL && r == 0)
		r = mc_cond_wait_until(&cs->idle, &cs->lock, until_ns);
	mc_mutex_unlock(&cs->lock);
}

int mc_calls_wait(struct mc_calls *cs, uint64_t deadline_ns)
{
	int r = 0;

	mc_mutex_lock(&cs->lock);
	while (cs->open > 0 && r == 0)
		r = mc_cond_wait_until(&cs->idle, &cs->lock, deadline_ns);
	r = cs->open > 0 ? -ETIMEDOUT : 0;
	mc_mutex_unlock(&cs->lock);
	return r;
}
