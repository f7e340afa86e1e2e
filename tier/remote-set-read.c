/*
 * Reads of a set: which member is asked, when a second one is, and which answer counts.
 *
 * 1. A read is in `reads`, and its outer not NULL, until it is answered; the tries that are pending
 *    and the one who works on it hold references.
 * 2. Each member is tried once for a read. Homes that are up come first, by expected wait; then
 *    others that are up, once every try has failed; then fenced members, once no try is pending at
 *    one that is up.
 * 3. Hedges (a second try while the first is pending at a member that is up) are one in 25 reads
 *    at most, but for a try that has taken a second and much longer than others.
 * 4. A member that owes answers and gave none for SET_SILENT… is fenced; reads that wait for fenced
 *    members only are sent on at once.
 */
#include "tier/remote-set-read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN 25                /* reads that pay for a hedge */
#define TOKENS_MAX (16 * TOKEN) /* saved up */
#define HEDGE_BUSY 4            /* reads in flight: a member that has so many is no faster way */

/* ---- buffers of 1 MiB */

static void *buffer_take(struct mc_set *s)
{
	void *buf = NULL;

	mc_mutex_lock(&s->lock);
	if (s->n_spare > 0)
		buf = s->spare[--s->n_spare];
	mc_mutex_unlock(&s->lock);
	return buf != NULL ? buf : aligned_alloc(4096, MC_REMOTE_READ_MAX);
}

static void buffer_give(struct mc_set *s, void *buf)
{
	mc_mutex_lock(&s->lock);
	if (s->n_spare < sizeof(s->spare) / sizeof(*s->spare)) {
		s->spare[s->n_spare++] = buf;
		buf = NULL;
	}
	mc_mutex_unlock(&s->lock);
	free(buf);
}

/* ---- sending */

static void ref_drop(struct set_read *g)
{
	struct mc_set *s = g->s;
	bool last;

	mc_mutex_lock(&s->lock);
	last = --g->refs == 0;
	if (last && --s->n_live == 0)
		mc_cond_broadcast(&s->change);
	mc_mutex_unlock(&s->lock); /* s may be gone now */
	if (last)
		free(g);
}

/* Books a try at m; the caller sends it without the lock. */
static struct set_try *book_locked(struct mc_set *s, struct set_read *g, struct set_member *m)
	MC_REQUIRES(s->lock)
{
	struct set_try *t = &g->tries[m->index];
	uint64_t now = mc_now_ns();

	g->tried |= set_bit(m);
	g->pending |= set_bit(m);
	g->refs++;
	g->sent_ns = now;
	g->hedge_ns = now + set_hedge_after_locked(s);
	if (g->hedge_ns < s->tick_ns || now + SET_SILENT_MIN_NS < s->tick_ns)
		mc_cond_signal(&s->tick);
	if (m->in_flight++ == 0)
		m->last_ns = now;
	m->used_ns = now;
	t->g = g;
	t->m = m;
	t->sent_ns = now;
	t->req.off = g->outer->off;
	t->req.len = g->outer->len;
	t->req.guard = g->outer->guard;
	return t;
}

static void try_done(struct mc_remote_read *req, int res);

static void send_try(struct set_try *t)
{
	struct set_read *g = t->g;

	atomic_fetch_add(&g->s->counters->requests, 1);
	t->req.path = g->path;
	t->req.done = try_done;
	t->req.ctx = t;
	t->req.buf = buffer_take(g->s);
	if (t->req.buf == NULL)
		try_done(&t->req, -ENOMEM);
	else
		mc_remote_read_until(atomic_load(&t->m->remote), &t->req, g->deadline_ns);
}

static void unlink_locked(struct mc_set *s, struct set_read *g) MC_REQUIRES(s->lock)
{
	if (g->prev != NULL)
		g->prev->next = g->next;
	else
		s->reads = g->next;
	if (g->next != NULL)
		g->next->prev = g->prev;
	g->outer = NULL;
}

static unsigned count(unsigned bits)
{
	return (unsigned)__builtin_popcount(bits);
}

/*
 * What a read comes to when no try is left: > 0 while one may still succeed. Missing is only what
 * so many said that one of the copies would have been among them. A guarded read does not wait for
 * a fenced member when another one has another version: the caller asks for that.
 */
