/* Writes manual pages from the tables that also make --help. */
#include "tools/man-page.h"

#include "tools/command.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>

#define WIDTH 62 /* columns after which a source line is broken at the next space */

/* Text as roff shows it literally, from this column of a source line on; roff fills lines itself.
 */
static void put_at(FILE *out, const char *text, size_t len, size_t column)
{
	for (size_t i = 0; i < len; i++, column++) {
		if (column > WIDTH && text[i] == ' ' && i + 1 < len) {
			fputc('\n', out);
			column = 0;
			i++;
		}
		if (column == 0 && (text[i] == '.' || text[i] == '\''))
			fputs("\\&", out);
		if (text[i] == '\\')
			fputs("\\e", out);
		else if (text[i] == '-')
			fputs("\\-", out);
		else
			fputc(text[i], out);
	}
}

/* Part of a line that must not be broken: the argument of a macro. */
static void put(FILE *out, const char *text)
{
	for (; *text != '\0'; text++)
		put_at(out, text, 1, 1);
}

static void put_line(FILE *out, const char *text)
{
	put_at(out, text, strlen(text), 0);
	fputc('\n', out);
}

static void put_title(FILE *out, const char *command, const char *section)
{
	fputs(".TH MOONCAKEFS", out);
	if (command != NULL) {
		fputs("\\-", out);
		for (; *command != '\0'; command++)
			fputc(toupper((unsigned char)*command), out);
	}
	fprintf(out, " %s %s \"mooncakefs %s\"\n", section, MC_DATE, MC_VERSION);
}

