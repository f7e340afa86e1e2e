/* A checkpoint as its views see it: config.json, its presets, and which meshes fit. */
#include "manifest/views-model.h"

#include <errno.h>
#include <stdlib.h>

#include "manifest/json.h"
#include "manifest/preset.h"
#include "manifest/whole-file.h"

#define CONFIG_DEPTH 64

const char *const mc_view_usual[] = {
	"tp1", "tp2", "tp4", "tp8", "tp16", "tp8-pp2", "ep8", "ep16", "ep32", "tp8-ep8", NULL};

struct mc_view_model *mc_view_model_open(struct mc_manifest *m)
{
	struct mc_view_model *x = calloc(1, sizeof(*x));

	if (x == NULL)
		return NULL;
	atomic_init(&x->refs, 1);
	mc_mutex_init(&x->lock);
	x->m = mc_manifest_ref(m);
	return x;
}

void mc_view_model_unref(struct mc_view_model *x)
{
	if (x == NULL || atomic_fetch_sub(&x->refs, 1) != 1)
		return;
	mc_manifest_unref(x->m);
	mc_mutex_done(&x->lock);
	free(x->config);
	free(x);
}

int mc_view_model_config(struct mc_view_model *x, struct mc_remote *remote, struct mc_err *err)
{
	char *config;
	size_t len;
	bool asked;
	int r;

	mc_mutex_lock(&x->lock);
	asked = x->asked;
	mc_mutex_unlock(&x->lock);
	if (asked)
		return 0;
	r = mc_whole_config(remote, x->m, &config, &len, err);
	if (r < 0)
		return r;
	mc_mutex_lock(&x->lock);
	if (!x->asked) {
		x->config = config;
		x->config_len = len;
		x->asked = true;
		config = NULL;
	}
	mc_mutex_unlock(&x->lock);
	free(config);
	return 0;
}

int mc_view_model_preset(
	const struct mc_view_model *x, const char *name, struct mc_layout **ret, struct mc_err *err)
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

int mc_view_model_fits(struct mc_view_model *x, uint64_t *ret)
{
	uint64_t fit = MC_VIEW_FIT_KNOWN;

	*ret = atomic_load(&x->fit);
	if (*ret != 0)
		return 0;
	for (size_t i = 0; mc_view_usual[i] != NULL; i++) {
		struct mc_view_in in = {
			.manifest = x->m, .config = x->config, .config_len = x->config_len};
		struct mc_view_layout *l = NULL;
		int r = mc_view_model_preset(x, mc_view_usual[i], &in.layout, NULL);

		if (r == 0)
			r = mc_view_layout_open(&in, &l, NULL);
		mc_view_layout_unref(l);
		if (r == -ENOMEM)
			return r;
		if (r == 0)
			fit |= UINT64_C(1) << i;
	}
	atomic_store(&x->fit, fit);
	*ret = fit;
	return 0;
}
