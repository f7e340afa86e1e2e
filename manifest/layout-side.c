/* A sharding as one side of a plan: the pieces of all ranks in byte space, grouped by source
 * tensor. */
#include "manifest/layout-build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/dtype.h"
#include "tier/array.h"
#include "tier/cleanup.h"

struct owned_shard {
	uint32_t tensor;
	struct mc_shard shard;
};

struct gather {
	const struct mc_sharding *s;
	uint32_t base, rank, output;
	struct mc_local_piece *piece; /* of one output at one rank, owned */
	uint32_t n_pieces, cap_pieces;
	struct owned_shard *shard; /* owned */
	uint32_t n_shards, cap_shards;
	uint32_t *uses;    /* outputs that tensor is in, owned */
	uint32_t *seen;    /* of them, how many were gathered, owned */
	uint32_t *pattern; /* by kind, for outputs of one tensor; owned */
};

static int on_piece(void *arg, const struct mc_local_piece *p)
{
	struct gather *g = arg;
	int r = mc_array_room(&g->piece, &g->cap_pieces, g->n_pieces + 1);

	if (r == 0)
		g->piece[g->n_pieces++] = *p;
	return r;
}

/* Elements of the rank's tensor → bytes. */
static int place_of(const struct local_shape *l, const struct mc_local_piece *p, unsigned bits,
	struct mc_shard *ret)
{
	uint32_t shift = p->stacked ? 1 : 0, n = p->box.rank;
	uint64_t stride = 1, base = 0;

	for (uint32_t j = l->rank; j-- > 0;) {
		base += p->at[j] * stride;
		if (j >= shift && j - shift + 1 < n) {
			if (stride * bits % 8 != 0)
				return -EINVAL;
			ret->place.stride[j - shift] = stride * bits / 8;
		}
		stride *= l->shape[j];
	}
	if (base * bits % 8 != 0)
		return -EINVAL;
	ret->place.base = base * bits / 8;
	ret->place.stride[n > 0 ? n - 1 : 0] = 1;
	return mc_box_to_bytes(&p->box, bits, &ret->box);
}

static int gather_rank(struct gather *g, const struct output *o, struct mc_err *err)
{
	const struct piece_sink sink = {.fn = on_piece, .arg = g};
	struct local_shape shape;
	int r;

	g->n_pieces = 0;
	r = mc_ly_output_at(g->s, o, g->rank, &shape, &sink, err);
	for (uint32_t i = 0; i < g->n_pieces && r == 0; i++) {
		struct owned_shard *x;

		r = mc_array_room(&g->shard, &g->cap_shards, g->n_shards + 1);
		if (r < 0)
			return r;
		x = &g->shard[g->n_shards++];
		memset(x, 0, sizeof(*x));
		x->tensor = g->piece[i].tensor;
		x->shard.participant = g->base + g->rank;
		x->shard.output = g->seen[x->tensor];
		if (place_of(&shape, &g->piece[i], mc_dtype_bits(shape.dtype), &x->shard) < 0)
			r = mc_err_set(err, -EINVAL, "tensor %s, rank %u: a cut inside a byte",
				g->s->names + o->name, g->rank);
	}
	return r;
}

static int gather_output(struct gather *g, const struct output *o, struct mc_err *err)
{
	int r = 0;

	for (g->rank = 0; g->rank < g->s->l->mesh.world && r == 0; g->rank++)
		r = gather_rank(g, o, err);
	for (uint32_t i = 0; i < o->n; i++)
		g->seen[g->s->member[o->first + i].tensor]++;
	return r;
}

