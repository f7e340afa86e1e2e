/* mooncakefs fsck: checks what the local tiers left in their directory, and repairs it. */
#include "tools/command.h"

#include "tier/fsck.h"
#include "tools/fsck-mount.h"
#include "tools/json-line.h"
#include "fs/mount-table.h"
#include "tools/progress.h"
#include "tools/size.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

struct report {
	struct mc_progress_view view;
	bool repair;
};

static void show(void *ctx, uint64_t done, uint64_t total)
{
	struct report *r = ctx;
	struct mc_progress now = {.stage = "check", .bytes_done = done, .bytes_total = total};

	mc_progress_show(&r->view, &now);
}

static void tell(void *ctx, enum mc_fsck_kind kind, const char *text)
{
	static const char *const events[] = {
		[MC_FSCK_DAMAGE] = "damage",
		[MC_FSCK_LOST] = "lost",
		[MC_FSCK_LEFTOVER] = "leftover",
	};
	struct report *r = ctx;

	mc_progress_say(&r->view, events[kind], text);
}

static void print_json(const struct mc_fsck_result *res, bool repaired)
{
	struct mc_json_line j;

	mc_json_line_begin(&j, stdout);
	mc_json_line_text(&j, "event", "checked");
	mc_json_line_number(&j, "images", res->images);
	mc_json_line_number(&j, "blocks", res->blocks);
	mc_json_line_number(&j, "objects", res->objects);
	mc_json_line_number(&j, "bytes", res->bytes);
	mc_json_line_number(&j, "damaged", res->damaged);
	mc_json_line_number(&j, "bad_blocks", res->bad_blocks);
	mc_json_line_number(&j, "bad_objects", res->bad_objects);
	mc_json_line_number(&j, "lost", res->lost);
	mc_json_line_number(&j, "leftovers", res->leftovers);
	mc_json_line_number(&j, "leftover_bytes", res->leftover_bytes);
	mc_json_line_flag(&j, "repaired", repaired);
	mc_json_line_flag(&j, "unseen", res->unseen);
	mc_json_line_flag(&j, "unfinished", res->unfinished);
	mc_json_line_end(&j);
}

static void print_text(const char *dir, const struct mc_fsck_result *res, bool repair)
{
	char bytes[MC_SIZE_TEXT], spare[MC_SIZE_TEXT];

	mc_size_format(res->bytes, bytes);
	mc_size_format(res->leftover_bytes, spare);
	printf("%s: %llu blocks of %llu images and %llu KV objects, %s read: %llu places damaged "
	       "(%llu blocks, %llu objects, %llu of them last copies)%s\n",
		dir, (unsigned long long)res->blocks, (unsigned long long)res->images,
		(unsigned long long)res->objects, bytes, (unsigned long long)res->damaged,
		(unsigned long long)res->bad_blocks, (unsigned long long)res->bad_objects,
		(unsigned long long)res->lost,
		repair && res->damaged > 0 && !res->unfinished ? ", repaired" : "");
	if (res->leftovers > 0)
		printf("%s: %llu files that nobody owns, %s%s\n", dir,
			(unsigned long long)res->leftovers, spare,
			repair ? ", removed" : "; the next mount removes them");
	if (res->unseen)
		fprintf(stderr,
			"What lies on the block tier below %s was not looked at: give its device, "
			"too.\n",
			dir);
	if (!repair && res->damaged > 0)
		fputs("Nothing was changed. --repair drops what is damaged: blocks are then "
		      "fetched again, KV\n"
		      "objects read from their remote copies; a last copy is gone.\n",
			stderr);
}

static int check(const struct mc_options *o, const char *dir, const char *below)
{
	bool json = mc_options_flag(o, MC_OPT_JSON);
	struct report report = {.repair = mc_options_flag(o, MC_OPT_REPAIR)};
	struct mc_fsck_opts opts = {.dir = dir,
		.below = below,
		.repair = report.repair,
		.progress = show,
		.find = tell,
		.ctx = &report};
	struct mc_fsck_result res;
	struct mc_err err = {0};
	int r;

	mc_progress_open(&report.view, json);
	r = mc_fsck(&opts, &res, &err);
	mc_progress_close(&report.view);
	if (r < 0) {
		r = mc_fail_as(&err, r, r == -EBUSY ? MC_EXIT_BUSY : MC_EXIT_DAMAGED);
		if (r == MC_EXIT_BUSY)
			fputs("Give the mount point instead to have it checked in use.\n", stderr);
		return r;
	}
	if (json)
		print_json(&res, report.repair && !res.unfinished);
	else
		print_text(dir, &res, report.repair);
	if (res.damaged == 0)
		return MC_EXIT_OK;
	return report.repair && !res.unfinished ? MC_EXIT_REPAIRED : MC_EXIT_DAMAGED;
}

int mc_cmd_fsck(const struct mc_options *o)
{
	const char *where = o->args[0];
	char path[PATH_MAX];
	struct mc_mount m;

	if (mc_options_flag(o, MC_OPT_REPAIR) && mc_options_flag(o, MC_OPT_NO_CHANGE))
		return mc_fail_usage(o, "--repair or --no-change?");
	if (mc_mount_resolve(where, path) == 0 && mc_mount_find(path, &m) == 0 &&
		strcmp(m.type, "fuse.mooncakefs") == 0) {
		if (o->n_args > 1)
			return mc_fail_usage(o, "a mount checks its block tier, too");
		if (mc_options_flag(o, MC_OPT_NO_CHANGE))
			return mc_fail_usage(o, "a mount deals with the damage that it finds");
		return mc_fsck_mount(o, &m);
	}
	return check(o, where, o->n_args > 1 ? o->args[1] : NULL);
}
