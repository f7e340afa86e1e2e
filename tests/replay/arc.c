/* ARC: adaptive replacement cache (Megiddo and Modha, FAST 2003, figure 4). */
#include "tests/replay/replay.h"
#include "tests/replay/list.h"

enum { T1, T2, B1, B2 };

struct arc {
	const struct replay_trace *trace; /* borrowed */
	uint32_t capacity;
	uint32_t target; /* of T1: the paper's p, in whole blocks */
	struct replay_lists lists;
};

static void arc_close(void *p)
{
	struct arc *c = p;

	replay_lists_done(&c->lists);
	free(c);
}

static void *arc_open(const struct replay_trace *t, uint32_t capacity)
{
	struct arc *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->trace = t;
	c->capacity = capacity;
	if (replay_lists_init(&c->lists, t->n_ids) == 0)
		return c;
	arc_close(c);
	return NULL;
}

static void replace(struct arc *c, bool in_b2)
{
	struct replay_lists *l = &c->lists;

	if (l->len[T1] > 0 && (l->len[T1] > c->target || (in_b2 && l->len[T1] == c->target)))
		replay_lists_push(l, replay_lists_oldest(l, T1), B1);
	else
		replay_lists_push(l, replay_lists_oldest(l, T2), B2);
}

static uint32_t min(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* The block is still on its ghost list: that length is not 0. */
static void adapt(struct arc *c, bool in_b2)
{
	uint32_t b1 = c->lists.len[B1], b2 = c->lists.len[B2];

	if (in_b2)
		c->target -= min(c->target, b1 > b2 ? b1 / b2 : 1);
	else
		c->target += min(c->capacity - c->target, b2 > b1 ? b2 / b1 : 1);
}

/* A block in neither list: the paper's case IV. */
static void make_room(struct arc *c)
{
	struct replay_lists *l = &c->lists;
	uint32_t l1 = l->len[T1] + l->len[B1], all = l1 + l->len[T2] + l->len[B2];

	if (l1 == c->capacity) {
		if (l->len[T1] == c->capacity) {
			replay_lists_remove(l, replay_lists_oldest(l, T1));
			return;
		}
		replay_lists_remove(l, replay_lists_oldest(l, B1));
		replace(c, false);
	} else if (all >= c->capacity) {
		if (all == 2 * c->capacity)
			replay_lists_remove(l, replay_lists_oldest(l, B2));
		replace(c, false);
	}
}

static bool arc_access(void *p, size_t i)
{
	struct arc *c = p;
	uint32_t b = c->trace->ids[i];
	uint8_t on = c->lists.on[b];

	if (on == REPLAY_NO_LIST) {
		make_room(c);
		replay_lists_push(&c->lists, b, T1);
		return false;
	}
	if (on == B1 || on == B2) {
		adapt(c, on == B2);
		replace(c, on == B2);
	}
	replay_lists_push(&c->lists, b, T2);
	return on == T1 || on == T2;
}

const struct replay_policy replay_arc = {"ARC", arc_open, arc_access, arc_close};
