/* The scrub of a mount. */
#pragma once

#include "tier/error.h"
#include "tier/scrub.h"
#include "tools/options.h"

/* kv: NULL = none; nvme_dir: "" = none. *ret stays NULL where nothing lies on NVMe. */
int mc_mount_scrub_open(const struct mc_options *o, struct mc_store *store, struct mc_kv *kv,
	const char *nvme_dir, struct mc_scrub **ret, struct mc_err *err);
