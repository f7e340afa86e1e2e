/* What a verification looks at: each stored content once, and every range of a referenced file. */
#include "manifest/verify-state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int add_part(struct verify *v, const struct verify_part *p)
{
	if (v->n == v->cap) {
		size_t cap = v->cap == 0 ? 256 : 2 * v->cap;
		struct verify_part *more = reallocarray(v->parts, cap, sizeof(*more));

		if (more == NULL)
			return -ENOMEM;
		v->parts = more;
		v->cap = cap;
	}
	v->parts[v->n++] = *p;
	return 0;
}

static int add_all(struct verify *v)
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
					&(struct verify_part){
						.off = span.off, .entry = e, .chunk = span.chunk});
		}
	}
	return r;
}

static int by_content(const void *a, const void *b, void *manifest)
{
	const struct verify_part *x = a, *y = b;
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
	uint32_t x = ((const struct verify_part *)a)->chunk,
		 y = ((const struct verify_part *)b)->chunk;

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

int verify_list_parts(struct verify *v)
{
	int r = add_all(v);

	if (r == 0)
		drop_repeated(v);
	return r;
}
