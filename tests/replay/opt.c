/*
 * The offline optimum: Belady's rule with bypass. The resident block whose next use is farthest
 * leaves, and a block whose own next use is farther still is not inserted. A heap of residents by
 * next use, with stale entries skipped when they surface.
 */
#include "tests/replay/replay.h"

#include <stdlib.h>

#define NEVER UINT32_MAX

struct due {
	uint32_t next, block;
};

struct opt {
	const struct replay_trace *trace; /* borrowed */
	uint32_t capacity, used;
	uint32_t *next_of;  /* owned; by access: index of the same block's next access, or NEVER */
	uint32_t *resident; /* owned; by block: its next use if resident, else 0 */
	struct due *heap;   /* owned; farthest first */
	size_t n_heap;
};

static void opt_close(void *p)
{
	struct opt *c = p;

	free(c->next_of);
	free(c->resident);
	free(c->heap);
	free(c);
}

static void *opt_open(const struct replay_trace *t, uint32_t capacity)
{
	struct opt *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->trace = t;
	c->capacity = capacity;
	c->next_of = calloc(t->n + 1, sizeof(*c->next_of));
	c->resident = calloc((size_t)t->n_ids + 1, sizeof(*c->resident));
	c->heap = calloc(t->n + 1, sizeof(*c->heap));
	if (c->next_of == NULL || c->resident == NULL || c->heap == NULL) {
		opt_close(c);
		return NULL;
	}
	for (uint32_t b = 0; b < t->n_ids; b++)
		c->resident[b] =
			NEVER; /* as scratch: the block's latest access seen from the end */
	for (size_t i = t->n; i-- > 0;) {
		c->next_of[i] = c->resident[t->ids[i]];
		c->resident[t->ids[i]] = (uint32_t)i;
	}
	for (uint32_t b = 0; b < t->n_ids; b++)
		c->resident[b] = 0;
	return c;
}

static void heap_push(struct opt *c, struct due d)
{
	size_t i = c->n_heap++;

	while (i > 0 && c->heap[(i - 1) / 2].next < d.next) {
		c->heap[i] = c->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	c->heap[i] = d;
}

static void heap_pop(struct opt *c)
{
	struct due last = c->heap[--c->n_heap];
	size_t i = 0;

	for (;;) {
		size_t k = 2 * i + 1;

		if (k + 1 < c->n_heap && c->heap[k + 1].next > c->heap[k].next)
			k++;
		if (k >= c->n_heap || c->heap[k].next <= last.next)
			break;
		c->heap[i] = c->heap[k];
		i = k;
	}
	c->heap[i] = last;
}

/* Room for a block next used at next: true, or false when it should be bypassed. */
static bool make_room(struct opt *c, uint32_t next)
{
	if (c->used < c->capacity)
		return true;
	while (c->resident[c->heap[0].block] != c->heap[0].next)
		heap_pop(c);
	if (c->heap[0].next <= next)
		return false;
	c->resident[c->heap[0].block] = 0;
	c->used--;
	heap_pop(c);
	return true;
}

static bool opt_access(void *p, size_t i)
{
	struct opt *c = p;
	uint32_t b = c->trace->ids[i], next = c->next_of[i];
	bool hit = c->resident[b] != 0;

	if (hit) {
		c->used--;
		c->resident[b] = 0;
	}
	if (next == NEVER || !make_room(c, next))
		return hit;
	c->used++;
	c->resident[b] = next;
	heap_push(c, (struct due){next, b});
	return hit;
}

const struct replay_policy replay_opt = {"OPT", opt_open, opt_access, opt_close};
