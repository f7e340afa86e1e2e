/*
 * Putting objects where they belong after members were added, got another weight, or are to leave.
 *
 * A copy is removed only after every home was seen to have a right one: its bytes are read and
 * compared with what the path says.
 */
#include "tier/remote-set-impl.h"

#include "tier/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settling {
	struct mc_set *s;
	const char *dir;
	const struct mc_set_settle *how;
};

/* Every home has a right copy afterwards; those that have one are looked at only when another copy
 * is to go. */
static int fill_homes(struct mc_set *s, const char *path, const struct set_order *order,
	unsigned holders, struct mc_set_moved *moved)
{
	unsigned homes = 0;
	bool extra;

	for (unsigned i = 0; i < order->copies; i++)
		homes |= 1u << order->at[i];
	extra = (holders & ~homes) != 0;
	for (unsigned i = 0; i < order->copies; i++) {
		struct set_member *m = &s->members[order->at[i]];
		uint64_t bytes;
		int r;

		if (!extra && (holders & set_bit(m)) != 0)
			continue;
		r = set_bring(m, path, SET_CHECK, holders & ~set_bit(m), &bytes);
		if (r == 0 && (holders & set_bit(m)) == 0)
			r = -EAGAIN; /* it went while we looked */
		if (r < 0)
			return r;
		moved->copied += r == 1;
		moved->copied_bytes += bytes;
	}
	return 0;
}

static int settle_file(
	struct mc_set *s, const char *path, unsigned holders, struct mc_set_moved *moved)
{
	struct set_order order;
	int r = set_order(s, path, &order);

	set_gate_mend(s, path);
	if (r == 0)
		r = fill_homes(s, path, &order, holders, moved);
	for (unsigned i = order.copies; i < s->n && r == 0; i++) {
		struct set_member *m = &s->members[order.at[i]];

		if ((holders & set_bit(m)) == 0)
			continue;
		r = set_remove_copy(m, path);
		moved->removed += r == 0;
	}
	set_gate_mend_end(s, path);
	return r;
}

static int settle_each(
	void *ctx, const char *name, const struct mc_remote_attr *attr, unsigned holders)
{
	struct settling *w = ctx;
	struct mc_set_moved moved = {0};
	cleanup_free char *path = NULL;
	unsigned stale = 0;
	int r;

	if (asprintf(&path, "%s/%s", w->dir, name) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	if (attr->type == MC_REMOTE_DIR)
		return w->how->dir(w->how->ctx, path);
	if (attr->type != MC_REMOTE_FILE)
		return 0;
	mc_mutex_lock(&w->s->lock);
	for (unsigned i = 0; i < w->s->n; i++)
		if (set_is_stale_locked(w->s, &w->s->members[i], path))
			stale |= 1u << i;
	mc_mutex_unlock(&w->s->lock);
	/* What a member missed is its thread's to bring. */
	r = stale != 0 ? -EAGAIN : settle_file(w->s, path, holders, &moved);
	return w->how->file(w->how->ctx, path, r, &moved);
}

int mc_remote_set_settle(struct mc_remote *r, const char *dir, const struct mc_set_settle *how)
{
	struct settling w = {.s = set_of(r), .dir = dir, .how = how};

	if (w.s == NULL)
		return 0;
	if (set_up(w.s) != (1u << w.s->n) - 1)
		return -ENOTCONN;
	return set_list_all(w.s, dir, settle_each, &w);
}
