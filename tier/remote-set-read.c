/*
 * Reads of a set: which member is asked, when a second one is, and which answer counts.
 *
 * 1. A read is in `reads`, and its outer not NULL, until it is answered; the tries that are pending
 *    and the one who works on it hold references.
 * 2. Each member is tried once for a read. Homes that are up come first, by expected wait; then
 *    others that are up, once every try has failed; then fenced members, once no try is pending at
 *    one that is up.
 * 3. Hedges (a second try while the first is pending at a member that is up) are one in fifty reads
 *    at most, but for a try that has taken SET_LATE_NS.
 * 4. A member that owes answers and gave none for SET_SILENT… is fenced; reads that wait for fenced
 *    members only are sent on at once.
 */
#include "tier/remote-set-impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN 50                        /* reads that pay for a hedge */
#define TOKENS_MAX (16 * TOKEN)         /* saved up */
#define HEDGE_UNKNOWN_NS (100 * SET_MS) /* while latencies are unknown */
#define HEDGE_MIN_NS (3 * SET_MS)
#define FOREVER UINT64_MAX

struct set_try {
	struct mc_remote_read req; /* at the member */
	struct set_read *g;
	struct set_member *m;
	uint64_t sent_ns;
};

struct set_read {
	struct mc_set *s;
	struct mc_remote_read *outer; /* NULL once answered */
	struct set_read *prev, *next; /* in s->reads */
	struct set_order order;
	uint64_t deadline_ns;
	uint64_t hedge_ns; /* when another member is asked if none has answered */
	uint64_t sent_ns;  /* of the try sent last */
	unsigned tried;    /* members, bits; those to be avoided too */
	unsigned pending;  /* tries under way */
	unsigned avoid;    /* gave wrong bytes to the caller earlier */
	unsigned missing;  /* answered -ENOENT */
	unsigned stale;    /* answered -ESTALE */
	int trouble;       /* the last error of another kind */
	unsigned refs;
	uint64_t seen; /* s->changes, when it was last looked at for that */
	char *path;    /* into the memory behind the tries */
	struct set_try tries[];
};

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

/* ---- choosing */

/* What a read takes at the fastest member, so far. */
static uint64_t best_latency_locked(const struct mc_set *s)
{
	uint64_t least = 0;

	for (unsigned i = 0; i < s->n; i++)
		if (s->members[i].ewma_ns != 0 && (least == 0 || s->members[i].ewma_ns < least))
			least = s->members[i].ewma_ns;
	return least != 0 ? least : SET_MS;
}

/* How long a read sent now would probably take there. An unknown member is taken for a fast one,
 * and one that was slow is forgiven by half each second. */
static uint64_t expected_wait_locked(const struct set_member *m, uint64_t best, uint64_t now)
{
	uint64_t idle_s = (now - m->used_ns) / (1000 * SET_MS);
	uint64_t each = m->ewma_ns == 0 ? best : m->ewma_ns >> (idle_s < 63 ? idle_s : 63);

	return (each > best ? each : best) * (m->in_flight + 1);
}

static bool may_ask_locked(struct mc_set *s, struct set_read *g, struct set_member *m)
	MC_REQUIRES(s->lock)
{
	return (g->tried & set_bit(m)) == 0 && atomic_load(&m->remote) != NULL &&
		set_note_find_locked(s, m, g->path) == NULL && !set_is_stale_locked(s, m, g->path);
}

/* A member whose copy may be there though a note doubts it, or who is fenced. */
static struct set_member *last_resort_locked(struct mc_set *s, struct set_read *g, unsigned up)
	MC_REQUIRES(s->lock)
{
	struct set_member *doubted = NULL;

	for (unsigned i = 0; i < s->n; i++) {
		struct set_member *m = &s->members[g->order.at[i]];
		if ((g->tried & set_bit(m)) != 0 || atomic_load(&m->remote) == NULL ||
			set_is_stale_locked(s, m, g->path))
			continue;
		if (set_note_find_locked(s, m, g->path) == NULL)
			return m;
		if (doubted == NULL && (up & set_bit(m)) != 0)
			doubted = m;
	}
	return doubted;
}

/* The member to ask next, or NULL: nobody now. second: while another one works on it. */
static struct set_member *choose_locked(struct mc_set *s, struct set_read *g, bool second)
	MC_REQUIRES(s->lock)
{
	struct set_member *best = NULL;
	unsigned up = set_up_locked(s);
	uint64_t now = mc_now_ns(), latency = best_latency_locked(s), best_wait = 0;

	if (g->outer->guard.set) { /* it fits the copy that was looked at */
		unsigned i = *set_stated(s, g->path);

		if (i > 0 && (up & 1u << (i - 1)) != 0 && may_ask_locked(s, g, &s->members[i - 1]))
			return &s->members[i - 1];
		if (second)
			return NULL;
	}
	for (unsigned i = 0; i < g->order.copies; i++) {
		struct set_member *m = &s->members[g->order.at[i]];
		uint64_t wait = expected_wait_locked(m, latency, now);

		if ((up & set_bit(m)) != 0 && may_ask_locked(s, g, m) &&
			(best == NULL || wait < best_wait)) {
			best = m;
			best_wait = wait;
		}
	}
	if (best != NULL || second || (g->pending & up) != 0)
		return best;
	for (unsigned i = g->order.copies; i < s->n; i++) {
		struct set_member *m = &s->members[g->order.at[i]];

		if ((up & set_bit(m)) != 0 && may_ask_locked(s, g, m))
			return m;
	}
	return last_resort_locked(s, g, up);
}

/* When a second member is worth asking: later than nearly all reads of the fastest one take. */
static uint64_t hedge_after_locked(const struct mc_set *s)
{
	uint64_t least = FOREVER;

	for (unsigned i = 0; i < s->n; i++)
		if (s->members[i].up && s->members[i].p95_ns != 0 && s->members[i].p95_ns < least)
			least = s->members[i].p95_ns;
	if (least == FOREVER)
		return HEDGE_UNKNOWN_NS;
	if (least < HEDGE_MIN_NS)
		return HEDGE_MIN_NS;
	return least < SET_LATE_NS ? least : SET_LATE_NS;
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
	g->hedge_ns = now + hedge_after_locked(s);
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
			: choose_locked(s, g, false);
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
	bool missing;

	mc_mutex_lock(&s->lock);
	g->pending &= ~set_bit(t->m);
	t->m->in_flight--;
	set_outcome_locked(s, t->m, res == -ESTALE && req->guard.set ? 0 : res);
	if (res == 0) {
		set_latency_locked(s, t->m, mc_now_ns() - t->sent_ns);
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
	uint64_t next = FOREVER;

	for (unsigned i = 0; i < s->n; i++) {
		struct set_member *m = &s->members[i];
		uint64_t patience = 4 * m->p95_ns;

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
	struct set_member *m;

	if (now < g->hedge_ns)
		return NULL;
	if (s->hedge_tokens < TOKEN && now < g->sent_ns + SET_LATE_NS) {
		g->hedge_ns = g->sent_ns + SET_LATE_NS;
		return NULL;
	}
	m = choose_locked(s, g, true);
	if (m == NULL) {
		g->hedge_ns = FOREVER; /* a change of members looks again */
		return NULL;
	}
	s->n_hedges++;
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
			g->hedge_ns = g->hedge_ns == FOREVER ? now : g->hedge_ns;
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
