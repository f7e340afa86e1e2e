/* Opening the remote that the options name. */
#include "tools/open-remote.h"

#include "tier/cleanup.h"
#include "tier/remote.h"
#include "tools/command.h"
#include "tools/node-name.h"

int mc_open_remote(const struct mc_options *o, struct mc_remote **ret)
{
	struct mc_remote_opts opts = {
		.connections = (unsigned)mc_options_number(o, MC_OPT_CONNECTIONS),
		.depth = (unsigned)mc_options_number(o, MC_OPT_DEPTH),
		.deadline_ms = (unsigned)mc_options_number(o, MC_OPT_DEADLINE) * 1000,
	};
	const char *url = mc_options_text(o, MC_OPT_REMOTE);
	cleanup_free char *node = NULL;
	struct mc_err err = {0};
	int r;

	if (url == NULL)
		return mc_fail_usage(
			o, "which remote? Give --remote nfs://SERVER/EXPORT or --remote dir:/PATH");
	/* Without a lasting name the remote takes a random one. */
	if (mc_node_name(&node) == 0)
		opts.node = node;
	r = mc_remote_open(url, &opts, ret, &err);
	return r < 0 ? mc_fail(&err, r) : 0;
}
