/*
 * Compiled layouts and views, remembered.
 *
 * Invariants
 *  1. The three lists hold references of their own, most recently used first; what falls off a list
 *     lives on with whoever uses it.
 *  2. Nothing is computed, asked or freed under the lock: two callers may compute the same.
 */
#include "manifest/views.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/profile.h"
#include "manifest/view-build.h"
#include "manifest/views-model.h"
#include "tier/cleanup.h"
#include "tier/lock.h"

#define MAX_MODELS 8
#define MAX_LAYOUTS 64
#define MAX_IDLE_LAYOUTS 4 /* that nobody else uses; up to 20 MB each */
#define MAX_VIEWS 1024
#define MAX_VIEW_BYTES (UINT64_C(256) << 20) /* of remembered views together */

struct rank_view {
	struct mc_view *view; /* owned reference */
	uint32_t rank;
};

struct mc_views {
	struct mc_catalogue *catalogue; /* borrowed */
	struct mc_remote *remote;       /* borrowed */
	struct mc_mutex lock;
	struct mc_view_model *models[MAX_MODELS];    /* owned references */
	struct mc_view_layout *layouts[MAX_LAYOUTS]; /* owned references */
	struct rank_view views[MAX_VIEWS];
	unsigned n_models, n_layouts, n_views;
	uint64_t view_bytes;
};

int mc_views_open(struct mc_catalogue *catalogue, struct mc_remote *remote, struct mc_views **ret)
{
	struct mc_views *vs = calloc(1, sizeof(*vs));

	if (vs == NULL)
		return -ENOMEM;
	vs->catalogue = catalogue;
	vs->remote = remote;
	mc_mutex_init(&vs->lock);
	*ret = vs;
	return 0;
}

void mc_views_close(struct mc_views *vs)
{
	if (vs == NULL)
		return;
	for (unsigned i = 0; i < vs->n_views; i++)
		mc_view_unref(vs->views[i].view);
	for (unsigned i = 0; i < vs->n_layouts; i++)
		mc_view_layout_unref(vs->layouts[i]);
	for (unsigned i = 0; i < vs->n_models; i++)
		mc_view_model_unref(vs->models[i]);
	mc_mutex_done(&vs->lock);
	free(vs);
}

static void to_front(void *list, size_t size, unsigned i)
{
	char save[sizeof(struct rank_view)], *v = list;

	memcpy(save, v + i * size, size);
	memmove(v + size, v, i * size);
	memcpy(v, save, size);
}

static struct mc_view_model *model_find_locked(struct mc_views *vs, const uint8_t *id)
	MC_REQUIRES(vs->lock)
{
	for (unsigned i = 0; i < vs->n_models; i++) {
		if (memcmp(mc_manifest_id(vs->models[i]->m), id, MC_SHA256_SIZE) == 0) {
			to_front(vs->models, sizeof(struct mc_view_model *), i);
			atomic_fetch_add(&vs->models[0]->refs, 1);
			return vs->models[0];
		}
	}
	return NULL;
}

/* The one with m's id, put in when missing; the caller's reference. NULL: no memory. */
static struct mc_view_model *model_of(struct mc_views *vs, struct mc_manifest *m)
{
	struct mc_view_model *mine = mc_view_model_open(m), *x, *dropped = NULL;

	if (mine == NULL)
		return NULL;
	mc_mutex_lock(&vs->lock);
	x = model_find_locked(vs, mc_manifest_id(m));
	if (x == NULL) {
		if (vs->n_models == MAX_MODELS)
			dropped = vs->models[--vs->n_models];
		vs->models[vs->n_models++] = mine;
		atomic_fetch_add(&mine->refs, 1);
		to_front(vs->models, sizeof(struct mc_view_model *), vs->n_models - 1);
	}
	mc_mutex_unlock(&vs->lock);
	mc_view_model_unref(dropped);
	if (x == NULL)
		return mine;
	mc_view_model_unref(mine);
	return x;
}

void mc_views_know(struct mc_views *vs, struct mc_manifest *m)
{
	mc_view_model_unref(model_of(vs, m));
}