static int verdict_locked(struct mc_set *s, struct set_read *g) MC_REQUIRES(s->lock)
{
	unsigned up = set_up_locked(s);
	unsigned silent = s->n - count(g->missing | g->stale | g->avoid);

	if ((g->pending & up) != 0)
		return 1;
	if (g->pending != 0 && !(g->outer->guard.set && g->stale != 0))
		return 1;
	if (g->stale != 0)
		return -ESTALE;
	if (g->avoid != 0)
		return -EBADMSG;
	if (g->trouble != 0 && !set_is_trouble(g->trouble)) /* the object is no file, … */
		return g->trouble;
	if (silent < g->order.copies && g->missing != 0)
		return -ENOENT;
	return g->trouble != 0 ? g->trouble : -EIO;
}

/* Asks the next member, if there is one, else ends the read if nobody works on it. The caller holds
 * a reference. */
static void go_on(struct set_read *g)
{
	struct mc_set *s = g->s;
	struct mc_remote_read *outer = NULL;
	struct set_member *m = NULL;
	struct set_try *t = NULL;
	int res = 1;

	mc_mutex_lock(&s->lock);
	if (g->outer != NULL) {
		m = s->stopping || (g->pending & set_up_locked(s)) != 0
			? NULL
			: set_choose_locked(s, g, false);
		if (m != NULL)
			t = book_locked(s, g, m);
		else
			res = s->stopping && g->pending == 0 ? -ESHUTDOWN : verdict_locked(s, g);
		if (res <= 0) {
			outer = g->outer;
			unlink_locked(s, g);
		}
	}
	mc_mutex_unlock(&s->lock);
	if (t != NULL)
		send_try(t);
	if (outer != NULL)
		mc_backend_read_done(outer, res);
}

/* Homes that had no copy while another member had one. */
static void note_missing(struct set_read *g)
{
	for (unsigned i = 0; i < g->order.copies; i++)
		if ((g->missing & 1u << g->order.at[i]) != 0)
			set_note_add(&g->s->members[g->order.at[i]], g->path, SET_CHECK, false);
}

static void try_failed_locked(struct mc_set *s, struct set_try *t, int res) MC_REQUIRES(s->lock)
{
	struct set_read *g = t->g;

	if (res == -ENOENT)
		g->missing |= set_bit(t->m);
	else if (res == -ESTALE)
		g->stale |= set_bit(t->m);
	else if (g->trouble == 0 || set_is_trouble(g->trouble))
		g->trouble = res;
}

static void try_done(struct mc_remote_read *req, int res)
{
	struct set_try *t = req->ctx;
	struct set_read *g = t->g;
	struct mc_set *s = g->s;
	struct mc_remote_read *outer = NULL;
	void *buf = req->buf;
	uint64_t gap_ns;
	bool missing;

	mc_mutex_lock(&s->lock);
	g->pending &= ~set_bit(t->m);
	t->m->in_flight--;
	gap_ns = mc_now_ns() - t->m->last_ns;
	set_outcome_locked(s, t->m, res == -ESTALE && req->guard.set ? 0 : res);
	if (res == 0) {
		set_latency_locked(s, t->m, mc_now_ns() - t->sent_ns, gap_ns);
		s->hedge_tokens += s->hedge_tokens < TOKENS_MAX;
		outer = g->outer;
		if (outer != NULL)
			unlink_locked(s, g);
	} else {
		try_failed_locked(s, t, res);
	}
	missing = res == 0 && g->missing != 0;
	mc_mutex_unlock(&s->lock);
	if (outer != NULL) {
		memcpy(outer->buf, buf, req->len);
		outer->instance = req->instance * MC_SET_MAX + t->m->index;
		outer->served = set_bit(t->m);
		mc_backend_read_done(outer, 0);
	}
	if (buf != NULL)
		buffer_give(s, buf);
	if (res < 0)
		go_on(g);
	else if (missing && outer != NULL)
		note_missing(g);
	ref_drop(g);
}

void set_read(struct mc_backend *b, struct mc_remote_read *req)
{
	struct mc_set *s = (struct mc_set *)b;
	size_t size = sizeof(struct set_read) + s->n * sizeof(struct set_try);
	struct set_read *g = calloc(1, size + strlen(req->path) + 1);
	int r = g == NULL ? -ENOMEM : set_order(s, req->path, &g->order);

	if (r < 0) {
		free(g);
		mc_backend_read_done(req, r);
		return;
	}
	g->s = s;
	g->path = strcpy((char *)g + size, req->path);
	g->outer = req;
	g->deadline_ns = req->deadline_ns;
	g->avoid = req->avoid & ((1u << s->n) - 1);
	g->tried = g->avoid;
	g->refs = 1;
	for (unsigned i = 0; i < s->n; i++)
		if ((g->avoid & 1u << i) != 0)
			set_note_add(&s->members[i], g->path, SET_CHECK, false);
	mc_mutex_lock(&s->lock);
	s->n_live++;
	g->seen = s->changes;
	g->next = s->reads;
	if (g->next != NULL)
		g->next->prev = g;
	s->reads = g;
	mc_mutex_unlock(&s->lock);
	go_on(g);
	ref_drop(g);
}

