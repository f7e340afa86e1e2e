/* The file name of an image: "<digest in hex>-<size in decimal>", by which a restarted daemon knows
 * it. */
#pragma once

#include "tier/source.h"

#include <stdbool.h>

#define MC_IMAGE_NAME_MAX (MC_SHA256_HEX + 1 + 20 + 1) /* bytes, with NUL */

void mc_image_name(const struct mc_file_id *id, char ret_name[MC_IMAGE_NAME_MAX]);
/* Strict inverse; 0 or -EINVAL. */
int mc_image_name_parse(const char *name, struct mc_file_id *ret_id);
bool mc_file_id_equal(const struct mc_file_id *a, const struct mc_file_id *b);
/* For hash tables: the digest is uniform already. */
uint64_t mc_file_id_hash(const struct mc_file_id *id);
