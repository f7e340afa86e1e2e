/* The mooncakefs program: finds the command, reads its options, runs it. */
#include "tools/command.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>

static const char import_details[] =
	"SRC is the directory that holds the checkpoint. A symbolic link that leaves SRC is "
	"imported as\n"
	"what it points to, so a snapshot of the Hugging Face cache works; one inside stays a "
	"link.\n"
	"REV is made from the content when it is not given (12 digits of the manifest id), so "
	"importing\n"
	"the same again gives the same revision. A revision never changes: the name of an existing "
	"one\n"
	"with other content is refused. The newest import is what ORG/MODEL alone means.\n\n"
	"Nothing is visible before everything is on the remote. After an interruption give the "
	"same\n"
	"command again: what was finished is not read again.\n\n"
	"With --reference nothing is copied: SRC already lies on the remote, below its directory "
	"(dir:)\n"
	"or export (nfs:). On NFS it is given by its path below the export, or by the path under "
	"which\n"
	"this machine has the export mounted. The files must not change afterwards; if they do, "
	"reading\n"
	"them fails instead of giving other bytes.\n";

static const char ls_details[] = "Lists the revisions of all checkpoints, of one ORG or of one "
				 "ORG/MODEL; with @REV the files of\n"
				 "that revision.\n";

static const char verify_details[] = "Every chunk of the revision (the newest without @REV) must "
				     "exist with its size, and its bytes\n"
				     "must have its SHA-256; files taken by reference must be "
				     "unchanged. Each damage is printed with\n"
				     "file, range and chunk; the exit code is then 3.\n";

static const char export_details[] = "Writes the revision (the newest without @REV) to DEST, which "
				     "must not exist or be empty: bytes,\n"
				     "modes, times, links and holes as they were imported. Every "
				     "block is checked on the way, and a\n"
				     "file gets its name when it is complete.\n";

static const char layout_details[] =
	"LAYOUT is a document (a path that ends in .json, see docs/LAYOUT.md), a mesh such as\n"
	"tp8-pp2, or the name of a registered layout.\n"
	"check: reads it and, with --model, compiles it and prints what each rank holds.\n"
	"show: the same and the rule that holds for each tensor.\n"
	"add: registers a document with the remote; it is then a directory of every view.\n"
	"ls: the registered layouts.\n";

static const char plan_details[] =
	"Prints totals, bounds and ratios to them; with --json the whole plan. Between two of\n"
	"Mooncake's manifests the plan is in Mooncake's terms, fragment to fragment.\n";

static const char reshard_details[] =
	"Writes the files of views/ORG/MODEL@REV/LAYOUT as a new revision: rank-00000/… and the\n"
	"files beside the weights. Each source byte is read once. Nothing is visible before all\n"
	"is there; chunks that an interrupted run wrote are not written again.\n";

static const char mount_details[] =
	"MOUNTPOINT is an existing directory. The tree shows every READY revision below\n"
	"checkpoints/ORG/MODEL@REV, and checkpoints/ORG/MODEL as a link to the newest; new "
	"revisions\n"
	"appear by themselves. Only kv/ can be written to.\n\n"
	"The command returns when the tree answers; the daemon then logs to the system log and "
	"ends with\n"
	"'mooncakefs umount' or SIGTERM. What is on NVMe is found again by the next mount.\n";

const struct mc_command mc_command_table[] = {
	{"import", MC_IN_IMPORT, "SRC ORG/MODEL[@REV]", 2, 2,
		"Copy a checkpoint directory to the remote as a new revision.", import_details,
		mc_cmd_import},
	{"ls", MC_IN_LS, "[ORG[/MODEL[@REV]]]", 0, 1, "List checkpoints, or the files of one.",
		ls_details, mc_cmd_ls},
	{"verify", MC_IN_VERIFY, "ORG/MODEL[@REV]", 1, 1,
		"Check that the remote holds every byte of a revision.", verify_details,
		mc_cmd_verify},
	{"export", MC_IN_EXPORT, "ORG/MODEL[@REV] DEST", 2, 2,
		"Write a revision back as plain files.", export_details, mc_cmd_export},
	{"layout", MC_IN_LAYOUT, "add|check|ls|show [LAYOUT]", 1, 2,
		"Check, show or register parallel layouts.", layout_details, mc_cmd_layout},
	{"plan", MC_IN_PLAN, "", 0, 0, "Plan which bytes go where, from one layout to another.",
		plan_details, mc_cmd_plan},
	{"reshard", MC_IN_RESHARD, "ORG/MODEL[@REV] LAYOUT ORG/MODEL[@REV]", 3, 3,
		"Write a revision under a layout as a new revision.", reshard_details,
		mc_cmd_reshard},
	{"mount", MC_IN_MOUNT, "MOUNTPOINT", 1, 1,
		"Show the checkpoints of a remote as a tree of files.", mount_details,
		mc_cmd_mount},
	{"umount", MC_IN_UMOUNT, "MOUNTPOINT", 1, 1, "Unmount, and wait for the daemon's end.",
		"When the mount is in use its users are listed and the exit code is 4.\n",
		mc_cmd_umount},
	{"version", MC_IN_VERSION, "", 0, 0,
		"Print the version and what the program was built with.", NULL, mc_cmd_version},
	{"help", MC_IN_HELP, "[COMMAND]", 0, 1, "Explain the program or one command.", NULL,
		mc_cmd_help},
};
const unsigned mc_command_count = sizeof(mc_command_table) / sizeof(*mc_command_table);

const struct mc_command *mc_command_find(const char *name)
{
	for (unsigned i = 0; i < mc_command_count; i++)
		if (strcmp(mc_command_table[i].name, name) == 0)
			return &mc_command_table[i];
	return NULL;
}

int mc_fail(const struct mc_err *err, int code)
{
	fprintf(stderr, "mooncakefs: %s\n", err->text[0] != '\0' ? err->text : strerror(-code));
	return MC_EXIT_FAILED;
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
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "mooncakefs %s: ", name);
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\nTry 'mooncakefs help %s'.\n", name);
	va_end(ap);
	return MC_EXIT_USAGE;
}

static int unknown_command(const char *word)
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

static int run_command(const struct mc_command *c, int argc, char *const *argv)
{
	struct mc_err err = {0};
	struct mc_options o;
	int r = mc_options_parse(c->bit, argc, argv, &o, &err);
	int code;

	if (r == 0 && mc_options_flag(&o, MC_OPT_HELP)) {
		mc_command_help(c, stdout);
		code = MC_EXIT_OK;
	} else if (r == -EINVAL) {
		code = mc_fail_usage(&o, "%s", err.text);
	} else if (r < 0) {
		code = mc_fail(&err, r);
	} else if (o.n_args < c->min_args) {
		code = mc_fail_usage(
			&o, "missing argument; usage: mooncakefs %s %s", c->name, c->args);
	} else if (o.n_args > c->max_args) {
		code = mc_fail_usage(&o, "too many arguments: \"%s\"", o.args[c->max_args]);
	} else {
		code = c->run(&o);
	}
	mc_options_done(&o);
	if (fflush(stdout) != 0 && code == MC_EXIT_OK) {
		fprintf(stderr, "mooncakefs: standard output: %s\n", strerror(errno));
		code = MC_EXIT_FAILED;
	}
	return code;
}

int main(int argc, char **argv)
{
	const struct mc_command *c;
	const char *word = argc > 1 ? argv[1] : "";

	/* A closed pipe or connection is an error to report, not a reason to die. */
	signal(SIGPIPE, SIG_IGN);
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
		return unknown_command(word);
	return run_command(c, argc - 2, argv + 2);
}
