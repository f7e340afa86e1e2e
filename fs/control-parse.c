/* Reading a request of the control socket. The line comes from outside and is believed in nothing.
 */
#include "fs/control-request.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 8192 /* kv/ and the longest key, with room */

static const char *const names[MC_CONTROL_N] = {[MC_CONTROL_STATUS] = "status",
	[MC_CONTROL_CONFIG] = "config",
	[MC_CONTROL_METRICS] = "metrics",
	[MC_CONTROL_EVENTS] = "events",
	[MC_CONTROL_RESIDENCY] = "residency",
	[MC_CONTROL_WARM] = "warm",
	[MC_CONTROL_EVICT] = "evict",
	[MC_CONTROL_PIN] = "pin",
	[MC_CONTROL_UNPIN] = "unpin",
	[MC_CONTROL_REFRESH] = "refresh",
	[MC_CONTROL_SCRUB] = "scrub"};

static bool takes_paths(enum mc_control_command c)
{
	return c >= MC_CONTROL_RESIDENCY && c <= MC_CONTROL_UNPIN;
}

static bool takes_tier(enum mc_control_command c)
{
	return c == MC_CONTROL_WARM || c == MC_CONTROL_EVICT;
}

static bool takes_rate(enum mc_control_command c)
{
	return c == MC_CONTROL_WARM || c == MC_CONTROL_SCRUB;
}

static int parse_command(const json_t *value, enum mc_control_command *ret)
{
	for (int i = 0; json_is_string(value) && i < MC_CONTROL_N; i++)
		if (strcmp(json_string_value(value), names[i]) == 0) {
			*ret = (enum mc_control_command)i;
			return 0;
		}
	return -EINVAL;
}

static int parse_tier(const json_t *value, enum mc_tier *ret)
{
	for (int i = MC_TIER_DRAM; json_is_string(value) && i < MC_TIER_REMOTE; i++)
		if (strcmp(json_string_value(value), mc_tier_name((enum mc_tier)i)) == 0) {
			*ret = (enum mc_tier)i;
			return 0;
		}
	return -EINVAL;
}

/* Relative, without empty components, "." and "..". */
static bool good_path(const char *path)
{
	if (*path == '\0' || strlen(path) >= PATH_BYTES)
		return false;
	for (;;) {
		size_t len = strcspn(path, "/");

		if (len == 0 || (path[0] == '.' && (len == 1 || (len == 2 && path[1] == '.'))))
			return false;
		if (path[len] == '\0')
			return true;
		path += len + 1;
	}
}

static int parse_paths(const json_t *value, struct mc_control_request *ret, const char **why)
{
	size_t n = json_array_size(value);

	*why = "paths must be an array of 1 to 1024 paths below the mount point";
	if (n == 0 || n > MC_CONTROL_PATHS)
		return -EINVAL;
	ret->paths = calloc(n, sizeof(*ret->paths));
	if (ret->paths == NULL)
		return -ENOMEM;
	for (; ret->n_paths < n; ret->n_paths++) {
		const char *path = json_string_value(json_array_get(value, ret->n_paths));

		if (path == NULL || !good_path(path))
			return -EINVAL;
		ret->paths[ret->n_paths] = strdup(path);
		if (ret->paths[ret->n_paths] == NULL)
			return -ENOMEM;
	}
	return 0;
}

/* Only keys that the command takes. */
static bool known_keys(json_t *root, const struct mc_control_request *q)
{
	const char *key;
	json_t *value;

	json_object_foreach(root, key, value)
	{
		bool known = strcmp(key, "command") == 0 ||
			(takes_paths(q->command) && strcmp(key, "paths") == 0) ||
			(takes_tier(q->command) && strcmp(key, "tier") == 0) ||
			(takes_rate(q->command) && strcmp(key, "bytes_per_second") == 0);

		if (!known)
			return false;
	}
	return true;
}

static int parse_object(json_t *root, struct mc_control_request *ret, const char **why)
{
	const json_t *rate = json_object_get(root, "bytes_per_second");
	const json_t *tier = json_object_get(root, "tier");

	*why = "command must be one that the daemon knows";
	if (parse_command(json_object_get(root, "command"), &ret->command) < 0)
		return -EINVAL;
	*why = "a key that the command does not take";
	if (!known_keys(root, ret))
		return -EINVAL;
	*why = "tier must be dram, nvme or block";
	ret->all_tiers = ret->command == MC_CONTROL_EVICT && tier == NULL;
	if (takes_tier(ret->command) && !ret->all_tiers && parse_tier(tier, &ret->tier) < 0)
		return -EINVAL;
	*why = "bytes_per_second must be a whole number";
	if (rate != NULL && (!json_is_integer(rate) || json_integer_value(rate) < 0))
		return -EINVAL;
	ret->bytes_per_second = (uint64_t)json_integer_value(rate);
	return takes_paths(ret->command) ? parse_paths(json_object_get(root, "paths"), ret, why)
					 : 0;
}

int mc_control_parse(
	const char *line, size_t len, struct mc_control_request *ret, const char **ret_why)
{
	json_t *root = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
	int r;

	*ret = (struct mc_control_request){0};
	*ret_why = "a request is one JSON object on one line";
	r = json_is_object(root) ? parse_object(root, ret, ret_why) : -EINVAL;
	json_decref(root);
	if (r < 0)
		mc_control_request_done(ret);
	return r;
}

void mc_control_request_done(struct mc_control_request *q)
{
	for (size_t i = 0; i < q->n_paths; i++)
		free(q->paths[i]);
	free(q->paths);
	*q = (struct mc_control_request){0};
}
