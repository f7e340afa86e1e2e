/*
 * How long plans take: prints every figure beside its target; with an argument, JSON lines {name,
 * value, unit, limit} for tests/bench/run plan. Not a test of the suite.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "manifest/binder.h"
#include "manifest/preset.h"
#include "tests/models.h"

#define ROUNDS 5

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void check(int r, const struct mc_err *err)
{
	if (r == 0)
		return;
	fprintf(stderr, "bench-plan: %s\n", err->text);
	exit(1);
}

static double peak_mib(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)u.ru_maxrss / 1024;
}

static bool as_json;

static void line(const char *name, double value, const char *unit, double limit, const char *more)
{
	if (as_json)
		printf("{\"name\":\"%s\",\"value\":%.4f,\"unit\":\"%s\",\"limit\":%g}\n", name,
			value, unit, limit);
	else
		printf("%-44s %10.3f %-3s target %6g  %s  %s\n", name, value, unit, limit,
			value <= limit ? "ok" : "MISSED", more);
}

static int by_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double bind_ms, bind_ratio;
static uint32_t bind_pieces, bind_rounds;

static void bind_line(const struct mc_reshard *p)
{
	struct mc_binder_in in = {.plan = p};
	struct mc_binding *b;
	struct mc_err err = {{0}};
	double start = now();
	uint64_t bound;

	check(mc_binding_make(&in, &b), &err);
	bind_ms = now() - start;
	bound = b->max_egress > b->max_ingress ? b->max_egress : b->max_ingress;
	bind_ratio = (double)b->makespan / (double)bound;
	bind_pieces = b->n_pieces;
	bind_rounds = b->n_rounds;
	mc_binding_free(b);
}

/* One plan from mesh to mesh; from NULL = the files of the checkpoint. Returns milliseconds. */
static double plan_once(const struct model *m, const char *const *names, const char *from,
	const char *to, char *more, size_t size)
{
	struct mc_layout *a = NULL, *b;
	struct mc_sharding *sa = NULL, *sb;
	struct mc_side held, wanted;
	struct mc_reshard *p;
	struct mc_err err = {{0}};
	double start = now(), ms;
	struct mc_layout_in in = {.config = m->config, .tensors = m->tensor, .n_tensors = m->n};
	struct mc_reshard_in pi = {
		.names = names, .n_tensors = m->n, .held = &held, .wanted = &wanted};
	uint32_t base = 1;

	check(mc_preset_layout(m->config, to, &b, &err), &err);
	if (from != NULL) {
		check(mc_preset_layout(m->config, from, &a, &err), &err);
		base = mc_layout_world(a);
		in.layout = a;
		check(mc_layout_compile(&in, &sa, &err), &err);
		check(mc_sharding_side(sa, 0, &held, &err), &err);
	} else {
		check(mc_side_of_files(m->tensor, m->n, 0, &held), &err);
	}
	in.layout = b;
	check(mc_layout_compile(&in, &sb, &err), &err);
	check(mc_sharding_side(sb, base, &wanted, &err), &err);
	pi.n_participants = base + mc_layout_world(b);
	check(mc_reshard_plan(&pi, &p, &err), &err);
	ms = now() - start;
	bind_line(p);
	snprintf(more, size,
		"%u tensors, %u classes, %u links, %llu regions, %.1f GB, peak %.0f MiB", m->n,
		p->n_classes, p->n_links, (unsigned long long)p->overlaps,
		(double)p->moved_bytes / 1e9, peak_mib());
	mc_reshard_free(p);
	mc_side_done(&held);
	mc_side_done(&wanted);
	mc_sharding_free(sa);
	mc_sharding_free(sb);
	mc_layout_free(a);
	mc_layout_free(b);
	return ms;
}

