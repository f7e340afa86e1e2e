/*
 * One member of a set: how fast it is, whether it is fenced, and its thread, which opens it, probes
 * it while it is fenced, looks for what it missed and mends that.
 *
 * 1. up goes from true to false in set_fence_locked only, and from false to true in join only,
 * after the member answered and the markers of others about it were read.
 * 2. A fenced member is probed after 250 ms, then at growing distances of at most a second.
 */
#include "tier/remote-set-impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROBE_MAX_NS (1000 * SET_MS)
#define OPEN_DEADLINE_MS 2000 /* of an attempt to reach a member that is away */
#define FAILURES 3            /* in a row, of those that may be a single object's */

bool set_is_trouble(int res)
{
	switch (res) {
	case -ETIMEDOUT:
	case -EIO:
	case -ENOTCONN:
	case -ECONNRESET:
	case -ECONNREFUSED:
	case -ECONNABORTED:
	case -EHOSTUNREACH:
	case -EHOSTDOWN:
	case -ENETUNREACH:
	case -ENETDOWN:
	case -EPIPE:
	case -ENODEV:
	case -ENXIO:
	case -ESTALE:
		return true;
	default:
		return false;
	}
}

static void tell(const struct set_member *m, const char *event, const char *text)
{
	char line[MC_REMOTE_PATH_MAX + 128];

	if (m->set->opts.event == NULL)
		return;
	snprintf(line, sizeof(line), "url=%s: %s", m->url.url, text);
	m->set->opts.event(m->set->opts.ctx, event, line);
}

/* What mc_remote_stats says. */
static void count_up_locked(struct mc_set *s)
{
	unsigned up = (unsigned)__builtin_popcount(set_up_locked(s));

	atomic_store(&s->counters->up, up);
	atomic_store(&s->counters->down, s->n - up);
}

void set_fence_locked(struct mc_set *s, struct set_member *m)
{
	if (!m->up)
		return;
	m->up = false;
	count_up_locked(s);
	m->n_fenced++;
	if (m->each_ns < SET_LATE_NS)
		m->each_ns = SET_LATE_NS; /* until it has shown better, or time has passed */
	m->probe_ns = mc_now_ns() + m->backoff_ns;
	s->changes++;
	mc_cond_signal(&s->tick);
	mc_cond_broadcast(&s->change);
	mc_cond_signal(&m->wake); /* its thread tells */
}

void set_outcome_locked(struct mc_set *s, struct set_member *m, int res)
{
	m->last_ns = mc_now_ns();
	if (!set_is_trouble(res)) {
		m->failures = 0;
		return;
	}
	m->failures++;
	if (res != -EIO && res != -ESTALE)
		set_fence_locked(s, m);
	else if (m->failures >= FAILURES)
		set_fence_locked(s, m);
}

