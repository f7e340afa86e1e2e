/* mooncakefs reshard: a checkpoint under a layout becomes a revision of its own. */
#include "tools/command.h"

#include "manifest/import.h"
#include "manifest/materialise.h"
#include "manifest/weight-manifest.h"
#include "tools/beside-files.h"
#include "tools/json-line.h"
#include "tools/machine-memory.h"
#include "tools/model-table.h"
#include "tools/open-document.h"
#include "tools/open-remote.h"
#include "tools/open-weights.h"
#include "tools/progress.h"
#include "tools/size.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DRAM_MIN (UINT64_C(128) << 20) /* bytes */
#define DRAM_PART 8                    /* the default is this part of the machine's memory */
#define JOBS_DEFAULT 8                 /* 8 MiB each */

struct resharding {
	const struct mc_options *o;
	struct mc_weight_manifest *weights; /* NULL = the source is a revision */
	struct mc_remote *payload;          /* where their bytes lie */
	struct mc_model_table model;
	struct mc_beside beside;
	struct mc_materialise_in in;
	char dram_dir[64]; /* "" = none */
};

/* The store between the source's blocks and the ranks that want them; goes with the command. */
static int open_store(struct resharding *x, struct mc_err *err)
{
	struct mc_store_opts opts = {.remote = x->payload != NULL ? x->payload : x->in.remote,
		.dram_capacity = mc_options_number(x->o, MC_OPT_DRAM),
		.dram_alone = true,
		.memory_budget = mc_options_number(x->o, MC_OPT_MEMORY),
		.fetch_depth = (unsigned)(mc_options_number(x->o, MC_OPT_CONNECTIONS) *
			mc_options_number(x->o, MC_OPT_DEPTH)),
		.deadline_ms = (unsigned)mc_options_number(x->o, MC_OPT_DEADLINE) * 1000};

	if (opts.dram_capacity == 0)
		opts.dram_capacity = mc_machine_memory("") / DRAM_PART;
	if (opts.dram_capacity < DRAM_MIN)
		opts.dram_capacity = DRAM_MIN;
	opts.dram_capacity &= ~((UINT64_C(1) << MC_PAIR_SHIFT) - 1);
	strcpy(x->dram_dir, "/dev/shm/mooncakefs-reshard-XXXXXX");
	if (mkdtemp(x->dram_dir) == NULL) {
		int r = -errno;

		x->dram_dir[0] = '\0';
		return mc_err_set(err, r, "/dev/shm: %s", strerror(-r));
	}
	opts.dram_dir = x->dram_dir;
	return mc_store_open(&opts, &x->in.store, err);
}

/* The layout of the command line over the model. An exit code. */
static int open_layout(struct resharding *x)
{
	struct mc_view_in in = {.manifest = x->model.manifest,
		.config = x->model.config_text,
		.config_len = x->model.config_len};
	struct mc_profile *profile = NULL;
	struct mc_err err = {0};
	int r = mc_open_layout(x->o, x->o->args[1], x->model.config, &in.layout);

	if (r != 0)
		return r;
	if (mc_layout_profile(in.layout)[0] != '\0')
		r = mc_open_profile(x->o, mc_layout_profile(in.layout), x->model.config,
			mc_layout_world(in.layout), &profile);
	if (r != 0) {
		mc_layout_free(in.layout);
		return r;
	}
	in.profile = profile;
	r = mc_view_layout_open(&in, &x->in.layout, &err);
	mc_profile_free(profile);
	return r < 0 ? mc_fail(&err, r) : 0;
}

/* One of Mooncake's stored manifests: its payload, and what --model has beside weights. */
static int open_weights(struct resharding *x)
{
	const char *model = mc_options_text(x->o, MC_OPT_MODEL);
	struct mc_err err = {0};
	struct stat st;
	int r;

	if (mc_weight_manifest_kind(x->weights) != MC_WEIGHT_STORED)
		return mc_fail_usage(x->o, "%s says where weights are wanted, not where they lie",
			x->o->args[0]);
	if (mc_options_text(x->o, MC_OPT_PAYLOAD_ROOT) == NULL)
		return mc_fail_usage(
			x->o, "where is the payload of %s? Give --payload-root DIR", x->o->args[0]);
	r = mc_open_payload(x->o, &x->payload);
	if (r == 0)
		r = mc_model_table_of_weights(x->o, x->weights, x->payload, &x->model);
	if (r != 0 || model == NULL)
		return r;
	if (stat(model, &st) == 0 && S_ISDIR(st.st_mode))
		r = mc_beside_open(model, &x->beside, &err);
	else if (x->model.config_text != NULL)
		r = mc_beside_text(
			"config.json", x->model.config_text, x->model.config_len, &x->beside);
	return r < 0 ? mc_fail(&err, r) : 0;
}