/* ---- the timer: silent members, reads that take long */

/* Fences who is silent; the earliest time at which that may have to be done next. */
static uint64_t fence_silent_locked(struct mc_set *s, uint64_t now) MC_REQUIRES(s->lock)
{
	uint64_t next = SET_FOREVER;

	for (unsigned i = 0; i < s->n; i++) {
		struct set_member *m = &s->members[i];
		uint64_t patience = 4 * m->p98_ns;

		if (!m->up || m->in_flight == 0)
			continue;
		if (patience < SET_SILENT_MIN_NS)
			patience = SET_SILENT_MIN_NS;
		if (patience > SET_SILENT_MAX_NS)
			patience = SET_SILENT_MAX_NS;
		if (now >= m->last_ns + patience)
			set_fence_locked(s, m);
		else if (m->last_ns + patience < next)
			next = m->last_ns + patience;
	}
	return next;
}

/* Books the try to be made beside those that work on the read, if it is time. */
static struct set_try *hedge_locked(struct mc_set *s, struct set_read *g, uint64_t now)
	MC_REQUIRES(s->lock)
{
	uint64_t late_ns = g->sent_ns + set_late_after_locked(s);
	struct set_member *m;

	if (now < g->hedge_ns)
		return NULL;
	if (s->hedge_tokens < TOKEN && now < late_ns) {
		g->hedge_ns = late_ns;
		return NULL;
	}
	m = set_choose_locked(s, g, true);
	if (m != NULL && m->in_flight >= HEDGE_BUSY && now < late_ns) {
		g->hedge_ns = late_ns;
		return NULL;
	}
	if (m == NULL) {
		g->hedge_ns = SET_FOREVER; /* a change of members looks again */
		return NULL;
	}
	s->n_hedges++;
	for (unsigned i = 0; i < s->n; i++) /* who answered nobody since is slow */
		if ((g->pending & 1u << i) != 0 && s->members[i].last_ns <= g->sent_ns &&
			s->members[i].each_ns < now - g->sent_ns)
			s->members[i].each_ns = now - g->sent_ns;
	s->hedge_tokens -= s->hedge_tokens < TOKEN ? s->hedge_tokens : TOKEN;
	return book_locked(s, g, m);
}

/*
 * One read that has to go on, with a reference: *ret_try is what to send for it, or NULL: it waits
 * for fenced members only. NULL: none has to before *ret_next.
 */
static struct set_read *due_locked(struct mc_set *s, struct set_try **ret_try, uint64_t *ret_next)
	MC_REQUIRES(s->lock)
{
	uint64_t now = mc_now_ns();

	*ret_next = fence_silent_locked(s, now);
	*ret_try = NULL;
	for (struct set_read *g = s->reads; g != NULL; g = g->next) {
		if (g->seen != s->changes) {
			g->seen = s->changes;
			g->hedge_ns = g->hedge_ns == SET_FOREVER ? now : g->hedge_ns;
			if ((g->pending & set_up_locked(s)) == 0) {
				g->refs++;
				return g;
			}
		}
		*ret_try = hedge_locked(s, g, now);
		if (*ret_try != NULL) {
			g->refs++;
			return g;
		}
		if (g->hedge_ns < *ret_next)
			*ret_next = g->hedge_ns;
	}
	return NULL;
}

void *set_timer_main(void *arg)
{
	struct mc_set *s = arg;

	mc_mutex_lock(&s->lock);
	while (!s->stopping) {
		struct set_try *t;
		struct set_read *g = due_locked(s, &t, &s->tick_ns);

		if (g == NULL) {
			mc_cond_wait_until(&s->tick, &s->lock, s->tick_ns);
			continue;
		}
		mc_mutex_unlock(&s->lock);
		if (t != NULL)
			send_try(t);
		else
			go_on(g);
		ref_drop(g);
		mc_mutex_lock(&s->lock);
	}
	mc_mutex_unlock(&s->lock);
	return NULL;
}
