/* S3-FIFO (Yang et al., SOSP 2023): small queue 10 %, main 90 %, ghost as long as main. */
#include "tests/replay/replay.h"
#include "tests/replay/list.h"

enum { SMALL, MAIN, GHOST };

#define MAX_FREQ 3

struct s3fifo {
	const struct replay_trace *trace; /* borrowed */
	uint32_t capacity, small;
	uint8_t *freq; /* owned */
	struct replay_lists lists;
};

static void s3fifo_close(void *p)
{
	struct s3fifo *c = p;

	replay_lists_done(&c->lists);
	free(c->freq);
	free(c);
}

static void *s3fifo_open(const struct replay_trace *t, uint32_t capacity)
{
	struct s3fifo *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->trace = t;
	c->capacity = capacity;
	c->small = capacity / 10 > 0 ? capacity / 10 : 1;
	c->freq = calloc((size_t)t->n_ids + 1, 1);
	if (replay_lists_init(&c->lists, t->n_ids) == 0 && c->freq != NULL)
		return c;
	s3fifo_close(c);
	return NULL;
}

static void evict_main(struct s3fifo *c)
{
	for (;;) {
		uint32_t b = replay_lists_oldest(&c->lists, MAIN);

		if (c->freq[b] == 0) {
			replay_lists_remove(&c->lists, b);
			return;
		}
		c->freq[b]--;
		replay_lists_push(&c->lists, b, MAIN);
	}
}

static void remember(struct s3fifo *c, uint32_t b)
{
	if (c->lists.len[GHOST] >= c->capacity - c->small)
		replay_lists_remove(&c->lists, replay_lists_oldest(&c->lists, GHOST));
	replay_lists_push(&c->lists, b, GHOST);
}

static void evict(struct s3fifo *c)
{
	while (c->lists.len[SMALL] >= c->small || c->lists.len[MAIN] == 0) {
		uint32_t b = replay_lists_oldest(&c->lists, SMALL);

		if (c->freq[b] <= 1) {
			remember(c, b);
			return;
		}
		c->freq[b] = 0;
		replay_lists_push(&c->lists, b, MAIN);
	}
	evict_main(c);
}

static bool s3fifo_access(void *p, size_t i)
{
	struct s3fifo *c = p;
	uint32_t b = c->trace->ids[i];
	uint8_t on = c->lists.on[b];

	if (on == SMALL || on == MAIN) {
		if (c->freq[b] < MAX_FREQ)
			c->freq[b]++;
		return true;
	}
	while (c->lists.len[SMALL] + c->lists.len[MAIN] >= c->capacity)
		evict(c);
	c->freq[b] = 0;
	/* The ghost may have been pushed out by the eviction just made: on is what counts. */
	replay_lists_push(&c->lists, b, on == GHOST ? MAIN : SMALL);
	return false;
}

const struct replay_policy replay_s3fifo = {"S3-FIFO", s3fifo_open, s3fifo_access, s3fifo_close};
