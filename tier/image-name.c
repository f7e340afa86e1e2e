/* Names and comparison of file identities. */
#include "tier/image-name.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mc_image_name(const struct mc_file_id *id, char ret_name[MC_IMAGE_NAME_MAX])
{
	mc_hex_encode(id->digest, MC_SHA256_SIZE, ret_name);
	snprintf(
		ret_name + MC_SHA256_HEX, MC_IMAGE_NAME_MAX - MC_SHA256_HEX, "-%" PRIu64, id->size);
}

int mc_image_name_parse(const char *name, struct mc_file_id *ret_id)
{
	char hex[MC_SHA256_HEX + 1], again[MC_IMAGE_NAME_MAX];
	struct mc_file_id id;

	if (strlen(name) <= MC_SHA256_HEX + 1 || name[MC_SHA256_HEX] != '-')
		return -EINVAL;
	memcpy(hex, name, MC_SHA256_HEX);
	hex[MC_SHA256_HEX] = '\0';
	if (mc_hex_decode(hex, id.digest, MC_SHA256_SIZE) != 0)
		return -EINVAL;
	id.size = strtoull(name + MC_SHA256_HEX + 1, NULL, 10);
	mc_image_name(&id, again);
	if (id.size == 0 || strcmp(name, again) != 0)
		return -EINVAL;
	*ret_id = id;
	return 0;
}

bool mc_file_id_equal(const struct mc_file_id *a, const struct mc_file_id *b)
{
	return a->size == b->size && memcmp(a->digest, b->digest, MC_SHA256_SIZE) == 0;
}

uint64_t mc_file_id_hash(const struct mc_file_id *id)
{
	uint64_t h;

	memcpy(&h, id->digest, sizeof(h));
	return h ^ (id->size * UINT64_C(0x9e3779b97f4a7c15));
}
