/* mooncakefs import: a directory becomes a revision of a checkpoint on the remote. */
#include "tools/command.h"

#include "manifest/import.h"
#include "tier/cleanup.h"
#include "tier/digest.h"
#include "tier/lock.h"
#include "tier/remote.h"
#include "tools/json-line.h"
#include "tools/node-name.h"
#include "tools/open-remote.h"
#include "tools/progress.h"
#include "tools/reap.h"
#include "tools/size.h"

static void warn(void *ctx, const char *text)
{
	mc_progress_close(ctx);
	fprintf(stderr, "mooncakefs: warning: %s\n", text);
}

static void print_json(const struct mc_import_result *res, double seconds)
{
	char hex[MC_SHA256_HEX + 1];
	struct mc_json_line j;

	mc_hex_encode(res->id, MC_SHA256_SIZE, hex);
	mc_json_line_begin(&j, stdout);
	mc_json_line_text(&j, "event", "imported");
	mc_json_line_text(&j, "org", res->name.org);
	mc_json_line_text(&j, "model", res->name.model);
	mc_json_line_text(&j, "revision", res->name.rev);
	mc_json_line_text(&j, "id", hex);
	mc_json_line_flag(&j, "existed", res->existed);
	mc_json_line_number(&j, "files", res->files);
	mc_json_line_number(&j, "bytes", res->bytes);
	mc_json_line_number(&j, "hole_bytes", res->hole_bytes);
	mc_json_line_number(&j, "read_bytes", res->read_bytes);
	mc_json_line_number(&j, "resumed_bytes", res->resumed_bytes);
	mc_json_line_number(&j, "chunks", res->chunks);
	mc_json_line_number(&j, "new_chunks", res->new_chunks);
	mc_json_line_number(&j, "written_bytes", res->written_bytes);
	mc_json_line_number(&j, "warnings", res->warnings);
	mc_json_line_real(&j, "seconds", seconds);
	mc_json_line_end(&j);
}

static void print_text(const struct mc_import_result *res, double seconds)
{
	char hex[MC_SHA256_HEX + 1], bytes[MC_SIZE_TEXT], read[MC_SIZE_TEXT], written[MC_SIZE_TEXT],
		resumed[MC_SIZE_TEXT];

	mc_hex_encode(res->id, MC_SHA256_SIZE, hex);
	mc_size_format(res->bytes, bytes);
	mc_size_format(res->read_bytes, read);
	mc_size_format(res->resumed_bytes, resumed);
	mc_size_format(res->written_bytes, written);
	printf("%s/%s@%s  %s  %llu files, %s%s\n", res->name.org, res->name.model, res->name.rev,
		hex, (unsigned long long)res->files, bytes,
		res->existed ? ", was there already" : "");
	printf("read %s%s%s in %.1f s; wrote %s in %llu of %llu chunks\n", read,
		res->resumed_bytes > 0 ? ", known from before " : "",
		res->resumed_bytes > 0 ? resumed : "", seconds, written,
		(unsigned long long)res->new_chunks, (unsigned long long)res->chunks);
}

/* What an import that was killed more than a day ago left under a temporary name. */
static void reap(struct mc_remote *remote)
{
	cleanup_free char *node = NULL;

	if (mc_node_name(&node) == 0)
		mc_reap_leftovers(remote, node);
}

int mc_cmd_import(const struct mc_options *o)
{
	bool json = mc_options_flag(o, MC_OPT_JSON);
	struct mc_progress_view view;
	struct mc_import_opts opts = {.src = o->args[0],
		.reference = mc_options_flag(o, MC_OPT_REFERENCE),
		.strict = mc_options_flag(o, MC_OPT_STRICT),
		.file_sha256 = mc_options_flag(o, MC_OPT_FILE_SHA256),
		.jobs = (unsigned)mc_options_number(o, MC_OPT_JOBS),
		.progress = mc_progress_show,
		.warning = warn,
		.ctx = &view};
	struct mc_import_result res;
	struct mc_remote *remote;
	struct mc_err err = {0};
	uint64_t start = mc_now_ns();
	int r = mc_rev_name_parse(o->args[1], &opts.name, &err);

	if (r < 0)
		return mc_fail_usage(o, "%s", err.text);
	if (opts.reference && mc_count_remotes(o) > 1)
		return mc_fail_usage(o,
			"--reference needs the one --remote on which SRC lies; a mount of several "
			"serves it from there");
	r = mc_open_remote(o, &remote);
	if (r != 0)
		return r;
	reap(remote);
	mc_progress_open(&view, json);
	r = mc_import(remote, &opts, &res, &err);
	mc_progress_close(&view);
	mc_remote_close(remote);
	if (r < 0)
		return mc_fail(&err, r);
	if (json)
		print_json(&res, (double)(mc_now_ns() - start) / 1e9);
	else
		print_text(&res, (double)(mc_now_ns() - start) / 1e9);
	return MC_EXIT_OK;
}
