/*
 * Choosing senders. The flow says how many bytes of each holder set every holder should send; the
 * links of the set are walked in their order and handed to the holders in turn. Where a share ends
 * inside a link, whole instances go first, then one instance is cut on its outermost dimension (and
 * inside the row that is left), so that a share is met within grain.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/planner-build.h"
#include "tier/cleanup.h"

#define EGRESS_SLACK (UINT64_C(1) << 20) /* bytes a channel may send above the bound */
#define GRAIN_MAX (UINT64_C(64) << 10)   /* bytes; small cuts make many regions */
#define GRAIN_MIN 16                     /* bytes; a multiple of every item size */

/* How far a holder set's bytes are handed out. */
struct hand {
	uint64_t k;    /* member now served: index in holders.member */
	uint64_t left; /* bytes of its share not handed out */
};

struct assign {
	struct mc_draft *d;
	struct mc_draft out; /* receives the links */
	const struct mc_egress *e;
	struct hand *hand; /* by set */
	uint64_t grain;
};

/* The shard of participant that holds box, among the class's held shards. */
static uint32_t shard_of(
	const struct mc_reshard *p, uint32_t cls, uint32_t participant, const struct mc_box *box)
{
	const struct mc_pattern *held = &p->held->pattern[p->cls[cls].held];
	uint32_t lo = held->first, hi = held->first + held->n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (p->held->shard[mid].participant < participant)
			lo = mid + 1;
		else
			hi = mid;
	}
	while (lo < held->first + held->n && !mc_box_inside(box, &p->held->shard[lo].box))
		lo++;
	assert(lo < held->first + held->n && p->held->shard[lo].participant == participant);
	return lo;
}

/* Moves on while the present holder's share is as good as used up; crumbs go to the next one. */
static void settle(const struct assign *a, uint32_t set, struct hand *h)
{
	const struct mc_holders *s = &a->d->holders;

	while (h->left < a->grain && h->k + 1 < s->first[set + 1])
		h->left += a->e->share[++h->k];
}

static void take(const struct assign *a, uint32_t set, struct hand *h, uint64_t bytes)
{
	const struct mc_holders *s = &a->d->holders;

	while (bytes > h->left && h->k + 1 < s->first[set + 1]) {
		bytes -= h->left;
		h->left = a->e->share[++h->k];
	}
	h->left -= bytes < h->left ? bytes : h->left;
}

static int give(
	struct assign *a, const struct mc_link *l, const struct mc_box *box, uint32_t participant)
{
	struct mc_link copy = *l;

	copy.src = shard_of(a->d->plan, l->cls, participant, box);
	return mc_draft_link(&a->out, &copy, box, MC_NO_SET);
}

/* One instance whose bytes go to several holders. */
static int split_instance(struct assign *a, const struct mc_link *l, const struct mc_box *box,
	uint32_t set, struct hand *h)
{
	/* A stack in row-major order from the top; each cut replaces one box by at most 2 × rank.
	 */
	struct mc_box stack[4 * MC_BOX_RANK * MC_BOX_RANK];
	struct mc_box_cut c;
	size_t n = 0;
	int r = 0;

	stack[n++] = *box;
	while (n > 0 && r == 0) {
		struct mc_box b = stack[--n];
		uint64_t bytes = mc_box_volume(&b), got = bytes;
		uint32_t who;

		settle(a, set, h);
		who = a->d->holders.member[h->k];
		c.n_first = 1;
		c.first[0] = b;
		if (bytes > h->left && h->k + 1 < a->d->holders.first[set + 1]) {
			got = mc_box_cut(&b, h->left, a->grain, &c);
			assert(n + c.n_rest <= sizeof(stack) / sizeof(*stack));
			while (c.n_rest > 0)
				stack[n++] = c.rest[--c.n_rest];
		}
		take(a, set, h, got);
		for (size_t i = 0; i < c.n_first && r == 0; i++)
			r = give(a, l, &c.first[i], who);
	}
	return r;
}

static int share_link(struct assign *a, const struct mc_link *l, uint32_t set)
{
	struct hand *h = &a->hand[set];
	struct mc_link part = *l;
	struct mc_box box;
	uint64_t bytes;
	int r = 0;

	mc_reshard_link_box(a->d->plan, l, &box);
	bytes = mc_box_volume(&box);
	for (uint32_t at = l->from; at < l->to && r == 0; at = part.to) {
		uint64_t whole;

		settle(a, set, h);
		whole = h->left / bytes;
		if (h->k + 1 == a->d->holders.first[set + 1] || whole > l->to - at)
			whole = l->to - at;
		part.from = at;
		part.to = at + (uint32_t)(whole > 0 ? whole : 1);
		if (whole > 0) {
			r = give(a, &part, &box, a->d->holders.member[h->k]);
			take(a, set, h, whole * bytes);
		} else {
			r = split_instance(a, &part, &box, set, h);
		}
	}
	return r;
}

static int share_all(struct assign *a)
{
	struct mc_reshard *p = a->d->plan, old = *p;
	int r = 0;

	/* The links go to a new list; boxes stay and new ones are appended. */
	p->link = NULL;
	p->n_links = 0;
	p->cap_links = 0;
	for (uint32_t i = 0; i < old.n_links && r == 0; i++) {
		uint32_t set = a->d->set_of[i];
		struct mc_box box;

		if (set != MC_NO_SET) {
			r = share_link(a, &old.link[i], set);
			continue;
		}
		mc_reshard_link_box(p, &old.link[i], &box);
		r = mc_draft_link(&a->out, &old.link[i], &box, MC_NO_SET);
	}
	free(old.link);
	return r;
}

/* A holder is off by less than two grains in each of its sets: crumbs taken over, and a cut rounded
 * up. */
static uint64_t pick_grain(uint32_t n_sets, uint64_t bound)
{
	uint64_t grain = EGRESS_SLACK / 2 / ((uint64_t)n_sets + 1);

	if (grain > bound / 256)
		grain = bound / 256;
	if (grain > GRAIN_MAX)
		grain = GRAIN_MAX;
	return grain < GRAIN_MIN ? GRAIN_MIN : grain / GRAIN_MIN * GRAIN_MIN;
}

int mc_draft_assign(struct mc_draft *d)
{
	const struct mc_holders *s = &d->holders;
	struct assign a = {.d = d, .out = {.plan = d->plan, .in = d->in}};
	struct mc_egress e;
	bool shared = false;
	int r = mc_egress_solve(s, &e);

	if (r < 0)
		return r;
	d->plan->bound_num = e.num;
	d->plan->bound_den = e.den;
	a.e = &e;
	a.hand = calloc((size_t)s->n + 1, sizeof(*a.hand));
	a.grain = pick_grain(s->n, e.num / e.den);
	if (a.hand == NULL)
		r = -ENOMEM;
	for (uint32_t i = 0; i < s->n && r == 0; i++) {
		a.hand[i] = (struct hand){.k = s->first[i], .left = e.share[s->first[i]]};
		shared = shared || s->first[i + 1] - s->first[i] > 1;
	}
	if (r == 0 && shared)
		r = share_all(&a);
	free(a.out.set_of);
	free(a.hand);
	mc_egress_done(&e);
	return r;
}
