/*
 * Outputs: what the tensors of a rank are called and which source tensors they are made of. Fuse
 * joins parts along a dimension, stack puts numbered tensors under each other, rename comes last.
 */
#include "manifest/layout-build.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tier/array.h"
#include "tier/cleanup.h"

/* A tensor on its way: parts are members [first, first + n). */
struct entry {
	uint32_t name;
	uint32_t first, n;
	uint32_t fuse_dim;
	bool gone; /* became part of something else */
};

/* entry will be number order of the output called name. */
struct claim {
	const char *name; /* in names, valid while sorting */
	uint32_t name_at, order, entry, rule;
};

struct emitter {
	struct mc_sharding *s;
	struct entry *entry; /* owned */
	uint32_t n_entries, cap_entries;
	struct claim *claim; /* owned */
	uint32_t n_claims, cap_claims;
};

static int add_member(struct mc_sharding *s, uint32_t tensor, uint32_t kind)
{
	int r = mc_array_room(&s->member, &s->cap_members, s->n_members + 1);

	if (r == 0)
		s->member[s->n_members++] = (struct member){.tensor = tensor, .kind = kind};
	return r;
}

static int add_entry(
	struct emitter *e, const char *name, uint32_t first, uint32_t n, uint32_t fuse_dim)
{
	int r = mc_array_room(&e->entry, &e->cap_entries, e->n_entries + 1);
	struct entry *x;

	if (r < 0)
		return r;
	x = &e->entry[e->n_entries];
	*x = (struct entry){.first = first, .n = n, .fuse_dim = fuse_dim};
	r = mc_ly_names_add(e->s, name, &x->name);
	e->n_entries += r == 0;
	return r;
}

static int plain_entries(struct emitter *e)
{
	struct mc_sharding *s = e->s;
	int r = 0;

	for (uint32_t i = 0; i < s->n_tensors && r == 0; i++) {
		if (s->kind_of[i] == UINT32_MAX)
			continue;
		r = add_member(s, i, s->kind_of[i]);
		if (r == 0)
			r = add_entry(e, s->tensor[i].name, s->n_members - 1, 1, 0);
	}
	return r;
}

/* A tied tensor that the checkpoint does not repeat: the last stage gets it under its own name. */
static int tied_entries(struct emitter *e, struct mc_err *err)
{
	struct mc_sharding *s = e->s;
	bool subset = s->l->style == MC_STYLE_SUBSET;
	int r = 0;

	for (uint32_t i = 0; i < s->l->layers.n_tied && s->n_stages > 1 && r == 0; i++) {
		const struct tied *t = &s->l->layers.tied[i];
		uint32_t of = UINT32_MAX, kind;
		bool there = false;
		struct kind k;

		for (uint32_t j = 0; j < s->n_tensors; j++) {
			if (strcmp(s->tensor[j].name, t->of) == 0)
				of = j;
			there = there || strcmp(s->tensor[j].name, t->name) == 0;
		}
		if (there || of == UINT32_MAX || s->kind_of[of] == UINT32_MAX)
			continue;
		k = s->kind[s->kind_of[of]];
		k.n_splits = 0;
		k.stage = subset ? STAGE_ENDS : s->n_stages - 1;
		r = mc_ly_kind_intern(s, &k, &kind, err);
		if (r == 0 && subset) { /* no new names: the last stage has the embedding itself */
			s->kind_of[of] = kind;
			continue;
		}
		if (r == 0)
			r = add_member(s, of, kind);
		if (r == 0)
			r = add_entry(e, t->name, s->n_members - 1, 1, 0);
	}
	return r;
}

static int add_claim(struct emitter *e, const char *name, const struct claim *c)
{
	int r = mc_array_room(&e->claim, &e->cap_claims, e->n_claims + 1);

	if (r < 0)
		return r;
	e->claim[e->n_claims] = *c;
	r = mc_ly_names_add(e->s, name, &e->claim[e->n_claims].name_at);
	e->n_claims += r == 0;
	return r;
}

static int claim_compare(const void *a, const void *b)
{
	const struct claim *x = a, *y = b;
	int c = strcmp(x->name, y->name);

	if (c == 0)
		c = (x->rule > y->rule) - (x->rule < y->rule);
	return c != 0 ? c : (x->order > y->order) - (x->order < y->order);
}

