/* mooncakefs verify: reads a revision's chunks on the remote and compares them with their names. */
#include "tools/command.h"

#include "manifest/import.h"
#include "manifest/verify.h"
#include "tier/remote.h"
#include "tools/json-line.h"
#include "tools/load-revision.h"
#include "tools/open-remote.h"
#include "tools/progress.h"
#include "tools/size.h"

#include <sys/random.h>

static void damage(void *ctx, const char *text)
{
	struct mc_progress_view *view = ctx;
	struct mc_json_line j;

	if (view->json) {
		mc_json_line_begin(&j, stdout);
		mc_json_line_text(&j, "event", "damage");
		mc_json_line_text(&j, "text", text);
		mc_json_line_end(&j);
	}
	fprintf(stderr, "%s%s\n", view->line_open ? "\r\033[K" : "", text);
}

static void print(const struct mc_rev_name *name, const struct mc_verify_result *res, bool json)
{
	char bytes[MC_SIZE_TEXT];
	struct mc_json_line j;

	if (!json) {
		mc_size_format(res->bytes, bytes);
		printf("%s/%s@%s: %llu of %llu chunks read, %s: %llu damaged\n", name->org,
			name->model, name->rev, (unsigned long long)res->checked,
			(unsigned long long)res->chunks, bytes, (unsigned long long)res->damaged);
		if (res->damaged > 0)
			fputs("To repair: remove what has wrong bytes below chunks/ on the remote, "
			      "then import the same source\nagain; only what is missing is "
			      "written.\n",
				stderr);
		return;
	}
	mc_json_line_begin(&j, stdout);
	mc_json_line_text(&j, "event", "verified");
	mc_json_line_text(&j, "org", name->org);
	mc_json_line_text(&j, "model", name->model);
	mc_json_line_text(&j, "revision", name->rev);
	mc_json_line_number(&j, "chunks", res->chunks);
	mc_json_line_number(&j, "checked", res->checked);
	mc_json_line_number(&j, "bytes", res->bytes);
	mc_json_line_number(&j, "damaged", res->damaged);
	mc_json_line_end(&j);
}

static int verify(const struct mc_options *o, struct mc_remote *remote, struct mc_manifest *m,
	struct mc_verify_result *ret)
{
	struct mc_progress_view view;
	struct mc_verify_opts opts = {.jobs = (unsigned)mc_options_number(o, MC_OPT_JOBS),
		.progress = mc_progress_show,
		.damage = damage,
		.ctx = &view};
	struct mc_err err = {0};
	int r;

	if (mc_options_number(o, MC_OPT_SAMPLE) < 1000000)
		opts.sample = (uint32_t)mc_options_number(o, MC_OPT_SAMPLE);
	if (opts.jobs == 0)
		opts.jobs = mc_import_default_jobs();
	if (getrandom(&opts.seed, sizeof(opts.seed), 0) != (ssize_t)sizeof(opts.seed))
		opts.seed = 1;
	mc_progress_open(&view, mc_options_flag(o, MC_OPT_JSON));
	r = mc_verify(remote, m, &opts, ret, &err);
	mc_progress_close(&view);
	return r < 0 ? mc_fail(&err, r) : 0;
}

int mc_cmd_verify(const struct mc_options *o)
{
	struct mc_verify_result res;
	struct mc_rev_name name;
	struct mc_remote *remote;
	struct mc_manifest *m;
	int r = mc_open_remote(o, &remote);

	if (r != 0)
		return r;
	r = mc_load_revision(o, remote, o->args[0], &name, &m);
	if (r == 0) {
		r = verify(o, remote, m, &res);
		mc_manifest_unref(m);
	}
	mc_remote_close(remote);
	if (r != 0)
		return r;
	print(&name, &res, mc_options_flag(o, MC_OPT_JSON));
	return res.damaged > 0 ? MC_EXIT_DAMAGED : MC_EXIT_OK;
}
