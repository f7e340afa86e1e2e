/* What is asked of one member of a set after the other (stat), or of all (mkdir, space). */
#include "tier/remote-set-impl.h"

#include "tier/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAUSE_NS (50 * SET_MS) /* between two rounds of asking */

/* ---- asking one */

/* What asking the members one after the other has come to. */
struct asking {
	struct mc_set *s;
	const struct mc_remote_call *c;
	struct set_order order;
	unsigned absent; /* said -ENOENT */
	int trouble;     /* the last other error */
};

static bool may_ask(struct asking *a, struct set_member *m, bool fenced)
{
	struct mc_set *s = a->s;
	bool may;

	mc_mutex_lock(&s->lock);
	may = m->up != fenced && !set_is_stale_locked(s, m, a->c->path);
	mc_mutex_unlock(&s->lock);
	return may && atomic_load(&m->remote) != NULL && (a->absent & set_bit(m)) == 0;
}

/* Homes that have no copy of what is there. */
static void note_absent(struct asking *a)
{
	for (unsigned i = 0; i < a->order.copies; i++)
		if ((a->absent & 1u << a->order.at[i]) != 0)
			set_note_add(&a->s->members[a->order.at[i]], a->c->path, SET_CHECK, false);
}

/* Asks those that are up, or those that are not; true when one has the object. Of what gc has set
 * aside below tmp/ every member is asked, and the newest counts. */
static bool stat_round(struct asking *a, bool fenced, struct mc_remote_attr *ret)
{
	bool first = strncmp(a->c->path, "tmp/", 4) != 0, found = false;

	for (unsigned i = 0; i < a->s->n; i++) {
		struct set_member *m = &a->s->members[a->order.at[i]];
		struct mc_remote_attr attr;
		int r;

		if (!may_ask(a, m, fenced))
			continue;
		r = mc_remote_stat(atomic_load(&m->remote), a->c->path, &attr, NULL);
		set_outcome(m, r);
		if (r == -ENOENT)
			a->absent |= set_bit(m);
		else if (r < 0)
			a->trouble = r;
		if (r < 0 || (found && !set_is_newer(&attr, ret)))
			continue;
		found = true;
		*ret = attr;
		*set_stated(a->s, a->c->path) = (uint8_t)(m->index + 1);
		if (first)
			break;
	}
	if (found && ret->type == MC_REMOTE_FILE)
		note_absent(a);
	return found;
}

/* Absent is what so many say that one of the copies would be among them. */
static bool is_absent(const struct asking *a)
{
	unsigned silent = a->s->n - (unsigned)__builtin_popcount(a->absent);

	return a->absent != 0 && silent < a->order.copies;
}

int set_stat(struct mc_backend *b, const struct mc_remote_call *c, struct mc_remote_attr *ret)
{
	struct mc_set *s = (struct mc_set *)b;
	struct asking a = {.s = s, .c = c};
	bool stopping = false;
	int r = set_order(s, c->path, &a.order);

	if (r < 0)
		return r;
	while (!stopping && mc_now_ns() < c->deadline_ns) {
		if (stat_round(&a, false, ret))
			return 0;
		if (is_absent(&a))
			return -ENOENT;
		if (a.trouble != 0 && !set_is_trouble(a.trouble))
			return a.trouble;
		if (stat_round(&a, true, ret))
			return 0;
		if (is_absent(&a))
			return -ENOENT;
		mc_mutex_lock(&s->lock);
		if (!s->stopping)
			mc_cond_wait_until(&s->change, &s->lock, mc_now_ns() + PAUSE_NS);
		stopping = s->stopping;
		mc_mutex_unlock(&s->lock);
	}
	return stopping ? -ESHUTDOWN : -ETIMEDOUT;
}

/* ---- asking all */

int set_mkdir(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_set *s = (struct mc_set *)b;
	unsigned up = set_up(s), made = 0;
	int res = -ENOTCONN;

	for (unsigned i = 0; i < s->n; i++) {
		struct set_member *m = &s->members[i];
		int r;

		if ((up & set_bit(m)) == 0)
			continue;
		r = mc_remote_mkdir(atomic_load(&m->remote), c->path, NULL);
		set_outcome(m, r);
		made += r == 0;
		res = r < 0 ? r : res;
	}
	return made > 0 ? 0 : res;
}

/* What fits: each object of the larger class is there `copies` times. */
int set_space(struct mc_backend *b, const struct mc_remote_call *c, struct mc_remote_space *ret)
{
	struct mc_set *s = (struct mc_set *)b;
	unsigned up = set_up(s), asked = 0;
	int res = -ENOTCONN;

	(void)c;
	for (unsigned i = 0; i < s->n; i++) {
		struct set_member *m = &s->members[i];
		struct mc_remote_space one;
		int r;

		if ((up & set_bit(m)) == 0)
			continue;
		r = mc_remote_space(atomic_load(&m->remote), &one, NULL);
		set_outcome(m, r);
		if (r == 0) {
			ret->total += one.total / s->opts.copies;
			ret->avail += one.avail / s->opts.copies;
			asked++;
		} else {
			res = r;
		}
	}
	return asked > 0 ? 0 : res;
}
