/* A file of a manifest as a source for the store: plans, block checksums, data and holes. */
#include "manifest/manifest-index.h"

#include <assert.h>
#include <string.h>

#include "tier/cleanup.h"

struct file_source {
	struct mc_source base;
	struct mc_manifest *m;          /* shared */
	const struct mc_index_entry *e; /* borrowed from m */
};

/* The first span of a file that ends after off; off < size. */
static uint32_t find_span(const struct mc_manifest *m, const struct mc_index_entry *e, uint64_t off)
{
	uint32_t lo = e->first, hi = e->first + e->count;

	/* The last span that starts at or before off; span 0 starts at 0. */
	while (hi - lo > 1) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (m->spans[mid].off <= off)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

static int add_external(const struct mc_manifest *m, const struct mc_index_entry *e, uint64_t off,
	uint32_t len, struct mc_plan *plan)
{
	const struct mc_index_ext *x = &m->exts[e->ext];
	struct mc_guard guard = {
		.set = true, .size = x->size, .mtime_s = x->mtime_s, .mtime_ns = x->mtime_ns};

	return mc_plan_add_object(plan, m->strings + x->path, x->off + off, len, &guard);
}

/* Where the data that begins in span (not a hole) ends, spans of an external file taken together.
 */
static uint64_t data_end(
	const struct mc_manifest *m, const struct mc_index_entry *e, uint32_t *span)
{
	if (e->ext != MC_INDEX_NONE)
		while (*span + 1 < e->first + e->count &&
			m->spans[*span + 1].chunk != MC_INDEX_NONE)
			(*span)++;
	return mc_index_span_end(m, e, *span);
}

static int file_plan(const struct mc_source *s, uint64_t off, uint32_t len, struct mc_plan *plan)
{
	const struct file_source *f = (const struct file_source *)s;
	const struct mc_manifest *m = f->m;
	uint64_t end = off + len;
	uint32_t i;

	assert(len > 0 && off < f->e->size && len <= f->e->size - off);
	if (f->e->count == 0)
		return add_external(m, f->e, off, len, plan);
	for (i = find_span(m, f->e, off); off < end; i++) {
		const struct mc_index_span *span = &m->spans[i];
		bool hole = span->chunk == MC_INDEX_NONE;
		uint64_t stop = hole ? mc_index_span_end(m, f->e, i) : data_end(m, f->e, &i);
		uint32_t n = (uint32_t)((stop < end ? stop : end) - off);
		int r;

		if (hole) {
			r = mc_plan_add_hole(plan, n);
		} else if (f->e->ext != MC_INDEX_NONE) {
			r = add_external(m, f->e, off, n, plan);
		} else {
			char path[MC_CHUNK_PATH];

			mc_chunk_path(m->chunks[span->chunk].sha256, path);
			r = mc_plan_add_object(plan, path, off - span->off, n, NULL);
		}
		if (r < 0)
			return r;
		off += n;
	}
	return 0;
}

static uint32_t file_block_crc(const struct mc_source *s, uint64_t block)
{
	const struct file_source *f = (const struct file_source *)s;

	assert(block < mc_block_count(f->e->size));
	return f->m->crcs[f->e->first_crc + block];
}

static int file_next_data(
	const struct mc_source *s, uint64_t off, uint64_t *ret_start, uint64_t *ret_end)
{
	const struct file_source *f = (const struct file_source *)s;
	const struct mc_index_hole *h = f->m->holes + f->e->first_hole;
	uint32_t lo = 0, hi = f->e->n_holes;

	/* The first hole that ends after off. */
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (h[mid].off + h[mid].len <= off)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo < f->e->n_holes && h[lo].off <= off) {
		off = h[lo].off + h[lo].len;
		lo++;
	}
	if (off >= f->e->size)
		return -ENXIO;
	*ret_start = off;
	*ret_end = lo < f->e->n_holes ? h[lo].off : f->e->size;
	return 0;
}

static void file_release(struct mc_source *s)
{
	struct file_source *f = (struct file_source *)s;

	mc_manifest_unref(f->m);
	free(f);
}

static const struct mc_source_ops file_ops = {
	.plan = file_plan,
	.block_crc = file_block_crc,
	.next_data = file_next_data,
	.release = file_release,
};

/* A file known by its place only (weight-payload.c): no chunks, no checksums. */
static const struct mc_source_ops placed_ops = {
	.plan = file_plan,
	.unchecked = true,
	.next_data = file_next_data,
	.release = file_release,
};

int mc_manifest_source(struct mc_manifest *m, uint32_t entry, struct mc_source **ret)
{
	const struct mc_index_entry *e = &m->entries[entry];
	struct file_source *f;

	assert(entry < m->n_entries && e->type == MC_ENTRY_FILE && e->size > 0);
	f = calloc(1, sizeof(*f));
	if (f == NULL)
		return -ENOMEM;
	f->base.ops = e->count > 0 ? &file_ops : &placed_ops;
	memcpy(f->base.id.digest, e->digest, MC_SHA256_SIZE);
	f->base.id.size = e->size;
	f->m = mc_manifest_ref(m);
	f->e = e;
	*ret = &f->base;
	return 0;
}
