/*
 * One class to links. The held shards become disjoint cells with their holders; each receiver's
 * wanted shards become disjoint needs; the overlaps of needs with cells must add up to the needs,
 * which proves the cover because cells are disjoint and an overlap is inside its need.
 *
 * A receiver is a participant, or with node_local a node: bytes it holds itself are LOCAL, others
 * MOVE to one of the shards that want them, and COPY from there to the rest.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/planner-build.h"
#include "tier/array.h"
#include "tier/cleanup.h"

struct cover {
	struct mc_draft *d;
	uint32_t cls;
	struct mc_cells held; /* members relative to held_base */
	struct mc_box_index *x;
	uint32_t held_base, wanted_base; /* first shard of the patterns */
	uint32_t n_instances;
	/* the need being covered */
	uint32_t receiver;
	const uint32_t *member; /* wanted shards, relative to wanted_base */
	uint32_t n_members;
	uint64_t covered;         /* bytes */
	uint32_t *set;            /* scratch: holders, as many as held shards */
	uint64_t local, overlaps; /* of one instance */
};

static uint32_t receiver_of(const struct mc_draft *d, uint32_t participant)
{
	return d->in->node_local && d->in->node != NULL ? d->in->node[participant] : participant;
}

static int grow_links(struct mc_draft *d)
{
	struct mc_reshard *p = d->plan;
	uint32_t cap = p->cap_links > 0 ? p->cap_links * 2 : 256;
	struct mc_link *l;
	uint32_t *s;

	if (p->n_links < p->cap_links)
		return 0;
	if (cap < p->cap_links)
		return -E2BIG;
	l = realloc(p->link, cap * sizeof(*l));
	if (l == NULL)
		return -ENOMEM;
	p->link = l;
	p->cap_links = cap;
	s = realloc(d->set_of, cap * sizeof(*s));
	if (s == NULL)
		return -ENOMEM;
	d->set_of = s;
	return 0;
}

/* Keeps box unless it is just the overlap of the two shards. */
static int keep_box(struct mc_reshard *p, struct mc_link *l, const struct mc_box *box)
{
	struct mc_box whole;
	int r;

	l->box = 0;
	mc_reshard_link_box(p, l, &whole);
	if (mc_box_compare(&whole, box) == 0)
		return 0;
	r = mc_array_room(&p->box, &p->cap_boxes, p->n_boxes + 1);
	if (r < 0)
		return r;
	p->box[p->n_boxes++] = *box;
	l->box = p->n_boxes;
	return 0;
}

int mc_draft_link(
	struct mc_draft *d, const struct mc_link *l, const struct mc_box *box, uint32_t set)
{
	struct mc_reshard *p = d->plan;
	struct mc_link copy = *l;
	int r = grow_links(d);

	if (r == 0)
		r = keep_box(p, &copy, box);
	if (r < 0)
		return r;
	d->set_of[p->n_links] = set;
	p->link[p->n_links++] = copy;
	return 0;
}

static const struct mc_shard *held_shard(const struct cover *c, uint32_t member)
{
	return &c->d->plan->held->shard[c->held_base + member];
}

static const struct mc_shard *wanted_shard(const struct cover *c, uint32_t member)
{
	return &c->d->plan->wanted->shard[c->wanted_base + member];
}

static int emit(struct cover *c, uint32_t kind, uint32_t src, uint32_t dst,
	const struct mc_box *box, uint32_t set)
{
	struct mc_link l = {
		.cls = c->cls, .dst = c->wanted_base + dst, .to = c->n_instances, .kind = kind};

	l.src = src + (kind == MC_LINK_COPY ? c->wanted_base : c->held_base);
	return mc_draft_link(c->d, &l, box, set);
}

/* The receiver holds the cell itself: each shard that wants it copies from its own participant if
 * it can. */
