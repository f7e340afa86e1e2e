/* mooncakefs help: the list of commands, or one command in full. */
#include "tools/command.h"
#include "tools/man-page.h"

#include <limits.h>
#include <string.h>

/* Those that one of the commands can end with. */
static void put_exit_codes(unsigned commands, FILE *out)
{
	fprintf(out, "\nExit codes:\n");
	for (unsigned i = 0; i < mc_exit_code_count; i++)
		if ((mc_exit_codes[i].commands & commands) != 0)
			fprintf(out, "  %d  %s\n", mc_exit_codes[i].code, mc_exit_codes[i].meaning);
}

void mc_command_help(const struct mc_command *c, FILE *out)
{
	fprintf(out, "Usage: mooncakefs %s [OPTION]…%s%s\n%s\n", c->name,
		*c->args != '\0' ? " " : "", c->args, c->sentence);
	if (c->details != NULL)
		fprintf(out, "\n%s", c->details);
	fprintf(out, "\nOptions:\n");
	mc_options_help(c->bit, out);
	put_exit_codes(c->bit, out);
}

void mc_program_help(FILE *out)
{
	fprintf(out,
		"Usage: mooncakefs COMMAND [OPTION]… [ARGUMENT]…\n"
		"A tree of model checkpoints and KV-cache objects in DRAM and NVMe above NFS.\n\n"
		"Commands:\n");
	for (unsigned i = 0; i < mc_command_count; i++)
		fprintf(out, "  %-12s %s\n", mc_command_table[i].name,
			mc_command_table[i].sentence);
	fprintf(out, "\n'mooncakefs help COMMAND' explains one.\n");
	put_exit_codes(UINT_MAX, out);
}

int mc_cmd_help(const struct mc_options *o)
{
	bool man = mc_options_flag(o, MC_OPT_MAN);
	const struct mc_command *c;

	if (mc_options_flag(o, MC_OPT_COMPLETION)) {
		mc_completion(stdout);
		return MC_EXIT_OK;
	}
	if (o->n_args == 0) {
		(man ? mc_man_program : mc_program_help)(stdout);
		return MC_EXIT_OK;
	}
	if (man && strcmp(o->args[0], "mooncakefs.json") == 0) {
		mc_man_config(stdout);
		return MC_EXIT_OK;
	}
	c = mc_command_find(o->args[0]);
	if (c == NULL)
		return mc_fail_command(o->args[0]);
	(man ? mc_man_command : mc_command_help)(c, stdout);
	return MC_EXIT_OK;
}
