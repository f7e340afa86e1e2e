/* Least recently used. */
#include "tests/replay/replay.h"
#include "tests/replay/list.h"

struct lru {
	const struct replay_trace *trace; /* borrowed */
	uint32_t capacity;
	struct replay_lists lists;
};

static void lru_close(void *p)
{
	struct lru *c = p;

	replay_lists_done(&c->lists);
	free(c);
}

static void *lru_open(const struct replay_trace *t, uint32_t capacity)
{
	struct lru *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->trace = t;
	c->capacity = capacity;
	if (replay_lists_init(&c->lists, t->n_ids) == 0)
		return c;
	lru_close(c);
	return NULL;
}

static bool lru_access(void *p, size_t i)
{
	struct lru *c = p;
	uint32_t b = c->trace->ids[i];
	bool hit = c->lists.on[b] == 0;

	if (!hit && c->lists.len[0] == c->capacity)
		replay_lists_remove(&c->lists, replay_lists_oldest(&c->lists, 0));
	replay_lists_push(&c->lists, b, 0);
	return hit;
}

const struct replay_policy replay_lru = {"LRU", lru_open, lru_access, lru_close};
