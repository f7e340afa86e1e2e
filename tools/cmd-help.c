/* mooncakefs help: the list of commands, or one command in full. */
#include "tools/command.h"

static const char exit_codes[] =
	"Exit codes: 0 done, 1 failed (the reason is on standard error), 2 wrong usage,\n"
	"  3 verify found missing or wrong bytes, 4 the mount is in use (umount).\n";

void mc_command_help(const struct mc_command *c, FILE *out)
{
	fprintf(out, "Usage: mooncakefs %s [OPTION]…%s%s\n%s\n", c->name,
		*c->args != '\0' ? " " : "", c->args, c->sentence);
	if (c->details != NULL)
		fprintf(out, "\n%s", c->details);
	fprintf(out, "\nOptions:\n");
	mc_options_help(c->bit, out);
	fprintf(out, "\n%s", exit_codes);
}

void mc_program_help(FILE *out)
{
	fprintf(out,
		"Usage: mooncakefs COMMAND [OPTION]… [ARGUMENT]…\n"
		"A tree of model checkpoints and KV-cache objects in DRAM and NVMe above NFS.\n\n"
		"Commands:\n");
	for (unsigned i = 0; i < mc_command_count; i++)
		fprintf(out, "  %-10s %s\n", mc_command_table[i].name,
			mc_command_table[i].sentence);
	fprintf(out, "\n'mooncakefs help COMMAND' explains one.\n\n%s", exit_codes);
}

int mc_cmd_help(const struct mc_options *o)
{
	const struct mc_command *c;

	if (o->n_args == 0) {
		mc_program_help(stdout);
		return MC_EXIT_OK;
	}
	c = mc_command_find(o->args[0]);
	if (c == NULL)
		return mc_fail_usage(o, "no command \"%s\"", o->args[0]);
	mc_command_help(c, stdout);
	return MC_EXIT_OK;
}
