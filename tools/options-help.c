/* What people read about options: the list for --help, and what a mistyped name was meant to be. */
#include "tools/options.h"

#include <string.h>

#define TEXT_COLUMN 28
#define TEXT_WIDTH 72

/* Prints text from TEXT_COLUMN on, broken at spaces; the cursor stands at that column. */
static void print_wrapped(FILE *out, const char *text)
{
	size_t column = 0;

	while (*text != '\0') {
		size_t len = strcspn(text, " ");

		if (column > 0 && column + 1 + len > TEXT_WIDTH) {
			fprintf(out, "\n%*s", TEXT_COLUMN, "");
			column = 0;
		}
		column += (size_t)fprintf(out, "%s%.*s", column > 0 ? " " : "", (int)len, text);
		text += len;
		text += strspn(text, " ");
	}
	fputc('\n', out);
}

/* Characters shown, not bytes: the units hold "…". */
static size_t shown_width(const char *s)
{
	size_t n = 0;

	for (; *s != '\0'; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

void mc_options_help(unsigned command, FILE *out)
{
	char left[80], text[512];

	for (int i = 0; i < MC_OPT_N; i++) {
		const struct mc_option *opt = &mc_option_table[i];
		size_t width;

		if ((opt->commands & command) == 0)
			continue;
		if (opt->letter != 0)
			snprintf(left, sizeof(left), "  -%c, --%s", opt->letter, opt->name);
		else
			snprintf(left, sizeof(left), "      --%s", opt->name);
		if (opt->unit != NULL)
			snprintf(
				left + strlen(left), sizeof(left) - strlen(left), " %s", opt->unit);
		width = shown_width(left);
		fprintf(out, "%s", left);
		if (width + 2 > TEXT_COLUMN) {
			fputc('\n', out);
			width = 0;
		}
		fprintf(out, "%*s", (int)(TEXT_COLUMN - width), "");
		if (opt->def != NULL)
			snprintf(text, sizeof(text), "%s Default %s.", opt->sentence, opt->def);
		else
			snprintf(text, sizeof(text), "%s", opt->sentence);
		print_wrapped(out, text);
	}
}

#define NEAR_MAX 96

/* Number of insertions, removals, replacements and swaps of neighbours that lead from a to b. */
static size_t edit_distance(const char *a, const char *b)
{
	size_t d[3][NEAR_MAX + 1], la = strlen(a), lb = strlen(b);

	if (la > NEAR_MAX || lb > NEAR_MAX)
		return NEAR_MAX;
	for (size_t j = 0; j <= lb; j++)
		d[0][j] = j;
	for (size_t i = 1; i <= la; i++) {
		size_t *now = d[i % 3], *before = d[(i + 2) % 3], *two = d[(i + 1) % 3];

		now[0] = i;
		for (size_t j = 1; j <= lb; j++) {
			size_t best = before[j - 1] + (a[i - 1] != b[j - 1]);

			if (before[j] + 1 < best)
				best = before[j] + 1;
			if (now[j - 1] + 1 < best)
				best = now[j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
				two[j - 2] + 1 < best)
				best = two[j - 2] + 1;
			now[j] = best;
		}
	}
	return d[la % 3][lb];
}

const char *mc_nearest_name(const char *word, const char *const *names, size_t n)
{
	const char *best = NULL;
	size_t best_distance = strlen(word) / 3 + 2;

	for (size_t i = 0; i < n; i++) {
		size_t d = edit_distance(word, names[i]);

		if (d < best_distance) {
			best_distance = d;
			best = names[i];
		}
	}
	return best;
}