/* The revision with its config; the caller's reference. */
static int model_get(struct mc_views *vs, const struct mc_rev_name *rev, struct mc_view_model **ret,
	struct mc_err *err)
{
	uint8_t id[MC_SHA256_SIZE];
	struct mc_loaded loaded = {0};
	struct mc_view_model *x;
	int r = mc_catalogue_id(vs->catalogue, rev, id, err);

	if (r < 0)
		return r;
	mc_mutex_lock(&vs->lock);
	x = model_find_locked(vs, id);
	mc_mutex_unlock(&vs->lock);
	if (x == NULL) {
		r = mc_catalogue_load(vs->catalogue, rev, &loaded, err);
		if (r < 0)
			return r;
		x = model_of(vs, loaded.m);
		mc_manifest_unref(loaded.m);
		if (x == NULL)
			return -ENOMEM;
	}
	r = mc_view_model_config(x, vs->remote, err);
	if (r < 0) {
		mc_view_model_unref(x);
		return r;
	}
	*ret = x;
	return 0;
}

static struct mc_view_layout *layout_find(
	struct mc_views *vs, const struct mc_manifest *m, const uint8_t *digest)
{
	struct mc_view_layout *found = NULL;

	mc_mutex_lock(&vs->lock);
	for (unsigned i = 0; i < vs->n_layouts && found == NULL; i++) {
		struct mc_view_layout *l = vs->layouts[i];

		if (memcmp(mc_view_layout_digest(l), digest, MC_SHA256_SIZE) != 0 ||
			memcmp(mc_manifest_id(mc_view_layout_manifest(l)), mc_manifest_id(m),
				MC_SHA256_SIZE) != 0)
			continue;
		to_front(vs->layouts, sizeof(struct mc_view_layout *), i);
		found = mc_view_layout_ref(l);
	}
	mc_mutex_unlock(&vs->lock);
	return found;
}

/* Takes the least recently used idle one off the list when there are too many, or any when the list
 * is full; what is in use stays, for it is found again by who looks at its name anew. */
static struct mc_view_layout *layout_drop_locked(struct mc_views *vs) MC_REQUIRES(vs->lock)
{
	struct mc_view_layout *dropped;
	unsigned idle = 0, victim = vs->n_layouts;

	for (unsigned i = 0; i < vs->n_layouts; i++) {
		if (atomic_load(&vs->layouts[i]->refs) > 1)
			continue;
		idle++;
		victim = i;
	}
	if (idle < MAX_IDLE_LAYOUTS && vs->n_layouts < MAX_LAYOUTS)
		return NULL;
	if (victim == vs->n_layouts)
		victim--;
	dropped = vs->layouts[victim];
	vs->n_layouts--;
	memmove(vs->layouts + victim, vs->layouts + victim + 1,
		(vs->n_layouts - victim) * sizeof(struct mc_view_layout *));
	return dropped;
}

static void layout_remember(struct mc_views *vs, struct mc_view_layout *l)
{
	struct mc_view_layout *dropped;

	mc_mutex_lock(&vs->lock);
	dropped = layout_drop_locked(vs);
	vs->layouts[vs->n_layouts++] = mc_view_layout_ref(l);
	to_front(vs->layouts, sizeof(struct mc_view_layout *), vs->n_layouts - 1);
	mc_mutex_unlock(&vs->lock);
	mc_view_layout_unref(dropped);
}

static int document(
	struct mc_views *vs, const char *name, struct mc_layout **ret, struct mc_err *err)
{
	cleanup_free char *text = NULL;
	size_t len;
	int r = mc_layouts_get(vs->remote, name, &text, &len, err);

	return r < 0 ? r : mc_layout_parse(text, len, ret, err);
}

/* *ret stays NULL where the layout needs none or the remote has none: it may be built in. */
static int registered_profile(struct mc_views *vs, const struct mc_layout *layout,
	struct mc_profile **ret, struct mc_err *err)
{
	cleanup_free char *text = NULL;
	size_t len;
	int r;

	if (mc_layout_profile(layout)[0] == '\0')
		return 0;
	r = mc_profiles_get(vs->remote, mc_layout_profile(layout), &text, &len, NULL);
	if (r == -ENOENT)
		return 0;
	return r < 0 ? r : mc_profile_parse(text, len, ret, err);
}

