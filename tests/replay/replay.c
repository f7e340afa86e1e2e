/*
 * Chooses and checks the replacement policy by replay: hit ratios of tier/policy.c next to LRU,
 * ARC, S3-FIFO, SIEVE and the offline optimum, and the figures that issue after issue must keep.
 *
 *     replay [--json FILE] [--store DIR] (--trace FILE | --generated SEED)...
 *
 * With --store each trace goes through the real store library, too, in that directory.
 *
 * One line per figure: name, ours, peer, ratio, what the ratio must at least be. Exit 1 when a
 * figure is below, 77 when a trace is not there. Every run of one trace gives the same figures:
 * there is no spread.
 */
#include "tests/replay/replay.h"

#include <err.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_CAPACITIES 4
#define GENERATED_REQUESTS 4000
#define DRAM_BLOCKS 3000
#define NVME_BLOCKS 30000

enum { OURS, LRU, ARC, S3FIFO, SIEVE, OPT, N_POLICIES };

static const struct replay_policy *const policies[N_POLICIES] = {
	&replay_ours, &replay_lru, &replay_arc, &replay_s3fifo, &replay_sieve, &replay_opt};
static const uint32_t capacities[N_CAPACITIES] = {1000, 3000, 10000, NVME_BLOCKS};

struct report {
	FILE *json;        /* owned; NULL = none */
	const char *store; /* directory for the store; NULL = the model only */
	unsigned figures, below;
	bool measured;  /* a real trace is among them */
	double log_sum; /* of the cells: ours ÷ best of LRU, ARC, S3-FIFO */
	unsigned cells;
};

/* at_least 0: nothing is asked of this figure alone. */
static void figure(struct report *rep, const char *name, double ours, double peer, double at_least)
{
	double ratio = peer > 0 ? ours / peer : 0;
	bool below = ratio < at_least;

	printf("%-44s %8.4f %8.4f  %6.3f", name, ours, peer, ratio);
	if (at_least > 0)
		printf("  >= %.2f%s", at_least, below ? "  BELOW" : "");
	printf("\n");
	if (rep->json != NULL)
		fprintf(rep->json,
			"%s  {\"name\": \"%s\", \"ours\": %.6f, \"peer\": %.6f, \"ratio\": %.6f, "
			"\"at_least\": %.2f}",
			rep->figures > 0 ? ",\n" : "[\n", name, ours, peer, ratio, at_least);
	rep->figures++;
	rep->below += below;
}

/* Hits of one policy over a whole trace, or -ENOMEM. */
static int64_t count_hits(
	const struct replay_policy *policy, const struct replay_trace *t, uint32_t capacity)
{
	void *p = policy->open(t, capacity);
	int64_t hits = 0;

	if (p == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < t->n; i++)
		hits += policy->access(p, i);
	policy->close(p);
	return hits;
}

static int table(const struct replay_trace *t, double ratio[N_POLICIES][N_CAPACITIES])
{
	printf("%-12s", "blocks");
	for (unsigned c = 0; c < N_CAPACITIES; c++)
		printf(" %8u", capacities[c]);
	printf("\n");
	for (unsigned p = 0; p < N_POLICIES; p++) {
		printf("%-12s", policies[p]->name);
		for (unsigned c = 0; c < N_CAPACITIES; c++) {
			int64_t hits = count_hits(policies[p], t, capacities[c]);

			if (hits < 0)
				return (int)hits;
			ratio[p][c] = (double)hits / (double)t->n;
			printf(" %8.4f", ratio[p][c]);
		}
		printf("\n");
	}
	return 0;
}

static int two_tiers(struct report *rep, const char *name, const struct replay_trace *t, double lru)
{
	struct replay_tier_hits hits;
	char line[128];
	int r = replay_two_tiers(t, DRAM_BLOCKS, NVME_BLOCKS, &hits);

	if (r < 0)
		return r;
	snprintf(line, sizeof(line), "%s: DRAM 3000 + NVMe 30000 / LRU", name);
	figure(rep, line, (double)(hits.dram + hits.nvme) / (double)t->n, lru, 0.97);
	return 0;
}

/* The trace through the store library beside the model of its policies; lru: of NVME_BLOCKS. */
static int through_store(struct report *rep, const char *name, const struct replay_trace *t,
	const double *model, double lru)
{
	double both;
	struct replay_tier_hits hits, ours;
	char line[128];
	int r = 0;

	for (unsigned c = 0; c < N_CAPACITIES && r == 0; c++) {
		r = replay_store(t, rep->store, capacities[c], 0, &hits);
		if (r < 0)
			return r;
		snprintf(line, sizeof(line), "%s: store, DRAM %u / model", name, capacities[c]);
		figure(rep, line, (double)hits.dram / (double)t->n, model[c], 0);
	}
	r = replay_store(t, rep->store, DRAM_BLOCKS, NVME_BLOCKS, &hits);
	if (r == 0)
		r = replay_two_tiers(t, DRAM_BLOCKS, NVME_BLOCKS, &ours);
	if (r < 0)
		return r;
	both = (double)(hits.dram + hits.nvme) / (double)t->n;
	snprintf(line, sizeof(line), "%s: store, 3000 + 30000 / model", name);
	figure(rep, line, both, (double)(ours.dram + ours.nvme) / (double)t->n, 0);
	snprintf(line, sizeof(line), "%s: store, 3000 + 30000 / LRU", name);
	figure(rep, line, both, lru, 0.97);
	snprintf(line, sizeof(line), "%s: the same, MiB written / flushed", name);
	figure(rep, line, (double)(hits.written >> 20), (double)(hits.flushed >> 20), 0);
	return 0;
}

