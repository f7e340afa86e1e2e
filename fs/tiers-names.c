/* Which organisations and revisions a tier holds something of. Waits for the catalogue. */
#include "fs/tiers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/holds.h"

struct waiting {
	struct mc_ask ask;
	struct mc_mutex lock;
	struct mc_cond answered;
	struct mc_answer *answer; /* owned reference */
};

static void done(struct mc_ask *ask, struct mc_answer *a)
{
	struct waiting *w = (struct waiting *)((char *)ask - offsetof(struct waiting, ask));

	mc_mutex_lock(&w->lock);
	w->answer = mc_answer_ref(a);
	mc_cond_signal(&w->answered);
	mc_mutex_unlock(&w->lock);
}

struct mc_answer *mc_tier_ask(struct mc_fs *fs, const struct mc_question *q)
{
	struct waiting w = {.ask = {.done = done}};

	mc_mutex_init(&w.lock);
	mc_cond_init(&w.answered);
	mc_names_ask(fs->names, q, false, &w.ask);
	mc_mutex_lock(&w.lock);
	while (w.answer == NULL)
		mc_cond_wait(&w.answered, &w.lock);
	mc_mutex_unlock(&w.lock);
	mc_cond_done(&w.answered);
	mc_mutex_done(&w.lock);
	return w.answer;
}

bool mc_tier_holds_rev(struct mc_fs *fs, enum mc_at at, const char *org, const char *name,
	struct mc_place **ret_place)
{
	const struct mc_question q = {.topic = MC_TOPIC_REV, .org = org, .name = name};
	struct mc_answer *a;

	*ret_place = NULL;
	if (strchr(name, '@') == NULL) /* a link, which holds nothing */
		return false;
	a = mc_tier_ask(fs, &q);
	if (a->res == 0)
		*ret_place = mc_place_ref(a->place);
	mc_answer_unref(a);
	return *ret_place != NULL && mc_holds_entry(fs, at, *ret_place, 0, UINT32_MAX);
}

bool mc_tier_holds_org(
	struct mc_fs *fs, enum mc_at at, const char *org, struct mc_place **ret_place)
{
	const struct mc_question q = {.topic = MC_TOPIC_ORG, .org = org, .name = ""};
	struct mc_answer *a = mc_tier_ask(fs, &q);
	bool holds = at == MC_AT_REMOTE && a->res == 0 && a->n_items > 0;

	*ret_place = NULL;
	if (a->res == 0)
		mc_place_open(org, NULL, NULL, NULL, ret_place);
	for (size_t i = 0; a->res == 0 && i < a->n_items && !holds; i++) {
		struct mc_place *place;

		holds = mc_tier_holds_rev(fs, at, org, a->items[i].name, &place);
		mc_place_unref(place);
	}
	mc_answer_unref(a);
	return holds;
}