static int owned_compare(const void *a, const void *b)
{
	const struct owned_shard *x = a, *y = b;

	return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* Hands shards [from, n_shards) over to the side, tensor by tensor. */
static int hand_over(struct gather *g, uint32_t from, struct mc_side *side)
{
	uint32_t n = g->n_shards - from;
	struct owned_shard *v = g->shard + from;
	cleanup_free struct mc_shard *plain = malloc(((size_t)n + 1) * sizeof(*plain));
	int r = 0;

	if (plain == NULL)
		return -ENOMEM;
	if (n > 1)
		qsort(v, n, sizeof(*v), owned_compare);
	for (uint32_t i = 0; i < n; i++)
		plain[i] = v[i].shard;
	for (uint32_t i = 0, j; i < n && r == 0; i = j) {
		for (j = i + 1; j < n && v[j].tensor == v[i].tensor; j++)
			;
		r = mc_side_set(side, v[i].tensor, plain + i, j - i, NULL);
	}
	return r;
}

static bool shared(const struct gather *g, const struct output *o)
{
	for (uint32_t i = 0; i < o->n; i++)
		if (g->uses[g->s->member[o->first + i].tensor] > 1)
			return true;
	return false;
}

/* An output of one tensor lies as all others of its kind do. */
static int plain_output(
	struct gather *g, const struct output *o, struct mc_side *side, struct mc_err *err)
{
	const struct member *m = &g->s->member[o->first];
	int r;

	if (g->pattern[m->kind] != MC_PATTERN_NONE)
		return mc_side_set_pattern(side, m->tensor, g->pattern[m->kind]);
	g->n_shards = 0;
	r = gather_output(g, o, err);
	if (r == 0 && g->n_shards > 0)
		r = hand_over(g, 0, side);
	if (r == 0)
		g->pattern[m->kind] = side->of_tensor[m->tensor];
	return r;
}

static int all_outputs(struct gather *g, struct mc_side *side, struct mc_err *err)
{
	const struct mc_sharding *s = g->s;
	int r = 0;

	for (uint32_t i = 0; i < s->n_outputs && r == 0; i++) {
		const struct output *o = &s->output[i];

		g->n_shards = 0;
		if (shared(g, o))
			continue;
		if (o->n == 1 && !o->stacked) {
			r = plain_output(g, o, side, err);
			continue;
		}
		r = gather_output(g, o, err);
		if (r == 0)
			r = hand_over(g, 0, side);
	}
	g->n_shards = 0;
	for (uint32_t i = 0; i < s->n_outputs && r == 0; i++)
		if (shared(g, &s->output[i]))
			r = gather_output(g, &s->output[i], err);
	return r < 0 ? r : hand_over(g, 0, side);
}

int mc_sharding_side(
	const struct mc_sharding *s, uint32_t base, struct mc_side *ret, struct mc_err *err)
{
	struct gather g = {.s = s, .base = base};
	int r = mc_side_init(ret, s->n_tensors);

	if (r < 0)
		return r;
	g.uses = calloc((size_t)s->n_tensors + 1, sizeof(*g.uses));
	g.seen = calloc((size_t)s->n_tensors + 1, sizeof(*g.seen));
	g.pattern = malloc(((size_t)s->n_kinds + 1) * sizeof(*g.pattern));
	if (g.uses == NULL || g.seen == NULL || g.pattern == NULL)
		r = -ENOMEM;
	for (uint32_t i = 0; i < s->n_kinds && r == 0; i++)
		g.pattern[i] = MC_PATTERN_NONE;
	for (uint32_t i = 0; i < s->n_outputs && r == 0; i++)
		for (uint32_t k = 0; k < s->output[i].n; k++)
			g.uses[s->member[s->output[i].first + k].tensor]++;
	if (r == 0)
		r = all_outputs(&g, ret, err);
	free(g.uses);
	free(g.seen);
	free(g.pattern);
	free(g.piece);
	free(g.shard);
	if (r < 0)
		mc_side_done(ret);
	return r;
}

int mc_side_of_files(
	const struct mc_layout_tensor *t, uint32_t n, uint32_t participant, struct mc_side *ret)
{
	int r = mc_side_init(ret, n);

	for (uint32_t i = 0; i < n && r == 0; i++) {
		struct mc_shard s;
		struct mc_box box = {.rank = t[i].rank};

		memset(&s, 0, sizeof(s));
		s.participant = participant;
		memcpy(box.len, t[i].shape, sizeof(box.len));
		r = mc_box_to_bytes(&box, mc_dtype_bits(t[i].dtype), &s.box);
		mc_address_dense(&s.box, 0, &s.place);
		if (r == 0)
			r = mc_side_set(ret, i, &s, 1, NULL);
	}
	if (r < 0)
		mc_side_done(ret);
	return r;
}