static int one_trace(struct report *rep, const char *name, const struct replay_trace *t)
{
	double ratio[N_POLICIES][N_CAPACITIES];
	char line[128];
	int r;

	printf("\n%s: %zu uses of %u blocks; hit ratios\n", name, t->n, t->n_ids);
	r = table(t, ratio);
	if (r < 0)
		return r;
	printf("\n%-44s %8s %8s  %6s\n", "figure", "ours", "peer", "ratio");
	for (unsigned c = 0; c < N_CAPACITIES; c++) {
		double best = fmax(ratio[LRU][c], fmax(ratio[ARC][c], ratio[S3FIFO][c]));

		snprintf(line, sizeof(line), "%s: %u / best of LRU ARC S3-FIFO", name,
			capacities[c]);
		figure(rep, line, ratio[OURS][c], best, 0.95);
		rep->log_sum += log(ratio[OURS][c] / best);
		rep->cells++;
	}
	r = two_tiers(rep, name, t, ratio[LRU][N_CAPACITIES - 1]);
	if (r < 0 || rep->store == NULL)
		return r;
	return through_store(rep, name, t, ratio[OURS], ratio[LRU][N_CAPACITIES - 1]);
}

/* Hits of the last round ÷ hits of the last round before the scan. */
static int scan(struct report *rep, uint32_t working_set, bool in_order)
{
	const struct replay_scan s = {.working_set = working_set,
		.rounds = 10,
		.length = 10 * DRAM_BLOCKS,
		.in_order = in_order};
	size_t before = (size_t)(s.rounds - 1) * s.working_set, hits_before = 0, hits_after = 0;
	struct replay_trace t;
	char line[128];
	void *p;
	int r = replay_trace_with_scan(1, &s, &t);

	if (r < 0)
		return r;
	p = replay_ours.open(&t, DRAM_BLOCKS);
	for (size_t i = 0; p != NULL && i < t.n; i++) {
		bool hit = replay_ours.access(p, i);

		hits_before += hit && i >= before && i < before + s.working_set;
		hits_after += hit && i >= before + s.working_set + s.length;
	}
	if (p != NULL)
		replay_ours.close(p);
	replay_trace_done(&t);
	if (p == NULL)
		return -ENOMEM;
	snprintf(line, sizeof(line), "scan 30000, DRAM 3000, set of %u %s", working_set,
		in_order ? "in order" : "at random");
	figure(rep, line, (double)hits_after, (double)hits_before, 0.90);
	return 0;
}

static int all_scans(struct report *rep)
{
	int r = 0;

	printf("\n");
	for (uint32_t set = 900; set <= 2700 && r == 0; set += 900)
		for (int in_order = 0; in_order < 2 && r == 0; in_order++)
			r = scan(rep, set, in_order);
	return r;
}

static int load(const char *kind, const char *value, struct replay_trace *t)
{
	int r;

	if (strcmp(kind, "--generated") == 0)
		return replay_trace_generate(strtoull(value, NULL, 0), GENERATED_REQUESTS, t);
	r = replay_trace_read(value, t);
	if (r < 0)
		fprintf(stderr, "%s: %s\n", value, strerror(-r));
	return r;
}

static int traces(struct report *rep, char *const *args, int n)
{
	for (int i = 0; i + 1 < n; i += 2) {
		const char *slash = strrchr(args[i + 1], '/');
		struct replay_trace t;
		char name[64];
		int r = load(args[i], args[i + 1], &t);

		if (r < 0)
			return r;
		snprintf(name, sizeof(name), "%.*s",
			(int)strcspn(slash ? slash + 1 : args[i + 1], "_."),
			slash ? slash + 1 : args[i + 1]);
		rep->measured = rep->measured || strcmp(args[i], "--trace") == 0;
		r = one_trace(rep, name, &t);
		replay_trace_done(&t);
		if (r < 0)
			return r;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct report rep = {0};
	int r, at = 1;

	setlinebuf(stdout); /* a trace through the store takes minutes */
	for (; at + 1 < argc; at += 2) {
		if (strcmp(argv[at], "--store") == 0)
			rep.store = argv[at + 1];
		else if (strcmp(argv[at], "--json") != 0)
			break;
		else if ((rep.json = fopen(argv[at + 1], "we")) == NULL)
			err(2, "%s", argv[at + 1]);
	}
	if (argc - at < 2 || (argc - at) % 2 != 0)
		errx(2,
			"usage: replay [--json FILE] [--store DIR] (--trace FILE | --generated "
			"SEED)...");
	r = traces(&rep, argv + at, argc - at);
	if (r == 0)
		r = all_scans(&rep);
	if (r == 0)
		figure(&rep, "all traces and sizes: geometric mean", exp(rep.log_sum / rep.cells),
			1, rep.measured ? 1.05 : 0);
	if (rep.json != NULL) {
		fprintf(rep.json, "\n]\n");
		fclose(rep.json);
	}
	if (r == -ENOENT)
		return 77;
	return r == 0 && rep.below == 0 ? 0 : 1;
}
