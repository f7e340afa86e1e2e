/* mooncakefs config: checks a configuration file, shows effective values, prints the schema. */
#include "tools/command.h"
#include "tools/json-line.h"

#include <string.h>

static void print_problem(void *ctx, const char *text)
{
	(void)ctx;
	fprintf(stderr, "mooncakefs: %s\n", text);
}

static int check(const char *path)
{
	int n = mc_options_check_config(path, print_problem, NULL);

	if (n == 0)
		printf("%s: no mistake found\n", path);
	return n == 0 ? MC_EXIT_OK : MC_EXIT_FAILED;
}

/* What a mount with these options would use. */
static int show(const struct mc_options *o)
{
	char value[MC_OPTION_TEXT_MAX];
	struct mc_json_line j;

	for (int i = 0; i < MC_OPT_N; i++) {
		const struct mc_option *opt = &mc_option_table[i];
		const char *origin;

		if (!opt->in_config || (opt->commands & MC_IN_MOUNT) == 0)
			continue;
		origin = mc_options_show(o, (enum mc_option_id)i, value);
		if (!mc_options_flag(o, MC_OPT_JSON)) {
			printf("%-16s %-32s %s\n", opt->name, value[0] != '\0' ? value : "-",
				origin);
			continue;
		}
		mc_json_line_begin(&j, stdout);
		mc_json_line_text(&j, "key", opt->name);
		mc_json_line_text(&j, "value", value);
		mc_json_line_text(&j, "origin", origin);
		mc_json_line_end(&j);
	}
	return MC_EXIT_OK;
}

int mc_cmd_config(const struct mc_options *o)
{
	const char *what = o->args[0];

	if (strcmp(what, "check") == 0 && o->n_args == 2)
		return check(o->args[1]);
	if (strcmp(what, "check") == 0)
		return mc_fail_usage(o, "check which file?");
	if (strcmp(what, "show") == 0 && o->n_args == 1)
		return show(o);
	if (strcmp(what, "schema") == 0 && o->n_args == 1) {
		mc_options_schema(stdout);
		return MC_EXIT_OK;
	}
	return mc_fail_usage(o, "\"%s\" with %u arguments; give check FILE, show or schema", what,
		o->n_args - 1);
}
