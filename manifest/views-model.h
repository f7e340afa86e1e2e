/* Private to the views: a checkpoint with what its views need beside the manifest. */
#pragma once

#include "manifest/view.h"
#include "tier/lock.h"

#include <stdatomic.h>

/* config and fit belong to one manifest id and never change once they are known. */
struct mc_view_model {
	atomic_uint refs;
	struct mc_manifest *m; /* owned reference */
	struct mc_mutex lock;
	bool asked MC_GUARDED_BY(lock);   /* config is known */
	char *config MC_GUARDED_BY(lock); /* owned; NULL = none; fixed once asked */
	size_t config_len MC_GUARDED_BY(lock);
	_Atomic uint64_t fit; /* usual meshes that fit, a bit each, and MC_VIEW_FIT_KNOWN */
};

#define MC_VIEW_FIT_KNOWN (UINT64_C(1) << 63)
extern const char *const mc_view_usual[]; /* ends with NULL */

struct mc_view_model *mc_view_model_open(struct mc_manifest *m); /* NULL: no memory */
void mc_view_model_unref(struct mc_view_model *x);               /* NULL allowed */
/* Reads config.json, once. */
int mc_view_model_config(struct mc_view_model *x, struct mc_remote *remote, struct mc_err *err);
/* The preset for a mesh. -ENOENT: no such mesh, or no preset for the model. */
int mc_view_model_preset(const struct mc_view_model *x, const char *name, struct mc_layout **ret,
	struct mc_err *err);
/* Which of the usual meshes fit; compiled once. */
int mc_view_model_fits(struct mc_view_model *x, uint64_t *ret);