static int open_source(struct resharding *x)
{
	int r = mc_open_weights(x->o->args[0], &x->weights);

	if (r == 0 && x->weights != NULL)
		r = open_weights(x);
	else if (r == 0 && mc_options_text(x->o, MC_OPT_PAYLOAD_ROOT) != NULL)
		r = mc_fail_usage(x->o, "--payload-root needs STORED-MANIFEST.json as the source");
	else if (r == 0)
		r = mc_model_table_open_revision(x->o, x->o->args[0], &x->model);
	if (r == 0)
		r = open_layout(x);
	x->in.beside = x->beside.file;
	x->in.n_beside = x->beside.n;
	return r;
}

static void done(struct resharding *x)
{
	mc_view_layout_unref(x->in.layout);
	if (x->in.store != NULL)
		mc_store_close(x->in.store, false);
	mc_beside_done(&x->beside);
	mc_model_table_done(&x->model);
	mc_weight_manifest_free(x->weights);
	mc_catalogue_close(x->in.catalogue);
	mc_remote_close(x->payload);
	mc_remote_close(x->in.remote);
	if (x->dram_dir[0] != '\0')
		rmdir(x->dram_dir);
}

static void print(const struct mc_materialise_result *res, uint64_t fetched, bool json)
{
	char id[MC_SHA256_HEX + 1], bytes[MC_SIZE_TEXT], read[MC_SIZE_TEXT], written[MC_SIZE_TEXT];
	struct mc_json_line j;

	mc_hex_encode(res->id, MC_SHA256_SIZE, id);
	if (json) {
		mc_json_line_begin(&j, stdout);
		mc_json_line_text(&j, "event", "resharded");
		mc_json_line_text(&j, "org", res->name.org);
		mc_json_line_text(&j, "model", res->name.model);
		mc_json_line_text(&j, "revision", res->name.rev);
		mc_json_line_text(&j, "id", id);
		mc_json_line_number(&j, "files", res->files);
		mc_json_line_number(&j, "bytes", res->bytes);
		mc_json_line_number(&j, "read_bytes", fetched);
		mc_json_line_number(&j, "resumed_bytes", res->resumed_bytes);
		mc_json_line_number(&j, "unlisted_tensors", res->unlisted);
		mc_json_line_number(&j, "new_chunks", res->new_chunks);
		mc_json_line_number(&j, "written_bytes", res->written_bytes);
		mc_json_line_end(&j);
		return;
	}
	mc_size_format(res->bytes, bytes);
	mc_size_format(fetched, read);
	mc_size_format(res->written_bytes, written);
	printf("%s/%s@%s  %s  %llu files, %s\n", res->name.org, res->name.model, res->name.rev, id,
		(unsigned long long)res->files, bytes);
	printf("read %s; wrote %s in %llu of %llu chunks", read, written,
		(unsigned long long)res->new_chunks, (unsigned long long)res->chunks);
	mc_size_format(res->resumed_bytes, bytes);
	if (res->resumed_bytes > 0)
		printf("; %s done by an earlier run", bytes);
	printf("\n");
	if (res->unlisted > 0)
		printf("%u tensors lie scattered in the new files: it is no source for them\n",
			res->unlisted);
}

static int run(struct resharding *x, struct mc_materialise_result *res, uint64_t *ret_fetched,
	struct mc_err *err)
{
	struct mc_progress_view view;
	struct mc_store_stats stats;
	int r = mc_catalogue_open(x->in.remote, NULL, &x->in.catalogue, err);

	if (r == 0)
		r = open_store(x, err);
	if (r < 0)
		return r;
	mc_progress_open(&view, mc_options_flag(x->o, MC_OPT_JSON));
	x->in.progress = mc_progress_show;
	x->in.ctx = &view;
	r = mc_materialise(&x->in, res, err);
	mc_progress_close(&view);
	mc_store_stats(x->in.store, &stats);
	*ret_fetched = stats.fetched_bytes;
	return r;
}

int mc_cmd_reshard(const struct mc_options *o)
{
	struct resharding x = {.o = o};
	struct mc_materialise_result res;
	struct mc_err err = {0};
	uint64_t fetched = 0;
	int r = mc_rev_name_parse(o->args[2], &x.in.name, &err);

	if (r < 0)
		return mc_fail_usage(o, "%s", err.text);
	x.in.jobs = (unsigned)mc_options_number(o, MC_OPT_JOBS);
	if (x.in.jobs == 0)
		x.in.jobs = JOBS_DEFAULT;
	r = mc_open_remote(o, &x.in.remote);
	if (r == 0)
		r = open_source(&x);
	if (r == 0) {
		r = run(&x, &res, &fetched, &err);
		r = r < 0 ? mc_fail(&err, r) : 0;
	}
	done(&x);
	if (r != 0)
		return r;
	print(&res, fetched, mc_options_flag(o, MC_OPT_JSON));
	return MC_EXIT_OK;
}
