/* Presets in the form in which an engine loads its sharded state: <mesh>-vllm. */
#pragma once

#include "tier/error.h"

#include <jansson.h>
#include <stdbool.h>

/* The part of a layout's name before "-vllm", into out (size bytes); false: no such ending. */
bool mc_preset_engine_mesh(const char *name, char *out, size_t size);
/* Adds to a family's document what makes it that. tied: embedding and head are one tensor.
 * -EINVAL: not for this family. */
int mc_preset_engine_emit(json_t *root, const char *family, bool tied, struct mc_err *err);
