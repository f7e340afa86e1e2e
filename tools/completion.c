/* Completion rules for bash, written from the tables of commands and options. */
#include "tools/command.h"
#include "tools/man-page.h"

static const char head[] =
	"# bash completion for mooncakefs, written by \"mooncakefs help --completion\".\n"
	"_mooncakefs()\n"
	"{\n"
	"\tlocal word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} options= "
	"words=\n"
	"\tCOMPREPLY=()\n"
	"\tif [ \"$COMP_CWORD\" = 1 ]; then\n";

static const char tail[] = "\tesac\n"
			   "\tcase $before in\n";

static const char end[] =
	"\tesac\n"
	"\tcase $word in\n"
	"\t-*) mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\") ;;\n"
	"\t*)\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
	"\t\t[ ${#COMPREPLY[@]} -gt 0 ] || mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
	"\t\t;;\n"
	"\tesac\n"
	"}\n"
	"complete -o filenames -F _mooncakefs mooncakefs\n";

/* "add|check|ls LAYOUT" → "add check ls"; nothing for arguments that are no fixed words. */
static void put_words(const char *args, FILE *out)
{
	for (; *args >= 'a' && *args <= 'z'; args++) {
		for (; (*args >= 'a' && *args <= 'z') || *args == '-'; args++)
			fputc(*args, out);
		fputc(' ', out);
		if (*args != '|')
			return;
	}
}

static void put_choices(FILE *out)
{
	const char *word;
	size_t len;

	for (int i = 0; i < MC_OPT_N; i++) {
		const struct mc_option *opt = &mc_option_table[i];

		if (opt->type != MC_OPTION_CHOICE)
			continue;
		fprintf(out, "\t--%s)\n\t\tmapfile -t COMPREPLY < <(compgen -W \"", opt->name);
		for (unsigned j = 0; (word = mc_option_choice(opt, j, &len)) != NULL; j++)
			fprintf(out, "%s%.*s", j > 0 ? " " : "", (int)len, word);
		fputs("\" -- \"$word\")\n\t\treturn\n\t\t;;\n", out);
	}
}

void mc_completion(FILE *out)
{
	fputs(head, out);
	fputs("\t\tmapfile -t COMPREPLY < <(compgen -W \"", out);
	for (unsigned i = 0; i < mc_command_count; i++)
		fprintf(out, "%s%s", i > 0 ? " " : "", mc_command_table[i].name);
	fputs("\" -- \"$word\")\n\t\treturn\n\tfi\n\tcase ${COMP_WORDS[1]} in\n", out);
	for (unsigned i = 0; i < mc_command_count; i++) {
		fprintf(out, "\t%s)\n\t\toptions='", mc_command_table[i].name);
		for (int k = 0; k < MC_OPT_N; k++)
			if ((mc_option_table[k].commands & mc_command_table[i].bit) != 0)
				fprintf(out, "--%s ", mc_option_table[k].name);
		fputs("' words='", out);
		put_words(mc_command_table[i].args, out);
		fputs("'\n\t\t;;\n", out);
	}
	fputs(tail, out);
	put_choices(out);
	fputs(end, out);
}
