/*
 * The work of materialising: chunks of all files of all ranks, in the order of the source.
 *
 * Invariants: 1. a chunk's digest and checksums are of the bytes in the job's buffer, which are the
 * ones that are written; 2. the manifest is published after every chunk is there and synced.
 */
#include "manifest/materialise-state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/chunker.h"
#include "manifest/crew.h"
#include "manifest/safetensors.h"
#include "tier/cleanup.h"
#include "tier/lock.h"
#include "tier/store-gather.h"

#define ORDER_LAST UINT64_MAX

/* Something that ends on another thread. */
struct waiting {
	struct mc_mutex lock;
	struct mc_cond ended;
	bool done;
	int res;
};

static void wait_init(struct waiting *w)
{
	*w = (struct waiting){0};
	mc_mutex_init(&w->lock);
	mc_cond_init(&w->ended);
}

static void wait_end(void *ctx, int res)
{
	struct waiting *w = ctx;

	mc_mutex_lock(&w->lock);
	w->done = true;
	w->res = res;
	mc_cond_signal(&w->ended);
	mc_mutex_unlock(&w->lock);
}

static int wait_for(struct waiting *w)
{
	int r;

	mc_mutex_lock(&w->lock);
	while (!w->done)
		mc_cond_wait(&w->ended, &w->lock);
	r = w->res;
	mc_mutex_unlock(&w->lock);
	mc_cond_done(&w->ended);
	mc_mutex_done(&w->lock);
	return r;
}

static void read_done(struct mc_file_read *r, int res)
{
	wait_end(r->ctx, res);
}

/* A file beside the weights, block by block. */
static int read_plain(struct mc_file *f, uint64_t off, uint32_t len, char *out)
{
	uint64_t end = off + len;
	int r = 0;

	while (off < end && r == 0) {
		uint64_t next = (off | (MC_BLOCK_SIZE - 1)) + 1;
		struct waiting w;
		struct mc_file_read read = {.file = f, .off = off, .done = read_done, .ctx = &w};

		next = next < end ? next : end;
		read.len = (uint32_t)(next - off);
		wait_init(&w);
		mc_file_read(&read);
		r = wait_for(&w);
		for (unsigned i = 0; r == 0 && i < read.n_iov; i++) {
			memcpy(out, read.iov[i].iov_base, read.iov[i].iov_len);
			out += read.iov[i].iov_len;
		}
		if (r == 0)
			mc_file_read_end(&read);
		off = next;
	}
	return r;
}

/* Synthesised bytes straight into the buffer: only the source's blocks take memory of the store. */
static int synthesise(const struct mc_source *s, uint64_t off, uint32_t len, char *out)
{
	struct mc_plan plan;
	struct waiting w;
	int r;

	mc_plan_init(&plan);
	r = s->ops->plan(s, off, len, &plan);
	for (size_t i = 0, at = 0; r == 0 && i < plan.n; at += plan.pieces[i++].len) {
		const struct mc_piece *p = &plan.pieces[i];

		if (p->kind == MC_PIECE_HOLE)
			memset(out + at, 0, p->len);
		else if (p->kind == MC_PIECE_INLINE)
			memcpy(out + at, p->data, p->len);
	}
	if (r == 0 && mc_gather_wanted(&plan)) {
		wait_init(&w);
		r = mc_gather_start(&plan, (uint8_t *)out, wait_end, &w);
		if (r < 0)
			wait_end(&w, r);
		r = wait_for(&w);
	}
	mc_plan_done(&plan);
	return r;
}

/* Reads the chunk, and takes its digest and its checksum in each block. */
static int read_chunk(struct mc_mat *m, struct mc_mat_chunk *c, char *buf, struct mc_err *err)
{
	const struct mc_mat_file *f = &m->file[c->file];
	uint64_t at = c->off, end = c->off + c->len;
	int r = f->src != NULL ? synthesise(f->src, c->off, c->len, buf)
			       : read_plain(f->file, c->off, c->len, buf);

	if (r < 0)
		return mc_err_set(err, r, "%s at %llu: %s", f->path, (unsigned long long)c->off,
			strerror(-r));
	for (unsigned i = 0; at < end; i++) {
		uint64_t next = (at | (MC_BLOCK_SIZE - 1)) + 1;

		next = next < end ? next : end;
		c->crc[i] = mc_crc32c(0, buf + (at - c->off), next - at);
		at = next;
	}
	return mc_sha256(buf, c->len, c->sha256);
}

/* Writes the chunk unless the remote has it. */
static int put_chunk(
	struct mc_mat *m, const struct mc_mat_chunk *c, const void *buf, struct mc_err *err)
{
	struct mc_remote *remote = m->in->remote;
	char path[MC_CHUNK_PATH];
	struct mc_remote_attr attr;
	int r;

