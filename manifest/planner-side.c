/* One side of a reshard: interning the ways tensors lie on participants. */
#include "manifest/planner-side.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tier/array.h"
#include "tier/cleanup.h"

struct tagged {
	struct mc_shard shard;
	uint64_t tag;
};

int mc_side_init(struct mc_side *s, uint32_t n_tensors)
{
	*s = (struct mc_side){.n_tensors = n_tensors};
	s->of_tensor = malloc(((size_t)n_tensors + 1) * sizeof(*s->of_tensor));
	if (s->of_tensor == NULL)
		return -ENOMEM;
	memset(s->of_tensor, 0xff, ((size_t)n_tensors + 1) * sizeof(*s->of_tensor));
	return 0;
}

void mc_side_done(struct mc_side *s)
{
	free(s->shard);
	free(s->pattern);
	free(s->of_tensor);
	free(s->hash);
	free(s->tag);
	free(s->tag_first);
	*s = (struct mc_side){0};
}

static int cmp_u64(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int shard_compare(const void *a, const void *b)
{
	const struct tagged *x = a, *y = b;
	int c = cmp_u64(x->shard.participant, y->shard.participant);

	if (c == 0)
		c = mc_box_compare(&x->shard.box, &y->shard.box);
	if (c == 0)
		c = cmp_u64(x->shard.place.base, y->shard.place.base);
	for (unsigned d = 0; c == 0 && d < x->shard.box.rank; d++)
		c = cmp_u64(x->shard.place.stride[d], y->shard.place.stride[d]);
	if (c == 0)
		c = cmp_u64(x->shard.output, y->shard.output);
	return c != 0 ? c : cmp_u64(x->tag, y->tag);
}

/* Copies what counts into zeroed memory, so that equal patterns are equal bytes. */
static int normalise(struct mc_shard *to, const struct mc_shard *from)
{
	memset(to, 0, sizeof(*to));
	if (from->box.rank == 0 || from->box.rank > MC_BOX_RANK)
		return -EINVAL;
	to->participant = from->participant;
	to->output = from->output;
	to->box.rank = from->box.rank;
	to->place.base = from->place.base;
	for (unsigned d = 0; d < from->box.rank; d++) {
		uint64_t off = from->box.off[d], len = from->box.len[d];

		if (off >= MC_SIDE_MAX_BYTES || len >= MC_SIDE_MAX_BYTES ||
			from->place.stride[d] >= MC_SIDE_MAX_BYTES)
			return -EOVERFLOW;
		to->box.off[d] = off;
		to->box.len[d] = len;
		to->place.stride[d] = from->place.stride[d];
	}
	return mc_box_volume(&to->box) < MC_SIDE_MAX_BYTES ? 0 : -EOVERFLOW;
}

static uint64_t hash_shards(const struct mc_shard *v, uint32_t n)
{
	const size_t words = n * sizeof(*v) / sizeof(uint64_t);
	uint64_t h = n;

	for (size_t i = 0; i < words; i++) {
		uint64_t w;

		memcpy(&w, (const char *)v + i * sizeof(w), sizeof(w));
		h = (h ^ w) * UINT64_C(0x9e3779b97f4a7c15);
		h ^= h >> 29;
	}
	return h ^ h >> 32;
}

static int rehash(struct mc_side *s)
{
	uint32_t size = s->hash_size > 0 ? s->hash_size * 2 : 64;
	uint32_t *t = calloc(size, sizeof(*t));

	if (t == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->n_patterns; i++) {
		uint64_t h = hash_shards(s->shard + s->pattern[i].first, s->pattern[i].n);

		while (t[h & (size - 1)] != 0)
			h++;
		t[h & (size - 1)] = i + 1;
	}
	free(s->hash);
	s->hash = t;
	s->hash_size = size;
	return 0;
}

static int intern(struct mc_side *s, const struct mc_shard *v, uint32_t n, uint32_t *ret)
{
	uint64_t h;
	int r = 0;

	if (s->n_patterns * 2 >= s->hash_size)
		r = rehash(s);
	if (r < 0)
		return r;
	for (h = hash_shards(v, n); s->hash[h & (s->hash_size - 1)] != 0; h++) {
		uint32_t i = s->hash[h & (s->hash_size - 1)] - 1;
		const struct mc_pattern *p = &s->pattern[i];

		if (p->n == n && (n == 0 || memcmp(s->shard + p->first, v, n * sizeof(*v)) == 0)) {
			*ret = i;
			return 0;
		}
	}
	r = mc_array_room(&s->shard, &s->cap_shards, (uint64_t)s->n_shards + n);
	if (r == 0)
		r = mc_array_room(&s->pattern, &s->cap_patterns, (uint64_t)s->n_patterns + 1);
	if (r < 0)
		return r;
	if (n > 0)
		if (n > 0)
			memcpy(s->shard + s->n_shards, v, n * sizeof(*v));
	s->pattern[s->n_patterns] = (struct mc_pattern){.first = s->n_shards, .n = n};
	s->n_shards += n;
	s->hash[h & (s->hash_size - 1)] = ++s->n_patterns;
	*ret = s->n_patterns - 1;
	return 0;
}

static int keep_tags(struct mc_side *s, uint32_t tensor, const struct tagged *v, uint32_t n)
{
	int r;

	if (s->tag_first == NULL) {
		s->tag_first = malloc(((size_t)s->n_tensors + 1) * sizeof(*s->tag_first));
		if (s->tag_first == NULL)
			return -ENOMEM;
		memset(s->tag_first, 0xff, ((size_t)s->n_tensors + 1) * sizeof(*s->tag_first));
	}
	r = mc_array_room(&s->tag, &s->cap_tags, s->n_tags + n);
	if (r < 0)
		return r;
	s->tag_first[tensor] = s->n_tags;
	for (uint32_t i = 0; i < n; i++)
		s->tag[s->n_tags++] = v[i].tag;
	return 0;
}

int mc_side_set(struct mc_side *s, uint32_t tensor, const struct mc_shard *shards, uint32_t n,
	const uint64_t *tags)
{
	cleanup_free struct tagged *sorted = malloc(((size_t)n + 1) * sizeof(*sorted));
	cleanup_free struct mc_shard *plain = malloc(((size_t)n + 1) * sizeof(*plain));
	uint32_t pattern;
	int r = 0;

	if (sorted == NULL || plain == NULL)
		return -ENOMEM;
	if (tensor >= s->n_tensors)
		return -EINVAL;
	if (s->of_tensor[tensor] != MC_PATTERN_NONE)
		return -EEXIST;
	for (uint32_t i = 0; i < n && r == 0; i++) {
		r = normalise(&sorted[i].shard, &shards[i]);
		if (shards[i].box.rank != shards[0].box.rank)
			r = -EINVAL;
		sorted[i].tag = tags != NULL ? tags[i] : 0;
	}
	if (r < 0)
		return r;
	if (n > 1)
		qsort(sorted, n, sizeof(*sorted), shard_compare);
	for (uint32_t i = 0; i < n; i++)
		plain[i] = sorted[i].shard;
	r = intern(s, plain, n, &pattern);
	if (r == 0 && tags != NULL)
		r = keep_tags(s, tensor, sorted, n);
	if (r == 0)
		s->of_tensor[tensor] = pattern;
	return r;
}

int mc_side_set_pattern(struct mc_side *s, uint32_t tensor, uint32_t pattern)
{
	if (tensor >= s->n_tensors || pattern >= s->n_patterns)
		return -EINVAL;
	if (s->of_tensor[tensor] != MC_PATTERN_NONE)
		return -EEXIST;
	s->of_tensor[tensor] = pattern;
	return 0;
}

uint64_t mc_side_tag(const struct mc_side *s, uint32_t tensor, uint32_t shard)
{
	uint32_t p = s->of_tensor[tensor];

	if (s->tag_first == NULL || p == MC_PATTERN_NONE || s->tag_first[tensor] == UINT64_MAX)
		return UINT64_MAX;
	return s->tag[s->tag_first[tensor] + shard - s->pattern[p].first];
}
