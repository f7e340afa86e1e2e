/* Traces that are made up: conversations with growing prefixes, and a working set around a scan. */
#include "tests/replay/replay.h"

#include <errno.h>
#include <stdlib.h>

#define SESSIONS 200   /* conversations that go on at a time */
#define MAX_BLOCKS 200 /* of one conversation; then another takes its place */

/* xorshift64*: the same sequence for the same seed everywhere. */
static uint32_t next_random(uint64_t *s, uint32_t below)
{
	*s ^= *s >> 12;
	*s ^= *s << 25;
	*s ^= *s >> 27;
	return (uint32_t)((*s * UINT64_C(2685821657736338717)) >> 33) % below;
}

struct session {
	uint32_t first, blocks; /* blocks first … first + blocks - 1, after the common block 0 */
	bool once;              /* asks one question and leaves */
};

int replay_trace_generate(uint64_t seed, size_t requests, struct replay_trace *ret)
{
	struct session *live = calloc(SESSIONS, sizeof(*live));
	struct replay_trace t = {.n_ids = 1};

	t.ids = calloc(requests * (MAX_BLOCKS + 1), sizeof(*t.ids));
	if (t.ids == NULL || live == NULL) {
		free(live);
		free(t.ids);
		return -ENOMEM;
	}
	for (size_t r = 0; r < requests; r++) {
		struct session *s = &live[next_random(&seed, SESSIONS)];
		uint32_t more = 1 + next_random(&seed, 16);

		if (s->blocks == 0 || s->once || s->blocks + more > MAX_BLOCKS) {
			*s = (struct session){.first = t.n_ids, .once = next_random(&seed, 2) == 0};
			t.n_ids += MAX_BLOCKS;
		}
		s->blocks += more;
		t.ids[t.n++] = 0;
		for (uint32_t b = 0; b < s->blocks; b++)
			t.ids[t.n++] = s->first + b;
	}
	free(live);
	*ret = t;
	return 0;
}

int replay_trace_with_scan(uint64_t seed, const struct replay_scan *scan, struct replay_trace *ret)
{
	size_t before = (size_t)scan->rounds * scan->working_set;
	struct replay_trace t = {.n = before + scan->length + scan->working_set,
		.n_ids = scan->working_set + scan->length};

	t.ids = calloc(t.n, sizeof(*t.ids));
	if (t.ids == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < t.n; i++) {
		if (i >= before && i < before + scan->length)
			t.ids[i] = scan->working_set + (uint32_t)(i - before);
		else if (scan->in_order)
			t.ids[i] =
				(uint32_t)((i < before ? i : i - scan->length) % scan->working_set);
		else
			t.ids[i] = next_random(&seed, scan->working_set);
	}
	*ret = t;
	return 0;
}
