/* What is to be materialised: the files of all ranks, cut into chunks, in the order of the source.
 */
#include "manifest/materialise-state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/chunker.h"
#include "manifest/safetensors.h"
#include "tier/array.h"
#include "tier/cleanup.h"

#define ORDER_LAST UINT64_MAX

/* The source byte that a region puts at off, or before it. */
static uint64_t source_of(const struct mc_region *r, uint64_t off)
{
	uint64_t src = r->src, left = off > r->dst ? off - r->dst : 0;

	for (unsigned d = 0; d < r->rank; d++) {
		uint64_t i = left / r->dst_stride[d];

		if (i >= r->count[d])
			i = r->count[d] - 1;
		src += i * r->src_stride[d];
		left -= i * r->dst_stride[d];
	}
	return src + (left < r->inner ? left : r->inner);
}

/* Where in the source a chunk of synthesised bytes begins to come from. */
static uint64_t order_of(const struct mc_view *v, uint32_t where, uint64_t off)
{
	const struct mc_view_file *f = &v->file[where];
	struct mc_region r;
	uint32_t i = mc_view_segment_find(f, off), number;

	while (i < f->n_segments && f->segment[i].n == 0)
		i++;
	if (i == f->n_segments)
		return ORDER_LAST;
	mc_view_region_get(f->words + f->segment[i].words, &r, &number);
	return (uint64_t)f->entry[number] << 40 | source_of(&r, off) >> MC_BLOCK_SHIFT;
}

static int add_chunks(
	struct mc_mat *m, uint32_t file, const struct mc_chunk_plan *plan, uint32_t where)
{
	struct mc_mat_file *f = &m->file[file];
	const struct mc_view *v = f->view;

	f->first_chunk = m->n_chunks;
	for (size_t i = 0; i < plan->n; i++) {
		struct mc_mat_chunk *c;

		if (mc_array_room(&m->chunk, &m->cap_chunks, m->n_chunks + 1) < 0)
			return -ENOMEM;
		c = &m->chunk[m->n_chunks++];
		*c = (struct mc_mat_chunk){.off = plan->spans[i].off,
			.len = (uint32_t)plan->spans[i].len,
			.file = file};
		c->order = where < v->n_files ? order_of(v, where, c->off) : ORDER_LAST;
	}
	f->n_chunks = m->n_chunks - f->first_chunk;
	m->total_bytes += f->size;
	return 0;
}

/* Cuts a file into chunks: at the starts of tensors where it has some. */
static int plan_file(struct mc_mat *m, uint32_t file, struct mc_err *err)
{
	struct mc_mat_file *f = &m->file[file];
	uint32_t where = f->view->where[f->entry];
	const struct mc_extent all = {.len = f->size};
	struct mc_chunk_input in = {.size = f->size, .data = &all, .n_data = 1};
	struct mc_safetensors *st = NULL;
	cleanup_free uint64_t *anchors = NULL;
	struct mc_chunk_plan plan = {0};
	int r = 0;

	if (f->size == 0)
		return 0;
	if (where < f->view->n_files && f->view->file[where].n_segments > 0) {
		const struct mc_view_file *x = &f->view->file[where];

		r = mc_safetensors_parse(x->header, x->header_len, x->size, &st, err);
		if (r == 0)
			r = mc_chunk_anchors(st, &anchors, &in.n_anchors);
		in.anchors = anchors;
	}
	if (r == 0)
		r = mc_chunk_plan(&in, &plan);
	if (r == 0)
		r = add_chunks(m, file, &plan, where);
	mc_chunk_plan_done(&plan);
	mc_safetensors_close(st);
	return r;
}

/* One more file, dir/name: an entry of a view's tree. */
static int add_entry(
	struct mc_mat *m, struct mc_view *v, uint32_t rank, uint32_t entry, const char *dir)
{
	struct mc_source *src;
	struct mc_mat_file *f;
	struct mc_entry e;
	int r = 0;

