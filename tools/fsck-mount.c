/* The order to scrub now, its progress and its result. */
#include "tools/fsck-mount.h"

#include "tools/command.h"
#include "tools/control-client.h"
#include "tools/json-line.h"
#include "tools/progress.h"
#include "tools/size.h"

#include <jansson.h>

static const char *const figures[] = {
	"checked", "bytes", "bad", "repaired", "dropped", "waiting", "lost", "failed"};

static uint64_t figure(const json_t *result, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(result, name));
}

static void show(void *ctx, const struct mc_client_told *told)
{
	struct mc_progress now = {
		.stage = "check", .bytes_done = told->bytes, .bytes_total = told->total};

	mc_progress_show(ctx, &now);
}

static void print(const char *path, const json_t *result, bool json)
{
	char bytes[MC_SIZE_TEXT];
	struct mc_json_line j;

	if (json) {
		mc_json_line_begin(&j, stdout);
		mc_json_line_text(&j, "event", "scrubbed");
		for (size_t i = 0; i < sizeof(figures) / sizeof(*figures); i++)
			mc_json_line_number(&j, figures[i], figure(result, figures[i]));
		mc_json_line_end(&j);
		return;
	}
	mc_size_format(figure(result, "bytes"), bytes);
	printf("%s: %llu blocks and KV objects, %s read: %llu damaged, of which %llu are right "
	       "again, %llu dropped (other copies serve), %llu wait for right bytes, %llu were "
	       "last copies; %llu could not be read\n",
		path, (unsigned long long)figure(result, "checked"), bytes,
		(unsigned long long)figure(result, "bad"),
		(unsigned long long)figure(result, "repaired"),
		(unsigned long long)figure(result, "dropped"),
		(unsigned long long)figure(result, "waiting"),
		(unsigned long long)figure(result, "lost"),
		(unsigned long long)figure(result, "failed"));
	if (figure(result, "bad") + figure(result, "failed") > 0)
		fputs("The mount's log names them.\n", stderr);
}

static int judge(const json_t *result)
{
	if (figure(result, "waiting") + figure(result, "lost") + figure(result, "failed") > 0)
		return MC_EXIT_DAMAGED;
	return figure(result, "bad") > 0 ? MC_EXIT_REPAIRED : MC_EXIT_OK;
}

int mc_fsck_mount(const struct mc_options *o, const struct mc_mount *m)
{
	struct mc_progress_view view;
	const struct mc_client_progress progress = {.tell = show, .ctx = &view};
	struct mc_err err = {0};
	struct mc_client c;
	json_t *request, *result = NULL;
	int code, r = mc_client_connect(m, &c, &err);

	if (r < 0) {
		mc_fail(&err, r);
		return MC_EXIT_DAMAGED;
	}
	request = json_pack("{s:s}", "command", "scrub");
	if (mc_options_given(o, MC_OPT_BWLIMIT))
		json_object_set_new(request, "bytes_per_second",
			json_integer((json_int_t)mc_options_number(o, MC_OPT_BWLIMIT)));
	mc_progress_open(&view, mc_options_flag(o, MC_OPT_JSON));
	r = mc_client_ask(&c, request, &progress, &result, &err);
	mc_progress_close(&view);
	mc_client_close(&c);
	if (r < 0) {
		mc_fail(&err, r);
		return MC_EXIT_DAMAGED;
	}
	print(m->path, result, view.json);
	code = judge(result);
	json_decref(result);
	return code;
}
