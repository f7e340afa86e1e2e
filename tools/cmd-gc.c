/* mooncakefs gc: finds, and with --delete removes, what no revision on the remote uses. */
#include "tools/command.h"

#include "manifest/gc.h"
#include "manifest/import.h"
#include "tier/remote.h"
#include "tools/json-line.h"
#include "tools/open-remote.h"
#include "tools/progress.h"
#include "tools/size.h"

static void note(void *ctx, const char *text)
{
	mc_progress_say(ctx, "note", text);
}

static void print_json(const struct mc_gc_result *g, bool removed)
{
	struct mc_json_line j;

	mc_json_line_begin(&j, stdout);
	mc_json_line_text(&j, "event", "collected");
	mc_json_line_flag(&j, "removed", removed);
	mc_json_line_number(&j, "revisions", g->revisions);
	mc_json_line_number(&j, "referenced", g->referenced);
	mc_json_line_number(&j, "missing", g->missing);
	mc_json_line_number(&j, "chunks", g->chunks);
	mc_json_line_number(&j, "bytes", g->bytes);
	mc_json_line_number(&j, "garbage", g->garbage);
	mc_json_line_number(&j, "garbage_bytes", g->garbage_bytes);
	mc_json_line_number(&j, "young", g->young);
	mc_json_line_number(&j, "young_bytes", g->young_bytes);
	mc_json_line_number(&j, "restored", g->restored);
	mc_json_line_number(&j, "leftovers", g->leftovers);
	mc_json_line_number(&j, "leftover_bytes", g->leftover_bytes);
	mc_json_line_number(&j, "strangers", g->strangers);
	mc_json_line_end(&j);
}

static void line(const char *what, uint64_t n, uint64_t bytes)
{
	char text[MC_SIZE_TEXT];

	mc_size_format(bytes, text);
	printf("%-34s %10llu  %s\n", what, (unsigned long long)n, text);
}

static void print_text(const struct mc_gc_result *g, bool removed)
{
	printf("%-34s %10llu\n", "READY revisions", (unsigned long long)g->revisions);
	line("chunks", g->chunks, g->bytes);
	line(removed ? "chunks removed" : "chunks to remove", g->garbage, g->garbage_bytes);
	line("unused, but younger than --grace", g->young, g->young_bytes);
	line(removed ? "unpublished files removed" : "unpublished files to remove", g->leftovers,
		g->leftover_bytes);
	if (g->restored > 0)
		printf("%-34s %10llu\n", "came into use meanwhile, kept",
			(unsigned long long)g->restored);
	if (!removed && g->garbage + g->leftovers > 0)
		puts("Nothing was changed. With --delete they are removed.");
	if (g->missing > 0)
		fprintf(stderr,
			"%llu chunks that revisions need are missing; 'mooncakefs verify "
			"ORG/MODEL' names the files,\nimporting the same source again writes "
			"them\n",
			(unsigned long long)g->missing);
}

int mc_cmd_gc(const struct mc_options *o)
{
	bool json = mc_options_flag(o, MC_OPT_JSON), removes = mc_options_flag(o, MC_OPT_DELETE);
	struct mc_progress_view view;
	struct mc_gc_opts opts = {.grace_s = mc_options_number(o, MC_OPT_GRACE),
		.jobs = (unsigned)mc_options_number(o, MC_OPT_JOBS),
		.remove = removes,
		.progress = mc_progress_show,
		.note = note,
		.ctx = &view};
	struct mc_gc_result found;
	struct mc_remote *remote;
	struct mc_err err = {0};
	int r = mc_open_remote(o, &remote);

	if (r != 0)
		return r;
	if (opts.jobs == 0)
		opts.jobs = mc_import_default_jobs();
	mc_progress_open(&view, json);
	r = mc_gc(remote, &opts, &found, &err);
	mc_progress_close(&view);
	mc_remote_close(remote);
	if (r < 0)
		return mc_fail(&err, r);
	if (json)
		print_json(&found, removes);
	else
		print_text(&found, removes);
	return found.missing > 0 ? MC_EXIT_DAMAGED : MC_EXIT_OK;
}
