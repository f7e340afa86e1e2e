/* SIEVE (Zhang et al., NSDI 2024): one FIFO and a hand that spares what was used since it passed.
 */
#include "tests/replay/replay.h"
#include "tests/replay/list.h"

struct sieve {
	const struct replay_trace *trace; /* borrowed */
	uint32_t capacity, hand;          /* hand = n_ids (the head): start at the oldest */
	bool *visited;                    /* owned */
	struct replay_lists lists;
};

static void sieve_close(void *p)
{
	struct sieve *c = p;

	replay_lists_done(&c->lists);
	free(c->visited);
	free(c);
}

static void *sieve_open(const struct replay_trace *t, uint32_t capacity)
{
	struct sieve *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->trace = t;
	c->capacity = capacity;
	c->hand = t->n_ids;
	c->visited = calloc((size_t)t->n_ids + 1, sizeof(*c->visited));
	if (replay_lists_init(&c->lists, t->n_ids) == 0 && c->visited != NULL)
		return c;
	sieve_close(c);
	return NULL;
}

static void evict(struct sieve *c)
{
	uint32_t head = c->lists.n, b = c->hand == head ? c->lists.prev[head] : c->hand;

	while (c->visited[b]) {
		c->visited[b] = false;
		b = c->lists.prev[b] == head ? c->lists.prev[head] : c->lists.prev[b];
	}
	c->hand = c->lists.prev[b];
	replay_lists_remove(&c->lists, b);
}

static bool sieve_access(void *p, size_t i)
{
	struct sieve *c = p;
	uint32_t b = c->trace->ids[i];

	if (c->lists.on[b] == 0) {
		c->visited[b] = true;
		return true;
	}
	if (c->lists.len[0] == c->capacity)
		evict(c);
	c->visited[b] = false;
	replay_lists_push(&c->lists, b, 0);
	return false;
}

const struct replay_policy replay_sieve = {"SIEVE", sieve_open, sieve_access, sieve_close};
