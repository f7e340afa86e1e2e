/* Progress and failures of a command over files. */
#include "tools/mount-report.h"

#include "tools/command.h"
#include "tools/json-line.h"
#include "tools/size.h"

#include <stdio.h>

void mc_mount_report_open(struct mc_mount_report *r, const char *done, bool json)
{
	*r = (struct mc_mount_report){.done = done, .json = json};
	mc_progress_open(&r->view, json);
}

static void failed(void *ctx, const char *path, const char *text)
{
	struct mc_mount_report *r = ctx;
	struct mc_json_line j;

	r->failures++;
	mc_progress_close(&r->view);
	fprintf(stderr, "mooncakefs: %s: %s\n", path, text);
	if (!r->json)
		return;
	mc_json_line_begin(&j, stdout);
	mc_json_line_text(&j, "event", "failed");
	mc_json_line_text(&j, "path", path);
	mc_json_line_text(&j, "text", text);
	mc_json_line_end(&j);
}

static void tell(void *ctx, uint64_t bytes, uint64_t paths)
{
	struct mc_mount_report *r = ctx;
	const struct mc_progress now = {.stage = r->done,
		.bytes_done = bytes,
		.bytes_total = r->bytes_total,
		.items_done = paths,
		.items_total = r->items_total};

	if (r->items_total > 0)
		mc_progress_show(&r->view, &now);
}

void mc_mount_report_use(struct mc_mount_report *r, struct mc_mount_run *run)
{
	run->failed = failed;
	run->tell = tell;
	run->ctx = r;
}

void mc_mount_report_close(struct mc_mount_report *r, const struct mc_mount_files *m)
{
	char size[MC_SIZE_TEXT];
	struct mc_json_line j;

	mc_progress_close(&r->view);
	if (m == NULL)
		return;
	if (r->json) {
		mc_json_line_begin(&j, stdout);
		mc_json_line_text(&j, "event", r->done);
		mc_json_line_number(&j, "files", m->n - r->failures);
		mc_json_line_number(&j, "failures", r->failures);
		mc_json_line_number(&j, "bytes", m->bytes);
		mc_json_line_end(&j);
		return;
	}
	mc_size_format(m->bytes, size);
	printf("%s: %llu of %zu files, %s\n", r->done, (unsigned long long)(m->n - r->failures),
		m->n, size);
}

int mc_mount_report_run(const struct mc_options *o, const char *command, const char *done)
{
	struct mc_mount_run run = {.command = command};
	char tier[MC_OPTION_TEXT_MAX];
	struct mc_mount_report report;
	struct mc_err err = {0};
	struct mc_mount_files m;
	int r = mc_mount_files_collect(o, &m, &err);

	if (r == 0 && m.n_words == 0) {
		mc_mount_files_done(&m);
		return mc_fail_usage(o, "%s which PATH?", command);
	}
	mc_options_show(o, MC_OPT_TIER, tier);
	if (mc_options_given(o, MC_OPT_TIER))
		run.tier = tier;
	mc_mount_report_open(&report, done, mc_options_flag(o, MC_OPT_JSON));
	mc_mount_report_use(&report, &run);
	if (r == 0 && m.n > 0)
		r = mc_mount_files_run(&m, &run, &err);
	mc_mount_report_close(&report, r == 0 ? &m : NULL);
	mc_mount_files_done(&m);
	return r < 0 ? mc_fail(&err, r) : report.failures > 0 ? MC_EXIT_FAILED : MC_EXIT_OK;
}