/* Takes layout over. */
static int compiled(struct mc_views *vs, const struct mc_view_model *x, struct mc_layout *layout,
	struct mc_view_layout **ret, struct mc_err *err)
{
	struct mc_view_in in = {.manifest = x->m,
		.config = x->config,
		.config_len = x->config_len,
		.layout = layout};
	struct mc_profile *profile = NULL;
	uint8_t digest[MC_SHA256_SIZE];
	int r = mc_layout_digest(layout, digest);

	if (r < 0) {
		mc_layout_free(layout);
		return r;
	}
	*ret = layout_find(vs, x->m, digest);
	if (*ret != NULL) {
		mc_layout_free(layout);
		return 0;
	}
	r = registered_profile(vs, layout, &profile, err);
	if (r < 0) {
		mc_layout_free(layout);
		return r;
	}
	in.profile = profile;
	r = mc_view_layout_open(&in, ret, err);
	mc_profile_free(profile);
	if (r == 0)
		layout_remember(vs, *ret);
	return r;
}

int mc_views_layout(struct mc_views *vs, const struct mc_rev_name *rev, const char *name,
	struct mc_view_layout **ret, struct mc_err *err)
{
	struct mc_err no_preset = {0};
	struct mc_layout *layout;
	struct mc_view_model *x;
	int r = model_get(vs, rev, &x, err);

	if (r < 0)
		return r;
	r = mc_view_model_preset(x, name, &layout, &no_preset);
	if (r == -ENOENT) {
		r = document(vs, name, &layout, err);
		if (r == -ENOENT && err != NULL)
			*err = no_preset;
	} else if (r < 0 && err != NULL) {
		*err = no_preset;
	}
	if (r == 0)
		r = compiled(vs, x, layout, ret, err);
	mc_view_model_unref(x);
	return r;
}

static struct mc_view *view_find_locked(
	struct mc_views *vs, const struct mc_view_layout *l, uint32_t rank) MC_REQUIRES(vs->lock)
{
	for (unsigned i = 0; i < vs->n_views; i++) {
		if (mc_view_of(vs->views[i].view) == l && vs->views[i].rank == rank) {
			to_front(vs->views, sizeof(*vs->views), i);
			return mc_view_ref(vs->views[0].view);
		}
	}
	return NULL;
}

static void view_remember(struct mc_views *vs, struct mc_view *v, uint32_t rank)
{
	for (;;) {
		struct mc_view *dropped = NULL;

		mc_mutex_lock(&vs->lock);
		if (vs->n_views == MAX_VIEWS ||
			(vs->n_views > 0 && vs->view_bytes + mc_view_memory(v) > MAX_VIEW_BYTES)) {
			dropped = vs->views[--vs->n_views].view;
			vs->view_bytes -= mc_view_memory(dropped);
		} else {
			vs->views[vs->n_views++] =
				(struct rank_view){.view = mc_view_ref(v), .rank = rank};
			to_front(vs->views, sizeof(*vs->views), vs->n_views - 1);
			vs->view_bytes += mc_view_memory(v);
		}
		mc_mutex_unlock(&vs->lock);
		if (dropped == NULL)
			return;
		mc_view_unref(dropped);
	}
}

int mc_views_files(struct mc_views *vs, struct mc_view_layout *l, uint32_t rank,
	struct mc_view **ret, struct mc_err *err)
{
	struct mc_view *v;
	int r;

	mc_mutex_lock(&vs->lock);
	v = view_find_locked(vs, l, rank);
	mc_mutex_unlock(&vs->lock);
	if (v == NULL) {
		r = mc_view_open(l, rank, &v, err);
		if (r < 0)
			return r;
		view_remember(vs, v, rank);
	}
	*ret = v;
	return 0;
}

int mc_views_list(struct mc_views *vs, const struct mc_rev_name *rev, mc_catalogue_each *each,
	void *ctx, struct mc_err *err)
{
	struct mc_view_model *x;
	uint64_t fit;
	int r = model_get(vs, rev, &x, err);

	if (r < 0)
		return r;
	r = mc_view_model_fits(x, &fit);
	for (size_t i = 0; r == 0 && mc_view_usual[i] != NULL; i++)
		if ((fit >> i & 1) != 0)
			r = each(ctx, mc_view_usual[i]);
	mc_view_model_unref(x);
	return r == 0 ? mc_layouts_list(vs->remote, each, ctx, err) : r;
}
