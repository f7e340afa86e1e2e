/* What the parts of the catalogue share (manifest/ only; the door is catalogue.h). */
#pragma once

#include "manifest/catalogue.h"

#define MC_ID_TEXT (MC_SHA256_HEX + 1) /* bytes of manifest.id: hex, newline */
#define MC_REV_PATH (64 + 3 * (MC_NAME_MAX + 1))

struct mc_catalogue {
	struct mc_remote *remote; /* borrowed */
	char *index_dir;          /* owned, or NULL */
};

/* checkpoints/<org>/<model>/<rev>/<file> */
void mc_rev_path(char out[MC_REV_PATH], const struct mc_rev_name *rev, const char *file);
/* Makes rev the latest of its model. */
int mc_catalogue_put_latest(struct mc_catalogue *c, const struct mc_rev_name *rev,
	const uint8_t id[MC_SHA256_SIZE], struct mc_err *err);
/* The READY revision of the model that was published last, of those other than `not` (or NULL), as
 * its rev; -ENOENT: there is none. */
int mc_catalogue_newest(
	struct mc_catalogue *c, const char * not, struct mc_rev_name *model, struct mc_err *err);
/* The id in manifest.id, whether the revision is READY or not. */
int mc_catalogue_read_id(struct mc_catalogue *c, const struct mc_rev_name *rev,
	uint8_t ret[MC_SHA256_SIZE], struct mc_err *err);
