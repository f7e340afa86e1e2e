/*
 * Max-flow (Dinic) from holder sets to channels. The capacity of a channel starts at the mean and
 * is raised to the ratio of the set H behind each min-cut until everything flows (discrete Newton);
 * each step is exact because bytes are multiplied by the denominator.
 */
#include "manifest/planner-flow.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tier/cleanup.h"

struct edge {
	uint32_t to, rev; /* rev: index of the opposite edge */
	uint64_t cap;     /* residual */
};

/* Nodes: 0 source, 1 sink, 2 … sets, then channels. */
struct net {
	uint32_t n, n_sets, n_channels;
	uint32_t *channel;       /* channel ids of the channel nodes, ascending, owned */
	uint64_t *first;         /* n + 1, edges of node i, owned */
	struct edge *edge;       /* owned */
	uint32_t *level, *queue; /* owned */
	uint64_t *next;          /* owned */
};

void mc_holders_done(struct mc_holders *h)
{
	free(h->member);
	free(h->first);
	free(h->bytes);
	free(h->hash);
	*h = (struct mc_holders){0};
}

static uint64_t hash_set(const uint32_t *m, uint64_t n)
{
	uint64_t h = n;

	for (uint64_t i = 0; i < n; i++) {
		h = (h ^ m[i]) * UINT64_C(0x9e3779b97f4a7c15);
		h ^= h >> 31;
	}
	return h ^ h >> 32;
}

static int holders_grow(struct mc_holders *h, uint64_t members)
{
	if (h->n + 1 >= h->cap) {
		uint64_t cap = h->cap > 0 ? h->cap * 2 : 32;
		uint64_t *first = realloc(h->first, (cap + 1) * sizeof(*first));
		uint64_t *bytes;

		if (first == NULL)
			return -ENOMEM;
		h->first = first;
		bytes = realloc(h->bytes, cap * sizeof(*bytes));
		if (bytes == NULL)
			return -ENOMEM;
		h->bytes = bytes;
		if (h->cap == 0)
			h->first[0] = 0;
		h->cap = cap;
	}
	if (members > h->cap_member) {
		uint32_t *m = realloc(h->member, members * 2 * sizeof(*m));

		if (m == NULL)
			return -ENOMEM;
		h->member = m;
		h->cap_member = members * 2;
	}
	if (h->n * 2 >= h->hash_size) {
		uint32_t size = h->hash_size > 0 ? h->hash_size * 2 : 64;
		uint32_t *t = calloc(size, sizeof(*t));

		if (t == NULL)
			return -ENOMEM;
		for (uint32_t i = 0; i < h->n; i++) {
			uint64_t k =
				hash_set(h->member + h->first[i], h->first[i + 1] - h->first[i]);

			while (t[k & (size - 1)] != 0)
				k++;
			t[k & (size - 1)] = i + 1;
		}
		free(h->hash);
		h->hash = t;
		h->hash_size = size;
	}
	return 0;
}

int mc_holders_add(struct mc_holders *h, const uint32_t *member, uint32_t n, uint32_t *ret)
{
	int r = holders_grow(h, (h->n > 0 ? h->first[h->n] : 0) + n);
	uint64_t k;

	if (r < 0)
		return r;
	for (k = hash_set(member, n); h->hash[k & (h->hash_size - 1)] != 0; k++) {
		uint32_t i = h->hash[k & (h->hash_size - 1)] - 1;

		if (h->first[i + 1] - h->first[i] == n &&
			memcmp(h->member + h->first[i], member, n * sizeof(*member)) == 0) {
			*ret = i;
			return 0;
		}
	}
	memcpy(h->member + h->first[h->n], member, n * sizeof(*member));
	h->bytes[h->n] = 0;
	h->first[h->n + 1] = h->first[h->n] + n;
	h->hash[k & (h->hash_size - 1)] = ++h->n;
	*ret = h->n - 1;
	return 0;
}

static void net_done(struct net *g)
{
	free(g->channel);
	free(g->first);
	free(g->edge);
	free(g->level);
	free(g->queue);
	free(g->next);
}

