/* mooncakefs stats: the counters of a mount, and what they do each second. */
#include "tools/command.h"
#include "tools/control-client.h"
#include "tools/json-line.h"
#include "tools/size.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HEADER_EVERY 20 /* lines */

/* What is shown, from the daemon's status. */
static const struct figure {
	const char *part, *key; /* part NULL: the first of "remotes" */
	const char *name;       /* what it is called here */
	const char *column;     /* of --watch; NULL = not there */
	bool bytes;
	bool level; /* what is now, instead of what was counted */
} figures[] = {
	{"checkpoints", "read_bytes", "read through the daemon", "read/s", true, false},
	{"checkpoints", "hit_blocks_dram", "blocks found in DRAM", "dram/s", false, false},
	{"checkpoints", "hit_blocks_nvme", "blocks found on NVMe", "nvme/s", false, false},
	{"checkpoints", "hit_blocks_block", "blocks found on the block tier", NULL, false, false},
	{"checkpoints", "fetched_blocks", "blocks from the remote", "remote/s", false, false},
	{"checkpoints", "opens_passthrough", "opens served by the kernel alone", NULL, false,
		false},
	{"checkpoints", "opens_cached", "opens served by the daemon", NULL, false, false},
	{"checkpoints", "read_errors", "reads that failed", "errors/s", false, false},
	{"checkpoints", "bad_blocks", "blocks with wrong bytes", NULL, false, false},
	{"kv", "gets", "KV objects opened", "gets/s", false, false},
	{"kv", "puts", "KV objects put", "puts/s", false, false},
	{"kv", "hits_dram", "KV objects found in DRAM", NULL, false, false},
	{"kv", "hits_nvme", "KV objects found on NVMe", NULL, false, false},
	{"kv", "hits_block", "KV objects found on the block tier", NULL, false, false},
	{"kv", "hits_remote", "KV objects found on the remote", NULL, false, false},
	{"kv", "misses", "KV objects found nowhere", NULL, false, false},
	{"kv", "dirty_bytes", "KV bytes on no lasting tier yet", "dirty", true, true},
	{NULL, "read_bytes", "read from the remote", "from-remote/s", true, false},
	{NULL, "written_bytes", "written to the remote", "to-remote/s", true, false},
	{"requests", "waiting", "requests that wait", "waiting", false, true},
};
#define N_FIGURES (sizeof(figures) / sizeof(*figures))

struct sample {
	uint64_t value[N_FIGURES];
};

static int take(struct mc_client *c, struct sample *ret, struct mc_err *err)
{
	json_t *status;
	int r = mc_client_command(c, "status", &status, err);

	if (r < 0)
		return r;
	for (size_t i = 0; i < N_FIGURES; i++) {
		const json_t *part = figures[i].part != NULL
			? json_object_get(status, figures[i].part)
			: json_array_get(json_object_get(status, "remotes"), 0);

		ret->value[i] = (uint64_t)json_integer_value(json_object_get(part, figures[i].key));
	}
	json_decref(status);
	return 0;
}

static void show(const struct figure *f, uint64_t value, char out[MC_SIZE_TEXT])
{
	if (f->bytes)
		mc_size_format(value, out);
	else
		snprintf(out, MC_SIZE_TEXT, "%" PRIu64, value);
}

/* One JSON object; what is counted as it stands. */
static void print_json(const struct sample *s)
{
	struct mc_json_line j;
	char name[64];

	mc_json_line_begin(&j, stdout);
	mc_json_line_number(&j, "time", (uint64_t)time(NULL));
	for (size_t i = 0; i < N_FIGURES; i++) {
		snprintf(name, sizeof(name), "%s_%s",
			figures[i].part != NULL ? figures[i].part : "remote", figures[i].key);
		mc_json_line_number(&j, name, s->value[i]);
	}
	mc_json_line_end(&j);
}

static void print_table(const struct sample *s)
{
	char text[MC_SIZE_TEXT];

	for (size_t i = 0; i < N_FIGURES; i++) {
		show(&figures[i], s->value[i], text);
		printf("%14s  %s\n", text, figures[i].name);
	}
}

static void print_header(void)
{
	for (size_t i = 0; i < N_FIGURES; i++)
		if (figures[i].column != NULL)
			printf("%13s ", figures[i].column);
	putchar('\n');
}

static void print_change(const struct sample *before, const struct sample *now)
{
	char text[MC_SIZE_TEXT];

	for (size_t i = 0; i < N_FIGURES; i++) {
		if (figures[i].column == NULL)
			continue;
		show(&figures[i], now->value[i] - (figures[i].level ? 0 : before->value[i]), text);
		printf("%13s ", text);
	}
	putchar('\n');
}

/* Until the daemon ends, or nobody reads what is printed. */
static int watch(struct mc_client *c, bool json, struct mc_err *err)
{
	struct sample before, now;
	int r = take(c, &before, err);

	for (unsigned line = 0; r == 0 && !ferror(stdout); line++) {
		sleep(1);
		r = take(c, &now, err);
		if (r < 0)
			break;
		if (json) {
			print_json(&now);
		} else {
			if (line % HEADER_EVERY == 0)
				print_header();
			print_change(&before, &now);
			fflush(stdout);
		}
		before = now;
	}
	return r;
}

int mc_cmd_stats(const struct mc_options *o)
{
	bool json = mc_options_flag(o, MC_OPT_JSON);
	struct mc_err err = {0};
	struct mc_client c;
	struct sample s;
	int r = mc_client_open(o->n_args > 0 ? o->args[0] : NULL, &c, &err);

	if (r < 0)
		return mc_fail(&err, r);
	if (mc_options_flag(o, MC_OPT_WATCH)) {
		r = watch(&c, json, &err);
	} else {
		r = take(&c, &s, &err);
		if (r == 0)
			(json ? print_json : print_table)(&s);
	}
	mc_client_close(&c);
	return r < 0 ? mc_fail(&err, r) : MC_EXIT_OK;
}
