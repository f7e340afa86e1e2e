/* The directory of a view as a manifest of entries, and views of a single text. */
#include "manifest/view-build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/manifest-index.h"

static int child_compare(const void *a, const void *b)
{
	return strcmp(
		((const struct mc_view_child *)a)->name, ((const struct mc_view_child *)b)->name);
}

static int put_child(struct mc_index_builder *b, const struct mc_view_child *c)
{
	struct mc_index_entry e = {.type = MC_ENTRY_FILE,
		.mode = c->mode,
		.size = c->size,
		.hole_bytes = c->hole_bytes,
		.mtime_s = c->mtime_s,
		.mtime_ns = c->mtime_ns,
		.ext = MC_INDEX_NONE,
		.sha256 = MC_INDEX_NONE};
	int r = mc_index_add_string(b, c->name, &e.name);

	memcpy(e.digest, c->digest, sizeof(e.digest));
	return r < 0 ? r : mc_index_add(b, MC_INDEX_ENTRIES, &e, sizeof(e), NULL);
}

int mc_view_tree_make(
	struct mc_view *v, struct mc_view_child *c, uint32_t n, const uint8_t id[MC_SHA256_SIZE])
{
	struct mc_index_builder b;
	struct mc_index_entry dir = {.type = MC_ENTRY_DIR,
		.mode = 0555,
		.mtime_s = c[n].mtime_s,
		.mtime_ns = c[n].mtime_ns,
		.first = 1,
		.count = n,
		.ext = MC_INDEX_NONE,
		.sha256 = MC_INDEX_NONE};
	int r = mc_index_builder_init(&b);

	qsort(c, n, sizeof(*c), child_compare);
	v->where = calloc((size_t)n + 1, sizeof(*v->where));
	if (v->where == NULL)
		r = -ENOMEM;
	if (r == 0)
		r = mc_index_add(&b, MC_INDEX_ENTRIES, &dir, sizeof(dir), NULL);
	for (uint32_t i = 0; r == 0 && i < n; i++) {
		v->where[i + 1] = c[i].where;
		r = put_child(&b, &c[i]);
	}
	if (r == 0)
		r = mc_index_finish(&b, id, &v->tree);
	mc_index_builder_done(&b);
	return r;
}

int mc_view_of_text(const char *name, const void *text, size_t len,
	const struct mc_remote_attr *times, struct mc_view **ret)
{
	struct mc_view *v = calloc(1, sizeof(*v));
	struct mc_view_child c[2] = {{.name = name,
					     .mode = 0444,
					     .size = len,
					     .mtime_s = times->mtime_s,
					     .mtime_ns = times->mtime_ns},
		{.mtime_s = times->mtime_s, .mtime_ns = times->mtime_ns}};
	struct mc_view_file *f;
	int r = -ENOMEM;

	if (v == NULL)
		return -ENOMEM;
	atomic_init(&v->refs, 1);
	v->file = f = calloc(1, sizeof(*f));
	if (f != NULL) {
		v->n_files = 1;
		f->header = malloc(len + 1);
	}
	if (f != NULL && f->header != NULL) {
		memcpy(f->header, text, len);
		f->header_len = f->size = len;
		r = mc_sha256(text, len, f->digest);
	}
	if (r == 0) {
		c[0].digest = f->digest;
		r = mc_view_tree_make(v, c, 1, f->digest);
	}
	if (r < 0) {
		mc_view_unref(v);
		return r;
	}
	*ret = v;
	return 0;
}
