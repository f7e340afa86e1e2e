/* Cutting a file into chunks. */
#include "manifest/chunker.h"

#include <errno.h>
#include <stdlib.h>

void mc_chunk_plan_done(struct mc_chunk_plan *p)
{
	free(p->spans);
	*p = (struct mc_chunk_plan){0};
}

static int add(struct mc_chunk_plan *p, uint64_t off, uint64_t len, bool hole)
{
	if (p->n == p->cap) {
		size_t cap = p->cap == 0 ? 16 : 2 * p->cap;
		void *bigger = reallocarray(p->spans, cap, sizeof(*p->spans));

		if (bigger == NULL)
			return -ENOMEM;
		p->spans = bigger;
		p->cap = cap;
	}
	p->spans[p->n++] = (struct mc_chunk_span){.off = off, .len = len, .hole = hole};
	p->n_chunks += !hole;
	return 0;
}

/* Chunks for [at, end), which holds no hole; *next is the first anchor not yet passed. */
static int add_data(struct mc_chunk_plan *p, const struct mc_chunk_input *in, size_t *next,
	uint64_t at, uint64_t end)
{
	while (at < end) {
		uint64_t stop = end;
		int r;

		while (*next < in->n_anchors && in->anchors[*next] <= at)
			(*next)++;
		if (*next < in->n_anchors && in->anchors[*next] < stop)
			stop = in->anchors[*next];
		if (stop - at > MC_CHUNK_MAX)
			stop = at + MC_CHUNK_MAX;
		r = add(p, at, stop - at, false);
		if (r < 0)
			return r;
		at = stop;
	}
	return 0;
}

/* Shrinks the gap [*start, *end) to whole pages; the file's end needs no page. Kept at all? */
static bool keep_hole(const struct mc_chunk_input *in, uint64_t *start, uint64_t *end)
{
	uint64_t mask = MC_HOLE_ALIGN - 1;

	if (*start > UINT64_MAX - mask)
		return false;
	*start = (*start + mask) & ~mask;
	if (*end != in->size)
		*end &= ~mask;
	return *end > *start && *end - *start >= MC_HOLE_MIN;
}

static int check(const struct mc_chunk_input *in)
{
	uint64_t at = 0;

	for (size_t i = 0; i < in->n_data; i++) {
		uint64_t end;

		if (in->data[i].off < at || in->data[i].len == 0 ||
			__builtin_add_overflow(in->data[i].off, in->data[i].len, &end) ||
			end > in->size)
			return -EINVAL;
		at = end;
	}
	for (size_t i = 0; i < in->n_anchors; i++)
		if (in->anchors[i] >= in->size || (i > 0 && in->anchors[i] < in->anchors[i - 1]))
			return -EINVAL;
	return 0;
}

int mc_chunk_plan(const struct mc_chunk_input *in, struct mc_chunk_plan *ret)
{
	struct mc_chunk_plan p = {0};
	uint64_t from = 0, gap = 0; /* data not yet cut; where the current gap starts */
	size_t anchor = 0;
	int r = check(in);

	for (size_t i = 0; r == 0 && i <= in->n_data; i++) {
		uint64_t start = gap, end = i < in->n_data ? in->data[i].off : in->size;

		if (keep_hole(in, &start, &end)) {
			r = add_data(&p, in, &anchor, from, start);
			if (r == 0)
				r = add(&p, start, end - start, true);
			from = end;
		}
		if (i < in->n_data)
			gap = in->data[i].off + in->data[i].len;
	}
	if (r == 0)
		r = add_data(&p, in, &anchor, from, in->size);
	if (r < 0) {
		mc_chunk_plan_done(&p);
		return r;
	}
	*ret = p;
	return 0;
}

int mc_chunk_anchors(const struct mc_safetensors *st, uint64_t **ret, size_t *ret_n)
{
	size_t count = mc_safetensors_count(st), n = 0;
	uint64_t *v = calloc(count + 1, sizeof(*v));

	if (v == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		const struct mc_st_tensor *t = mc_safetensors_tensor(st, i);

		if (t->len >= MC_ANCHOR_MIN)
			v[n++] = t->off;
	}
	*ret = v;
	*ret_n = n;
	return 0;
}
