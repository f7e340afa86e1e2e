/* What to say of a revision that is not there. */
#pragma once

#include "manifest/catalogue.h"

/* Describes in err, instead of what it says, that the remote has no such revision, or checkpoint,
 * and which there are or are near. Returns -ENOENT. Asks the remote. */
int mc_revision_missing(struct mc_catalogue *c, struct mc_remote *r, const struct mc_rev_name *name,
	struct mc_err *err);
/* mc_fail of work on a revision; what err says is replaced likewise where the reason was that there
 * is no such revision. */
int mc_fail_revision(
	struct mc_remote *r, const struct mc_rev_name *name, struct mc_err *err, int code);
