/*
 * Sequential streams within one file.
 *
 * Invariants: S1 a stream fetches ahead only after two reads in a row continued it, so random
 * readers cost exactly the blocks they touch; S2 small reads continue a stream only at its very
 * end, large ones (the kernel's readahead, answered by several threads) also a little out of order.
 */
#include "tier/stream.h"

#include "tier/plan.h"

#define LARGE (128u << 10)        /* bytes: the kernel's smallest readahead request */
#define SLACK (2 * MC_BLOCK_SIZE) /* bytes a large read may be out of order */
#define FIRST_WINDOW 4            /* blocks */

static struct mc_stream *find(struct mc_streams *t, uint64_t off, uint32_t len)
{
	for (unsigned i = 0; i < MC_STREAMS; i++) {
		struct mc_stream *s = &t->s[i];
		uint64_t slack = len >= LARGE ? SLACK : 0;

		if (s->used != 0 && off + slack >= s->next && off <= s->next + slack)
			return s;
	}
	return NULL;
}

static struct mc_stream *oldest(struct mc_streams *t)
{
	struct mc_stream *s = &t->s[0];

	for (unsigned i = 1; i < MC_STREAMS; i++)
		if (t->s[i].used < s->used)
			s = &t->s[i];
	return s;
}

uint32_t mc_streams_note(
	struct mc_streams *t, uint64_t off, uint32_t len, uint32_t max_window, uint64_t *ret_first)
{
	struct mc_stream *s = find(t, off, len);
	uint64_t here, until, first;

	t->notes++;
	if (s == NULL) {
		s = oldest(t);
		*s = (struct mc_stream){.next = off + len, .used = t->notes};
		return 0;
	}
	s->used = t->notes;
	if (off + len > s->next)
		s->next = off + len;
	if (++s->run < 2)
		return 0;
	s->window = s->window == 0 ? FIRST_WINDOW : s->window * 2;
	if (s->window > max_window)
		s->window = max_window;
	here = (s->next - 1) >> MC_BLOCK_SHIFT;
	until = here + 1 + s->window;
	first = s->ahead > here ? s->ahead : here + 1;
	if (first >= until)
		return 0;
	s->ahead = until;
	*ret_first = first;
	return (uint32_t)(until - first);
}
