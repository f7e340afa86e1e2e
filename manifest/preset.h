/*
 * Layouts that ship with the program: one document a model family (manifest/presets/), chosen by
 * config.json, with a mesh made from a name such as tp8, tp4-pp2 or ep16.
 */
#pragma once

#include "manifest/layout.h"

struct mc_preset_text {
	const char *name;
	const char *text; /* JSON */
	size_t len;
};
extern const struct mc_preset_text mc_preset_texts[]; /* ends with a NULL name */

/*
 * The family's layout on the mesh called name: dp, pp, tp and ep, each at most once, joined by '-';
 * with "-vllm" behind it (tp4-vllm) as that engine's sharded state.
 * ep alone spreads experts over data-parallel ranks; with tp it lies inside tp (tp % ep == 0), or
 * over dp × tp. -ENOENT: name is no mesh name, or the family is unknown; -EINVAL: the axes do not
 * go together.
 */
int mc_preset_layout(
	const json_t *config, const char *name, struct mc_layout **ret, struct mc_err *err);
/* The same for a family by its name, without a model. */
int mc_preset_open(
	const char *family, const char *name, struct mc_layout **ret, struct mc_err *err);
