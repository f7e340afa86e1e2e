/* mooncakefs export: a revision becomes plain files. */
#include "tools/command.h"

#include "manifest/export.h"
#include "manifest/import.h"
#include "tier/remote.h"
#include "tools/json-line.h"
#include "tools/load-revision.h"
#include "tools/open-remote.h"
#include "tools/progress.h"
#include "tools/size.h"

#include <string.h>

static void print(const struct mc_rev_name *name, const char *dest,
	const struct mc_export_result *res, bool json)
{
	char bytes[MC_SIZE_TEXT];
	struct mc_json_line j;

	if (!json) {
		mc_size_format(res->bytes, bytes);
		printf("%s/%s@%s: %llu files, %s in %s\n", name->org, name->model, name->rev,
			(unsigned long long)res->files, bytes, dest);
		return;
	}
	mc_json_line_begin(&j, stdout);
	mc_json_line_text(&j, "event", "exported");
	mc_json_line_text(&j, "org", name->org);
	mc_json_line_text(&j, "model", name->model);
	mc_json_line_text(&j, "revision", name->rev);
	mc_json_line_number(&j, "files", res->files);
	mc_json_line_number(&j, "bytes", res->bytes);
	mc_json_line_number(&j, "data_bytes", res->data_bytes);
	mc_json_line_end(&j);
}

static int run(const struct mc_options *o, struct mc_remote *remote, struct mc_manifest *m,
	const char *dest, struct mc_export_result *ret)
{
	struct mc_progress_view view;
	struct mc_export_opts opts = {.jobs = (unsigned)mc_options_number(o, MC_OPT_JOBS),
		.progress = mc_progress_show,
		.ctx = &view};
	struct mc_err err = {0};
	int r;

	if (opts.jobs == 0)
		opts.jobs = mc_import_default_jobs();
	mc_progress_open(&view, mc_options_flag(o, MC_OPT_JSON));
	r = mc_export(remote, m, dest, &opts, ret, &err);
	mc_progress_close(&view);
	return r < 0 ? mc_fail(&err, r) : 0;
}

int mc_cmd_export(const struct mc_options *o)
{
	char dest[4096];
	size_t len = strlen(o->args[1]);
	struct mc_export_result res;
	struct mc_rev_name name;
	struct mc_remote *remote;
	struct mc_manifest *m;
	int r;

	if (len == 0 || len >= sizeof(dest))
		return mc_fail_usage(o, "DEST is %s", len == 0 ? "empty" : "too long");
	memcpy(dest, o->args[1], len + 1);
	while (len > 1 && dest[len - 1] == '/')
		dest[--len] = '\0';
	r = mc_open_remote(o, &remote);
	if (r != 0)
		return r;
	r = mc_load_revision(o, remote, o->args[0], &name, &m);
	if (r == 0) {
		r = run(o, remote, m, dest, &res);
		mc_manifest_unref(m);
	}
	mc_remote_close(remote);
	if (r == 0)
		print(&name, dest, &res, mc_options_flag(o, MC_OPT_JSON));
	return r;
}