void set_outcome(struct set_member *m, int res)
{
	struct mc_set *s = m->set;

	mc_mutex_lock(&s->lock);
	set_outcome_locked(s, m, res);
	mc_mutex_unlock(&s->lock);
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

void set_latency_locked(struct mc_set *s, struct set_member *m, uint64_t ns, uint64_t gap_ns)
{
	uint64_t us = ns / 1000;

	m->n_reads++;
	m->backoff_ns = SET_PROBE_MIN_NS;
	m->each_ns = m->each_ns == 0 ? gap_ns : m->each_ns - m->each_ns / 16 + gap_ns / 16;
	m->ring_us[m->n_ring++ % SET_RING] = us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
	if (m->n_ring % (SET_RING / 4) == 0) {
		size_t n = m->n_ring < SET_RING ? (size_t)m->n_ring : SET_RING;
		uint32_t sorted[SET_RING];

		memcpy(sorted, m->ring_us, n * sizeof(*sorted));
		qsort(sorted, n, sizeof(*sorted), by_value);
		m->p98_ns = (uint64_t)sorted[n * 98 / 100] * 1000;
	}
}

unsigned set_up_locked(const struct mc_set *s)
{
	unsigned up = 0;

	for (unsigned i = 0; i < s->n; i++)
		up |= s->members[i].up ? set_bit(&s->members[i]) : 0;
	return up;
}

unsigned set_up(struct mc_set *s)
{
	unsigned up;

	mc_mutex_lock(&s->lock);
	up = set_up_locked(s);
	mc_mutex_unlock(&s->lock);
	return up;
}

/* ---- the member's thread */

/* [blocks] Reaches a member that was never reached. */
static int reach(struct set_member *m, struct mc_err *err)
{
	struct mc_set *s = m->set;
	struct mc_remote_opts opts = s->remote_opts;
	struct mc_remote *r;
	int res;

	opts.aside = true;
	/* Short, so that closing the set does not wait long. */
	if (opts.deadline_ms == 0 || opts.deadline_ms > OPEN_DEADLINE_MS)
		opts.deadline_ms = OPEN_DEADLINE_MS;
	if (s->opts.open != NULL)
		res = s->opts.open(s->opts.ctx, m->url.url, &opts, &r, err);
	else
		res = mc_remote_open(m->url.url, &opts, &r, err);
	if (res < 0)
		return res;
	/* Half, so that a second member can be asked within the deadline of the set. */
	mc_remote_limit(r, s->deadline_ns / 2, SET_QUICK_MS * SET_MS);
	atomic_store(&m->remote, r);
	return 0;
}

/* [blocks] 0 when the member answers. */
static int probe(struct set_member *m)
{
	struct mc_remote *r = atomic_load(&m->remote);
	struct mc_remote_attr attr;
	struct mc_err err = {0};
	int res = r == NULL ? reach(m, &err) : mc_remote_stat(r, "", &attr, &err);

	mc_mutex_lock(&m->set->lock);
	if (res < 0 && !m->tried) {
		m->tried = true;
		m->open_res = res;
		m->open_err = err;
		mc_cond_broadcast(&m->set->change);
	}
	mc_mutex_unlock(&m->set->lock);
	return res;
}

/* The member answers: what it missed is known before anything is read from it. */
static void join(struct set_member *m)
{
	struct mc_set *s = m->set;

	set_look(m);
	set_look_there(m);
	mc_mutex_lock(&s->lock);
	m->up = true;
	atomic_fetch_add(&s->counters->reconnects, m->n_fenced > 0);
	count_up_locked(s);
	m->tried = true;
	m->failures = 0;
	m->last_ns = mc_now_ns();
	m->look_ns = m->last_ns + SET_LOOK_NS;
	for (unsigned i = 0; i < s->n; i++)
		if (i != m->index) { /* it may hold markers about the others */
			s->members[i].look_ns = 0;
			mc_cond_signal(&s->members[i].wake);
		}
	s->changes++;
	mc_cond_signal(&s->tick);
	mc_cond_broadcast(&s->change);
	mc_mutex_unlock(&s->lock);
}

/* Waits until the time, or until it is woken; false when the set is closed. */
static bool wait_locked(struct mc_set *s, struct set_member *m, uint64_t until_ns)
	MC_REQUIRES(s->lock)
{
	if (!s->stopping && mc_now_ns() < until_ns)
		mc_cond_wait_until(&m->wake, &s->lock, until_ns);
	return !s->stopping;
}

/* One probe of a fenced member when it is time. */
static void work_fenced(struct set_member *m, bool *told)
{
	struct mc_set *s = m->set;
	bool first, due;

	mc_mutex_lock(&s->lock);
	first = !m->tried;
	mc_mutex_unlock(&s->lock);
	if (!first && !*told) {
		tell(m, "remote-fenced", "does not answer; what it holds is asked of others");
		*told = true;
	}
	mc_mutex_lock(&s->lock);
	due = wait_locked(s, m, m->probe_ns) && mc_now_ns() >= m->probe_ns;
	mc_mutex_unlock(&s->lock);
	if (!due)
		return;
	if (probe(m) == 0) {
		join(m);
		if (*told)
			tell(m, "remote-back", "answers again");
		*told = false;
		return;
	}
	mc_mutex_lock(&s->lock);
	m->backoff_ns = m->backoff_ns * 2 < PROBE_MAX_NS ? m->backoff_ns * 2 : PROBE_MAX_NS;
	m->probe_ns = mc_now_ns() + m->backoff_ns;
	mc_mutex_unlock(&s->lock);
}

/* Looks for markers, mends a copy, or waits. */
static void work_up(struct set_member *m)
{
	struct mc_set *s = m->set;
	bool look;

	mc_mutex_lock(&s->lock);
	look = mc_now_ns() >= m->look_ns;
	if (look)
		m->look_ns = mc_now_ns() + SET_LOOK_NS;
	mc_mutex_unlock(&s->lock);
	if (look)
		set_look(m);
	if (s->opts.tend && set_mend_one(m))
		return;
	mc_mutex_lock(&s->lock);
	if (m->up)
		wait_locked(s, m,
			set_next_mend_locked(s, m) < m->look_ns ? set_next_mend_locked(s, m)
								: m->look_ns);
	mc_mutex_unlock(&s->lock);
}

void *set_member_main(void *arg)
{
	struct set_member *m = arg;
	struct mc_set *s = m->set;
	bool stopping = false, told = false;

	while (!stopping) {
		bool up;

		mc_mutex_lock(&s->lock);
		up = m->up;
		stopping = s->stopping;
		mc_mutex_unlock(&s->lock);
		if (stopping)
			break;
		if (up)
			work_up(m);
		else
			work_fenced(m, &told);
	}
	return NULL;
}
