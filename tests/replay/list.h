/* Doubly linked lists of block numbers, kept in arrays: a block is on at most one list of a set. */
#pragma once

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

#define REPLAY_NO_LIST 0xff
#define REPLAY_LISTS 4

/* n blocks; node n + l is the head of list l; newest = next of the head, oldest = prev of the head.
 */
struct replay_lists {
	uint32_t n;
	uint32_t *next, *prev; /* owned */
	uint8_t *on;           /* owned; list of a block, or REPLAY_NO_LIST */
	uint32_t len[REPLAY_LISTS];
};

static inline void replay_lists_done(struct replay_lists *s)
{
	free(s->next);
	free(s->prev);
	free(s->on);
}

/* 0 or -1 without memory; done in either case. */
static inline int replay_lists_init(struct replay_lists *s, uint32_t n)
{
	*s = (struct replay_lists){.n = n};
	s->next = calloc((size_t)n + REPLAY_LISTS, sizeof(*s->next));
	s->prev = calloc((size_t)n + REPLAY_LISTS, sizeof(*s->prev));
	s->on = malloc((size_t)n + 1);
	if (s->next == NULL || s->prev == NULL || s->on == NULL)
		return -1;
	for (uint32_t i = 0; i < n; i++)
		s->on[i] = REPLAY_NO_LIST;
	for (uint32_t l = 0; l < REPLAY_LISTS; l++)
		s->next[n + l] = s->prev[n + l] = n + l;
	return 0;
}

static inline void replay_lists_remove(struct replay_lists *s, uint32_t b)
{
	if (s->on[b] == REPLAY_NO_LIST)
		return;
	s->next[s->prev[b]] = s->next[b];
	s->prev[s->next[b]] = s->prev[b];
	s->len[s->on[b]]--;
	s->on[b] = REPLAY_NO_LIST;
}

/* Moves the block to the newest end of list l, from wherever it is. */
static inline void replay_lists_push(struct replay_lists *s, uint32_t b, uint8_t l)
{
	uint32_t head = s->n + l;

	replay_lists_remove(s, b);
	s->next[b] = s->next[head];
	s->prev[b] = head;
	s->prev[s->next[head]] = b;
	s->next[head] = b;
	s->on[b] = l;
	s->len[l]++;
}

static inline uint32_t replay_lists_oldest(const struct replay_lists *s, uint8_t l)
{
	assert(s->len[l] > 0);
	return s->prev[s->n + l];
}
