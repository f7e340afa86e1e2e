/* mooncakefs du: how many bytes of files each tier holds. */
#include "tools/command.h"
#include "tools/json-line.h"
#include "tools/mount-files.h"
#include "tools/size.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

static const char *const keys[] = {"size", "dram", "nvme", "block", "remote"};
#define N_KEYS 5

struct sums {
	uint64_t (*of)[N_KEYS]; /* one for each word, owned */
	bool failed;
};

static void add(void *ctx, const struct mc_mount_file *f, const json_t *figures)
{
	struct sums *s = ctx;

	for (int i = 0; i < N_KEYS; i++)
		s->of[f->word][i] +=
			(uint64_t)json_integer_value(json_object_get(figures, keys[i]));
}

static void complain(void *ctx, const char *path, const char *text)
{
	struct sums *s = ctx;

	fprintf(stderr, "mooncakefs: %s: %s\n", path, text);
	s->failed = true;
}

static void print(const struct mc_mount_files *m, const struct sums *s, bool json)
{
	struct mc_json_line j;
	char text[MC_SIZE_TEXT];

	if (!json)
		printf("%12s %12s %12s %12s %12s  %s\n", keys[0], keys[1], keys[2], keys[3],
			keys[4], "path");
	for (unsigned w = 0; w < m->n_words; w++) {
		mc_json_line_begin(&j, stdout);
		if (json)
			mc_json_line_text(&j, "path", m->words[w]);
		for (int i = 0; i < N_KEYS; i++) {
			mc_size_format(s->of[w][i], text);
			if (json)
				mc_json_line_number(&j, keys[i], s->of[w][i]);
			else
				printf("%12s ", text);
		}
		if (json)
			mc_json_line_end(&j);
		else
			printf(" %s\n", m->words[w]);
	}
}

int mc_cmd_du(const struct mc_options *o)
{
	struct mc_err err = {0};
	struct mc_mount_files m;
	struct sums s = {0};
	const struct mc_mount_run run = {
		.command = "residency", .each = add, .failed = complain, .ctx = &s};
	int r = mc_mount_files_collect(o, &m, &err);

	if (r == 0 && m.n_words == 0) {
		mc_mount_files_done(&m);
		return mc_fail_usage(o, "of which PATH?");
	}
	s.of = calloc(m.n_words + 1, sizeof(*s.of));
	if (r == 0 && s.of == NULL)
		r = mc_err_set(&err, -ENOMEM, "out of memory");
	if (r == 0 && m.n > 0)
		r = mc_mount_files_run(&m, &run, &err);
	if (r == 0)
		print(&m, &s, mc_options_flag(o, MC_OPT_JSON));
	free(s.of);
	mc_mount_files_done(&m);
	return r < 0 ? mc_fail(&err, r) : s.failed ? MC_EXIT_FAILED : MC_EXIT_OK;
}
