/* The mooncakefs program: finds the command, reads its options, runs it. */
#include "tools/command.h"
#include "tools/json-line.h"
#include "tools/mount-helper.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>

const struct mc_command *mc_command_find(const char *name)
{
	for (unsigned i = 0; i < mc_command_count; i++)
		if (strcmp(mc_command_table[i].name, name) == 0)
			return &mc_command_table[i];
	return NULL;
}

/* The command was given --json: what goes wrong is told there, too. */
static bool json;

static void tell_error(const char *text, int code)
{
	struct mc_json_line j;

	if (!json)
		return;
	mc_json_line_begin(&j, stdout);
	mc_json_line_text(&j, "event", "error");
	mc_json_line_text(&j, "text", text);
	mc_json_line_number(&j, "exit_code", (uint64_t)code);
	mc_json_line_end(&j);
}

int mc_fail_as(const struct mc_err *err, int code, int exit_code)
{
	const char *text = err->text[0] != '\0' ? err->text : strerror(-code);

	fprintf(stderr, "mooncakefs: %s\n", text);
	tell_error(text, exit_code);
	return exit_code;
}

int mc_fail(const struct mc_err *err, int code)
{
	return mc_fail_as(err, code, MC_EXIT_FAILED);
}

static const char *command_name(unsigned bit)
{
	for (unsigned i = 0; i < mc_command_count; i++)
		if (mc_command_table[i].bit == bit)
			return mc_command_table[i].name;
	return "help";
}

int mc_fail_usage(const struct mc_options *o, const char *fmt, ...)
{
	const char *name = command_name(o->command);
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "mooncakefs %s: %s\nTry 'mooncakefs help %s'.\n", name, text, name);
	tell_error(text, MC_EXIT_USAGE);
	return MC_EXIT_USAGE;
}

int mc_fail_command(const char *word)
{
	const char *names[32], *near;
	unsigned n = 0;

	for (; n < mc_command_count && n < sizeof(names) / sizeof(*names); n++)
		names[n] = mc_command_table[n].name;
	near = mc_nearest_name(word, names, n);
	fprintf(stderr, "mooncakefs: no command \"%s\"", word);
	if (near != NULL)
		fprintf(stderr, "; did you mean \"%s\"?", near);
	fprintf(stderr, "\nTry 'mooncakefs help'.\n");
	return MC_EXIT_USAGE;
}

/* Reads the line into *o, which is the caller's to end; an exit code when that was all. */
static int read_line(const struct mc_command *c, int argc, char *const *argv, struct mc_options *o)
{
	struct mc_err err = {0};
	int r = mc_options_parse(c->bit, argc, argv, o, &err);

	if (r == -EINVAL)
		return mc_fail_usage(o, "%s", err.text);
	if (r < 0)
		return mc_fail(&err, r);
	if (mc_options_flag(o, MC_OPT_HELP))
		return MC_EXIT_OK;
	if (o->n_args < c->min_args)
		return mc_fail_usage(
			o, "missing argument; usage: mooncakefs %s %s", c->name, c->args);
	if (o->n_args > c->max_args)
		return mc_fail_usage(o, "too many arguments: \"%s\"", o->args[c->max_args]);
	return MC_EXIT_OK;
}

int mc_command_check(const struct mc_command *c, int argc, char *const *argv)
{
	struct mc_options o;
	int code = read_line(c, argc, argv, &o);

	mc_options_done(&o);
	return code;
}

int mc_command_run(const struct mc_command *c, int argc, char *const *argv)
{
	struct mc_options o;
	int code;

	for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
		json = json || strcmp(argv[i], "--json") == 0;
	code = read_line(c, argc, argv, &o);
	if (code == MC_EXIT_OK && mc_options_flag(&o, MC_OPT_HELP))
		mc_command_help(c, stdout);
	else if (code == MC_EXIT_OK)
		code = c->run(&o);
	mc_options_done(&o);
	if (fflush(stdout) != 0 && code == MC_EXIT_OK) {
		if (errno != EPIPE) /* else who reads it has seen enough */
			fprintf(stderr, "mooncakefs: standard output: %s\n", strerror(errno));
		code = MC_EXIT_FAILED;
	}
	return code;
}

int main(int argc, char **argv)
{
	const struct mc_command *c;
	const char *word = argc > 1 ? argv[1] : "";
	int code;

	/* A closed pipe or connection is an error to report, not a reason to die. */
	signal(SIGPIPE, SIG_IGN);
	if (mc_mount_helper(argc, argv, &code))
		return code;
	if (argc < 2) {
		mc_program_help(stderr);
		return MC_EXIT_USAGE;
	}
	if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
		word = "help";
	else if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0)
		word = "version";
	c = mc_command_find(word);
	if (c == NULL)
		return mc_fail_command(word);
	return mc_command_run(c, argc - 2, argv + 2);
}
