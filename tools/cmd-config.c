/* mooncakefs config: checks a configuration file, shows effective values, prints the schema. */
#include "tools/command.h"
#include "tools/control-client.h"
#include "tools/json-line.h"

#include <jansson.h>

#include <errno.h>
#include <string.h>

static void print_problem(void *ctx, const char *text)
{
	struct mc_err err = {0};

	(void)ctx;
	mc_fail(&err, mc_err_set(&err, -EINVAL, "%s", text));
}

static int check(const char *path, bool json)
{
	int n = mc_options_check_config(path, print_problem, NULL);
	struct mc_json_line j;

	if (n == 0 && json) {
		mc_json_line_begin(&j, stdout);
		mc_json_line_text(&j, "event", "checked");
		mc_json_line_text(&j, "file", path);
		mc_json_line_end(&j);
	} else if (n == 0) {
		printf("%s: no mistake found\n", path);
	}
	return n == 0 ? MC_EXIT_OK : MC_EXIT_FAILED;
}

static void print_value(bool json, const char *key, const char *value, const char *origin)
{
	struct mc_json_line j;

	if (!json) {
		printf("%-16s %-32s %s\n", key, value[0] != '\0' ? value : "-", origin);
		return;
	}
	mc_json_line_begin(&j, stdout);
	mc_json_line_text(&j, "key", key);
	mc_json_line_text(&j, "value", value);
	mc_json_line_text(&j, "origin", origin);
	mc_json_line_end(&j);
}

static const char *text(const json_t *obj, const char *key)
{
	const char *s = json_string_value(json_object_get(obj, key));

	return s != NULL ? s : "";
}

/* What the mount uses. */
static int show_mount(const struct mc_options *o)
{
	bool json = mc_options_flag(o, MC_OPT_JSON);
	struct mc_err err = {0};
	json_t *config, *setting;
	struct mc_client c;
	const char *key;
	int r = mc_client_open(o->args[1], &c, &err);

	if (r == 0) {
		r = mc_client_command(&c, "config", &config, &err);
		mc_client_close(&c);
	}
	if (r < 0)
		return mc_fail(&err, r);
	json_object_foreach(config, key, setting)
		print_value(json, key, text(setting, "value"), text(setting, "origin"));
	json_decref(config);
	return MC_EXIT_OK;
}

/* What a mount with these options would use. */
static int show(const struct mc_options *o)
{
	char value[MC_OPTION_TEXT_MAX];

	for (int i = 0; i < MC_OPT_N; i++) {
		const struct mc_option *opt = &mc_option_table[i];
		const char *origin;

		if (!opt->in_config || (opt->commands & MC_IN_MOUNT) == 0)
			continue;
		origin = mc_options_show(o, (enum mc_option_id)i, value);
		print_value(mc_options_flag(o, MC_OPT_JSON), opt->name, value, origin);
	}
	return MC_EXIT_OK;
}

int mc_cmd_config(const struct mc_options *o)
{
	const char *what = o->args[0];

	if (strcmp(what, "check") == 0 && o->n_args == 2)
		return check(o->args[1], mc_options_flag(o, MC_OPT_JSON));
	if (strcmp(what, "check") == 0)
		return mc_fail_usage(o, "check which file?");
	if (strcmp(what, "show") == 0 && o->n_args == 1)
		return show(o);
	if (strcmp(what, "show") == 0 && o->n_args == 2)
		return show_mount(o);
	if (strcmp(what, "schema") == 0 && o->n_args == 1) {
		mc_options_schema(stdout);
		return MC_EXIT_OK;
	}
	return mc_fail_usage(o,
		"\"%s\" with %u arguments; give check FILE, show [MOUNTPOINT] or schema", what,
		o->n_args - 1);
}
