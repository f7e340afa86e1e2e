/*
 * Changes to a set: puts, removes, touches, syncs; and the notes they leave about members that did
 * not take part.
 */
#include "tier/remote-set-impl.h"

#include <errno.h>
#include <string.h>

/* A put on its way. */
struct putting {
	struct mc_set *s;
	const struct mc_remote_call *c;
	const void *buf;
	size_t len;
	unsigned flags;
	struct set_order order;
	unsigned tried, held; /* members, bits */
	int res;              /* why the last one did not take it; "full" is kept */
};

static bool is_full(int res)
{
	return res == -ENOSPC || res == -EDQUOT;
}

static void put_at(struct putting *p, struct set_member *m)
{
	struct mc_remote *r = atomic_load(&m->remote);
	int res = r == NULL ? -ENOTCONN
			    : mc_remote_put(r, p->c->path, p->buf, p->len, p->flags, NULL);

	p->tried |= set_bit(m);
	if (r != NULL)
		set_outcome(m, res);
	if (res == 0)
		p->held |= set_bit(m);
	else if (!is_full(p->res))
		p->res = res;
}

/* Homes first; chunks that a home does not take go to the next member of their order. */
static void put_all(struct putting *p)
{
	struct mc_set *s = p->s;
	unsigned up = set_up(s);
	unsigned last = set_is_content_named(p->c->path) ? s->n : p->order.copies;

	for (unsigned i = 0; i < last && p->res != -EEXIST; i++)
		if ((up & 1u << p->order.at[i]) != 0 &&
			(unsigned)__builtin_popcount(p->held) < p->order.copies)
			put_at(p, &s->members[p->order.at[i]]);
	/* Nobody took it: whoever is left, fenced or not. */
	for (unsigned i = 0; i < s->n && p->held == 0 && p->res != -EEXIST; i++)
		if (mc_now_ns() < p->c->deadline_ns && (p->tried & 1u << p->order.at[i]) == 0)
			put_at(p, &s->members[p->order.at[i]]);
}

/* Of an exclusive put that met another's object on a later member: takes back what it made. */
static void take_back(struct putting *p)
{
	for (unsigned i = 0; i < p->s->n; i++)
		if ((p->held & 1u << i) != 0)
			mc_remote_unlink(atomic_load(&p->s->members[i].remote), p->c->path, NULL);
}

/* Homes without a copy are noted, here and beside the copies; those with one have nothing to get.
 */
static void note_homes(struct putting *p)
{
	struct mc_set *s = p->s;

	for (unsigned i = 0; i < s->n; i++) {
		struct set_member *m = &s->members[p->order.at[i]];

		if ((p->held & set_bit(m)) != 0) {
			set_note_settle(m, p->c->path);
		} else if (i < p->order.copies) {
			set_note_add(m, p->c->path, SET_MISSED, true);
			set_mark(m, p->c->path, SET_MISSED, p->held);
		}
	}
}

int set_put(struct mc_backend *b, const struct mc_remote_call *c, const void *buf, size_t len,
	unsigned flags)
{
	struct putting p = {
		.s = (struct mc_set *)b, .c = c, .buf = buf, .len = len, .flags = flags};
	int r = set_order(p.s, c->path, &p.order);

	if (r < 0)
		return r;
	set_gate_put(p.s, c->path);
	put_all(&p);
	if (p.res == -EEXIST)
		take_back(&p);
	else if (p.held != 0 && set_is_ours(c->path))
		note_homes(&p);
	set_gate_put_end(p.s, c->path);
	return p.res != -EEXIST && p.held != 0 ? 0 : p.res;
}

/* Every member may have a copy: a home, or one that stood in for it. */
int set_unlink(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_set *s = (struct mc_set *)b;
	unsigned up = set_up(s), all = (1u << s->n) - 1, gone = 0, absent = 0;
	int res = 0;

	set_gate_put(s, c->path);
	for (unsigned i = 0; i < s->n; i++) {
		struct set_member *m = &s->members[i];
		int r = -ENOTCONN;

		if ((up & set_bit(m)) != 0) {
			r = mc_remote_unlink(atomic_load(&m->remote), c->path, NULL);
			set_outcome(m, r);
		}
		gone |= r == 0 ? set_bit(m) : 0;
		absent |= r == -ENOENT ? set_bit(m) : 0;
		if (r < 0 && r != -ENOENT && (res == 0 || !set_is_trouble(r)))
			res = r;
	}
	for (unsigned i = 0; i < s->n; i++) {
		struct set_member *m = &s->members[i];

		if (((gone | absent) & set_bit(m)) != 0) {
			set_note_settle(m, c->path);
		} else if (set_is_ours(c->path) && (gone | absent) != 0) {
			set_note_add(m, c->path, SET_GONE, true);
			set_mark(m, c->path, SET_GONE, gone | absent);
		}
	}
	set_gate_put_end(s, c->path);
	if (absent == all)
		return -ENOENT;
	if (res != 0 && (!set_is_trouble(res) || (gone | absent) == 0))
		return res;
	return 0;
}

/* Homes of what is there that have no copy are noted: the next sync waits for them. */
int set_touch(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_set *s = (struct mc_set *)b;
	unsigned up = set_up(s), touched = 0, absent = 0;
	struct set_order order;
	int r = set_order(s, c->path, &order), res = -ENOENT;

	if (r < 0)
		return r;
	for (unsigned i = 0; i < s->n && (i < order.copies || touched == 0); i++) {
		struct set_member *m = &s->members[order.at[i]];

		if ((up & set_bit(m)) == 0)
			continue;
		r = mc_remote_touch(atomic_load(&m->remote), c->path, NULL);
		set_outcome(m, r);
		touched |= r == 0 ? set_bit(m) : 0;
		absent |= r == -ENOENT && i < order.copies ? set_bit(m) : 0;
		if (r < 0 && r != -ENOENT)
			res = r;
	}
	for (unsigned i = 0; i < s->n && touched != 0; i++)
		if ((absent & 1u << i) != 0)
			set_note_add(&s->members[i], c->path, SET_CHECK, false);
	return touched != 0 ? 0 : res;
}

/* Whether a member that is up is still being brought something. */
static bool is_mending_locked(struct mc_set *s) MC_REQUIRES(s->lock)
{
	uint64_t now = mc_now_ns();

	for (unsigned i = 0; i < s->n; i++)
		if (set_next_mend_locked(s, &s->members[i]) <= now)
			return true;
	return false;
}

/*
 * What was put before is durable on as many members as it has copies, less those that fail now:
 * that must leave one. Copies found missing on the way are brought first.
 */
int set_sync(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_set *s = (struct mc_set *)b;
	unsigned up, failed = 0, away, least = s->opts.copies;
	int res = 0;

	if (s->opts.kv_copies < least)
		least = s->opts.kv_copies;
	mc_mutex_lock(&s->lock);
	while (!s->stopping && is_mending_locked(s) && mc_now_ns() < c->deadline_ns)
		mc_cond_wait_until(&s->change, &s->lock, c->deadline_ns);
	mc_mutex_unlock(&s->lock);
	up = set_up(s);
	away = s->n - (unsigned)__builtin_popcount(up);
	for (unsigned i = 0; i < s->n; i++) {
		struct set_member *m = &s->members[i];
		int r;

		if ((up & set_bit(m)) == 0)
			continue;
		r = mc_remote_sync(atomic_load(&m->remote), NULL);
		set_outcome(m, r);
		if (r < 0) {
			failed++;
			res = r;
		}
	}
	if (up == 0)
		return -ENOTCONN;
	return failed == 0 || failed + away < least ? 0 : res;
}
