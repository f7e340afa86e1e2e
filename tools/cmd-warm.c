/* mooncakefs warm: brings files into a tier, or says how much of them is there. */
#include "tools/command.h"
#include "tier/tier.h"
#include "tools/control-client.h"
#include "tools/json-line.h"
#include "tools/mount-files.h"
#include "tools/mount-report.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

struct resident {
	const char *tier;
	uint64_t size, there; /* bytes */
};

static void add(void *ctx, const struct mc_mount_file *f, const json_t *figures)
{
	struct resident *r = ctx;

	(void)f;
	r->size += (uint64_t)json_integer_value(json_object_get(figures, "size"));
	r->there += (uint64_t)json_integer_value(json_object_get(figures, r->tier));
}

static int measure(const struct mc_mount_files *m, struct resident *ret, struct mc_err *err)
{
	const struct mc_mount_run run = {.command = "residency", .each = add, .ctx = ret};

	return mc_mount_files_run(m, &run, err);
}

/* Never 100 while something is missing. */
static double per_cent(const struct resident *r)
{
	double v = r->size == 0 ? 100 : 100.0 * (double)r->there / (double)r->size;

	return r->there < r->size && v > 99.9 ? 99.9 : v;
}

static void print_resident(const struct resident *r, bool json)
{
	struct mc_json_line j;

	if (!json) {
		printf("%.1f %% in %s\n", per_cent(r), r->tier);
		return;
	}
	mc_json_line_begin(&j, stdout);
	mc_json_line_text(&j, "event", "resident");
	mc_json_line_text(&j, "tier", r->tier);
	mc_json_line_number(&j, "bytes", r->there);
	mc_json_line_number(&j, "size", r->size);
	mc_json_line_real(&j, "per_cent", per_cent(r));
	mc_json_line_end(&j);
}

/* The first tier that survives, where the mount has one. */
static int choose_tier(const struct mc_options *o, const struct mc_mount_files *m, const char **ret,
	struct mc_err *err)
{
	const json_t *tier;
	struct mc_client c;
	json_t *status;
	size_t i;
	int r, first = MC_TIER_REMOTE;

	*ret = mc_tier_name((enum mc_tier)mc_options_number(o, MC_OPT_TIER));
	if (mc_options_given(o, MC_OPT_TIER))
		return 0;
	r = mc_client_connect(&m->mount, &c, err);
	if (r < 0)
		return r;
	r = mc_client_command(&c, "status", &status, err);
	mc_client_close(&c);
	if (r < 0)
		return r;
	json_array_foreach(json_object_get(status, "tiers"), i, tier)
	{
		const char *name = json_string_value(json_object_get(tier, "tier"));

		for (int t = MC_TIER_NVME; name != NULL && t <= MC_TIER_BLOCK && t < first; t++)
			if (strcmp(name, mc_tier_name((enum mc_tier)t)) == 0)
				first = t;
	}
	if (first < MC_TIER_REMOTE)
		*ret = mc_tier_name((enum mc_tier)first);
	json_decref(status);
	return 0;
}

static int warm(const struct mc_options *o, const struct mc_mount_files *m, const char *tier,
	struct mc_mount_report *report, struct mc_err *err)
{
	struct mc_mount_run run = {.command = "warm",
		.tier = tier,
		.bytes_per_second = mc_options_number(o, MC_OPT_BWLIMIT)};

	report->bytes_total = m->bytes;
	report->items_total = m->n;
	mc_mount_report_use(report, &run);
	return mc_mount_files_run(m, &run, err);
}

/* All of it: one file may have pushed another out. */
static int work(const struct mc_options *o, const struct mc_mount_files *m, struct mc_err *err)
{
	bool json = mc_options_flag(o, MC_OPT_JSON), check = mc_options_flag(o, MC_OPT_CHECK);
	struct mc_mount_report report;
	struct resident res = {0};
	int r = choose_tier(o, m, &res.tier, err);

	mc_mount_report_open(&report, "warmed", json);
	if (r == 0 && !check)
		r = warm(o, m, res.tier, &report, err);
	mc_mount_report_close(&report, r == 0 && !check ? m : NULL);
	if (r == 0)
		r = measure(m, &res, err);
	if (r < 0)
		return mc_fail(err, r);
	print_resident(&res, json);
	return report.failures > 0 || res.there < res.size ? MC_EXIT_INCOMPLETE : MC_EXIT_OK;
}

int mc_cmd_warm(const struct mc_options *o)
{
	struct mc_err err = {0};
	struct mc_mount_files m;
	int code, r = mc_mount_files_collect(o, &m, &err);

	if (r < 0)
		code = mc_fail(&err, r);
	else if (m.n_words == 0)
		code = mc_fail_usage(o, "warm which PATH?");
	else
		code = m.n > 0 ? work(o, &m, &err) : MC_EXIT_OK;
	mc_mount_files_done(&m);
	return code;
}
