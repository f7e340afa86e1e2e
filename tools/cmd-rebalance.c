/* mooncakefs rebalance: every object of several remotes goes where it belongs. */
#include "tools/command.h"

#include "manifest/import.h"
#include "manifest/rebalance.h"
#include "tier/remote.h"
#include "tools/json-line.h"
#include "tools/open-remote.h"
#include "tools/progress.h"
#include "tools/size.h"

static void problem(void *ctx, const char *text)
{
	mc_progress_say(ctx, "problem", text);
}

static void print(const struct mc_rebalance_result *res, bool json)
{
	char bytes[MC_SIZE_TEXT];
	struct mc_json_line j;

	if (!json) {
		mc_size_format(res->copied_bytes, bytes);
		printf("%llu objects: %llu copies made (%s), %llu removed, %llu objects failed\n",
			(unsigned long long)res->objects, (unsigned long long)res->copied, bytes,
			(unsigned long long)res->removed, (unsigned long long)res->failed);
		return;
	}
	mc_json_line_begin(&j, stdout);
	mc_json_line_text(&j, "event", "rebalanced");
	mc_json_line_number(&j, "objects", res->objects);
	mc_json_line_number(&j, "copied", res->copied);
	mc_json_line_number(&j, "copied_bytes", res->copied_bytes);
	mc_json_line_number(&j, "removed", res->removed);
	mc_json_line_number(&j, "failed", res->failed);
	mc_json_line_end(&j);
}

int mc_cmd_rebalance(const struct mc_options *o)
{
	struct mc_progress_view view;
	struct mc_rebalance_opts opts = {.jobs = (unsigned)mc_options_number(o, MC_OPT_JOBS),
		.bytes_per_second = mc_options_number(o, MC_OPT_BWLIMIT),
		.progress = mc_progress_show,
		.problem = problem,
		.ctx = &view};
	struct mc_rebalance_result res;
	struct mc_remote *remote;
	struct mc_err err = {0};
	int r;

	if (mc_count_remotes(o) < 2)
		return mc_fail_usage(o, "give every remote with a --remote of its own");
	r = mc_open_remote(o, &remote);
	if (r != 0)
		return r;
	if (opts.jobs == 0)
		opts.jobs = mc_import_default_jobs();
	mc_progress_open(&view, mc_options_flag(o, MC_OPT_JSON));
	r = mc_rebalance(remote, &opts, &res, &err);
	mc_progress_close(&view);
	mc_remote_close(remote);
	if (r < 0)
		return mc_fail(&err, r);
	print(&res, mc_options_flag(o, MC_OPT_JSON));
	return res.failed > 0 ? MC_EXIT_DAMAGED : MC_EXIT_OK;
}
