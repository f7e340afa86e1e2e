/*
 * The views of a remote's checkpoints: from names to compiled layouts and their files, remembered.
 * A layout's name is a mesh (tp8, tp4-pp2: the preset of the model's family) or that of a document
 * under layouts/ on the remote.
 *
 * Thread-safe. Every call may wait for the remote, and computes for up to some hundred ms.
 */
#pragma once

#include "manifest/catalogue.h"
#include "manifest/view.h"

struct mc_views;

/* Both are borrowed until close. */
int mc_views_open(struct mc_catalogue *catalogue, struct mc_remote *remote, struct mc_views **ret);
void mc_views_close(struct mc_views *vs); /* NULL allowed */

/* A manifest that is loaded already, so that it need not be loaded again. Takes a reference. */
void mc_views_know(struct mc_views *vs, struct mc_manifest *m);

/* The revision under the layout; the caller's reference. -ENOENT: no such revision, no such layout;
 * -EINVAL: the layout does not fit the model, -EBADMSG: its document is damaged, each described. */
int mc_views_layout(struct mc_views *vs, const struct mc_rev_name *rev, const char *name,
	struct mc_view_layout **ret, struct mc_err *err);
/* mc_view_open, remembered. */
int mc_views_files(struct mc_views *vs, struct mc_view_layout *l, uint32_t rank,
	struct mc_view **ret, struct mc_err *err);

/* Calls each for the meshes that fit the model (of those that are usual) and for every registered
 * layout, whether or not it fits; a non-zero return stops and is returned. */
int mc_views_list(struct mc_views *vs, const struct mc_rev_name *rev, mc_catalogue_each *each,
	void *ctx, struct mc_err *err);

/* Registered layouts: names without ".json". */
int mc_layouts_list(struct mc_remote *r, mc_catalogue_each *each, void *ctx, struct mc_err *err);
/* The document (free()). -ENOENT, -EFBIG. */
int mc_layouts_get(
	struct mc_remote *r, const char *name, char **ret, size_t *ret_len, struct mc_err *err);
/* The same for an engine's profile: layouts/profiles/<name>.json. */
int mc_profiles_get(
	struct mc_remote *r, const char *name, char **ret, size_t *ret_len, struct mc_err *err);
/* Checks a profile and publishes it. -EEXIST when the name has another one, -EINVAL for a bad name,
 * -EBADMSG. */
int mc_profiles_put(
	struct mc_remote *r, const char *name, const void *text, size_t len, struct mc_err *err);
/* The document as a file to be shown: <name>.json, entry 1 of a view. -ENOENT, -EFBIG. */
int mc_layouts_file(
	struct mc_remote *r, const char *name, struct mc_view **ret, struct mc_err *err);
/* Removes it; views that are open stay. -ENOENT. */
int mc_layouts_remove(struct mc_remote *r, const char *name, struct mc_err *err);
/* Checks the document and publishes it under its own name or, given, under name, which must be the
 * document's. -EEXIST when another document has the name, -EINVAL for a bad name, -EBADMSG. */
int mc_layouts_put(struct mc_remote *r, const char *name, const void *text, size_t len,
	char ret_name[MC_NAME_MAX + 1], struct mc_err *err);
