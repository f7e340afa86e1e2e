/*
 * Verification of a revision: every chunk (each content once) and every range of a referenced file
 * is looked up and, if it is in the sample, read and hashed.
 */
#include "manifest/verify.h"

#include "manifest/path.h"
#include "manifest/range-read.h"
#include "manifest/crew.h"
#include "tier/cleanup.h"
#include "tier/lock.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct part {
	uint64_t off;   /* bytes in the file */
	uint32_t entry; /* the first file that holds it */
	uint32_t chunk;
};

struct verify {
	struct mc_remote *remote;
	struct mc_manifest *m;
	const struct mc_verify_opts *opts;
	struct part *parts; /* owned */
	size_t n, cap;
	void **buffers;              /* one for each job, owned */
	struct mc_mutex damage_lock; /* held during opts->damage, so that texts do not mix */
	_Atomic uint64_t done, done_bytes, checked, damaged;
	uint64_t total_bytes; /* of what the sample holds */
};

static int add_part(struct verify *v, const struct part *p)
{
	if (v->n == v->cap) {
		size_t cap = v->cap == 0 ? 256 : 2 * v->cap;
		struct part *more = reallocarray(v->parts, cap, sizeof(*more));

		if (more == NULL)
			return -ENOMEM;
		v->parts = more;
		v->cap = cap;
	}
	v->parts[v->n++] = *p;
	return 0;
}

static int list_parts(struct verify *v)
{
	int r = 0;

	for (uint32_t e = 0; e < mc_manifest_entries(v->m) && r == 0; e++) {
		struct mc_entry entry;

		mc_manifest_entry(v->m, e, &entry);
		if (entry.type != MC_ENTRY_FILE)
			continue;
		for (uint32_t s = 0; s < mc_manifest_spans(v->m, e) && r == 0; s++) {
			struct mc_span span;

			mc_manifest_span(v->m, e, s, &span);
			if (!span.hole)
				r = add_part(v,
					&(struct part){
						.off = span.off, .entry = e, .chunk = span.chunk});
		}
	}
	return r;
}

static int by_content(const void *a, const void *b, void *manifest)
{
	const struct part *x = a, *y = b;
	struct mc_chunk cx, cy;
	int c;

	mc_manifest_chunk(manifest, x->chunk, &cx);
	mc_manifest_chunk(manifest, y->chunk, &cy);
	c = memcmp(cx.sha256, cy.sha256, MC_SHA256_SIZE);
	if (c != 0)
		return c;
	return x->chunk < y->chunk ? -1 : x->chunk > y->chunk;
}

static int by_place(const void *a, const void *b)
{
	uint32_t x = ((const struct part *)a)->chunk, y = ((const struct part *)b)->chunk;

	return x < y ? -1 : x > y;
}

/* Keeps one part of each stored content, in the order of the files. */
static void drop_repeated(struct verify *v)
{
	size_t kept = 0;

	if (v->n == 0)
		return;
	qsort_r(v->parts, v->n, sizeof(*v->parts), by_content, v->m);
	for (size_t i = 0; i < v->n; i++) {
		struct mc_chunk now, last;

		mc_manifest_chunk(v->m, v->parts[i].chunk, &now);
		if (kept > 0) {
			mc_manifest_chunk(v->m, v->parts[kept - 1].chunk, &last);
			if (now.stored && last.stored &&
				memcmp(now.sha256, last.sha256, MC_SHA256_SIZE) == 0)
				continue;
		}
		v->parts[kept++] = v->parts[i];
	}
	v->n = kept;
	qsort(v->parts, v->n, sizeof(*v->parts), by_place);
}

/* splitmix64: independent of the order in which jobs come. */
static bool in_sample(const struct verify *v, uint64_t item)
{
	uint64_t x = v->opts->seed + (item + 1) * UINT64_C(0x9e3779b97f4a7c15);

	if (v->opts->sample == 0 || item == v->opts->seed % v->n)
		return true;
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	x ^= x >> 31;
	return x % 1000000 < v->opts->sample;
}

static void report(
	struct verify *v, const struct part *p, const struct mc_chunk *c, const char *what)
{
	char path[MC_PATH_MAX + 1], hex[MC_SHA256_HEX + 1], text[MC_PATH_MAX + 512];

	v->damaged++;
	if (v->opts->damage == NULL)
		return;
	if (mc_manifest_path(v->m, p->entry, path, sizeof(path)) < 0)
		path[0] = '\0';
	mc_hex_encode(c->sha256, MC_SHA256_SIZE, hex);
	snprintf(text, sizeof(text), "%s: bytes %llu to %llu: chunk %s: %s", path,
		(unsigned long long)p->off, (unsigned long long)(p->off + c->len), hex, what);
	mc_mutex_lock(&v->damage_lock);
	v->opts->damage(v->opts->ctx, text);
	mc_mutex_unlock(&v->damage_lock);
}