static int u32_compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static uint32_t node_of(const struct net *g, uint32_t channel)
{
	const uint32_t *p = bsearch(&channel, g->channel, g->n_channels, sizeof(*p), u32_compare);

	return 2 + g->n_sets + (uint32_t)(p - g->channel);
}

static int net_channels(struct net *g, const struct mc_holders *h)
{
	uint64_t members = h->first[h->n];
	uint32_t n = 0;

	g->n_sets = h->n;
	g->channel = malloc((members + 1) * sizeof(*g->channel));
	if (g->channel == NULL)
		return -ENOMEM;
	memcpy(g->channel, h->member, members * sizeof(*g->channel));
	qsort(g->channel, members, sizeof(*g->channel), u32_compare);
	for (uint64_t i = 0; i < members; i++)
		if (n == 0 || g->channel[n - 1] != g->channel[i])
			g->channel[n++] = g->channel[i];
	g->n_channels = n;
	g->n = 2 + g->n_sets + n;
	return 0;
}

static void link_nodes(struct net *g, uint32_t a, uint32_t b)
{
	uint64_t ea = g->next[a]++, eb = g->next[b]++;

	g->edge[ea] = (struct edge){.to = b, .rev = (uint32_t)eb};
	g->edge[eb] = (struct edge){.to = a, .rev = (uint32_t)ea};
}

/* Edges in a fixed order: a set's first edge is from the source, a channel's last is to the sink.
 */
static int net_init(struct net *g, const struct mc_holders *h)
{
	uint64_t members = h->first[h->n], edges;
	int r = net_channels(g, h);

	if (r < 0)
		return r;
	edges = 2 * (members + g->n_sets + g->n_channels);
	if (edges > UINT32_MAX)
		return -EOVERFLOW;
	g->first = calloc((size_t)g->n + 2, sizeof(*g->first));
	g->edge = calloc(edges, sizeof(*g->edge));
	g->level = calloc(g->n, sizeof(*g->level));
	g->queue = calloc(g->n, sizeof(*g->queue));
	g->next = calloc((size_t)g->n + 1, sizeof(*g->next));
	if (g->first == NULL || g->edge == NULL || g->level == NULL || g->queue == NULL ||
		g->next == NULL)
		return -ENOMEM;
	g->first[0 + 1] = g->n_sets;
	g->first[1 + 1] = g->n_channels;
	for (uint32_t i = 0; i < g->n_sets; i++)
		g->first[2 + i + 1] = 1 + h->first[i + 1] - h->first[i];
	for (uint32_t c = 0; c < g->n_channels; c++)
		g->first[2 + g->n_sets + c + 1] = 1;
	for (uint64_t i = 0; i < members; i++)
		g->first[node_of(g, h->member[i]) + 1]++;
	for (uint32_t i = 0; i < g->n; i++)
		g->first[i + 1] += g->first[i];
	memcpy(g->next, g->first, g->n * sizeof(*g->next));
	for (uint32_t i = 0; i < g->n_sets; i++) {
		link_nodes(g, 0, 2 + i);
		for (uint64_t k = h->first[i]; k < h->first[i + 1]; k++)
			link_nodes(g, 2 + i, node_of(g, h->member[k]));
	}
	for (uint32_t c = 0; c < g->n_channels; c++)
		link_nodes(g, 2 + g->n_sets + c, 1);
	return 0;
}

/* Capacities anew: set bytes × scale from the source, cap to the sink. */
static void net_reset(struct net *g, const struct mc_holders *h, uint64_t scale, uint64_t cap)
{
	for (uint32_t v = 0; v < g->n; v++)
		for (uint64_t e = g->first[v]; e < g->first[v + 1]; e++)
			g->edge[e].cap = 0;
	for (uint32_t i = 0; i < g->n_sets; i++) {
		g->edge[g->first[0] + i].cap = h->bytes[i] * scale;
		for (uint64_t e = g->first[2 + i] + 1; e < g->first[2 + i + 1]; e++)
			g->edge[e].cap = UINT64_MAX / 2;
	}
	for (uint32_t c = 0; c < g->n_channels; c++)
		g->edge[g->first[2 + g->n_sets + c + 1] - 1].cap = cap;
}

