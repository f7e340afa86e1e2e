/*
 * The run of a verification or repair of a revision: every chunk (each content once) and every
 * range of a referenced file is looked up in every copy and, if it is in the sample, read and
 * hashed.
 */
#include "manifest/verify-state.h"

#include "manifest/crew.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* splitmix64: independent of the order in which jobs come. */
bool verify_in_sample(const struct verify *v, uint64_t item)
{
	uint64_t x = v->opts->seed + (item + 1) * UINT64_C(0x9e3779b97f4a7c15);

	if (v->opts->sample == 0 || item == v->opts->seed % v->n)
		return true;
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	x ^= x >> 31;
	return x % 1000000 < v->opts->sample;
}

bool verify_is_wanted(const struct verify *v, const struct mc_set_copy *copy)
{
	return v->opts->only == NULL || strcmp(v->opts->only, copy->name) == 0 ||
		strcmp(v->opts->only, copy->url) == 0;
}

void verify_where(const struct mc_set_copies *copies, unsigned i, char *out, size_t size)
{
	snprintf(out, size, "%s%s", copies->n > 1 ? copies->at[i].url : "",
		copies->n > 1 ? ": " : "");
}

int verify_away(const struct mc_set_copy *copy, struct mc_err *err)
{
	return mc_err_set(
		err, -ENOTCONN, "remote %s is away; all that hold copies are needed", copy->url);
}

void verify_report(struct verify *v, bool repaired, const char *fmt, ...)
{
	char text[MC_PATH_MAX + 2 * VERIFY_TEXT + 512];
	va_list ap;

	v->damaged++;
	v->repaired += repaired;
	if (v->opts->damage == NULL)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	mc_mutex_lock(&v->damage_lock);
	v->opts->damage(v->opts->ctx, text, repaired);
	mc_mutex_unlock(&v->damage_lock);
}

static void tick(void *ctx)
{
	struct verify *v = ctx;
	const struct mc_progress now = {.stage = v->opts->repair ? "repair" : "verify",
		.bytes_done = v->done_bytes,
		.bytes_total = v->total_bytes,
		.items_done = v->done,
		.items_total = v->n};

	if (v->opts->progress != NULL)
		v->opts->progress(v->opts->ctx, &now);
}

/* Counts what there is to read; chunks of one revision have equally many copies. */
static int count_bytes(struct verify *v)
{
	struct mc_set_copies copies;
	int r = mc_remote_set_copies(v->remote, "chunks", &copies);

	if (r < 0)
		return r;
	for (size_t i = 0; i < v->n; i++) {
		struct mc_chunk c;

		mc_manifest_chunk(v->m, v->parts[i].chunk, &c);
		if (!verify_in_sample(v, i))
			continue;
		v->total_bytes +=
			(uint64_t)c.len * (c.stored && v->opts->only == NULL ? copies.homes : 1);
	}
	return 0;
}

static int prepare(struct verify *v)
{
	unsigned n_buffers = v->opts->repair ? 2 : 1;
	int r = verify_list_parts(v);

	if (r == 0)
		r = count_bytes(v);
	if (r < 0)
		return r;
	v->buffers = calloc(2 * (size_t)v->opts->jobs, sizeof(*v->buffers));
	if (v->buffers == NULL)
		return -ENOMEM;
	for (unsigned i = 0; i < v->opts->jobs && i < v->n; i++)
		for (unsigned k = 0; k < n_buffers; k++) {
			v->buffers[2 * i + k] = aligned_alloc(4096, MC_CHUNK_MAX);
			if (v->buffers[2 * i + k] == NULL)
				return -ENOMEM;
		}
	return 0;
}

/* `only` must be one of the remotes. */
static int check_only(struct verify *v, struct mc_err *err)
{
	struct mc_set_copies copies;
	int r = mc_remote_set_copies(v->remote, "chunks", &copies);

	if (r < 0)
		return mc_err_set(err, r, "%s", strerror(-r));
	for (unsigned i = 0; i < copies.n; i++)
		if (verify_is_wanted(v, &copies.at[i]))
			return 0;
	return mc_err_set(err, -EINVAL, "%s is none of the remotes", v->opts->only);
}

/* Makes what was put back durable. */
static int sync_repaired(struct verify *v, struct mc_err *err)
{
	struct mc_set_copies copies;
	int r = v->repaired == 0 ? 0 : mc_remote_set_copies(v->remote, "chunks", &copies);

	for (unsigned i = 0; v->repaired > 0 && r == 0 && i < copies.n; i++)
		if (copies.at[i].remote != NULL)
			r = mc_remote_sync(copies.at[i].remote, err);
	return r < 0 ? mc_err_set(err, r, "%s", strerror(-r)) : 0;
}

static int run_chunks(struct verify *v, struct mc_err *err)
{
	struct mc_crew crew = {
		.workers = v->opts->jobs, .run = verify_item, .tick = tick, .ctx = v};
	int r = prepare(v);

	crew.items = v->n;
	r = r < 0 ? mc_err_set(err, r, "%s", strerror(-r)) : mc_crew_run(&crew, err);
	for (unsigned i = 0; v->buffers != NULL && i < 2 * v->opts->jobs; i++)
		free(v->buffers[i]);
	free(v->buffers);
	free(v->parts);
	return r;
}

/* rev may be NULL: then the chunks of m alone. */
static int run(struct verify *v, const struct verify_revision *rev, struct mc_verify_result *ret,
	struct mc_err *err)
{
	int r;

	mc_mutex_init(&v->damage_lock);
	r = check_only(v, err);
	if (r == 0)
		r = run_chunks(v, err);
	/* The manifest makes the revision READY: it comes last. */
	if (r == 0 && rev != NULL)
		r = verify_manifest(v, rev, err);
	if (r == 0 && rev != NULL)
		r = verify_latest(v, rev->name, err);
	if (r == 0)
		r = sync_repaired(v, err);
	if (r == 0)
		*ret = (struct mc_verify_result){.chunks = v->n,
			.copies = v->copies,
			.checked = v->checked,
			.bytes = v->done_bytes,
			.damaged = v->damaged,
			.repaired = v->repaired,
			.repaired_bytes = v->repaired_bytes,
			.fetched_bytes = v->fetched_bytes};
	mc_mutex_done(&v->damage_lock);
	return r;
}

int mc_verify(struct mc_remote *r, struct mc_manifest *m, const struct mc_verify_opts *opts,
	struct mc_verify_result *ret, struct mc_err *err)
{
	struct verify v = {.remote = r, .m = m, .opts = opts};

	return run(&v, NULL, ret, err);
}

int mc_verify_revision(struct mc_remote *r, const struct mc_rev_name *name,
	const struct mc_verify_opts *opts, struct mc_verify_result *ret, struct mc_err *err)
{
	struct verify v = {.remote = r, .opts = opts};
	struct verify_revision rev = {.name = name};
	int res = verify_find_manifest(&v, &rev, err);

	if (res == 0) {
		v.m = rev.m;
		res = run(&v, &rev, ret, err);
	}
	verify_revision_done(&rev);
	return res;
}