static void model_line(const char *model, const char *from, const char *to, double target)
{
	struct model m;
	double ms[ROUNDS];
	char more[160], name[64];
	const char **names;

	model_open(&m, model, 0, 0, 1);
	names = malloc(m.n * sizeof(*names));
	if (names == NULL)
		exit(1);
	for (uint32_t i = 0; i < m.n; i++)
		names[i] = m.tensor[i].name;
	for (int i = 0; i < ROUNDS; i++)
		ms[i] = plan_once(&m, names, from, to, more, sizeof(more));
	qsort(ms, ROUNDS, sizeof(*ms), by_double);
	snprintf(name, sizeof(name), "%s %s -> %s", model, from != NULL ? from : "files", to);
	line(name, ms[ROUNDS / 2], "ms", target, more);
	snprintf(more, sizeof(more), "%u pieces, %u rounds", bind_pieces, bind_rounds);
	snprintf(name, sizeof(name), "%s: bound to channels", model);
	line(name, bind_ms, "ms", target, more);
	snprintf(name, sizeof(name), "%s: makespan / its bound", model);
	line(name, bind_ratio, "", 1.1, "");
	free(names);
	model_close(&m);
}

/* From the tensor table to the list of one rank's tensors: what opening a view needs first. */
static void rank_line(const char *model, const char *mesh, double target)
{
	struct model m;
	struct mc_layout *l;
	struct mc_sharding *s;
	struct mc_rank_tensors t;
	struct mc_err err = {{0}};
	char more[64], name[64];
	struct mc_layout_in in;
	double start;

	model_open(&m, model, 0, 0, 1);
	start = now();
	check(mc_preset_layout(m.config, mesh, &l, &err), &err);
	in = (struct mc_layout_in){
		.layout = l, .config = m.config, .tensors = m.tensor, .n_tensors = m.n};
	check(mc_layout_compile(&in, &s, &err), &err);
	check(mc_sharding_rank(s, 1, &t, &err), &err);
	snprintf(more, sizeof(more), "%u tensors, %u pieces", t.n, t.n_pieces);
	snprintf(name, sizeof(name), "%s %s, one rank", model, mesh);
	line(name, now() - start, "ms", target, more);
	mc_rank_tensors_done(&t);
	mc_sharding_free(s);
	mc_layout_free(l);
	model_close(&m);
}

/* 1024 boxes on one dimension to 1024 boxes on the same or the other one. */
static void thousand_line(bool crossing)
{
	static struct mc_shard h[1024], w[1024];
	static const char *const names[] = {"t"};
	struct mc_side held, wanted;
	struct mc_reshard_in in = {.names = names,
		.n_tensors = 1,
		.held = &held,
		.wanted = &wanted,
		.n_participants = 2048};
	struct mc_reshard *p;
	struct mc_err err = {{0}};
	char more[80];
	double start = now();

	memset(h, 0, sizeof(h));
	memset(w, 0, sizeof(w));
	for (uint32_t i = 0; i < 1024; i++) {
		h[i].participant = i;
		h[i].box = (struct mc_box){.rank = 2, .off = {i * 8}, .len = {8, 8192}};
		mc_address_dense(&h[i].box, 0, &h[i].place);
		w[i] = h[i];
		w[i].participant = 1024 + i;
		if (crossing)
			w[i].box = (struct mc_box){.rank = 2, .off = {0, i * 8}, .len = {8192, 8}};
		mc_address_dense(&w[i].box, 0, &w[i].place);
	}
	check(mc_side_init(&held, 1), &err);
	check(mc_side_init(&wanted, 1), &err);
	check(mc_side_set(&held, 0, h, 1024, NULL), &err);
	check(mc_side_set(&wanted, 0, w, 1024, NULL), &err);
	check(mc_reshard_plan(&in, &p, &err), &err);
	snprintf(more, sizeof(more), "%u links, peak %.0f MiB", p->n_links, peak_mib());
	line(crossing ? "1024 x 1024 boxes, crossing" : "1024 x 1024 boxes, same dimension",
		now() - start, "ms", 1000, more);
	mc_reshard_free(p);
	mc_side_done(&held);
	mc_side_done(&wanted);
}

int main(int argc, char **argv)
{
	(void)argv;
	as_json = argc > 1;
	model_line("llama-3-70b", "tp8", "tp4", 6);
	model_line("kimi-k2", "tp16", "tp8-pp2", 1000);
	model_line("deepseek-v3", NULL, "tp8", 1000);
	model_line("deepseek-v3", "ep16", "tp8-pp2", 1000);
	rank_line("deepseek-v3", "tp8", 300);
	rank_line("kimi-k2", "ep16", 300);
	thousand_line(false);
	thousand_line(true);
	line("peak memory of all these plans", peak_mib(), "MiB", 1000, "");
	return 0;
}
