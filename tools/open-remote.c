/* Opening the remotes that the options name. */
#include "tools/open-remote.h"

#include "tier/cleanup.h"
#include "tier/remote-set.h"
#include "tools/command.h"
#include "tools/node-name.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Commands that write, or stay, make good what members of a set missed. */
#define TENDING                                                                                    \
	(MC_IN_IMPORT | MC_IN_MOUNT | MC_IN_RESHARD | MC_IN_LAYOUT | MC_IN_GC | MC_IN_RM |         \
		MC_IN_REBALANCE)

unsigned mc_count_remotes(const struct mc_options *o)
{
	const char *text = mc_options_text(o, MC_OPT_REMOTE);
	unsigned n = text != NULL;

	for (; text != NULL && (text = strchr(text, '\n')) != NULL; text++)
		n++;
	return n;
}

static int parse_urls(
	const char *text, struct mc_set_url urls[MC_SET_MAX], unsigned *ret_n, struct mc_err *err)
{
	cleanup_free char *copy = strdup(text);
	char *rest = copy, *line;
	int r = 0;

	if (copy == NULL)
		return mc_err_set(err, -ENOMEM, "out of memory");
	while (r == 0 && (line = strsep(&rest, "\n")) != NULL) {
		if (*ret_n == MC_SET_MAX)
			return mc_err_set(err, -EINVAL, "more than %u remotes", MC_SET_MAX);
		r = mc_set_url_parse(line, &urls[*ret_n], err);
		*ret_n += r == 0;
	}
	return r;
}

/* Opens the remotes of text, a URL a line, as one. */
static int open_urls(const struct mc_options *o, const char *text,
	void (*event)(void *ctx, const char *event, const char *text), struct mc_remote **ret)
{
	struct mc_remote_opts opts = {
		.connections = (unsigned)mc_options_number(o, MC_OPT_CONNECTIONS),
		.depth = (unsigned)mc_options_number(o, MC_OPT_DEPTH),
		.deadline_ms = (unsigned)mc_options_number(o, MC_OPT_DEADLINE) * 1000,
	};
	struct mc_set_opts set = {.remote = &opts,
		.copies = (unsigned)mc_options_number(o, MC_OPT_REPLICAS),
		.kv_copies = (unsigned)mc_options_number(o, MC_OPT_KV_REPLICAS),
		.tend = (o->command & TENDING) != 0,
		.event = event};
	struct mc_set_url urls[MC_SET_MAX];
	cleanup_free char *node = NULL;
	struct mc_err err = {0};
	unsigned n = 0;
	int r;

	/* Without a lasting name the remote takes a random one. */
	if (mc_node_name(&node) == 0)
		opts.node = node;
	r = parse_urls(text, urls, &n, &err);
	if (r == 0)
		r = mc_remote_set_open(urls, n, &set, ret, &err);
	while (n > 0)
		mc_set_url_done(&urls[--n]);
	return r < 0 ? mc_fail(&err, r) : 0;
}

int mc_open_remote_telling(const struct mc_options *o,
	void (*event)(void *ctx, const char *event, const char *text), struct mc_remote **ret)
{
	const char *text = mc_options_text(o, MC_OPT_REMOTE);

	if (text == NULL)
		return mc_fail_usage(
			o, "which remote? Give --remote nfs://SERVER/EXPORT or --remote dir:/PATH");
	return open_urls(o, text, event, ret);
}

static void warn(void *ctx, const char *event, const char *text)
{
	(void)ctx;
	if (strcmp(event, "remote-fenced") == 0)
		fprintf(stderr, "mooncakefs: warning: remote %s\n", text);
}

int mc_open_remote(const struct mc_options *o, struct mc_remote **ret)
{
	return mc_open_remote_telling(o, warn, ret);
}

void mc_close_remotes(struct mc_remote *const *remotes, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		mc_remote_close(remotes[i]);
}

int mc_open_from(const struct mc_options *o, struct mc_remote *ret[MC_FROM_MAX], unsigned *ret_n)
{
	const char *text = mc_options_text(o, MC_OPT_FROM_REMOTE);
	cleanup_free char *copy = text == NULL ? NULL : strdup(text);
	char *rest = copy, *line;
	struct mc_err err = {0};
	int r = 0;

	*ret_n = 0;
	if (text != NULL && copy == NULL)
		return mc_fail(&err, -ENOMEM);
	while (r == 0 && (line = strsep(&rest, "\n")) != NULL) {
		if (*ret_n == MC_FROM_MAX)
			r = mc_fail_usage(o, "more than %u --from", MC_FROM_MAX);
		else
			r = open_urls(o, line, warn, &ret[*ret_n]);
		*ret_n += r == 0;
	}
	if (r != 0)
		mc_close_remotes(ret, *ret_n);
	return r;
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
		return open_urls(o, root, warn, ret);
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
	return open_urls(o, url, warn, ret);
}
