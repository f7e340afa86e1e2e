/*
 * Compiled layouts and views, remembered.
 *
 * Invariants
 *  1. The three lists hold references of their own, most recently used first; what falls off a list
 *     lives on with whoever uses it.
 *  2. Nothing is computed, asked or freed under the lock: two callers may compute the same.
 *  3. A model's config and manifest belong to one manifest id and never change.
 */
#include "manifest/views.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/json.h"
#include "manifest/preset.h"
#include "manifest/profile.h"
#include "manifest/whole-file.h"
#include "tier/cleanup.h"
#include "tier/lock.h"

#define MAX_MODELS 8
#define MAX_LAYOUTS 4 /* up to 20 MB each */
#define MAX_VIEWS 1024
#define MAX_VIEW_BYTES (UINT64_C(256) << 20) /* of remembered views together */
#define CONFIG_DEPTH 64

/* A manifest with what reading views needs beside it. */
struct model {
	atomic_uint refs;
	struct mc_manifest *m; /* owned reference */
	atomic_bool asked;     /* config is known */
	char *config;          /* owned; NULL = none */
	size_t config_len;
	/* Usual meshes that fit, a bit each; FIT_KNOWN when computed. */
	_Atomic uint64_t fit;
};

static const char *const usual[] = {
	"tp1", "tp2", "tp4", "tp8", "tp16", "tp8-pp2", "ep8", "ep16", "ep32", "tp8-ep8"};
#define N_USUAL (sizeof(usual) / sizeof(*usual))
#define FIT_KNOWN (UINT64_C(1) << 63)

struct rank_view {
	struct mc_view *view; /* owned reference */
	uint32_t rank;
};

struct mc_views {
	struct mc_catalogue *catalogue; /* borrowed */
	struct mc_remote *remote;       /* borrowed */
	struct mc_mutex lock;
	struct model *models[MAX_MODELS];            /* owned references */
	struct mc_view_layout *layouts[MAX_LAYOUTS]; /* owned references */
	struct rank_view views[MAX_VIEWS];
	unsigned n_models, n_layouts, n_views;
	uint64_t view_bytes;
};

static void model_unref(struct model *x)
{
	if (x == NULL || atomic_fetch_sub(&x->refs, 1) != 1)
		return;
	mc_manifest_unref(x->m);
	free(x->config);
	free(x);
}

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
		model_unref(vs->models[i]);
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

static struct model *model_find_locked(struct mc_views *vs, const uint8_t *id) MC_REQUIRES(vs->lock)
{
	for (unsigned i = 0; i < vs->n_models; i++) {
		if (memcmp(mc_manifest_id(vs->models[i]->m), id, MC_SHA256_SIZE) == 0) {
			to_front(vs->models, sizeof(struct model *), i);
			atomic_fetch_add(&vs->models[0]->refs, 1);
			return vs->models[0];
		}
	}
	return NULL;
}

/* The one with m's id, put in when missing; the caller's reference. NULL: no memory. */
static struct model *model_of(struct mc_views *vs, struct mc_manifest *m)
{
	struct model *mine = calloc(1, sizeof(*mine)), *x, *dropped = NULL;

	if (mine == NULL)
		return NULL;
	atomic_init(&mine->refs, 2);
	mine->m = mc_manifest_ref(m);
	mc_mutex_lock(&vs->lock);
	x = model_find_locked(vs, mc_manifest_id(m));
	if (x == NULL) {
		if (vs->n_models == MAX_MODELS)
			dropped = vs->models[--vs->n_models];
		vs->models[vs->n_models++] = mine;
		to_front(vs->models, sizeof(struct model *), vs->n_models - 1);
	}
	mc_mutex_unlock(&vs->lock);
	model_unref(dropped);
	if (x == NULL)
		return mine;
	atomic_store(&mine->refs, 1);
	model_unref(mine);
	return x;
}

void mc_views_know(struct mc_views *vs, struct mc_manifest *m)
{
	model_unref(model_of(vs, m));
}

