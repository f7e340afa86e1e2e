/* What verify and repair print: a line for each damaged copy, and the counts as JSON. */
#include "tools/verify-report.h"

#include "tools/json-line.h"
#include "tools/progress.h"

#include <stdio.h>

void mc_verify_report_damage(void *ctx, const char *text, bool repaired)
{
	mc_progress_say(ctx, repaired ? "repair" : "damage", text);
}

void mc_verify_report_json(
	const char *event, const struct mc_rev_name *name, const struct mc_verify_result *res)
{
	struct mc_json_line j;

	mc_json_line_begin(&j, stdout);
	mc_json_line_text(&j, "event", event);
	mc_json_line_text(&j, "org", name->org);
	mc_json_line_text(&j, "model", name->model);
	mc_json_line_text(&j, "revision", name->rev);
	mc_json_line_number(&j, "chunks", res->chunks);
	mc_json_line_number(&j, "copies", res->copies);
	mc_json_line_number(&j, "checked", res->checked);
	mc_json_line_number(&j, "bytes", res->bytes);
	mc_json_line_number(&j, "damaged", res->damaged);
	mc_json_line_number(&j, "repaired", res->repaired);
	mc_json_line_number(&j, "repaired_bytes", res->repaired_bytes);
	mc_json_line_number(&j, "fetched_bytes", res->fetched_bytes);
	mc_json_line_end(&j);
}
