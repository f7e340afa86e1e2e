/* mooncakefs verify: reads every copy of a revision's chunks and compares them with their names. */
#include "tools/command.h"

#include "manifest/import.h"
#include "manifest/verify.h"
#include "tier/remote.h"
#include "tier/remote-set.h"
#include "tools/load-revision.h"
#include "tools/near-revision.h"
#include "tools/open-remote.h"
#include "tools/progress.h"
#include "tools/size.h"
#include "tools/verify-report.h"

#include <string.h>
#include <sys/random.h>

static void print(const struct mc_rev_name *name, const struct mc_verify_result *res, bool json)
{
	char bytes[MC_SIZE_TEXT];

	if (json) {
		mc_verify_report_json("verified", name, res);
		return;
	}
	mc_size_format(res->bytes, bytes);
	printf("%s/%s@%s: %llu of %llu %s read, %s: %llu damaged\n", name->org, name->model,
		name->rev, (unsigned long long)res->checked, (unsigned long long)res->copies,
		res->copies > res->chunks ? "copies of chunks" : "chunks", bytes,
		(unsigned long long)res->damaged);
	if (res->damaged > 0)
		fputs("To repair: 'mooncakefs repair' takes right bytes from another copy, from "
		      "another remote (--from)\nor from what was imported (--source). Or remove "
		      "what "
		      "has wrong bytes below chunks/ on the\nremote, then import the same source "
		      "again; only what is missing is written.\n",
			stderr);
}

static int verify(const struct mc_options *o, struct mc_remote *remote,
	const struct mc_rev_name *name, const char *only, struct mc_verify_result *ret)
{
	struct mc_progress_view view;
	struct mc_verify_opts opts = {.jobs = (unsigned)mc_options_number(o, MC_OPT_JOBS),
		.only = only,
		.progress = mc_progress_show,
		.damage = mc_verify_report_damage,
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
	r = mc_verify_revision(remote, name, &opts, ret, &err);
	mc_progress_close(&view);
	return r < 0 ? mc_fail_revision(remote, name, &err, r) : 0;
}

/* The URL or name that --from gives, without what may stand behind '#'. */
static int parse_from(const struct mc_options *o, struct mc_set_url *ret)
{
	const char *from = mc_options_text(o, MC_OPT_FROM_REMOTE);
	struct mc_err err = {0};
	int r;

	if (from == NULL)
		return 0;
	if (strchr(from, '\n') != NULL)
		return mc_fail_usage(o, "give one --from, or none for all remotes");
	r = mc_set_url_parse(from, ret, &err);
	return r < 0 ? mc_fail(&err, r) : 0;
}

int mc_cmd_verify(const struct mc_options *o)
{
	struct mc_set_url from = {0};
	struct mc_verify_result res;
	struct mc_rev_name name;
	struct mc_remote *remote;
	int r = parse_from(o, &from);

	if (r != 0)
		return r;
	r = mc_open_remote(o, &remote);
	if (r == 0) {
		r = mc_load_revision(o, remote, o->args[0], &name, NULL);
		if (r == 0)
			r = verify(o, remote, &name, from.url, &res);
		mc_remote_close(remote);
	}
	mc_set_url_done(&from);
	if (r != 0)
		return r;
	print(&name, &res, mc_options_flag(o, MC_OPT_JSON));
	return res.damaged > 0 ? MC_EXIT_DAMAGED : MC_EXIT_OK;
}
