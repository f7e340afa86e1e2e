/* mooncakefs repair: right bytes go where copies of a revision are missing or wrong. */
#include "tools/command.h"

#include "manifest/import.h"
#include "manifest/verify.h"
#include "tier/remote.h"
#include "tools/load-revision.h"
#include "tools/near-revision.h"
#include "tools/open-remote.h"
#include "tools/progress.h"
#include "tools/size.h"
#include "tools/verify-report.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static void print(const struct mc_rev_name *name, const struct mc_verify_result *res, bool json)
{
	char bytes[MC_SIZE_TEXT];

	if (json) {
		mc_verify_report_json("repaired", name, res);
		return;
	}
	mc_size_format(res->repaired_bytes, bytes);
	printf("%s/%s@%s: %llu copies of %llu chunks read: %llu damaged, %llu repaired (%s)\n",
		name->org, name->model, name->rev, (unsigned long long)res->checked,
		(unsigned long long)res->chunks, (unsigned long long)res->damaged,
		(unsigned long long)res->repaired, bytes);
	if (res->damaged > res->repaired)
		fputs("What is left: another remote that has it (--from), or the directory that "
		      "was imported (--source),\nrepairs it; what was taken by reference has to be "
		      "imported anew.\n",
			stderr);
}

static int repair(const struct mc_options *o, struct mc_remote *remote,
	const struct mc_rev_name *name, struct mc_verify_result *ret)
{
	struct mc_remote *from[MC_FROM_MAX];
	struct mc_progress_view view;
	struct mc_verify_opts opts = {.jobs = (unsigned)mc_options_number(o, MC_OPT_JOBS),
		.progress = mc_progress_show,
		.damage = mc_verify_report_damage,
		.ctx = &view,
		.repair = true,
		.from = from,
		.source = mc_options_text(o, MC_OPT_SOURCE)};
	struct mc_err err = {0};
	struct stat st;
	int r;

	if (opts.source != NULL && stat(opts.source, &st) < 0) {
		r = -errno;
		mc_err_set(&err, r, "--source %s: %s", opts.source, strerror(-r));
		return mc_fail(&err, r);
	}
	r = mc_open_from(o, from, &opts.n_from);
	if (r != 0)
		return r;
	if (opts.jobs == 0)
		opts.jobs = mc_import_default_jobs();
	mc_progress_open(&view, mc_options_flag(o, MC_OPT_JSON));
	r = mc_verify_revision(remote, name, &opts, ret, &err);
	mc_progress_close(&view);
	mc_close_remotes(from, opts.n_from);
	return r < 0 ? mc_fail_revision(remote, name, &err, r) : 0;
}

int mc_cmd_repair(const struct mc_options *o)
{
	struct mc_verify_result res;
	struct mc_rev_name name;
	struct mc_remote *remote;
	int r = mc_open_remote(o, &remote);

	if (r != 0)
		return r;
	r = mc_load_revision(o, remote, o->args[0], &name, NULL);
	if (r == 0)
		r = repair(o, remote, &name, &res);
	mc_remote_close(remote);
	if (r != 0)
		return r;
	print(&name, &res, mc_options_flag(o, MC_OPT_JSON));
	return res.damaged > res.repaired ? MC_EXIT_DAMAGED : MC_EXIT_OK;
}