	mc_chunk_path(c->sha256, path);
	r = mc_remote_stat(remote, path, &attr, NULL);
	if (r == 0 && attr.type == MC_REMOTE_FILE && attr.size == c->len)
		return mc_remote_touch(remote, path, err);
	if (r < 0 && r != -ENOENT)
		return mc_err_set(err, r, "remote: %s: %s", path, strerror(-r));
	r = mc_remote_put(remote, path, buf, c->len, 0, err);
	if (r == 0) {
		m->new_chunks++;
		m->written_bytes += c->len;
	}
	return r;
}

static int run(void *ctx, unsigned worker, uint64_t item, struct mc_err *err)
{
	struct mc_mat *m = ctx;
	struct mc_mat_chunk *c = &m->chunk[m->queue[item]];
	int r = read_chunk(m, c, m->buffers[worker], err);

	if (r == 0)
		r = put_chunk(m, c, m->buffers[worker], err);
	m->done_bytes += c->len;
	m->done_items++;
	return r;
}

static void tick(void *ctx)
{
	struct mc_mat *m = ctx;
	const struct mc_progress now = {.stage = "reshard",
		.bytes_done = m->done_bytes,
		.bytes_total = m->total_bytes,
		.items_done = m->done_items,
		.items_total = m->n_chunks};

	if (m->in->progress != NULL)
		m->in->progress(m->in->ctx, &now);
}

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
	uint32_t lo = 0, hi = f->n_segments, number;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (f->segment[mid].off + f->segment[mid].len <= off)
			lo = mid + 1;
		else
			hi = mid;
	}
	while (lo < f->n_segments && f->segment[lo].n == 0)
		lo++;
	if (lo == f->n_segments)
		return ORDER_LAST;
	mc_view_region_get(f->words + f->segment[lo].words, &r, &number);
	return (uint64_t)f->entry[number] << 40 | source_of(&r, off) >> MC_BLOCK_SHIFT;
}

static int grow(void **v, size_t size, size_t n, size_t *cap)
{
	size_t want = *cap == 0 ? 256 : *cap * 2;
	void *p;

	if (n < *cap)
		return 0;
	p = reallocarray(*v, want, size);
	if (p == NULL)
		return -ENOMEM;
	*v = p;
	*cap = want;
	return 0;
}

static int add_chunks(
	struct mc_mat *m, uint32_t file, const struct mc_chunk_plan *plan, uint32_t where)
{
	struct mc_mat_file *f = &m->file[file];
	const struct mc_view *v = f->view;

	f->first_chunk = m->n_chunks;
	for (size_t i = 0; i < plan->n; i++) {
		struct mc_mat_chunk *c;

		if (grow((void **)&m->chunk, sizeof(*m->chunk), m->n_chunks, &m->cap_chunks) < 0)
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

static int add_entry(struct mc_mat *m, struct mc_view *v, uint32_t entry, const char *dir)
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
	*f = (struct mc_mat_file){.view = v, .entry = entry, .size = e.size};
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

/* The files of a rank below its directory; those beside the weights also at the top, from the first
 * rank. */
static int add_view(struct mc_mat *m, uint32_t i, bool below, struct mc_err *err)
{
	struct mc_view *v = m->view[i];
	char dir[MC_VIEW_RANK_NAME] = "";
	struct mc_entry root;
	int r = 0;

	if (below)
		mc_view_rank_name(i, dir);
	mc_manifest_entry(v->tree, 0, &root);
	for (uint32_t k = 0; k < root.n_children && r == 0; k++) {
		uint32_t entry = root.first_child + k;

		r = add_entry(m, v, entry, dir);
		if (r == 0 && below && i == 0 && v->where[entry] >= v->n_files)
			r = add_entry(m, v, entry, "");
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

static int prepare(struct mc_mat *m, struct mc_err *err)
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

static void done(struct mc_mat *m)
{
	for (unsigned i = 0; m->buffers != NULL && i < m->in->jobs; i++)
		free(m->buffers[i]);
	for (uint32_t i = 0; i < m->n_files; i++) {
		free(m->file[i].path);
		if (m->file[i].file != NULL)
			mc_file_put(m->file[i].file);
		if (m->file[i].src != NULL)
			m->file[i].src->ops->release(m->file[i].src);
	}
	for (uint32_t i = 0; i < m->n_views; i++)
		mc_view_unref(m->view[i]);
	free(m->buffers);
	free(m->queue);
	free(m->chunk);
	free(m->file);
	free(m->view);
}

int mc_materialise(
	const struct mc_materialise_in *in, struct mc_materialise_result *ret, struct mc_err *err)
{
	struct mc_mat m = {.in = in};
	struct mc_crew crew = {.workers = in->jobs, .run = run, .tick = tick, .ctx = &m};
	int r = prepare(&m, err);

	crew.items = m.n_chunks;
	if (r == 0)
		r = mc_crew_run(&crew, err);
	if (r == 0)
		r = mc_remote_sync(in->remote, err);
	if (r == 0)
		r = mc_mat_publish(&m, ret, err);
	done(&m);
	return r;
}
