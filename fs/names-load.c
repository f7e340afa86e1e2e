/* The questions to the catalogue: one answer each, made on a thread of the work pool. */
#include "fs/names-load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/log.h"
#include "manifest/views.h"
#include "tier/array.h"
#include "tier/cleanup.h"

#define NAME_LEN                                                                                   \
	255 /* bytes of a component; longer ones exist on the remote but have no place here */

#define DOCUMENT ".json"

/* A list under construction. */
struct list {
	struct mc_answer *a;
	size_t cap;
	const struct mc_names_sources *from;
	struct mc_rev_name model; /* whose revisions are being listed */
	struct mc_err err;
};

static int list_add(struct list *l, const char *name, const char *target)
{
	struct mc_listed item = {0};
	int r = mc_array_room(&l->a->items, &l->cap, l->a->n_items + 1);

	if (r < 0)
		return r;
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

static int add_name(void *ctx, const char *name)
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
	int r = mc_catalogue_latest(l->from->catalogue, &l->model, NULL, &l->err);

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
	r = mc_catalogue_revisions(l->from->catalogue, &l->model, add_revision, l, &l->err);
	if (r == -ENOENT)
		return 0; /* removed meanwhile */
	return r < 0 ? r : add_latest(l);
}

static int load_org(struct list *l, const char *org)
{
	if (!mc_model_name_good(org))
		return -ENOENT;
	snprintf(l->model.org, sizeof(l->model.org), "%s", org);
	return mc_catalogue_models(l->from->catalogue, org, add_model, l, &l->err);
}

static int load_latest(struct list *l, const char *org, const char *model)
{
	char target[NAME_LEN + 1];
	int r;

	if (!mc_model_name_good(org) || !mc_model_name_good(model))
		return -ENOENT;
	snprintf(l->model.org, sizeof(l->model.org), "%s", org);
	snprintf(l->model.model, sizeof(l->model.model), "%s", model);
	r = mc_catalogue_latest(l->from->catalogue, &l->model, NULL, &l->err);
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

struct path {
	char layout[MC_NAME_MAX + 1];
	bool has_rank;
	uint32_t rank;
};

static bool split_view(
	const char *org, const char *name, struct mc_rev_name *ret, struct path *ret_path)
{
	const char *slash = strchr(name, '/'), *second;
	char first[NAME_LEN + 1];
	size_t len;

	*ret_path = (struct path){0};
	if (slash == NULL || slash - name > NAME_LEN)
		return false;
	second = strchr(slash + 1, '/');
	len = second != NULL ? (size_t)(second - slash - 1) : strlen(slash + 1);
	if (len > MC_NAME_MAX)
		return false;
	snprintf(first, sizeof(first), "%.*s", (int)(slash - name), name);
	snprintf(ret_path->layout, sizeof(ret_path->layout), "%.*s", (int)len, slash + 1);
	ret_path->has_rank = second != NULL;
	return (second == NULL || mc_view_rank_parse(second + 1, &ret_path->rank) == 0) &&
		split(org, first, ret);
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
		r = mc_catalogue_id(l->from->catalogue, &rev, id, &l->err);
		if (r < 0)
			return r;
		if (memcmp(id, mc_manifest_id(known->manifest), sizeof(id)) == 0) {
			l->a->place = mc_place_ref(known);
			return 0;
		}
	}
	r = mc_catalogue_load(l->from->catalogue, &rev, &loaded, &l->err);
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

/* A view's directory: "<model>@<rev>/<layout>" or a rank's below it. */
static int load_view(struct list *l, const char *org, const char *name, struct mc_place *known)
{
	struct mc_view_layout *layout;
	struct mc_view *view = NULL;
	struct mc_rev_name rev;
	struct path path;
	uint32_t ranks;
	int r;

	if (!split_view(org, name, &rev, &path))
		return -ENOENT;
	r = mc_views_layout(l->from->views, &rev, path.layout, &layout, &l->err);
	if (r < 0)
		return r;
	ranks = mc_view_layout_ranks(layout);
	if (known != NULL && known->view_layout == layout) {
		l->a->place = mc_place_ref(known);
	} else if (path.has_rank && path.rank >= ranks) {
		r = -ENOENT;
	} else {
		if (path.has_rank || ranks == 0)
			r = mc_views_files(l->from->views, layout, path.rank, &view, &l->err);
		if (r == 0)
			r = mc_place_open_view(
				&rev, strchr(name, '/') + 1, layout, view, &l->a->place);
		mc_view_unref(view);
	}
	mc_view_layout_unref(layout);
	return r;
}

static int load_fits(struct list *l, const char *org, const char *name)
{
	struct mc_rev_name rev;

	return split(org, name, &rev) ? mc_views_list(l->from->views, &rev, add_name, l, &l->err)
				      : -ENOENT;
}

static int add_document(void *ctx, const char *name)
{
	char file[NAME_LEN + 1];

	return snprintf(file, sizeof(file), "%s" DOCUMENT, name) <= NAME_LEN
		? list_add(ctx, file, NULL)
		: 0;
}

static int load_document(struct list *l, const char *file)
{
	size_t len = strlen(file), end = strlen(DOCUMENT);
	char name[NAME_LEN + 1];
	struct mc_view *view;
	int r;

	if (len <= end || len > NAME_LEN || strcmp(file + len - end, DOCUMENT) != 0)
		return -ENOENT;
	snprintf(name, sizeof(name), "%.*s", (int)(len - end), file);
	r = mc_layouts_file(l->from->remote, name, &view, &l->err);
	if (r < 0)
		return r;
	r = mc_place_open_document(file, view, &l->a->place);
	mc_view_unref(view);
	return r;
}

int mc_names_load(const struct mc_names_sources *sources, const struct mc_question *q,
	struct mc_place *known, struct mc_answer **ret)
{
	struct list l = {.a = calloc(1, sizeof(struct mc_answer)), .from = sources};
	int r = 0;

	if (l.a == NULL)
		return -ENOMEM;
	atomic_init(&l.a->refs, 1);
	switch (q->topic) {
	case MC_TOPIC_ORGS:
		r = mc_catalogue_orgs(sources->catalogue, add_name, &l, &l.err);
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
	case MC_TOPIC_FITS:
		r = load_fits(&l, q->org, q->name);
		break;
	case MC_TOPIC_VIEW:
		r = load_view(&l, q->org, q->name, known);
		break;
	case MC_TOPIC_DOCS:
		r = mc_layouts_list(sources->remote, add_document, &l, &l.err);
		break;
	case MC_TOPIC_DOC:
		r = load_document(&l, q->name);
		break;
	}
	list_sort(&l);
	l.a->res = r;
	complain(&l, q->org, q->name);
	if (q->topic == MC_TOPIC_VIEW && r < 0 && r != -ENOENT && l.err.text[0] != '\0')
		l.a->why = strdup(l.err.text); /* without memory there is no reason to be told */
	*ret = l.a;
	return 0;
}
