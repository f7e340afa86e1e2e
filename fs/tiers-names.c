/* Which organisations and revisions a tier holds something of. Waits for the catalogue. */
#include "fs/tiers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/holds.h"

bool mc_tier_holds_rev(struct mc_fs *fs, enum mc_at at, const char *org, const char *name,
	struct mc_place **ret_place)
{
	const struct mc_question q = {.topic = MC_TOPIC_REV, .org = org, .name = name};
	struct mc_answer *a;

	*ret_place = NULL;
	if (strchr(name, '@') == NULL) /* a link, which holds nothing */
		return false;
	a = mc_names_wait(fs->names, &q);
	if (a->res == 0)
		*ret_place = mc_place_ref(a->place);
	mc_answer_unref(a);
	return *ret_place != NULL && mc_holds_entry(fs, at, *ret_place, 0, UINT32_MAX);
}

bool mc_tier_holds_org(
	struct mc_fs *fs, enum mc_at at, const char *org, struct mc_place **ret_place)
{
	const struct mc_question q = {.topic = MC_TOPIC_ORG, .org = org, .name = ""};
	struct mc_answer *a = mc_names_wait(fs->names, &q);
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
