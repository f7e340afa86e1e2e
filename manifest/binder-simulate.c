/*
 * Executes the pieces in time: every channel sends at most one piece and receives at most one at a
 * time, at 1 byte per unit. Whenever a channel becomes idle it starts a piece with an idle partner,
 * if there is one: no pair of idle channels ever has a piece waiting, hence the makespan is below
 * max egress + max ingress. The partner with most bytes left comes first, because the longest
 * remaining work must not be left for the end; among equals the earliest round decides.
 *
 * Invariants: 1. queue q holds the pieces of one (sender, receiver) pair in round order, head[q] is
 * the next; 2. a channel is in its idle list exactly when it is idle and has pieces left; 3. nodes
 * are the senders, then the receivers; the pieces of a node are own[] in round order, and all
 * before next[node] have started.
 */
#include "manifest/binder-build.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tier/cleanup.h"

#define NONE UINT32_MAX

struct event {
	uint64_t at;
	uint32_t piece;
};

struct idle {
	uint32_t *v;   /* channels, any order, owned */
	uint32_t *pos; /* by channel: place in v or NONE, owned */
	uint32_t n;
};

struct sim {
	const struct mc_bound_piece *piece; /* borrowed */
	uint32_t n_channels, n_queues;
	uint32_t *order;      /* pieces by (src, dst, round), owned */
	uint32_t *first;      /* by queue, n_queues + 1, in order, owned */
	uint32_t *head;       /* by queue, owned */
	uint32_t *of_src;     /* by channel, n + 1: its queues, ascending receivers, owned */
	uint64_t *bytes_left; /* by node, owned */
	uint32_t *left;       /* pieces left by node, owned */
	uint32_t *own;        /* pieces of all nodes, owned */
	uint32_t *own_first;  /* by node, n + 1, owned */
	uint32_t *next;       /* by node, in own, owned */
	uint8_t *started;     /* by piece, owned */
	struct idle senders, receivers;
	struct event *heap; /* owned */
	uint32_t n_heap;
	uint64_t now;
};

static void heap_push(struct sim *s, struct event e)
{
	uint32_t i = s->n_heap++;

	while (i > 0 && s->heap[(i - 1) / 2].at > e.at) {
		s->heap[i] = s->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	s->heap[i] = e;
}

static struct event heap_pop(struct sim *s)
{
	struct event top = s->heap[0], e = s->heap[--s->n_heap];
	uint32_t i = 0;

	for (;;) {
		uint32_t k = 2 * i + 1;

		if (k >= s->n_heap)
			break;
		if (k + 1 < s->n_heap && s->heap[k + 1].at < s->heap[k].at)
			k++;
		if (s->heap[k].at >= e.at)
			break;
		s->heap[i] = s->heap[k];
		i = k;
	}
	s->heap[i] = e;
	return top;
}

static void idle_add(struct idle *l, uint32_t channel)
{
	l->pos[channel] = l->n;
	l->v[l->n++] = channel;
}

static void idle_remove(struct idle *l, uint32_t channel)
{
	uint32_t at = l->pos[channel], last = l->v[--l->n];

	l->v[at] = last;
	l->pos[last] = at;
	l->pos[channel] = NONE;
}

/* The queue of a pair, or NONE when it has none or is empty. */
static uint32_t find_queue(const struct sim *s, uint32_t src, uint32_t dst)
{
	uint32_t lo = s->of_src[src], hi = s->of_src[src + 1];

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2, d = s->piece[s->order[s->first[mid]]].dst;

		if (d == dst)
			return s->head[mid] < s->first[mid + 1] ? mid : NONE;
		if (d < dst)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NONE;
}

/* The earliest-round piece of a node that has not started; the node has one. */
static uint32_t first_waiting(struct sim *s, uint32_t node)
{
	while (s->started[s->own[s->next[node]]])
		s->next[node]++;
	return s->own[s->next[node]];
}

static uint64_t most_left(const struct sim *s, const struct idle *others, uint32_t base)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < others->n; i++)
		if (s->bytes_left[base + others->v[i]] > most)
			most = s->bytes_left[base + others->v[i]];
	return most;
}

