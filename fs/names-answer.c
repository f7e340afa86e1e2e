/* Answers of the catalogue: who keeps them, looking in them, waiting for one. */
#include "fs/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tier/future.h"

struct mc_answer *mc_answer_ref(struct mc_answer *a)
{
	atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
	return a;
}

void mc_answer_unref(struct mc_answer *a)
{
	if (a == NULL || atomic_fetch_sub_explicit(&a->refs, 1, memory_order_acq_rel) != 1)
		return;
	for (size_t i = 0; i < a->n_items; i++) {
		free(a->items[i].name);
		free(a->items[i].target);
	}
	free(a->items);
	mc_place_unref(a->place);
	free(a->why);
	free(a);
}

const struct mc_listed *mc_answer_find(const struct mc_answer *a, const char *name)
{
	size_t lo = 0, hi = a->n_items;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int c = strcmp(name, a->items[mid].name);

		if (c == 0)
			return &a->items[mid];
		if (c < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return NULL;
}

struct mc_answer *mc_answer_refusal(int res)
{
	/* Its own reference is never given up. */
	static struct mc_answer no_memory = {.refs = 1, .res = -ENOMEM};
	struct mc_answer *a = calloc(1, sizeof(*a));

	if (a == NULL)
		return mc_answer_ref(&no_memory);
	atomic_init(&a->refs, 1);
	a->res = res;
	return a;
}

struct waiting {
	struct mc_ask ask;
	struct mc_future over;
	struct mc_answer *answer; /* owned reference */
};

static void answered(struct mc_ask *ask, struct mc_answer *a)
{
	struct waiting *w = (struct waiting *)((char *)ask - offsetof(struct waiting, ask));

	w->answer = mc_answer_ref(a);
	mc_future_set(&w->over, 0);
}

struct mc_answer *mc_names_wait(struct mc_names *ns, const struct mc_question *q)
{
	struct waiting w = {.ask = {.done = answered}};

	mc_future_init(&w.over);
	mc_names_ask(ns, q, false, &w.ask);
	mc_future_wait(&w.over);
	return w.answer;
}