static void sort_claims(struct emitter *e)
{
	for (uint32_t i = 0; i < e->n_claims; i++)
		e->claim[i].name = e->s->names + e->claim[i].name_at;
	if (e->n_claims > 0)
		qsort(e->claim, e->n_claims, sizeof(*e->claim), claim_compare);
}

int mc_ly_expand(const struct mc_match *m, const char *name, const char *template,
	const char *where, char *out, struct mc_err *err)
{
	int r = mc_match_expand(m, name, template, out, MC_NAME_MAX);

	if (r < 0)
		return mc_err_set(err, -EINVAL, "layout %s: \"%s\" cannot be made from %s", where,
			template, name);
	return 0;
}

/* Which fuse, if any, takes this entry as which part. */
static int claim_fuse(struct emitter *e, uint32_t entry, struct mc_err *err)
{
	const struct mc_layout *l = e->s->l;
	char name[MC_NAME_MAX], out[MC_NAME_MAX];
	size_t len;

	snprintf(name, sizeof(name), "%s", e->s->names + e->entry[entry].name);
	len = strlen(name);
	for (uint32_t i = 0; i < l->n_fuses; i++)
		for (uint32_t k = 0; k < l->fuse[i].from.n; k++) {
			struct claim c = {.order = k, .entry = entry, .rule = i};
			struct mc_match m;
			int r;

			if (!mc_name_pattern_match(l->fuse[i].from.v[k], name, len, &m))
				continue;
			r = mc_ly_expand(&m, name, l->fuse[i].name, l->fuse[i].where, out, err);
			return r < 0 ? r : add_claim(e, out, &c);
		}
	return 0;
}

/* The end of the claims, from i on, that are for the same output. */
static uint32_t claims_end(const struct emitter *e, uint32_t i)
{
	const char *names = e->s->names, *name = names + e->claim[i].name_at;
	uint32_t j = i + 1;

	while (j < e->n_claims && e->claim[j].rule == e->claim[i].rule &&
		strcmp(names + e->claim[j].name_at, name) == 0)
		j++;
	return j;
}

/* Claims [i, j) are the parts of one fused tensor. */
static int fuse_group(struct emitter *e, uint32_t i, uint32_t j, struct mc_err *err)
{
	struct mc_sharding *s = e->s;
	const struct fuse *f = &s->l->fuse[e->claim[i].rule];
	uint32_t first = s->n_members;
	char name[MC_NAME_MAX];
	int r = 0;

	snprintf(name, sizeof(name), "%s", s->names + e->claim[i].name_at);
	if (j - i != f->from.n)
		return mc_err_set(err, -EINVAL, "layout %s: %s has %u of its %u parts", f->where,
			name, j - i, f->from.n);
	for (uint32_t k = i; k < j && r == 0; k++) {
		struct entry *x = &e->entry[e->claim[k].entry];
		struct member m = s->member[x->first];

		if (e->claim[k].order != k - i)
			return mc_err_set(err, -EINVAL,
				"layout %s: %s has part %u twice or not at all", f->where, name,
				k - i);
		x->gone = true;
		r = add_member(s, m.tensor, m.kind);
		if (r == 0)
			s->member[s->n_members - 1].part = k - i;
	}
	return r < 0 ? r : add_entry(e, name, first, f->from.n, f->dim);
}

static int check_used(
	const struct emitter *e, uint32_t n, const uint8_t *used, bool stack, struct mc_err *err)
{
	const struct mc_layout *l = e->s->l;

	for (uint32_t i = 0; i < n; i++)
		if (!used[i] && !(stack ? l->stack[i].optional : l->fuse[i].optional) &&
			!l->unused_allowed)
			return mc_err_set(err, -EINVAL, "layout %s: no tensor matches",
				stack ? l->stack[i].where : l->fuse[i].where);
	return 0;
}

static int fuse_all(struct emitter *e, struct mc_err *err)
{
	const struct mc_layout *l = e->s->l;
	cleanup_free uint8_t *used = calloc(l->n_fuses + 1, 1);
	uint32_t n = e->n_entries;
	int r = used != NULL ? 0 : -ENOMEM;

	if (l->n_fuses == 0)
		return r;
	for (uint32_t i = 0; i < n && r == 0; i++)
		r = claim_fuse(e, i, err);
	sort_claims(e);
	for (uint32_t i = 0, j; i < e->n_claims && r == 0; i = j) {
		j = claims_end(e, i);
		used[e->claim[i].rule] = 1;
		r = fuse_group(e, i, j, err);
	}
	e->n_claims = 0;
	return r < 0 ? r : check_used(e, l->n_fuses, used, false, err);
}

