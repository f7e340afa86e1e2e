/*
 * The planner's frame: tensors to classes, classes to links (planner-cover.c), senders chosen at
 * the egress bound (planner-assign.c), totals.
 */
#include "manifest/planner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/planner-build.h"
#include "tier/cleanup.h"

struct by_name {
	const char *name;
	uint32_t tensor;
};

static int name_compare(const void *a, const void *b)
{
	const struct by_name *x = a, *y = b;

	return strcmp(x->name, y->name);
}

/* Tensor numbers by name: the one order that does not depend on the input's. */
static int sort_names(const struct mc_reshard_in *in, struct by_name **ret, struct mc_err *err)
{
	cleanup_free struct by_name *v = malloc(((size_t)in->n_tensors + 1) * sizeof(*v));
	bool sorted = true;

	if (v == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < in->n_tensors; i++) {
		v[i] = (struct by_name){.name = in->names[i], .tensor = i};
		sorted = sorted && (i == 0 || strcmp(v[i - 1].name, v[i].name) < 0);
	}
	if (!sorted)
		qsort(v, in->n_tensors, sizeof(*v), name_compare);
	for (uint32_t i = 1; i < in->n_tensors; i++)
		if (!sorted && strcmp(v[i - 1].name, v[i].name) == 0)
			return mc_err_set(err, -EINVAL, "tensor %s is there twice", v[i].name);
	*ret = steal_ptr(v);
	return 0;
}

/* Class numbers by (held pattern, wanted pattern). */
struct class_map {
	uint32_t *slot; /* class + 1, owned */
	uint32_t size;
};

static uint64_t class_hash(uint32_t held, uint32_t wanted)
{
	uint64_t h = ((uint64_t)held << 32 | wanted) * UINT64_C(0x9e3779b97f4a7c15);

	return h ^ h >> 32;
}

static int class_map_grow(struct class_map *m, const struct mc_reshard *p)
{
	uint32_t size = m->size > 0 ? m->size * 2 : 128;
	uint32_t *t = calloc(size, sizeof(*t));

	if (t == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->n_classes; i++) {
		uint64_t h = class_hash(p->cls[i].held, p->cls[i].wanted);

		while (t[h & (size - 1)] != 0)
			h++;
		t[h & (size - 1)] = i + 1;
	}
	free(m->slot);
	m->slot = t;
	m->size = size;
	return 0;
}

static int class_find(struct mc_reshard *p, struct class_map *m, uint32_t held, uint32_t wanted)
{
	uint64_t h;

	if (p->n_classes * 2 >= m->size) {
		struct mc_class *c;
		int r = class_map_grow(m, p);

		if (r < 0)
			return r;
		c = realloc(p->cls, m->size * sizeof(*c));
		if (c == NULL)
			return -ENOMEM;
		p->cls = c;
	}
	for (h = class_hash(held, wanted); m->slot[h & (m->size - 1)] != 0; h++) {
		uint32_t i = m->slot[h & (m->size - 1)] - 1;

		if (p->cls[i].held == held && p->cls[i].wanted == wanted)
			return (int)i;
	}
	p->cls[p->n_classes] = (struct mc_class){.held = held, .wanted = wanted};
	m->slot[h & (m->size - 1)] = ++p->n_classes;
	return (int)(p->n_classes - 1);
}

/* Groups the wanted tensors into classes, by name inside each. */
static int make_classes(const struct mc_reshard_in *in, struct mc_reshard *p, struct mc_err *err)
{
	cleanup_free struct by_name *v = NULL;
	cleanup_free uint32_t *class_of = malloc(((size_t)in->n_tensors + 1) * sizeof(*class_of));
	struct class_map m = {0};
	uint32_t at = 0;
	int r = class_of != NULL ? sort_names(in, &v, err) : -ENOMEM;

	for (uint32_t i = 0; i < in->n_tensors && r >= 0; i++) {
		uint32_t t = v[i].tensor, held = in->held->of_tensor[t],
			 wanted = in->wanted->of_tensor[t];

		class_of[i] = UINT32_MAX;
		if (wanted == MC_PATTERN_NONE || in->wanted->pattern[wanted].n == 0)
			continue;
		if (held == MC_PATTERN_NONE) {
			r = mc_err_set(err, -EINVAL, "tensor %s is wanted, but nobody holds it",
				v[i].name);
			break;
		}
		r = class_find(p, &m, held, wanted);
		if (r >= 0) {
			class_of[i] = (uint32_t)r;
			p->cls[r].n++;
		}
	}
	free(m.slot);
	p->instance = malloc(((size_t)in->n_tensors + 1) * sizeof(*p->instance));
	if (r < 0 || p->instance == NULL)
		return r < 0 ? r : -ENOMEM;
	for (uint32_t c = 0; c < p->n_classes; c++) {
		p->cls[c].first = at;
		at += p->cls[c].n;
		p->cls[c].n = 0;
	}
	for (uint32_t i = 0; i < in->n_tensors; i++)
		if (class_of[i] != UINT32_MAX) {
			struct mc_class *c = &p->cls[class_of[i]];

			p->instance[c->first + c->n++] = v[i].tensor;
		}
	return 0;
}

