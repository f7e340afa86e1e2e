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
static void note_homes(
	struct mc_set *s, const char *path, const struct set_order *order, unsigned held)
{
	for (unsigned i = 0; i < s->n && set_is_ours(path); i++) {
		struct set_member *m = &s->members[order->at[i]];

		if ((held & set_bit(m)) != 0) {
			set_note_settle(m, path);
		} else if (i < order->copies) {
			set_note_add(m, path, SET_MISSED, true);
			set_mark(m, path, SET_MISSED, held);
		}
	}
}

/* Members on which path may still be. A chunk there is only room wasted: a gc finds it. */
static void note_gone(struct mc_set *s, const char *path, unsigned gone)
{
	bool note = gone != 0 && set_is_ours(path) && !set_is_content_named(path);

	for (unsigned i = 0; i < s->n; i++) {
		struct set_member *m = &s->members[i];

		if ((gone & set_bit(m)) != 0) {
			set_note_settle(m, path);
		} else if (note) {
			set_note_add(m, path, SET_GONE, true);
			set_mark(m, path, SET_GONE, gone);
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
	else if (p.held != 0)
		note_homes(p.s, c->path, &p.order, p.held);
	set_gate_put_end(p.s, c->path);
	return p.res != -EEXIST && p.held != 0 ? 0 : p.res;
}

/* What a change of a name came to on the members. */
struct change {
	unsigned done, absent; /* bits */
	int res;               /* why another member did not do it; 0 = all that are up did */
};

static int change_one(struct mc_remote *r, const struct mc_remote_call *c)
{
	if (c->new_path != NULL)
		return mc_remote_rename(r, c->path, c->new_path, NULL);
	return c->durable ? mc_remote_remove(r, c->path, NULL) : mc_remote_unlink(r, c->path, NULL);
}

/* Removes or renames on every member that is up: each may have a copy, also one that stood in for a
 * home. */
static struct change change_all(struct mc_set *s, const struct mc_remote_call *c)
{
	unsigned up = set_up(s);
	struct change ch = {0};

	for (unsigned i = 0; i < s->n; i++) {
		struct set_member *m = &s->members[i];
		struct mc_remote *r = atomic_load(&m->remote);
		int res = -ENOTCONN;

		if ((up & set_bit(m)) != 0) {
			res = change_one(r, c);
			set_outcome(m, res);
		}
		ch.done |= res == 0 ? set_bit(m) : 0;
		ch.absent |= res == -ENOENT ? set_bit(m) : 0;
		if (res < 0 && res != -ENOENT && (ch.res == 0 || !set_is_trouble(res)))
			ch.res = res;
	}
	return ch;
}

/* Members that are away do not count while another one answers: they are noted. */
static int result_of(const struct mc_set *s, const struct change *ch)
{
	if (ch->absent == (1u << s->n) - 1)
		return -ENOENT;
	if (ch->res != 0 && (!set_is_trouble(ch->res) || (ch->done | ch->absent) == 0))
		return ch->res;
	return 0;
}

int set_unlink(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_set *s = (struct mc_set *)b;
	struct change ch;

	set_gate_put(s, c->path);
	ch = change_all(s, c);
	note_gone(s, c->path, ch.done | ch.absent);
	set_gate_put_end(s, c->path);
	return result_of(s, &ch);
}

int set_rename(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_set *s = (struct mc_set *)b;
	struct set_order order;
	struct change ch;
	int r = set_order(s, c->new_path, &order);

	if (r < 0)
		return r;
	ch = change_all(s, c);
	if (ch.done == 0)
		return ch.res != 0 ? ch.res : -ENOENT;
	note_gone(s, c->path, ch.done | ch.absent);
	note_homes(s, c->new_path, &order, ch.done);
	return result_of(s, &ch);
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
