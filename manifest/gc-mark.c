/* The first half of a garbage collection: which chunks READY revisions and unfinished imports use.
 */
#include "manifest/gc-state.h"

#include "manifest/catalogue.h"
#include "manifest/import-journal.h"
#include "tier/remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int by_content(const void *a, const void *b)
{
	return memcmp(a, b, MC_SHA256_SIZE);
}

static void sort_and_merge(struct mc_marks *m)
{
	size_t kept = 0;

	if (m->n == 0)
		return;
	qsort(m->v, m->n, sizeof(*m->v), by_content);
	for (size_t i = 1; i < m->n; i++) {
		if (by_content(&m->v[kept], &m->v[i]) == 0)
			m->v[kept].flags |= m->v[i].flags;
		else
			m->v[++kept] = m->v[i];
	}
	m->n = kept + 1;
}

static int add_mark(struct mc_marks *m, const uint8_t sha256[MC_SHA256_SIZE], uint8_t flags)
{
	/* Revisions of one model share most chunks: merging comes before growing. */
	if (m->n == m->cap && m->cap > 0)
		sort_and_merge(m);
	if (m->n > m->cap / 2 || m->cap == 0) {
		size_t cap = m->cap == 0 ? 4096 : 2 * m->cap;
		struct mc_mark *more = reallocarray(m->v, cap, sizeof(*more));

		if (more == NULL && m->n == m->cap)
			return -ENOMEM;
		if (more != NULL) {
			m->v = more;
			m->cap = cap;
		}
	}
	memcpy(m->v[m->n].sha256, sha256, MC_SHA256_SIZE);
	m->v[m->n++].flags = flags;
	return 0;
}

struct mc_mark *mc_marks_find(const struct mc_marks *m, const uint8_t sha256[MC_SHA256_SIZE])
{
	return m->n == 0 ? NULL : bsearch(sha256, m->v, m->n, sizeof(*m->v), by_content);
}

static int mark_revision(
	struct mc_gc *g, struct mc_catalogue *c, const struct mc_rev_name *name, struct mc_err *err)
{
	struct mc_loaded loaded;
	struct mc_err why = {0};
	int r = mc_catalogue_load(c, name, &loaded, &why);

	if (r == -ENOENT)
		return 0; /* removed since it was listed */
	if (r < 0)
		return mc_err_set(err, r,
			"%s; nothing was removed, since what %s/%s@%s uses is not known: import "
			"its "
			"source again, or remove the revision",
			why.text, name->org, name->model, name->rev);
	for (uint32_t i = 0; i < mc_manifest_chunks(loaded.m) && r == 0; i++) {
		struct mc_chunk chunk;

		mc_manifest_chunk(loaded.m, i, &chunk);
		if (chunk.stored)
			r = add_mark(&g->marks, chunk.sha256, MC_MARK_REVISION);
	}
	mc_manifest_unref(loaded.m);
	g->revisions++;
	g->done++;
	mc_gc_tick(g);
	return r < 0 ? mc_err_set(err, r, "out of memory") : 0;
}

static int mark_model(
	struct mc_gc *g, struct mc_catalogue *c, struct mc_rev_name *name, struct mc_err *err)
{
	struct mc_gc_names revs = {0};
	int r = mc_catalogue_revisions(c, name, mc_gc_keep_name, &revs, err);

	if (r == -ENOENT)
		r = 0;
	for (size_t i = 0; i < revs.n && r == 0; i++) {
		strcpy(name->rev, revs.v[i]);
		r = mark_revision(g, c, name, err);
	}
	mc_gc_names_done(&revs);
	return r;
}

static int mark_org(struct mc_gc *g, struct mc_catalogue *c, const char *org, struct mc_err *err)
{
	struct mc_rev_name name = {0};
	struct mc_gc_names models = {0};
	int r = mc_catalogue_models(c, org, mc_gc_keep_name, &models, err);

	strcpy(name.org, org);
	if (r == -ENOENT)
		r = 0;
	for (size_t i = 0; i < models.n && r == 0; i++) {
		strcpy(name.model, models.v[i]);
		r = mark_model(g, c, &name, err);
	}
	mc_gc_names_done(&models);
	return r;
}

static int mark_note(void *ctx, const struct mc_import_note *note)
{
	struct mc_gc *g = ctx;

	return add_mark(&g->marks, note->sha256, 0);
}

int mc_gc_mark(struct mc_gc *g, struct mc_err *err)
{
	struct mc_gc_names orgs = {0};
	struct mc_catalogue *c;
	int r = mc_catalogue_open(g->remote, NULL, &c, err);

	if (r < 0)
		return r;
	g->stage = "mark";
	r = mc_catalogue_orgs(c, mc_gc_keep_name, &orgs, err);
	for (size_t i = 0; i < orgs.n && r == 0; i++)
		r = mark_org(g, c, orgs.v[i], err);
	mc_gc_names_done(&orgs);
	mc_catalogue_close(c);
	if (r < 0)
		return r;
	r = mc_import_journals_each(mark_note, g);
	if (r < 0)
		return mc_err_set(err, r, "journals of unfinished imports: %s", strerror(-r));
	sort_and_merge(&g->marks);
	return 0;
}
