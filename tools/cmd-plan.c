/* mooncakefs plan: which bytes go from where to where, between two layouts. */
#include "tools/command.h"

#include "manifest/binder.h"
#include "manifest/json-out.h"
#include "manifest/plan-json.h"
#include "manifest/planner.h"
#include "tier/cleanup.h"
#include "tools/model-table.h"
#include "tools/open-layout.h"
#include "tools/size.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NODES_MAX ((size_t)16 << 20)   /* bytes of the file */
#define MANIFEST_MAX ((size_t)1 << 30) /* bytes of one of Mooncake's manifests */

/* One side as given: a layout, the files themselves, or one of Mooncake's manifests. */
struct end {
	const char *text;
	bool is_files;
	struct mc_layout *layout;
	struct mc_sharding *sharding;
	struct mc_weight_manifest *weights;
	struct mc_side side;
	uint32_t participants;
};

struct planning {
	const struct mc_options *o;
	struct mc_model_table model; /* empty between two of Mooncake's manifests */
	struct end from, to;
	const char **names; /* tensors; owned when from Mooncake's manifests */
	uint32_t n;
	uint32_t *node; /* by participant, owned; NULL = each its own */
};

static void end_done(struct end *e)
{
	mc_side_done(&e->side);
	mc_sharding_free(e->sharding);
	mc_layout_free(e->layout);
	mc_weight_manifest_free(e->weights);
}

/* A JSON file that is no layout document. */
static int try_weights(struct end *e, struct mc_err *err)
{
	cleanup_free char *text = NULL;
	size_t len = strlen(e->text);
	int r;

	if (len <= 5 || strcmp(e->text + len - 5, ".json") != 0)
		return 0;
	r = mc_read_file(e->text, MANIFEST_MAX, &text, &len, err);
	if (r < 0 || memmem(text, len, "\"reshard-layout\"", 16) != NULL)
		return r;
	r = mc_weight_manifest_parse(text, len, &e->weights, err);
	return r < 0 ? mc_err_prefix(err, r, "%s", e->text) : 0;
}

static int open_end(struct planning *p, struct end *e, uint32_t base)
{
	struct mc_layout_in in = {
		.config = p->model.config, .tensors = p->model.tensor, .n_tensors = p->model.n};
	struct mc_err err = {0};
	int r;

	if (e->weights != NULL) {
		e->participants = mc_weight_manifest_participants(e->weights);
		r = mc_weight_manifest_side(e->weights, p->names, p->n, base, &e->side, &err);
		return r < 0 ? mc_fail(&err, r) : 0;
	}
	if (e->is_files) {
		e->side = p->model.held;
		p->model.held = (struct mc_side){0};
		e->participants = 1;
		return 0;
	}
	r = mc_open_layout(p->o, e->text, p->model.config, &e->layout);
	if (r != 0)
		return r;
	e->participants = mc_layout_world(e->layout);
	in.layout = e->layout;
	r = mc_layout_compile(&in, &e->sharding, &err);
	if (r == 0)
		r = mc_sharding_side(e->sharding, base, &e->side, &err);
	return r < 0 ? mc_fail(&err, r) : 0;
}

/* The tensors of the plan: the model's, or those of the manifest that says what there is. */
static int find_names(struct planning *p)
{
	const struct mc_weight_manifest *w =
		p->from.weights != NULL ? p->from.weights : p->to.weights;
	const char *model = mc_options_text(p->o, MC_OPT_MODEL);
	int r;

	if (model == NULL && (p->from.weights == NULL || p->to.weights == NULL))
		return mc_fail_usage(p->o, "which model? Give --model DIR or --model ORG/MODEL");
	if (model != NULL) {
		r = mc_model_table_open(p->o, model, &p->model);
		p->n = p->model.n;
		p->names = calloc((size_t)p->n + 1, sizeof(*p->names));
		for (uint32_t i = 0; p->names != NULL && i < p->n; i++)
			p->names[i] = p->model.name[i];
		return r;
	}
	p->n = mc_weight_manifest_tensors(w);
	p->names = calloc((size_t)p->n + 1, sizeof(*p->names));
	for (uint32_t i = 0; p->names != NULL && i < p->n; i++) {
		struct mc_weight_tensor t;

		mc_weight_manifest_tensor(w, i, &t);
		p->names[i] = t.id;
	}
	return 0;
}

/* A line for each participant, those that hold first: the name of its node. */
static int read_nodes(struct planning *p, const char *path, struct mc_err *err)
{
	uint32_t n = p->from.participants + p->to.participants, i = 0;
	cleanup_free char *text = NULL;
	cleanup_free const char **names = calloc((size_t)n + 1, sizeof(*names));
	char *save = NULL;
	size_t len;
	int r = mc_read_file(path, NODES_MAX, &text, &len, err);

	p->node = calloc((size_t)n + 1, sizeof(*p->node));
	if (r == 0 && (p->node == NULL || names == NULL))
		r = -ENOMEM;
	if (r < 0)
		return r;
	for (char *s = strtok_r(text, " \t\r\n", &save); s != NULL;
		s = strtok_r(NULL, " \t\r\n", &save), i++) {
		uint32_t k = 0;

		if (i == n)
			return mc_err_set(err, -EINVAL, "%s: more than %u participants", path, n);
		names[i] = s;
		while (strcmp(names[k], s) != 0)
			k++;
		p->node[i] = k;
	}
	return i == n ? 0 : mc_err_set(err, -EINVAL, "%s names %u of %u participants", path, i, n);
}