/* The piece that channel should start with one of the idle others, or NONE. */
static uint32_t choose(struct sim *s, uint32_t channel, bool sends)
{
	const struct idle *others = sends ? &s->receivers : &s->senders;
	uint32_t base = sends ? s->n_channels : 0;
	uint32_t best = first_waiting(s, sends ? channel : s->n_channels + channel);
	uint32_t partner = sends ? s->piece[best].dst : s->piece[best].src;
	uint64_t most = 0;

	/* Mostly the next piece in the order of rounds is also the best one. */
	if (others->pos[partner] != NONE &&
		s->bytes_left[base + partner] == most_left(s, others, base))
		return best;
	best = NONE;
	for (uint32_t i = 0; i < others->n; i++) {
		uint32_t o = others->v[i], q, e;

		if (s->bytes_left[base + o] < most)
			continue;
		q = sends ? find_queue(s, channel, o) : find_queue(s, o, channel);
		e = q != NONE ? s->order[s->head[q]] : NONE;
		if (e == NONE ||
			(s->bytes_left[base + o] == most && best != NONE &&
				s->piece[e].round >= s->piece[best].round))
			continue;
		most = s->bytes_left[base + o];
		best = e;
	}
	return best;
}

static void start_one(struct sim *s, uint32_t channel, bool sends)
{
	uint32_t e = choose(s, channel, sends);
	const struct mc_bound_piece *p;

	if (e == NONE)
		return;
	p = &s->piece[e];
	s->head[find_queue(s, p->src, p->dst)]++;
	s->started[e] = 1;
	idle_remove(&s->senders, p->src);
	idle_remove(&s->receivers, p->dst);
	s->left[p->src]--;
	s->left[s->n_channels + p->dst]--;
	s->bytes_left[p->src] -= p->bytes;
	s->bytes_left[s->n_channels + p->dst] -= p->bytes;
	heap_push(s, (struct event){.at = s->now + p->bytes, .piece = e});
}

static void finish(struct sim *s, uint32_t piece)
{
	const struct mc_bound_piece *p = &s->piece[piece];

	if (s->left[p->src] > 0)
		idle_add(&s->senders, p->src);
	if (s->left[s->n_channels + p->dst] > 0)
		idle_add(&s->receivers, p->dst);
}

static int order_compare(const void *a, const void *b, void *pieces)
{
	const struct mc_bound_piece *v = pieces, *x = &v[*(const uint32_t *)a],
				    *y = &v[*(const uint32_t *)b];

	if (x->src != y->src)
		return x->src < y->src ? -1 : 1;
	if (x->dst != y->dst)
		return x->dst < y->dst ? -1 : 1;
	return (x->round > y->round) - (x->round < y->round);
}

static void make_queues(struct sim *s, struct mc_bound_piece *pieces, uint32_t n)
{
	uint32_t src = 0;

	for (uint32_t i = 0; i < n; i++)
		s->order[i] = i;
	qsort_r(s->order, n, sizeof(*s->order), order_compare, pieces);
	for (uint32_t i = 0; i < n; i++) {
		const struct mc_bound_piece *p = &s->piece[s->order[i]];
		const struct mc_bound_piece *before = i > 0 ? &s->piece[s->order[i - 1]] : NULL;

		if (before == NULL || before->src != p->src || before->dst != p->dst) {
			for (; src <= p->src; src++)
				s->of_src[src] = s->n_queues;
			s->head[s->n_queues] = i;
			s->first[s->n_queues++] = i;
		}
		s->bytes_left[p->src] += p->bytes;
		s->bytes_left[s->n_channels + p->dst] += p->bytes;
		s->left[p->src]++;
		s->left[s->n_channels + p->dst]++;
	}
	for (; src <= s->n_channels; src++)
		s->of_src[src] = s->n_queues;
	s->first[s->n_queues] = n;
}

/* Pieces are in round order already. */
static void make_own(struct sim *s, uint32_t n)
{
	uint32_t nodes = 2 * s->n_channels;

	for (uint32_t i = 0; i < nodes; i++)
		s->own_first[i + 1] = s->own_first[i] + s->left[i];
	memcpy(s->next, s->own_first, nodes * sizeof(*s->next));
	for (uint32_t i = 0; i < n; i++) {
		s->own[s->next[s->piece[i].src]++] = i;
		s->own[s->next[s->n_channels + s->piece[i].dst]++] = i;
	}
	memcpy(s->next, s->own_first, nodes * sizeof(*s->next));
}

