/* The questions to the catalogue: one answer each, made on a thread of the work pool. */
#include "fs/names-load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/log.h"
#include "manifest/catalogue.h"
#include "tier/cleanup.h"

#define NAME_LEN                                                                                   \
	255 /* bytes of a component; longer ones exist on the remote but have no place here */

/* A list under construction. */
struct list {
	struct mc_answer *a;
	size_t cap;
	struct mc_catalogue *catalogue;
	struct mc_rev_name model; /* whose revisions are being listed */
	struct mc_err err;
};

static int list_add(struct list *l, const char *name, const char *target)
{
	struct mc_listed item = {0};

	if (l->a->n_items == l->cap) {
		size_t cap = l->cap != 0 ? l->cap * 2 : 16;
		struct mc_listed *p = realloc(l->a->items, cap * sizeof(*p));

		if (p == NULL)
			return -ENOMEM;
		l->a->items = p;
		l->cap = cap;
	}
	item.name = strdup(name);
	item.target = target != NULL ? strdup(target) : NULL;
	if (item.name == NULL || (target != NULL && item.target == NULL)) {
		free(item.name);
		free(item.target);
		return -ENOMEM;
	}
	l->a->items[l->a->n_items++] = item;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct mc_listed *)a)->name, ((const struct mc_listed *)b)->name);
}

static void list_sort(struct list *l)
{
	if (l->a->n_items > 1)
		qsort(l->a->items, l->a->n_items, sizeof(*l->a->items), by_name);
}

/* "<model>@<rev>", or false when that is no name. */
static bool full_name(const struct mc_rev_name *rev, char out[NAME_LEN + 1])
{
	return snprintf(out, NAME_LEN + 1, "%s@%s", rev->model, rev->rev) <= NAME_LEN;
}

static int add_org(void *ctx, const char *name)
{
	return list_add(ctx, name, NULL);
}

static int add_revision(void *ctx, const char *rev)
{
	struct list *l = ctx;
	char name[NAME_LEN + 1];

	snprintf(l->model.rev, sizeof(l->model.rev), "%s", rev);
	return full_name(&l->model, name) ? list_add(l, name, NULL) : 0;
}

/* The link to the newest revision; a model without one has no link, a damaged pointer hides only
 * it. */
static int add_latest(struct list *l)
{
	char target[NAME_LEN + 1];
	int r = mc_catalogue_latest(l->catalogue, &l->model, NULL, &l->err);

	if (r == -ENOENT || r == -EBADMSG)
		return 0;
	if (r < 0)
		return r;
	return full_name(&l->model, target) ? list_add(l, l->model.model, target) : 0;
}

static int add_model(void *ctx, const char *model)
{
	struct list *l = ctx;
	int r;

	snprintf(l->model.model, sizeof(l->model.model), "%s", model);
	r = mc_catalogue_revisions(l->catalogue, &l->model, add_revision, l, &l->err);
	if (r == -ENOENT)
		return 0; /* removed meanwhile */
	return r < 0 ? r : add_latest(l);
}

static int load_org(struct list *l, const char *org)
{
	if (!mc_model_name_good(org))
		return -ENOENT;
	snprintf(l->model.org, sizeof(l->model.org), "%s", org);
	return mc_catalogue_models(l->catalogue, org, add_model, l, &l->err);
}

static int load_latest(struct list *l, const char *org, const char *model)
{
	char target[NAME_LEN + 1];
	int r;

	if (!mc_model_name_good(org) || !mc_model_name_good(model))
		return -ENOENT;
	snprintf(l->model.org, sizeof(l->model.org), "%s", org);
	snprintf(l->model.model, sizeof(l->model.model), "%s", model);
	r = mc_catalogue_latest(l->catalogue, &l->model, NULL, &l->err);
	if (r < 0)
		return r;
	return full_name(&l->model, target) ? list_add(l, model, target) : -ENOENT;
}

/* The parts of "<model>@<rev>", by the catalogue's rules. */
static bool split(const char *org, const char *name, struct mc_rev_name *ret)
{
	const char *at = strchr(name, '@');
	size_t len = at != NULL ? (size_t)(at - name) : 0;

	if (at == NULL || len >= sizeof(ret->model) || strlen(org) >= sizeof(ret->org) ||
		strlen(at + 1) >= sizeof(ret->rev))
		return false;
	snprintf(ret->org, sizeof(ret->org), "%s", org);
	snprintf(ret->model, sizeof(ret->model), "%.*s", (int)len, name);
	snprintf(ret->rev, sizeof(ret->rev), "%s", at + 1);
	return mc_model_name_good(ret->org) && mc_model_name_good(ret->model) &&
		mc_rev_good(ret->rev);
}

static int load_rev(struct list *l, const char *org, const char *name, struct mc_place *known)
{
	uint8_t id[MC_SHA256_SIZE];
	struct mc_loaded loaded = {0};
	struct mc_rev_name rev;
	int r;

	if (!split(org, name, &rev))
		return -ENOENT;
	if (known != NULL) {
		r = mc_catalogue_id(l->catalogue, &rev, id, &l->err);
		if (r < 0)
			return r;
		if (memcmp(id, mc_manifest_id(known->manifest), sizeof(id)) == 0) {
			l->a->place = mc_place_ref(known);
			return 0;
		}
	}
	r = mc_catalogue_load(l->catalogue, &rev, &loaded, &l->err);
	if (r < 0)
		return r;
	if (loaded.index_error.text[0] != '\0')
		mc_log(MC_LOG_WARNING, "index-not-saved", "revision=\"%s/%s\" error=\"%s\"", org,
			name, loaded.index_error.text);
	r = mc_place_open(rev.org, rev.model, rev.rev, loaded.m, &l->a->place);
	mc_manifest_unref(loaded.m);
	return r;
}

static void complain(const struct list *l, const char *org, const char *name)
{
	static struct mc_log_limit limit;
	uint64_t suppressed;

	if (l->a->res == 0 || l->a->res == -ENOENT || !mc_log_allowed(&limit, &suppressed))
		return;
	mc_log(MC_LOG_WARNING, "catalogue-failed", "name=\"%s/%s\" error=\"%s\" suppressed=%llu",
		org, name, l->err.text[0] != '\0' ? l->err.text : strerror(-l->a->res),
		(unsigned long long)suppressed);
}

int mc_names_load(struct mc_catalogue *catalogue, const struct mc_question *q,
	struct mc_place *known, struct mc_answer **ret)
{
	struct list l = {.a = calloc(1, sizeof(struct mc_answer)), .catalogue = catalogue};
	int r = 0;

	if (l.a == NULL)
		return -ENOMEM;
	atomic_init(&l.a->refs, 1);
	switch (q->topic) {
	case MC_TOPIC_ORGS:
		r = mc_catalogue_orgs(catalogue, add_org, &l, &l.err);
		break;
	case MC_TOPIC_ORG:
		r = load_org(&l, q->org);
		break;
	case MC_TOPIC_LATEST:
		r = load_latest(&l, q->org, q->name);
		break;
	case MC_TOPIC_REV:
		r = load_rev(&l, q->org, q->name, known);
		break;
	}
	list_sort(&l);
	l.a->res = r;
	complain(&l, q->org, q->name);
	*ret = l.a;
	return 0;
}