static int check_participants(
	const struct mc_reshard_in *in, const struct mc_side *s, struct mc_err *err)
{
	for (uint32_t i = 0; i < s->n_shards; i++)
		if (s->shard[i].participant >= in->n_participants)
			return mc_err_set(err, -EINVAL, "participant %u of %u",
				s->shard[i].participant, in->n_participants);
	return 0;
}

static void add_totals(struct mc_reshard *p)
{
	for (uint32_t i = 0; i < p->n_links; i++) {
		const struct mc_link *l = &p->link[i];
		struct mc_box b;
		uint64_t bytes;

		if (l->kind != MC_LINK_MOVE)
			continue;
		mc_reshard_link_box(p, l, &b);
		bytes = mc_box_volume(&b) * (l->to - l->from);
		p->moved_bytes += bytes;
		p->egress[p->held->shard[l->src].participant] += bytes;
		p->ingress[p->wanted->shard[l->dst].participant] += bytes;
	}
}

static int build(struct mc_draft *d, struct mc_err *err)
{
	struct mc_reshard *p = d->plan;
	int r = make_classes(d->in, p, err);

	for (uint32_t c = 0; c < p->n_classes && r == 0; c++)
		r = mc_draft_class(d, c, err);
	if (r == 0)
		r = mc_draft_assign(d);
	if (r == 0)
		add_totals(p);
	return r;
}

int mc_reshard_plan(const struct mc_reshard_in *in, struct mc_reshard **ret, struct mc_err *err)
{
	struct mc_reshard *p = calloc(1, sizeof(*p));
	struct mc_draft d = {.plan = p, .in = in};
	size_t n = (size_t)in->n_participants + 1;
	int r;

	if (p == NULL)
		return mc_err_set(err, -ENOMEM, "no memory for the plan");
	p->held = in->held;
	p->wanted = in->wanted;
	p->n_participants = in->n_participants;
	p->bound_den = 1;
	p->egress = calloc(n, sizeof(*p->egress));
	p->ingress = calloc(n, sizeof(*p->ingress));
	d.load = calloc(n, sizeof(*d.load));
	r = p->egress != NULL && p->ingress != NULL && d.load != NULL ? 0 : -ENOMEM;
	if (r == 0)
		r = check_participants(in, in->held, err);
	if (r == 0)
		r = check_participants(in, in->wanted, err);
	if (r == 0)
		r = build(&d, err);
	mc_holders_done(&d.holders);
	free(d.set_of);
	free(d.load);
	if (r < 0) {
		mc_reshard_free(p);
		return mc_err_set(err, r, "the plan cannot be made: %s", strerror(-r));
	}
	*ret = p;
	return 0;
}

void mc_reshard_free(struct mc_reshard *p)
{
	if (p == NULL)
		return;
	free(p->cls);
	free(p->instance);
	free(p->link);
	free(p->box);
	free(p->egress);
	free(p->ingress);
	free(p);
}

static const struct mc_shard *sender(const struct mc_reshard *p, const struct mc_link *l)
{
	return &(l->kind == MC_LINK_COPY ? p->wanted : p->held)->shard[l->src];
}

void mc_reshard_link_box(const struct mc_reshard *p, const struct mc_link *l, struct mc_box *ret)
{
	if (l->box > 0)
		*ret = p->box[l->box - 1];
	else
		mc_box_overlap(&sender(p, l)->box, &p->wanted->shard[l->dst].box, ret);
}

void mc_reshard_link_region(
	const struct mc_reshard *p, const struct mc_link *l, struct mc_region *ret)
{
	const struct mc_shard *src = sender(p, l), *dst = &p->wanted->shard[l->dst];
	struct mc_box part;

	mc_reshard_link_box(p, l, &part);
	mc_region_make(&part, &src->box, &src->place, &dst->box, &dst->place, ret);
}