/* Breadth first; says whether the sink is reached. */
static bool levels(struct net *g)
{
	uint32_t head = 0, tail = 0;

	memset(g->level, 0xff, g->n * sizeof(*g->level));
	g->level[0] = 0;
	g->queue[tail++] = 0;
	while (head < tail) {
		uint32_t v = g->queue[head++];

		for (uint64_t e = g->first[v]; e < g->first[v + 1]; e++) {
			uint32_t to = g->edge[e].to;

			if (g->edge[e].cap == 0 || g->level[to] != UINT32_MAX)
				continue;
			g->level[to] = g->level[v] + 1;
			g->queue[tail++] = to;
		}
	}
	return g->level[1] != UINT32_MAX;
}

/* Depth first along rising levels; returns what got through. */
static uint64_t push(struct net *g, uint32_t v, uint64_t limit)
{
	uint64_t done = 0;

	if (v == 1)
		return limit;
	for (; g->next[v] < g->first[v + 1] && done < limit; g->next[v]++) {
		struct edge *e = &g->edge[g->next[v]];
		uint64_t got;

		if (e->cap == 0 || g->level[e->to] != g->level[v] + 1)
			continue;
		got = push(g, e->to, limit - done < e->cap ? limit - done : e->cap);
		e->cap -= got;
		g->edge[e->rev].cap += got;
		done += got;
		if (done == limit)
			break;
	}
	return done;
}

static uint64_t max_flow(struct net *g)
{
	uint64_t total = 0;

	while (levels(g)) {
		memcpy(g->next, g->first, g->n * sizeof(*g->next));
		total += push(g, 0, UINT64_MAX);
	}
	return total;
}

/* After a flow that did not carry all: the set H behind the min-cut and its bytes. */
static void cut_ratio(
	const struct net *g, const struct mc_holders *h, uint64_t *ret_num, uint64_t *ret_den)
{
	uint64_t num = 0, den = 0;

	for (uint32_t i = 0; i < g->n_sets; i++)
		if (g->level[2 + i] != UINT32_MAX)
			num += h->bytes[i];
	for (uint32_t c = 0; c < g->n_channels; c++)
		den += g->level[2 + g->n_sets + c] != UINT32_MAX;
	*ret_num = num;
	*ret_den = den;
}

static int solve(struct net *g, const struct mc_holders *h, uint64_t total, struct mc_egress *e)
{
	uint64_t scaled, cap;

	e->num = total;
	e->den = g->n_channels;
	for (;;) {
		if (__builtin_mul_overflow(total, e->den, &scaled) || scaled > UINT64_MAX / 4)
			return -EOVERFLOW;
		net_reset(g, h, e->den, e->num);
		if (max_flow(g) == scaled)
			break;
		cut_ratio(g, h, &e->num, &e->den);
	}
	cap = e->num / e->den + (e->num % e->den != 0);
	net_reset(g, h, 1, cap);
	max_flow(g);
	for (uint32_t i = 0; i < g->n_sets; i++)
		for (uint64_t k = h->first[i]; k < h->first[i + 1]; k++) {
			const struct edge *x = &g->edge[g->first[2 + i] + 1 + (k - h->first[i])];

			e->share[k] = g->edge[x->rev].cap;
		}
	return 0;
}

int mc_egress_solve(const struct mc_holders *h, struct mc_egress *ret)
{
	struct mc_egress e = {.num = 0, .den = 1};
	struct net g = {0};
	uint64_t total = 0;
	int r = 0;

	for (uint32_t i = 0; i < h->n; i++)
		if (__builtin_add_overflow(total, h->bytes[i], &total))
			return -EOVERFLOW;
	e.share = calloc((h->n > 0 ? h->first[h->n] : 0) + 1, sizeof(*e.share));
	if (e.share == NULL)
		return -ENOMEM;
	if (total > 0) {
		r = net_init(&g, h);
		if (r == 0)
			r = solve(&g, h, total, &e);
		net_done(&g);
	}
	if (r < 0)
		mc_egress_done(&e);
	else
		*ret = e;
	return r;
}

void mc_egress_done(struct mc_egress *e)
{
	free(e->share);
	e->share = NULL;
}