static void print(const struct mc_reshard *p, const struct mc_binding *b)
{
	char wanted[MC_SIZE_TEXT], moved[MC_SIZE_TEXT], local[MC_SIZE_TEXT];
	double bound = (double)p->bound_num / (double)(p->bound_den > 0 ? p->bound_den : 1);
	uint64_t most = b->max_egress > b->max_ingress ? b->max_egress : b->max_ingress;

	mc_size_format(p->wanted_bytes, wanted);
	mc_size_format(p->moved_bytes, moved);
	mc_size_format(p->local_bytes, local);
	printf("wanted    %s\nmoved     %s\nlocal     %s\n", wanted, moved, local);
	printf("regions   %llu in %u links of %u classes\n", (unsigned long long)p->overlaps,
		p->n_links, p->n_classes);
	printf("egress    %llu bytes at most, bound %.0f, ratio %.4f\n",
		(unsigned long long)b->max_egress, bound,
		bound > 0 ? (double)b->max_egress / bound : 1.0);
	printf("rounds    %u of %u pieces\n", b->n_rounds, b->n_pieces);
	printf("makespan  %llu bytes, bound %llu, ratio %.4f\n", (unsigned long long)b->makespan,
		(unsigned long long)most, most > 0 ? (double)b->makespan / (double)most : 1.0);
}

static int print_json(
	const struct planning *p, const struct mc_reshard *plan, const struct mc_binding *b)
{
	struct mc_plan_json_in in = {
		.plan = plan, .binding = b, .names = p->names, .with_links = true};
	struct mc_json_out out = {0};
	int r = p->from.weights != NULL && p->to.weights != NULL
		? mc_plan_regions_json(plan, p->from.weights, p->to.weights, &out)
		: mc_plan_json(&in, &out);

	if (r == 0 && fwrite(out.b.p, 1, out.b.len, stdout) != out.b.len)
		r = -EIO;
	if (r == 0)
		putchar('\n');
	mc_buffer_done(&out.b);
	return r;
}

static int make_plan(const struct planning *p, struct mc_err *err)
{
	struct mc_reshard_in in = {.names = p->names,
		.n_tensors = p->n,
		.held = &p->from.side,
		.wanted = &p->to.side,
		.node = p->node,
		.n_participants = p->from.participants + p->to.participants,
		.node_local = p->node != NULL};
	struct mc_binder_in bind = {0};
	struct mc_binding *b = NULL;
	struct mc_reshard *plan;
	int r = mc_reshard_plan(&in, &plan, err);

	if (r < 0)
		return r;
	bind.plan = plan;
	r = mc_binding_make(&bind, &b);
	if (r == 0 && mc_options_flag(p->o, MC_OPT_JSON))
		r = print_json(p, plan, b);
	else if (r == 0)
		print(plan, b);
	mc_binding_free(b);
	mc_reshard_free(plan);
	return r;
}

static int run(struct planning *p)
{
	const char *nodes = mc_options_text(p->o, MC_OPT_NODES);
	struct mc_err err = {0};
	int r = try_weights(&p->from, &err);

	if (r == 0)
		r = try_weights(&p->to, &err);
	if (r < 0)
		return mc_fail(&err, r);
	r = find_names(p);
	if (r == 0 && p->names == NULL)
		return mc_fail(&err, -ENOMEM);
	if (r == 0)
		r = open_end(p, &p->from, 0);
	if (r == 0)
		r = open_end(p, &p->to, p->from.participants);
	if (r != 0)
		return r;
	if (nodes != NULL)
		r = read_nodes(p, nodes, &err);
	if (r == 0)
		r = make_plan(p, &err);
	return r < 0 ? mc_fail(&err, r) : MC_EXIT_OK;
}

int mc_cmd_plan(const struct mc_options *o)
{
	const char *from = mc_options_text(o, MC_OPT_FROM), *to = mc_options_text(o, MC_OPT_TO);
	struct planning p = {.o = o};
	int r;

	if (to == NULL)
		return mc_fail_usage(o, "which layout is wanted? Give --to LAYOUT");
	p.from.text = from != NULL ? from : "files";
	p.from.is_files = strcmp(p.from.text, "files") == 0;
	p.to.text = to;
	r = run(&p);
	end_done(&p.from);
	end_done(&p.to);
	mc_model_table_done(&p.model);
	free(p.names);
	free(p.node);
	return r;
}
