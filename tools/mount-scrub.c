/* The scrub of a mount: what it walks, and how fast. */
#include "tools/mount-scrub.h"

#include <string.h>

int mc_mount_scrub_open(const struct mc_options *o, struct mc_store *store, struct mc_kv *kv,
	const char *nvme_dir, struct mc_scrub **ret, struct mc_err *err)
{
	struct mc_scrub_opts opts = {.store = store,
		.kv = kv,
		.dir = nvme_dir[0] == '\0' ? NULL : nvme_dir,
		.rate = mc_options_number(o, MC_OPT_SCRUB)};
	struct mc_kv_stats st = {0};
	int r;

	if (kv != NULL)
		mc_kv_stats(kv, &st);
	if (opts.dir == NULL && st.block_capacity == 0)
		return 0;
	r = mc_scrub_open(&opts, ret);
	return r < 0 ? mc_err_set(err, r, "scrub: %s", strerror(-r)) : 0;
}
