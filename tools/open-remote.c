/* Opening the remote that the options name. */
#include "tools/open-remote.h"

#include "tier/cleanup.h"
#include "tier/remote.h"
#include "tools/command.h"
#include "tools/node-name.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int open_url(const struct mc_options *o, const char *url, struct mc_remote **ret)
{
	struct mc_remote_opts opts = {
		.connections = (unsigned)mc_options_number(o, MC_OPT_CONNECTIONS),
		.depth = (unsigned)mc_options_number(o, MC_OPT_DEPTH),
		.deadline_ms = (unsigned)mc_options_number(o, MC_OPT_DEADLINE) * 1000,
	};
	cleanup_free char *node = NULL;
	struct mc_err err = {0};
	int r;

	/* Without a lasting name the remote takes a random one. */
	if (mc_node_name(&node) == 0)
		opts.node = node;
	r = mc_remote_open(url, &opts, ret, &err);
	return r < 0 ? mc_fail(&err, r) : 0;
}

int mc_open_remote(const struct mc_options *o, struct mc_remote **ret)
{
	const char *url = mc_options_text(o, MC_OPT_REMOTE);

	if (url == NULL)
		return mc_fail_usage(
			o, "which remote? Give --remote nfs://SERVER/EXPORT or --remote dir:/PATH");
	return open_url(o, url, ret);
}

int mc_open_payload(const struct mc_options *o, struct mc_remote **ret)
{
	const char *root = mc_options_text(o, MC_OPT_PAYLOAD_ROOT);
	cleanup_free char *path = NULL, *url = NULL;
	struct mc_err err = {0};

	*ret = NULL;
	if (root == NULL)
		return 0;
	if (strncmp(root, "nfs://", 6) == 0 || strncmp(root, "dir:", 4) == 0)
		return open_url(o, root, ret);
	path = realpath(root, NULL);
	if (path == NULL) {
		int r = -errno;

		mc_err_set(&err, r, "--payload-root %s: %s", root, strerror(-r));
		return mc_fail(&err, r);
	}
	if (asprintf(&url, "dir:%s", path) < 0) {
		url = NULL;
		return mc_fail(&err, -ENOMEM);
	}
	return open_url(o, url, ret);
}
