/* Listing a directory of a set: the names of all its members, each once, and who has it. */
#include "tier/remote-set-impl.h"

#include "tier/array.h"
#include "tier/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool set_is_newer(const struct mc_remote_attr *a, const struct mc_remote_attr *b)
{
	return a->mtime_s != b->mtime_s ? a->mtime_s > b->mtime_s : a->mtime_ns > b->mtime_ns;
}

struct entry {
	char *name; /* owned */
	unsigned member;
	struct mc_remote_attr attr;
};

struct entries {
	struct entry *v; /* owned */
	size_t n, cap;
	unsigned member; /* of those being added */
};

static int entries_add(void *ctx, const char *name, const struct mc_remote_attr *attr)
{
	struct entries *e = ctx;
	char *copy = strdup(name);

	if (copy == NULL || mc_array_room(&e->v, &e->cap, e->n + 1) < 0) {
		free(copy);
		return -ENOMEM;
	}
	e->v[e->n++] = (struct entry){.name = copy, .member = e->member, .attr = *attr};
	return 0;
}

static int by_name(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return strcmp(x->name, y->name);
}

/* Whether the only members that have the name missed its removal. */
static bool is_removed(struct mc_set *s, const char *dir, const char *name, unsigned holders)
{
	cleanup_free char *path = NULL;
	unsigned stale = 0;

	if (asprintf(&path, "%s%s%s", dir, *dir != '\0' ? "/" : "", name) < 0)
		return false;
	mc_mutex_lock(&s->lock);
	for (unsigned i = 0; i < s->n; i++) {
		struct set_note *n = set_note_find_locked(s, &s->members[i], path);

		stale |= n != NULL && n->kind == SET_GONE ? 1u << i : 0;
	}
	mc_mutex_unlock(&s->lock);
	return (holders & ~stale) == 0;
}

/* The names of all members, each once; of several copies the newest time, so that one that was
 * touched is not taken for an old one. */
static int emit(struct mc_set *s, const char *dir, struct entries *all, set_each *each, void *ctx)
{
	int r = 0;

	if (all->n > 0)
		qsort(all->v, all->n, sizeof(*all->v), by_name);
	for (size_t i = 0, next; i < all->n && r == 0; i = next) {
		const struct entry *newest = &all->v[i];
		unsigned holders = 0;

		for (next = i; next < all->n && strcmp(all->v[next].name, newest->name) == 0;
			next++) {
			holders |= 1u << all->v[next].member;
			if (set_is_newer(&all->v[next].attr, &newest->attr))
				newest = &all->v[next];
		}
		if (!is_removed(s, dir, newest->name, holders))
			r = each(ctx, newest->name, &newest->attr, holders);
	}
	return r;
}

int set_list_all(struct mc_set *s, const char *path, set_each *each, void *ctx)
{
	unsigned up = set_up(s), answered = 0, absent = 0;
	struct entries all = {0};
	int r = 0, res = -ENOTCONN;

	for (unsigned i = 0; i < s->n && r != -ENOMEM; i++) {
		struct set_member *m = &s->members[i];

		if ((up & set_bit(m)) == 0)
			continue;
		all.member = i;
		r = mc_remote_list(atomic_load(&m->remote), path, entries_add, &all, NULL);
		set_outcome(m, r);
		answered += r == 0;
		absent += r == -ENOENT;
		if (r < 0 && (r != -ENOENT || absent == s->n))
			res = r;
	}
	if (r == -ENOMEM)
		res = r;
	else if (answered + absent + set_copies(s, path) > s->n && answered > 0)
		res = emit(s, path, &all, each, ctx);
	/* else: a member that is away may hold more */
	for (size_t i = 0; i < all.n; i++)
		free(all.v[i].name);
	free(all.v);
	return res;
}

/* For those who do not care who has it. */
struct plain {
	mc_remote_each *each;
	void *ctx;
};

static int plain_each(
	void *ctx, const char *name, const struct mc_remote_attr *attr, unsigned holders)
{
	struct plain *p = ctx;

	(void)holders;
	return p->each(p->ctx, name, attr);
}

int set_list(struct mc_backend *b, const struct mc_remote_call *c, mc_remote_each *each, void *ctx)
{
	struct plain p = {.each = each, .ctx = ctx};

	return set_list_all((struct mc_set *)b, c->path, plain_each, &p);
}