static int emit_local(struct cover *c, uint32_t cell, uint32_t own, const struct mc_box *box)
{
	int r = 0;

	for (uint32_t i = 0; i < c->n_members && r == 0; i++) {
		uint32_t p = wanted_shard(c, c->member[i])->participant, from = own;

		for (uint32_t m = c->held.first[cell]; m < c->held.first[cell + 1]; m++)
			if (held_shard(c, c->held.member[m])->participant == p) {
				from = c->held.member[m];
				break;
			}
		r = emit(c, MC_LINK_LOCAL, from, c->member[i], box, MC_NO_SET);
	}
	c->local += mc_box_volume(box);
	return r;
}

/* The wanting shard whose participant has least to receive so far; the first of equals. */
static uint32_t pick_primary(const struct cover *c)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < c->n_members; i++)
		if (c->d->load[wanted_shard(c, c->member[i])->participant] <
			c->d->load[wanted_shard(c, c->member[best])->participant])
			best = i;
	return best;
}

static int emit_move(struct cover *c, uint32_t cell, const struct mc_box *box)
{
	uint64_t bytes = mc_box_volume(box) * c->n_instances;
	uint32_t primary = pick_primary(c), n = 0, set;
	int r;

	for (uint32_t m = c->held.first[cell]; m < c->held.first[cell + 1]; m++) {
		uint32_t p = held_shard(c, c->held.member[m])->participant;

		if (n == 0 || c->set[n - 1] != p)
			c->set[n++] = p;
	}
	r = mc_holders_add(&c->d->holders, c->set, n, &set);
	if (r < 0)
		return r;
	c->d->holders.bytes[set] += bytes;
	c->d->load[wanted_shard(c, c->member[primary])->participant] += bytes;
	r = emit(c, MC_LINK_MOVE, c->held.member[c->held.first[cell]], c->member[primary], box,
		n > 1 ? set : MC_NO_SET);
	for (uint32_t i = 0; i < c->n_members && r == 0; i++)
		if (i != primary)
			r = emit(c, MC_LINK_COPY, c->member[primary], c->member[i], box, MC_NO_SET);
	return r;
}

static int on_hit(void *arg, uint32_t cell, const struct mc_box *box)
{
	struct cover *c = arg;

	c->covered += mc_box_volume(box);
	c->overlaps++;
	for (uint32_t m = c->held.first[cell]; m < c->held.first[cell + 1]; m++)
		if (receiver_of(c->d, held_shard(c, c->held.member[m])->participant) == c->receiver)
			return emit_local(c, cell, c->held.member[m], box);
	return emit_move(c, cell, box);
}

static int uncovered(const struct cover *c, const struct mc_box *need, struct mc_err *err)
{
	const struct mc_reshard *p = c->d->plan;
	const char *name = c->d->in->names[p->instance[p->cls[c->cls].first]];
	char text[256];
	size_t at = 0;

	for (unsigned d = 0; d < need->rank && at < sizeof(text) - 48; d++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%llu+%llu",
			d > 0 ? ", " : "", (unsigned long long)need->off[d],
			(unsigned long long)need->len[d]);
	return mc_err_set(err, -EINVAL,
		"tensor %s: of the box [%s] (offset+length, last in bytes) that participant %u "
		"wants, only "
		"%llu of %llu bytes are held by anyone",
		name, text, wanted_shard(c, c->member[0])->participant,
		(unsigned long long)c->covered, (unsigned long long)mc_box_volume(need));
}

static int cover_need(struct cover *c, const struct mc_box *need, struct mc_err *err)
{
	int r;

	c->covered = 0;
	r = mc_box_index_query(c->x, need, on_hit, c);
	if (r == 0 && c->covered != mc_box_volume(need))
		r = uncovered(c, need, err);
	c->d->plan->wanted_bytes += c->covered * c->n_instances;
	return r;
}

/* All wanted shards of one receiver: which[0 … n) are numbers relative to wanted_base, ascending.
 */
