/*
 * Bipartite edge colouring with as many colours as the busiest channel has pieces (König). Each
 * piece takes a colour free at both ends; when there is none, the two colours free at either end
 * are swapped along the alternating path, which cannot come back to the piece because the graph is
 * bipartite.
 *
 * Invariant: at[v][c] is the piece of colour c at node v or NONE, and the bit c of spare[v] is set
 * exactly when it is NONE. Nodes are the senders, then the receivers.
 */
#include "manifest/binder-build.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tier/cleanup.h"

#define NONE UINT32_MAX

struct colouring {
	struct mc_bound_piece *piece; /* borrowed */
	uint32_t n_channels, colours;
	size_t words;    /* of spare per node */
	uint32_t *at;    /* nodes × colours, owned */
	uint64_t *spare; /* nodes × words, owned */
};

static uint32_t *slot(struct colouring *k, uint32_t node, uint32_t colour)
{
	return &k->at[(size_t)node * k->colours + colour];
}

static void put(struct colouring *k, uint32_t node, uint32_t colour, uint32_t piece)
{
	uint64_t *w = &k->spare[node * k->words + colour / 64], bit = UINT64_C(1) << (colour % 64);

	*slot(k, node, colour) = piece;
	*w = piece == NONE ? *w | bit : *w & ~bit;
}

/* The first colour free at both nodes, or NONE. */
static uint32_t common(const struct colouring *k, uint32_t u, uint32_t v)
{
	for (size_t i = 0; i < k->words; i++) {
		uint64_t w = k->spare[u * k->words + i] & k->spare[v * k->words + i];

		if (w != 0)
			return (uint32_t)(i * 64) + (uint32_t)__builtin_ctzll(w);
	}
	return NONE;
}

/* Swaps colours a and b along the path that starts at node with colour a; afterwards a is free
 * there. */
static void swap_path(struct colouring *k, uint32_t node, uint32_t a, uint32_t b)
{
	uint32_t e = *slot(k, node, a), from = node;

	put(k, node, a, NONE);
	while (e != NONE) {
		struct mc_bound_piece *p = &k->piece[e];
		uint32_t other = from == p->src ? p->dst + k->n_channels : p->src;
		uint32_t next, was = a;

		/* e had colour a at from; it gets b at both ends. */
		put(k, from, b, e);
		next = *slot(k, other, b);
		if (*slot(k, other, a) == e)
			put(k, other, a, NONE);
		put(k, other, b, e);
		p->round = b;
		a = b;
		b = was;
		from = other;
		e = next;
	}
}

static int colouring_init(struct colouring *k, struct mc_binding *b, uint32_t n_channels)
{
	size_t nodes = 2 * (size_t)n_channels;
	cleanup_free uint32_t *degree = calloc(nodes + 1, sizeof(*degree));

	*k = (struct colouring){.piece = b->piece, .n_channels = n_channels};
	if (degree == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < b->n_pieces; i++) {
		degree[b->piece[i].src]++;
		degree[n_channels + b->piece[i].dst]++;
	}
	for (size_t v = 0; v < nodes; v++)
		if (degree[v] > k->colours)
			k->colours = degree[v];
	k->words = (k->colours + 63) / 64;
	k->at = malloc((nodes * k->colours + 1) * sizeof(*k->at));
	k->spare = calloc(nodes * k->words + 1, sizeof(*k->spare));
	if (k->at == NULL || k->spare == NULL)
		return -ENOMEM;
	memset(k->at, 0xff, nodes * k->colours * sizeof(*k->at));
	for (size_t v = 0; v < nodes; v++)
		for (uint32_t c = 0; c < k->colours; c++)
			k->spare[v * k->words + c / 64] |= UINT64_C(1) << (c % 64);
	return 0;
}

static uint32_t first_spare(const struct colouring *k, uint32_t node)
{
	return common(k, node, node);
}

int mc_binder_colour(struct mc_binding *b, uint32_t n_channels)
{
	struct colouring k;
	int r = colouring_init(&k, b, n_channels);

	for (uint32_t i = 0; i < b->n_pieces && r == 0; i++) {
		struct mc_bound_piece *p = &b->piece[i];
		uint32_t u = p->src, v = p->dst + n_channels, c = common(&k, u, v);

		if (c == NONE) {
			uint32_t other = first_spare(&k, v);

			c = first_spare(&k, u);
			assert(c != NONE && other != NONE);
			swap_path(&k, v, c, other);
		}
		put(&k, u, c, i);
		put(&k, v, c, i);
		p->round = c;
	}
	b->n_rounds = r == 0 ? k.colours : 0;
	free(k.at);
	free(k.spare);
	return r;
}
