/*
 * Whom a read of a set is asked of: the home that is expected to answer first. What one more read
 * costs a member is the time between two of its answers; that times the reads it has is the wait.
 */
#include "tier/remote-set-read.h"

#define HEDGE_UNKNOWN_NS (100 * SET_MS) /* while latencies are unknown */
#define HEDGE_MIN_NS (3 * SET_MS)

/* What one more read costs at the fastest member, so far. */
static uint64_t best_latency_locked(const struct mc_set *s)
{
	uint64_t least = 0;

	for (unsigned i = 0; i < s->n; i++)
		if (s->members[i].each_ns != 0 && (least == 0 || s->members[i].each_ns < least))
			least = s->members[i].each_ns;
	return least != 0 ? least : SET_MS;
}

/* How long a read sent now would probably take there. An unknown member is taken for a fast one,
 * and one that was slow is forgiven by half each second. */
static uint64_t expected_wait_locked(const struct set_member *m, uint64_t best, uint64_t now)
{
	uint64_t idle_s = (now - m->used_ns) / (1000 * SET_MS);
	uint64_t each = m->each_ns == 0 ? best : m->each_ns >> (idle_s < 63 ? idle_s : 63);

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

struct set_member *set_choose_locked(struct mc_set *s, struct set_read *g, bool second)
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
uint64_t set_hedge_after_locked(const struct mc_set *s)
{
	uint64_t least = SET_FOREVER;

	for (unsigned i = 0; i < s->n; i++)
		if (s->members[i].up && s->members[i].p98_ns != 0 && s->members[i].p98_ns < least)
			least = s->members[i].p98_ns;
	if (least == SET_FOREVER)
		return HEDGE_UNKNOWN_NS;
	if (least < HEDGE_MIN_NS)
		return HEDGE_MIN_NS;
	return least;
}

/* When one is asked whatever it costs. */
uint64_t set_late_after_locked(const struct mc_set *s)
{
	uint64_t late = 4 * set_hedge_after_locked(s);

	return late > SET_LATE_NS ? late : SET_LATE_NS;
}