static int cover_receiver(struct cover *c, const uint32_t *which, uint32_t n, struct mc_err *err)
{
	cleanup_free struct mc_box *boxes = NULL;
	struct mc_cells needs;
	int r;

	c->receiver = receiver_of(c->d, wanted_shard(c, which[0])->participant);
	if (n == 1) {
		c->member = which;
		c->n_members = 1;
		return cover_need(c, &wanted_shard(c, which[0])->box, err);
	}
	boxes = malloc(n * sizeof(*boxes));
	if (boxes == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		boxes[i] = wanted_shard(c, which[i])->box;
	r = mc_cells_init(&needs, boxes, n);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < needs.first[needs.n]; i++)
		needs.member[i] = which[needs.member[i]];
	for (size_t i = 0; i < needs.n && r == 0; i++) {
		c->member = needs.member + needs.first[i];
		c->n_members = needs.first[i + 1] - needs.first[i];
		r = cover_need(c, &needs.box[i], err);
	}
	mc_cells_done(&needs);
	return r;
}

struct want {
	uint32_t receiver, shard;
};

static int want_compare(const void *a, const void *b)
{
	const struct want *x = a, *y = b;

	if (x->receiver != y->receiver)
		return x->receiver < y->receiver ? -1 : 1;
	return (x->shard > y->shard) - (x->shard < y->shard);
}

static int cover_all(struct cover *c, uint32_t n, struct mc_err *err)
{
	cleanup_free struct want *v = malloc(((size_t)n + 1) * sizeof(*v));
	cleanup_free uint32_t *which = malloc(((size_t)n + 1) * sizeof(*which));
	int r = 0;

	if (v == NULL || which == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		v[i] = (struct want){
			.receiver = receiver_of(c->d, wanted_shard(c, i)->participant), .shard = i};
	if (c->d->in->node_local)
		qsort(v, n, sizeof(*v), want_compare);
	for (uint32_t i = 0; i < n; i++)
		which[i] = v[i].shard;
	for (uint32_t i = 0, j; i < n && r == 0; i = j) {
		for (j = i + 1; j < n && v[j].receiver == v[i].receiver; j++)
			;
		r = cover_receiver(c, which + i, j - i, err);
	}
	return r;
}

static int held_cells(struct cover *c, const struct mc_pattern *held)
{
	cleanup_free struct mc_box *boxes = malloc(((size_t)held->n + 1) * sizeof(*boxes));
	int r;

	if (boxes == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < held->n; i++)
		boxes[i] = held_shard(c, i)->box;
	r = mc_cells_init(&c->held, boxes, held->n);
	if (r == 0)
		r = mc_box_index_open(c->held.box, c->held.n, &c->x);
	return r;
}

int mc_draft_class(struct mc_draft *d, uint32_t n, struct mc_err *err)
{
	struct mc_reshard *p = d->plan;
	const struct mc_pattern *held = &p->held->pattern[p->cls[n].held];
	const struct mc_pattern *wanted = &p->wanted->pattern[p->cls[n].wanted];
	struct cover c = {.d = d,
		.cls = n,
		.held_base = held->first,
		.wanted_base = wanted->first,
		.n_instances = p->cls[n].n};
	int r;

	if (held->n > 0 && held_shard(&c, 0)->box.rank != wanted_shard(&c, 0)->box.rank)
		return mc_err_set(err, -EINVAL,
			"tensor %s has %u dimensions where it is held and %u where it is wanted",
			d->in->names[p->instance[p->cls[n].first]], held_shard(&c, 0)->box.rank,
			wanted_shard(&c, 0)->box.rank);
	c.set = malloc(((size_t)held->n + 1) * sizeof(*c.set));
	r = c.set != NULL ? held_cells(&c, held) : -ENOMEM;
	if (r == 0)
		r = cover_all(&c, wanted->n, err);
	p->local_bytes += c.local * c.n_instances;
	p->overlaps += c.overlaps * c.n_instances;
	mc_box_index_close(c.x);
	mc_cells_done(&c.held);
	free(c.set);
	return r;
}