static int sim_init(struct sim *s, struct mc_binding *b, uint32_t n_channels)
{
	size_t n = (size_t)b->n_pieces + 1, c = (size_t)n_channels + 1;

	*s = (struct sim){.piece = b->piece, .n_channels = n_channels};
	s->order = malloc(n * sizeof(*s->order));
	s->first = malloc((n + 1) * sizeof(*s->first));
	s->head = malloc(n * sizeof(*s->head));
	s->of_src = malloc((c + 1) * sizeof(*s->of_src));
	s->left = calloc(2 * c, sizeof(*s->left));
	s->bytes_left = calloc(2 * c, sizeof(*s->bytes_left));
	s->own = malloc(2 * n * sizeof(*s->own));
	s->own_first = calloc(2 * c + 1, sizeof(*s->own_first));
	s->next = calloc(2 * c, sizeof(*s->next));
	s->started = calloc(n, 1);
	s->heap = malloc(c * sizeof(*s->heap));
	s->senders.v = malloc(c * sizeof(*s->senders.v));
	s->senders.pos = malloc(c * sizeof(*s->senders.pos));
	s->receivers.v = malloc(c * sizeof(*s->receivers.v));
	s->receivers.pos = malloc(c * sizeof(*s->receivers.pos));
	if (s->order == NULL || s->first == NULL || s->head == NULL || s->of_src == NULL ||
		s->left == NULL || s->bytes_left == NULL || s->own == NULL ||
		s->own_first == NULL || s->next == NULL || s->started == NULL || s->heap == NULL ||
		s->senders.v == NULL || s->senders.pos == NULL || s->receivers.v == NULL ||
		s->receivers.pos == NULL)
		return -ENOMEM;
	make_queues(s, b->piece, b->n_pieces);
	make_own(s, b->n_pieces);
	for (uint32_t i = 0; i < n_channels; i++) {
		if (s->left[i] > 0)
			idle_add(&s->senders, i);
		if (s->left[n_channels + i] > 0)
			idle_add(&s->receivers, i);
	}
	return 0;
}

static void sim_done(struct sim *s)
{
	free(s->order);
	free(s->first);
	free(s->head);
	free(s->of_src);
	free(s->left);
	free(s->bytes_left);
	free(s->own);
	free(s->own_first);
	free(s->next);
	free(s->started);
	free(s->heap);
	free(s->senders.v);
	free(s->senders.pos);
	free(s->receivers.v);
	free(s->receivers.pos);
}

/* Everything that ends at the same time becomes idle before anything starts. */
static void step(struct sim *s, uint32_t *ended)
{
	uint32_t n = 0;

	s->now = s->heap[0].at;
	while (s->n_heap > 0 && s->heap[0].at == s->now) {
		ended[n] = heap_pop(s).piece;
		finish(s, ended[n++]);
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct mc_bound_piece *p = &s->piece[ended[i]];

		if (s->senders.pos[p->src] != NONE && s->left[p->src] > 0)
			start_one(s, p->src, true);
		if (s->receivers.pos[p->dst] != NONE && s->left[s->n_channels + p->dst] > 0)
			start_one(s, p->dst, false);
	}
}

static int busiest(struct mc_binding *b, uint32_t n_channels)
{
	cleanup_free uint64_t *bytes = calloc(2 * (size_t)n_channels + 1, sizeof(*bytes));

	if (bytes == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < b->n_pieces; i++) {
		bytes[b->piece[i].src] += b->piece[i].bytes;
		bytes[n_channels + b->piece[i].dst] += b->piece[i].bytes;
	}
	for (uint32_t c = 0; c < n_channels; c++) {
		if (bytes[c] > b->max_egress)
			b->max_egress = bytes[c];
		if (bytes[n_channels + c] > b->max_ingress)
			b->max_ingress = bytes[n_channels + c];
	}
	return 0;
}

int mc_binder_simulate(struct mc_binding *b, uint32_t n_channels)
{
	cleanup_free uint32_t *ended = malloc(((size_t)n_channels + 1) * sizeof(*ended));
	struct sim s;
	int r = ended != NULL ? sim_init(&s, b, n_channels) : -ENOMEM;

	if (ended == NULL)
		return r;
	if (r == 0)
		r = busiest(b, n_channels);
	for (uint32_t i = 0; i < n_channels && r == 0; i++)
		if (s.left[i] > 0)
			start_one(&s, i, true);
	while (r == 0 && s.n_heap > 0)
		step(&s, ended);
	b->makespan = r == 0 ? s.now : 0;
	sim_done(&s);
	return r;
}
