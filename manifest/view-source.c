/* A file of a view as a source for the store; it keeps the files it is made of. */
#include "manifest/view-build.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct view_source {
	struct mc_source base;
	struct mc_view *view;            /* shared */
	const struct mc_view_file *file; /* borrowed from view */
	struct mc_file **made_of;        /* by the numbers of file->entry; owned references */
	uint32_t n;
};

static int view_plan(const struct mc_source *s, uint64_t off, uint32_t len, struct mc_plan *plan)
{
	const struct view_source *v = (const struct view_source *)s;

	assert(len > 0 && off < v->file->size && len <= v->file->size - off);
	return mc_view_file_plan(v->file, v->made_of, off, len, plan);
}

static int view_next_data(
	const struct mc_source *s, uint64_t off, uint64_t *ret_start, uint64_t *ret_end)
{
	return mc_view_file_next_data(
		((const struct view_source *)s)->file, off, ret_start, ret_end);
}

static void view_release(struct mc_source *s)
{
	struct view_source *v = (struct view_source *)s;

	for (uint32_t i = 0; i < v->n; i++)
		mc_file_put(v->made_of[i]);
	free(v->made_of);
	mc_view_unref(v->view);
	free(v);
}

static const struct mc_source_ops view_ops = {
	.plan = view_plan,
	.next_data = view_next_data,
	.release = view_release,
};

static int take_files(struct view_source *v, struct mc_store *store)
{
	struct mc_manifest *m = v->view->of != NULL ? v->view->of->manifest : NULL;

	v->made_of = calloc((size_t)v->file->n_entries + 1, sizeof(struct mc_file *));
	if (v->made_of == NULL)
		return -ENOMEM;
	while (v->n < v->file->n_entries) {
		struct mc_source *src;
		int r = mc_manifest_source(m, v->file->entry[v->n], &src);

		if (r == 0)
			r = mc_store_file_get(store, src, &v->made_of[v->n]);
		if (r < 0)
			return r;
		v->n++;
	}
	return 0;
}

int mc_view_source(
	struct mc_view *v, uint32_t entry, struct mc_store *store, struct mc_source **ret)
{
	uint32_t where = v->where[entry];
	struct view_source *s;
	int r;

	assert(entry > 0 && entry < mc_manifest_entries(v->tree));
	if (where >= v->n_files)
		return mc_manifest_source(v->of->manifest, where - v->n_files, ret);
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return -ENOMEM;
	s->base.ops = &view_ops;
	s->view = mc_view_ref(v);
	s->file = &v->file[where];
	memcpy(s->base.id.digest, s->file->digest, MC_SHA256_SIZE);
	s->base.id.size = s->file->size;
	r = take_files(s, store);
	if (r < 0) {
		view_release(&s->base);
		return r;
	}
	*ret = &s->base;
	return 0;
}