static int claim_stack(struct emitter *e, uint32_t entry, struct mc_err *err)
{
	const struct mc_layout *l = e->s->l;
	char name[MC_NAME_MAX], out[MC_NAME_MAX];

	snprintf(name, sizeof(name), "%s", e->s->names + e->entry[entry].name);
	for (uint32_t i = 0; i < l->n_stacks; i++) {
		struct claim c = {.entry = entry, .rule = i};
		struct mc_match m;
		uint64_t order;
		int r;

		if (!mc_name_pattern_match(l->stack[i].from, name, strlen(name), &m))
			continue;
		if (mc_match_number(&m, name, l->stack[i].index, &order) < 0)
			return mc_err_set(err, -EINVAL,
				"layout %s: %s has no number at wildcard %u", l->stack[i].where,
				name, l->stack[i].index);
		c.order = (uint32_t)order;
		r = mc_ly_expand(&m, name, l->stack[i].name, l->stack[i].where, out, err);
		return r < 0 ? r : add_claim(e, out, &c);
	}
	return 0;
}

static int add_output(struct emitter *e, const struct output *o)
{
	struct mc_sharding *s = e->s;
	int r = mc_array_room(&s->output, &s->cap_outputs, s->n_outputs + 1);

	if (r == 0)
		s->output[s->n_outputs++] = *o;
	return r;
}

static int stack_group(struct emitter *e, uint32_t i, uint32_t j, struct mc_err *err)
{
	struct mc_sharding *s = e->s;
	struct output o = {.name = e->claim[i].name_at, .first = s->n_members, .stacked = true};
	int r = 0;

	o.n_parts = e->entry[e->claim[i].entry].n;
	o.fuse_dim = e->entry[e->claim[i].entry].fuse_dim;
	for (uint32_t k = i; k < j && r == 0; k++) {
		struct entry *x = &e->entry[e->claim[k].entry];

		if (k > i && e->claim[k].order == e->claim[k - 1].order)
			return mc_err_set(err, -EINVAL, "layout %s: %s has number %u twice",
				s->l->stack[e->claim[i].rule].where, s->names + o.name,
				e->claim[k].order);
		if (x->n != o.n_parts || x->fuse_dim != o.fuse_dim)
			return mc_err_set(err, -EINVAL,
				"layout %s: the tensors of %s are not made alike",
				s->l->stack[e->claim[i].rule].where, s->names + o.name);
		x->gone = true;
		for (uint32_t m = 0; m < x->n && r == 0; m++) {
			struct member part = s->member[x->first + m];

			r = add_member(s, part.tensor, part.kind);
			if (r == 0) {
				s->member[s->n_members - 1].index = e->claim[k].order;
				s->member[s->n_members - 1].part = m;
			}
		}
	}
	o.n = s->n_members - o.first;
	return r < 0 ? r : add_output(e, &o);
}

static int stack_all(struct emitter *e, struct mc_err *err)
{
	const struct mc_layout *l = e->s->l;
	cleanup_free uint8_t *used = calloc(l->n_stacks + 1, 1);
	int r = used != NULL ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < e->n_entries && r == 0 && l->n_stacks > 0; i++)
		if (!e->entry[i].gone)
			r = claim_stack(e, i, err);
	sort_claims(e);
	for (uint32_t i = 0, j; i < e->n_claims && r == 0; i = j) {
		j = claims_end(e, i);
		used[e->claim[i].rule] = 1;
		r = stack_group(e, i, j, err);
	}
	for (uint32_t i = 0; i < e->n_entries && r == 0; i++) {
		const struct entry *x = &e->entry[i];

		if (!x->gone)
			r = add_output(e,
				&(struct output){.name = x->name,
					.first = x->first,
					.n = x->n,
					.n_parts = x->n,
					.fuse_dim = x->fuse_dim});
	}
	return r < 0 ? r : check_used(e, l->n_stacks, used, true, err);
}

int mc_ly_outputs_make(struct mc_sharding *s, struct mc_err *err)
{
	struct emitter e = {.s = s};
	int r = tied_entries(&e, err);

	if (r == 0)
		r = plain_entries(&e);
	if (r == 0)
		r = fuse_all(&e, err);
	if (r == 0)
		r = stack_all(&e, err);
	free(e.entry);
	free(e.claim);
	return r < 0 ? r : mc_ly_outputs_finish(s, err);
}