	mc_manifest_entry(v->tree, entry, &e);
	if (m->n_files == m->cap_files) {
		uint32_t cap = m->cap_files != 0 ? m->cap_files * 2 : 64;
		void *p = reallocarray(m->file, cap, sizeof(*m->file));

		if (p == NULL)
			return -ENOMEM;
		m->file = p;
		m->cap_files = cap;
	}
	f = &m->file[m->n_files];
	*f = (struct mc_mat_file){
		.view = v, .rank = rank, .entry = entry, .digest = e.digest, .size = e.size};
	if (asprintf(&f->path, "%s%s%s", dir, dir[0] != '\0' ? "/" : "", e.name) < 0) {
		f->path = NULL;
		return -ENOMEM;
	}
	m->n_files++;
	if (e.size > 0)
		r = mc_view_source(v, entry, m->in->store, &src);
	if (e.size > 0 && r == 0 && v->where[entry] < v->n_files)
		f->src = src;
	else if (e.size > 0 && r == 0)
		r = mc_store_file_get(m->in->store, src, &f->file);
	return r;
}

/* Which rank a file of a view is of, where a view has the files of all. */
static uint32_t rank_by_name(const char *name)
{
	unsigned rank = 0;

	return sscanf(name, "model-rank-%u-", &rank) == 1 ? rank : 0;
}

/* The files of a rank below its directory; those beside the weights also at the top, from the first
 * rank. */
static int add_view(struct mc_mat *m, uint32_t i, bool below, struct mc_err *err)
{
	struct mc_view *v = m->view[i];
	char dir[MC_VIEW_RANK_NAME] = "";
	struct mc_entry root, e;
	int r = 0;

	if (below)
		mc_view_rank_name(i, dir);
	mc_manifest_entry(v->tree, 0, &root);
	for (uint32_t k = 0; k < root.n_children && r == 0; k++) {
		uint32_t entry = root.first_child + k;

		mc_manifest_entry(v->tree, entry, &e);
		r = add_entry(m, v, below ? i : rank_by_name(e.name), entry, dir);
		if (r == 0 && below && i == 0 && v->where[entry] >= v->n_files)
			r = add_entry(m, v, 0, entry, "");
	}
	for (unsigned k = 0; k < m->in->n_beside && r == 0; k++) {
		r = add_entry(m, m->in->beside[k], i, 1, dir);
		if (r == 0 && below && i == 0)
			r = add_entry(m, m->in->beside[k], i, 1, "");
	}
	return r < 0 ? mc_err_set(err, r, "%s: %s", dir, strerror(-r)) : 0;
}

static int order_compare(const void *a, const void *b, void *chunks)
{
	const struct mc_mat_chunk *v = chunks, *x = &v[*(const uint32_t *)a],
				  *y = &v[*(const uint32_t *)b];

	if (x->order != y->order)
		return x->order < y->order ? -1 : 1;
	return x < y ? -1 : x > y;
}

int mc_mat_plan(struct mc_mat *m, struct mc_err *err)
{
	uint32_t ranks = mc_view_layout_ranks(m->in->layout), n = ranks > 0 ? ranks : 1;
	int r = 0;

	m->view = calloc(n, sizeof(struct mc_view *));
	if (m->view == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < n && r == 0; i++) {
		r = mc_view_open(m->in->layout, i, &m->view[i], err);
		m->n_views += r == 0;
		if (r == 0)
			r = add_view(m, i, ranks > 0, err);
	}
	for (uint32_t i = 0; i < m->n_files && r == 0; i++)
		r = plan_file(m, i, err);
	if (r < 0)
		return r;
	m->queue = calloc(m->n_chunks + 1, sizeof(*m->queue));
	m->buffers = calloc(m->in->jobs, sizeof(*m->buffers));
	if (m->queue == NULL || m->buffers == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < m->n_chunks; i++)
		m->queue[i] = i;
	qsort_r(m->queue, m->n_chunks, sizeof(*m->queue), order_compare, m->chunk);
	for (unsigned i = 0; i < m->in->jobs && r == 0; i++) {
		m->buffers[i] = aligned_alloc(4096, MC_CHUNK_MAX);
		r = m->buffers[i] != NULL ? 0 : -ENOMEM;
	}
	return r;
}
