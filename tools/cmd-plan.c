/* mooncakefs plan: which bytes go from where to where, between two layouts. */
#include "tools/command.h"

#include "manifest/binder.h"
#include "manifest/json-out.h"
#include "manifest/plan-json.h"
#include "manifest/planner.h"
#include "tier/cleanup.h"
#include "tier/remote.h"
#include "tools/model-table.h"
#include "tools/open-document.h"
#include "tools/open-remote.h"
#include "tools/open-weights.h"
#include "tools/size.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NODES_MAX ((size_t)16 << 20) /* bytes of the file */

/* One side as given: a layout, the files themselves, or one of Mooncake's manifests. */
struct end {
	const char *text;
	bool is_files;
	struct mc_layout *layout;
	struct mc_sharding *sharding;
	struct mc_weight_manifest *weights;
	struct mc_side side;
	uint32_t participants;
	uint32_t *number; /* weights: the plan's numbers of its participants, owned */
};

struct planning {
	const struct mc_options *o;
	struct mc_model_table model; /* empty between two of Mooncake's manifests */
	struct end from, to;
	const char **names; /* tensors; the array is owned */
	uint32_t n;
	uint32_t participants; /* of both sides, each once */
	uint32_t *node;        /* by participant, owned; NULL = each its own */
};

static void end_done(struct end *e)
{
	mc_side_done(&e->side);
	mc_sharding_free(e->sharding);
	mc_layout_free(e->layout);
	mc_weight_manifest_free(e->weights);
	free(e->number);
}

/* The number of a participant of the side that holds, by its name. */
static bool find_holder(const struct planning *p, const char *name, uint32_t *ret)
{
	const struct mc_weight_manifest *w = p->from.weights;

	if (w == NULL || mc_weight_manifest_kind(w) != MC_WEIGHT_PLACEMENT)
		return false;
	/* Participants of a placement are sorted. */
	for (uint32_t lo = 0, hi = mc_weight_manifest_participants(w); lo < hi;) {
		uint32_t mid = lo + (hi - lo) / 2;
		int c = strcmp(mc_weight_manifest_participant(w, mid), name);

		*ret = mid;
		if (c == 0)
			return true;
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return false;
}

/* A participant that both placements name is one; so is, with --same, rank k of both sides. */
static int open_weights_end(struct planning *p, struct end *e, struct mc_err *err)
{
	bool same = mc_options_flag(p->o, MC_OPT_SAME) && e == &p->to;

	e->participants = mc_weight_manifest_participants(e->weights);
	e->number = calloc((size_t)e->participants + 1, sizeof(*e->number));
	if (e->number == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < e->participants; i++) {
		const char *name = mc_weight_manifest_participant(e->weights, i);

		if (same)
			e->number[i] = i;
		else if (e == &p->from || !find_holder(p, name, &e->number[i]))
			e->number[i] = p->participants++;
	}
	if (same && p->participants < e->participants)
		p->participants = e->participants;
	return mc_weight_manifest_side(e->weights, p->names, p->n, e->number, &e->side, err);
}

static int open_end(struct planning *p, struct end *e)
{
	struct mc_layout_in in = {
		.config = p->model.config, .tensors = p->model.tensor, .n_tensors = p->model.n};
	bool same = mc_options_flag(p->o, MC_OPT_SAME) && e == &p->to;
	uint32_t base = same ? 0 : p->participants;
	struct mc_err err = {0};
	int r;

	if (e->weights != NULL) {
		r = open_weights_end(p, e, &err);
		return r < 0 ? mc_fail(&err, r) : 0;
	}
	if (e->is_files) {
		e->side = p->model.held;
		p->model.held = (struct mc_side){0};
		e->participants = p->participants = 1;
		return 0;
	}
	r = mc_open_layout(p->o, e->text, p->model.config, &e->layout);
	if (r != 0)
		return r;
	e->participants = mc_layout_world(e->layout);
	if (p->participants < base + e->participants)
		p->participants = base + e->participants;
	in.layout = e->layout;
	r = mc_layout_compile(&in, &e->sharding, &err);
	if (r == 0)
		r = mc_sharding_side(e->sharding, base, &e->side, &err);
	return r < 0 ? mc_fail(&err, r) : 0;
}

static bool is_stored(const struct mc_weight_manifest *w)
{
	return w != NULL && mc_weight_manifest_kind(w) == MC_WEIGHT_STORED;
}

/* The tensors of a model that is there as files, as a revision, or as Mooncake's payload. */
static int open_model(struct planning *p)
{
	const char *model = mc_options_text(p->o, MC_OPT_MODEL);
	struct mc_remote *payload = NULL;
	struct mc_err err = {0};
	int r = mc_open_payload(p->o, &payload);

	if (r != 0)
		return r;
	if (is_stored(p->from.weights) && (p->to.weights == NULL || payload != NULL)) {
		r = mc_model_table_of_weights(p->o, p->from.weights, payload, &p->model);
		/* To a layout it is a model like any other. */
		if (p->to.weights == NULL) {
			mc_weight_manifest_free(p->from.weights);
			p->from.weights = NULL;
			p->from.is_files = true;
		}
	} else if (payload != NULL) {
		r = mc_fail_usage(p->o, "--payload-root needs --from STORED-MANIFEST.json");
	} else if (model != NULL) {
		r = mc_model_table_open(p->o, model, &p->model);
	} else if (p->from.weights == NULL || p->to.weights == NULL) {
		r = mc_fail_usage(p->o, "which model? Give --model DIR or --model ORG/MODEL");
	}
	if (r == 0 && p->model.n == 0 && p->from.weights == NULL)
		r = mc_fail(&err, mc_err_set(&err, -EINVAL, "%s holds no tensors", model));
	mc_remote_close(payload);
	return r;
}

/* The tensors of the plan: the model's, or those of the manifest that says what there is. */
static int find_names(struct planning *p)
{
	const struct mc_weight_manifest *w = p->from.weights;
	struct mc_err err = {0};

	p->n = p->model.n > 0 ? p->model.n : mc_weight_manifest_tensors(w);
	p->names = calloc((size_t)p->n + 1, sizeof(*p->names));
	if (p->names == NULL)
		return mc_fail(&err, -ENOMEM);
	for (uint32_t i = 0; i < p->n; i++) {
		struct mc_weight_tensor t;

		if (p->model.n > 0) {
			p->names[i] = p->model.name[i];
			continue;
		}
		mc_weight_manifest_tensor(w, i, &t);
		p->names[i] = t.id;
	}
	return 0;
}

/* A line for each participant, those that hold first: the name of its node. */
static int read_nodes(struct planning *p, const char *path, struct mc_err *err)
{
	uint32_t n = p->participants, i = 0;
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
		.n_participants = p->participants,
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
	int r = mc_open_weights(p->from.text, &p->from.weights);

	if (r == 0)
		r = mc_open_weights(p->to.text, &p->to.weights);
	if (r == 0)
		r = open_model(p);
	if (r == 0 && p->from.is_files && mc_options_flag(p->o, MC_OPT_SAME))
		r = mc_fail_usage(p->o, "--same needs a layout on both sides");
	if (r == 0)
		r = find_names(p);
	if (r == 0)
		r = open_end(p, &p->from);
	if (r == 0)
		r = open_end(p, &p->to);
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
