/* mooncakefs status: how a mount is, in a few lines or all of it as JSON. */
#include "tools/command.h"
#include "tools/control-client.h"
#include "tools/size.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

static const json_t *at(const json_t *obj, const char *part, const char *key)
{
	return json_object_get(json_object_get(obj, part), key);
}

static const char *text(const json_t *value)
{
	return json_is_string(value) ? json_string_value(value) : "?";
}

static uint64_t number(const json_t *obj, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(obj, key));
}

/* Whether there is an NVMe tier. */
static bool print_tiers(const json_t *tiers)
{
	bool has_nvme = false;
	char used[MC_SIZE_TEXT], capacity[MC_SIZE_TEXT];
	const json_t *t;
	size_t i;

	json_array_foreach(tiers, i, t)
	{
		mc_size_format(number(t, "used_bytes"), used);
		mc_size_format(number(t, "capacity_bytes"), capacity);
		printf("tier         %s, %s: %s of %s\n", text(json_object_get(t, "tier")),
			text(json_object_get(t, "data")), used, capacity);
		has_nvme = has_nvme || strcmp(text(json_object_get(t, "tier")), "nvme") == 0;
	}
	return has_nvme;
}

static void print_remote(const json_t *r)
{
	printf("remote       %s: %s\n", text(json_object_get(r, "url")),
		json_is_true(json_object_get(r, "reachable")) ? "reachable" : "not reachable");
}

static void print_remotes(const json_t *remotes)
{
	const json_t *r, *members, *m;
	size_t i, j;

	json_array_foreach(remotes, i, r)
	{
		members = json_object_get(r, "members");
		if (json_array_size(members) == 0)
			print_remote(r);
		json_array_foreach(members, j, m) print_remote(m);
	}
}

/* What could be better; of a tier that is not there nothing could. */
static void print_modes(const json_t *modes, bool has_nvme)
{
	const json_t *mode;
	const char *name;

	json_object_foreach((json_t *)(uintptr_t)modes, name, mode)
	{
		const json_t *on = json_object_get(mode, "on");

		/* What no mount has is nothing to look at. */
		if (json_is_false(on) && strcmp(name, "fuse_io_uring") != 0 &&
			(has_nvme || strncmp(name, "nvme_", 5) != 0))
			printf("without      %s: %s\n", name, text(json_object_get(mode, "why")));
	}
}

static void print_status(const json_t *s)
{
	const json_t *reason, *degraded = json_object_get(s, "degraded");
	const json_t *kv = json_object_get(s, "kv");
	const json_t *recovery = json_object_get(s, "recovery");
	char dirty[MC_SIZE_TEXT];
	bool has_nvme;
	size_t i;

	printf("mount        %s, process %" JSON_INTEGER_FORMAT ", since %s\n",
		text(at(s, "mount", "mountpoint")), json_integer_value(at(s, "mount", "pid")),
		text(at(s, "mount", "started")));
	if (json_array_size(degraded) == 0)
		printf("state        as it should be\n");
	json_array_foreach(degraded, i, reason) printf("degraded     %s\n", text(reason));
	has_nvme = print_tiers(json_object_get(s, "tiers"));
	print_remotes(json_object_get(s, "remotes"));
	print_modes(json_object_get(s, "modes"), has_nvme);
	if (kv != NULL) {
		mc_size_format(number(s, "dirty_bytes"), dirty);
		printf("kv           %" PRIu64 " objects, %s not on a lasting tier yet\n",
			number(kv, "objects"), dirty);
	}
	if (!json_is_true(json_object_get(recovery, "done")))
		printf("recovery     %" PRIu64 " %% of the KV index, %" PRIu64
		       " %% of the NVMe images verified\n",
			number(recovery, "kv_index_percent"),
			number(recovery, "nvme_verified_percent"));
	printf("version      %s, libfuse %s, Linux %s\n", text(at(s, "build", "version")),
		text(at(s, "build", "libfuse")), text(at(s, "build", "kernel")));
}

int mc_cmd_status(const struct mc_options *o)
{
	struct mc_err err = {0};
	struct mc_client c;
	json_t *status = NULL;
	int r = mc_client_open(o->n_args > 0 ? o->args[0] : NULL, &c, &err);

	if (r < 0)
		return mc_fail(&err, r);
	r = mc_client_command(&c, "status", &status, &err);
	mc_client_close(&c);
	if (r < 0)
		return mc_fail(&err, r);
	if (mc_options_flag(o, MC_OPT_JSON)) {
		json_dumpf(status, stdout, JSON_COMPACT);
		putchar('\n');
	} else {
		print_status(status);
	}
	json_decref(status);
	return MC_EXIT_OK;
}