/* "word: …" or "word WORD: …" at a line's start explains an argument: its length, or 0. */
static size_t term_length(const char *line)
{
	size_t n = strspn(line, "abcdefghijklmnopqrstuvwxyz|");

	if (n > 0 && line[n] == ' ')
		n += 1 + strspn(line + n + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
	return n > 0 && line[n] == ':' && line[n + 1] == ' ' ? n : 0;
}

/* Paragraphs of the help: an empty line separates them, a line "word: …" begins one of its own. */
static void put_details(FILE *out, const char *text)
{
	size_t len, term;

	if (term_length(text) == 0)
		fputs(".PP\n", out);
	for (; *text != '\0'; text += len + (text[len] == '\n')) {
		len = strcspn(text, "\n");
		term = term_length(text);
		if (term > 0) {
			fprintf(out, ".TP\n.B %.*s\n", (int)term, text);
			put_at(out, text + term + 2, len - term - 2, 0);
		} else if (len == 0) {
			fputs(".PP", out);
		} else {
			put_at(out, text, len, 0);
		}
		fputc('\n', out);
	}
}

static void put_default(FILE *out, const struct mc_option *opt)
{
	if (opt->def == NULL)
		return;
	fputs("Default ", out);
	put(out, opt->def);
	fputs(".\n", out);
}

static void put_option(FILE *out, const struct mc_option *opt)
{
	fputs(".TP\n", out);
	if (opt->letter != 0)
		fprintf(out, ".BR \\-%c \", \" ", opt->letter);
	else
		fputs(".BR ", out);
	fputs("\\-\\-", out);
	put(out, opt->name);
	if (opt->unit != NULL) {
		fputs(" \" ", out);
		put(out, opt->unit);
		fputc('"', out);
	}
	fputc('\n', out);
	put_line(out, opt->sentence);
	put_default(out, opt);
}

static void put_exit_codes(unsigned commands, FILE *out)
{
	fputs(".SH EXIT STATUS\n", out);
	for (unsigned i = 0; i < mc_exit_code_count; i++) {
		if ((mc_exit_codes[i].commands & commands) == 0)
			continue;
		fprintf(out, ".TP\n.B %d\n", mc_exit_codes[i].code);
		put_line(out, mc_exit_codes[i].meaning);
	}
}

void mc_man_command(const struct mc_command *c, FILE *out)
{
	put_title(out, c->name, "1");
	fprintf(out, ".SH NAME\nmooncakefs\\-%s \\- ", c->name);
	/* By custom without the full stop. */
	put_at(out, c->sentence, strlen(c->sentence) - 1, 30);
	fprintf(out, "\n.SH SYNOPSIS\n.B mooncakefs %s\n.RI [ OPTION \"]… ", c->name);
	put(out, c->args);
	fputs("\"\n.SH DESCRIPTION\n", out);
	put_line(out, c->sentence);
	if (c->details != NULL)
		put_details(out, c->details);
	fputs(".SH OPTIONS\n", out);
	for (int i = 0; i < MC_OPT_N; i++)
		if ((mc_option_table[i].commands & c->bit) != 0)
			put_option(out, &mc_option_table[i]);
	put_exit_codes(c->bit, out);
	fputs(".SH SEE ALSO\n.BR mooncakefs (1),\n.BR mooncakefs.json (5)\n", out);
}

void mc_man_program(FILE *out)
{
	put_title(out, NULL, "1");
	fputs(".SH NAME\nmooncakefs \\- a tree of model checkpoints and KV\\-cache objects\n"
	      ".SH SYNOPSIS\n.B mooncakefs\n.I COMMAND\n.RI [ OPTION ]…\n.RI [ ARGUMENT ]…\n"
	      ".SH DESCRIPTION\n"
	      "Checkpoints lie on an NFS server or in a directory; each node keeps what\n"
	      "it reads in memory and on its NVMe, and shows it as files.\n"
	      "Each command has a page of its own.\n"
	      ".SH COMMANDS\n",
		out);
	for (unsigned i = 0; i < mc_command_count; i++) {
		fprintf(out, ".TP\n.BR mooncakefs\\-%s (1)\n", mc_command_table[i].name);
		put_line(out, mc_command_table[i].sentence);
	}
	put_exit_codes(UINT_MAX, out);
	fputs(".SH SEE ALSO\n.BR mooncakefs.json (5),\n.BR mooncakefs\\-layout (5),\n"
	      ".BR mooncakefs\\-remote (5),\n.BR mooncakefs\\-service (8),\n"
	      ".BR mount.fuse.mooncakefs (8)\n",
		out);
}

static void put_type(FILE *out, const struct mc_option *opt)
{
	static const char *const types[] = {[MC_OPTION_FLAG] = "true or false",
		[MC_OPTION_TEXT] = "text",
		[MC_OPTION_TEXTS] = "text, or a list of texts",
		[MC_OPTION_COUNT] = "a whole number",
		[MC_OPTION_SECONDS] = "a whole number of seconds",
		[MC_OPTION_SIZE] = "bytes, or text with a unit such as \"4GiB\"",
		[MC_OPTION_PERCENT] = "per cent",
		[MC_OPTION_CHOICE] = "one of the words",
		[MC_OPTION_PLACE] = "text: a directory, perhaps a comma and a size",
		[MC_OPTION_ADDRESS] = "text: a numeric address, a colon and a port"};

	fprintf(out, "Value: %s", types[opt->type]);
	if (opt->type == MC_OPTION_CHOICE)
		fprintf(out, " %s", opt->unit);
	if (opt->type == MC_OPTION_COUNT || opt->type == MC_OPTION_SECONDS)
		fprintf(out, ", %llu to %llu", (unsigned long long)opt->min,
			(unsigned long long)opt->max);
	fputs(".\n", out);
}

void mc_man_config(FILE *out)
{
	fprintf(out, ".TH MOONCAKEFS.JSON 5 %s \"mooncakefs %s\"\n", MC_DATE, MC_VERSION);
	fputs(".SH NAME\nmooncakefs.json \\- configuration file of mooncakefs\n"
	      ".SH DESCRIPTION\n"
	      "A file that\n.B \\-\\-config\n"
	      "names: one JSON object whose keys are names of options.\n"
	      "One file serves all commands; a command takes what it knows.\n"
	      "A flag on the command line or a word of\n.B \\-o\n"
	      "wins over the file, the file over the default.\n"
	      ".PP\n.B mooncakefs config check\nreports every mistake with its line,\n"
	      ".B mooncakefs config show\nthe values in effect and where each comes from. The key\n"
	      ".B $schema\nmay name the schema that\n.B mooncakefs config schema\nprints.\n"
	      ".SH KEYS\n",
		out);
	for (int i = 0; i < MC_OPT_N; i++) {
		const struct mc_option *opt = &mc_option_table[i];

		if (!opt->in_config)
			continue;
		fputs(".TP\n.B ", out);
		put(out, opt->name);
		fputc('\n', out);
		put_line(out, opt->sentence);
		put_type(out, opt);
		put_default(out, opt);
	}
	fputs(".SH EXAMPLES\n.nf\n{\n  \"remote\": \"nfs://nas/export/models\",\n"
	      "  \"dram\": \"64GiB\",\n  \"nvme\": \"/nvme/mooncake,800GiB\"\n}\n.fi\n"
	      ".SH SEE ALSO\n.BR mooncakefs (1),\n.BR mooncakefs\\-config (1)\n",
		out);
}