/* Looks at the object behind a piece of the plan. 0, 1 = damaged and reported, or -errno. */
static int look_up(struct verify *v, const struct part *p, const struct mc_chunk *c,
	const struct mc_piece *piece, struct mc_err *err)
{
	struct mc_remote_attr attr;
	struct mc_err why = {0};
	char text[160];
	int r = mc_remote_stat(v->remote, piece->path, &attr, &why);

	if (r == -ENOENT) {
		report(v, p, c, c->stored ? "missing on the remote" : "the file is gone");
		return 1;
	}
	if (r < 0)
		return mc_err_set(err, r, "%s", why.text);
	if (c->stored && attr.size != c->len) {
		snprintf(text, sizeof(text), "%llu bytes on the remote instead of %u",
			(unsigned long long)attr.size, c->len);
		report(v, p, c, text);
		return 1;
	}
	if (piece->guard.set &&
		(attr.size != piece->guard.size || attr.mtime_s != piece->guard.mtime_s ||
			attr.mtime_ns != piece->guard.mtime_ns)) {
		report(v, p, c, "the file was changed since it was imported");
		return 1;
	}
	return 0;
}

static int read_and_hash(struct verify *v, const struct part *p, const struct mc_chunk *c,
	const struct mc_plan *plan, uint8_t *buf, struct mc_err *err)
{
	uint8_t digest[MC_SHA256_SIZE];
	uint32_t at = 0;
	int r;

	for (size_t i = 0; i < plan->n; i++) {
		const struct mc_piece *piece = &plan->pieces[i];
		struct mc_err why = {0};

		r = mc_range_read(v->remote, piece->path, piece->off, piece->len, &piece->guard,
			buf + at, &why);
		if (r == -ETIMEDOUT || r == -ESHUTDOWN || r == -ENOMEM)
			return mc_err_set(err, r, "%s", why.text);
		if (r < 0) {
			report(v, p, c, why.text);
			return 0;
		}
		at += piece->len;
	}
	v->checked++;
	v->done_bytes += c->len;
	r = mc_sha256(buf, c->len, digest);
	if (r < 0)
		return mc_err_set(err, r, "out of memory");
	if (memcmp(digest, c->sha256, sizeof(digest)) != 0)
		report(v, p, c, "wrong bytes on the remote");
	return 0;
}

static int check(void *ctx, unsigned worker, uint64_t item, struct mc_err *err)
{
	struct verify *v = ctx;
	const struct part *p = &v->parts[item];
	struct mc_source *src;
	struct mc_plan plan;
	struct mc_chunk c;
	int r = mc_manifest_source(v->m, p->entry, &src);

	if (r < 0)
		return mc_err_set(err, r, "manifest: %s", strerror(-r));
	mc_manifest_chunk(v->m, p->chunk, &c);
	mc_plan_init(&plan);
	r = src->ops->plan(src, p->off, c.len, &plan);
	src->ops->release(src);
	if (r < 0)
		mc_err_set(err, r, "manifest: %s", strerror(-r));
	else
		r = look_up(v, p, &c, &plan.pieces[0], err);
	if (r == 0 && in_sample(v, item))
		r = read_and_hash(v, p, &c, &plan, v->buffers[worker], err);
	mc_plan_done(&plan);
	v->done++;
	return r < 0 ? r : 0;
}

static void tick(void *ctx)
{
	struct verify *v = ctx;
	const struct mc_progress now = {.stage = "verify",
		.bytes_done = v->done_bytes,
		.bytes_total = v->total_bytes,
		.items_done = v->done,
		.items_total = v->n};

	if (v->opts->progress != NULL)
		v->opts->progress(v->opts->ctx, &now);
}

static int prepare(struct verify *v)
{
	int r = list_parts(v);

	if (r < 0)
		return r;
	drop_repeated(v);
	for (size_t i = 0; i < v->n; i++) {
		struct mc_chunk c;

		mc_manifest_chunk(v->m, v->parts[i].chunk, &c);
		if (in_sample(v, i))
			v->total_bytes += c.len;
	}
	v->buffers = calloc(v->opts->jobs, sizeof(*v->buffers));
	if (v->buffers == NULL)
		return -ENOMEM;
	for (unsigned i = 0; i < v->opts->jobs && i < v->n; i++) {
		v->buffers[i] = aligned_alloc(4096, MC_CHUNK_MAX);
		if (v->buffers[i] == NULL)
			return -ENOMEM;
	}
	return 0;
}

int mc_verify(struct mc_remote *r, struct mc_manifest *m, const struct mc_verify_opts *opts,
	struct mc_verify_result *ret, struct mc_err *err)
{
	struct verify v = {.remote = r, .m = m, .opts = opts};
	struct mc_crew crew = {.workers = opts->jobs, .run = check, .tick = tick, .ctx = &v};
	int res = prepare(&v);

	mc_mutex_init(&v.damage_lock);
	crew.items = v.n;
	if (res < 0)
		mc_err_set(err, res, "out of memory");
	else
		res = mc_crew_run(&crew, err);
	if (res == 0)
		*ret = (struct mc_verify_result){.chunks = v.n,
			.checked = v.checked,
			.bytes = v.done_bytes,
			.damaged = v.damaged};
	for (unsigned i = 0; v.buffers != NULL && i < opts->jobs; i++)
		free(v.buffers[i]);
	free(v.buffers);
	free(v.parts);
	mc_mutex_done(&v.damage_lock);
	return res;
}