static int model_config(struct mc_views *vs, struct model *x, struct mc_err *err)
{
	char *config;
	size_t len;
	int r = 0;

	if (atomic_load(&x->asked))
		return 0;
	r = mc_whole_config(vs->remote, x->m, &config, &len, err);
	if (r < 0)
		return r;
	mc_mutex_lock(&vs->lock);
	if (!atomic_load(&x->asked)) {
		x->config = config;
		x->config_len = len;
		atomic_store(&x->asked, true);
		config = NULL;
	}
	mc_mutex_unlock(&vs->lock);
	free(config);
	return 0;
}

/* The revision with its config; the caller's reference. */
static int model_get(
	struct mc_views *vs, const struct mc_rev_name *rev, struct model **ret, struct mc_err *err)
{
	uint8_t id[MC_SHA256_SIZE];
	struct mc_loaded loaded = {0};
	struct model *x;
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
	r = model_config(vs, x, err);
	if (r < 0) {
		model_unref(x);
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

static void layout_remember(struct mc_views *vs, struct mc_view_layout *l)
{
	struct mc_view_layout *dropped = NULL;

	mc_mutex_lock(&vs->lock);
	if (vs->n_layouts == MAX_LAYOUTS)
		dropped = vs->layouts[--vs->n_layouts];
	vs->layouts[vs->n_layouts++] = mc_view_layout_ref(l);
	to_front(vs->layouts, sizeof(struct mc_view_layout *), vs->n_layouts - 1);
	mc_mutex_unlock(&vs->lock);
	mc_view_layout_unref(dropped);
}

/* A mesh's preset, or -ENOENT. */
static int preset(
	const struct model *x, const char *name, struct mc_layout **ret, struct mc_err *err)
{
	json_t *config = NULL;
	int r = -ENOENT;

	if (x->config != NULL)
		r = mc_json_load(x->config, x->config_len, CONFIG_DEPTH, &config, err);
	if (r == 0)
		r = mc_preset_layout(config, name, ret, err);
	json_decref(config);
	return r;
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
static int compiled(struct mc_views *vs, const struct model *x, struct mc_layout *layout,
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
	struct model *x;
	int r = model_get(vs, rev, &x, err);

	if (r < 0)
		return r;
	r = preset(x, name, &layout, &no_preset);
	if (r == -ENOENT) {
		r = document(vs, name, &layout, err);
		if (r == -ENOENT && err != NULL)
			*err = no_preset;
	} else if (r < 0 && err != NULL) {
		*err = no_preset;
	}
	if (r == 0)
		r = compiled(vs, x, layout, ret, err);
	model_unref(x);
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

/* Compiles every usual mesh once for a model. */
static int find_fits(struct model *x)
{
	uint64_t fit = FIT_KNOWN;

	for (size_t i = 0; i < N_USUAL; i++) {
		struct mc_view_in in = {
			.manifest = x->m, .config = x->config, .config_len = x->config_len};
		struct mc_view_layout *l = NULL;
		int r = preset(x, usual[i], &in.layout, NULL);

		if (r == 0)
			r = mc_view_layout_open(&in, &l, NULL);
		mc_view_layout_unref(l);
		if (r == -ENOMEM)
			return r;
		if (r == 0)
			fit |= UINT64_C(1) << i;
	}
	atomic_store(&x->fit, fit);
	return 0;
}

int mc_views_list(struct mc_views *vs, const struct mc_rev_name *rev, mc_catalogue_each *each,
	void *ctx, struct mc_err *err)
{
	struct model *x;
	uint64_t fit;
	int r = model_get(vs, rev, &x, err);

	if (r < 0)
		return r;
	if (atomic_load(&x->fit) == 0)
		r = find_fits(x);
	fit = atomic_load(&x->fit);
	for (size_t i = 0; r == 0 && i < N_USUAL; i++)
		if ((fit >> i & 1) != 0)
			r = each(ctx, usual[i]);
	model_unref(x);
	return r == 0 ? mc_layouts_list(vs->remote, each, ctx, err) : r;
}
