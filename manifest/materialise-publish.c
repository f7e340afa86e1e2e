/* What was materialised as a manifest: files, and the tensors that are boxes of source tensors. */
#include "manifest/materialise-state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/crc-combine.h"
#include "manifest/import.h"
#include "manifest/safetensors.h"
#include "tier/cleanup.h"

/* A tensor of a new file. */
struct found {
	const char *name;
	uint32_t file;
	uint8_t dtype, rank;
	bool boxed; /* it is this box of a tensor of that shape */
	uint64_t off, len;
	uint64_t shape[MC_MAX_RANK], box_off[MC_MAX_RANK], global[MC_MAX_RANK];
};

struct table {
	struct found *v; /* owned */
	size_t n, cap;
	struct mc_rank_tensors *rank; /* by view; owned: found names point into the sharding */
	uint32_t n_ranks;
};

static int add_file(const struct mc_mat *m, struct mc_writer *w, const struct mc_mat_file *f,
	struct mc_err *err)
{
	cleanup_free struct mc_new_span *spans = calloc(f->n_chunks + 1, sizeof(*spans));
	cleanup_free uint32_t *crc = calloc(mc_block_count(f->size) + 1, sizeof(*crc));
	struct mc_new_file file = {
		.size = f->size, .spans = spans, .n_spans = f->n_chunks, .crc32c = crc};
	struct mc_new_meta meta;
	struct mc_entry e;

	if (spans == NULL || crc == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < f->n_chunks; i++) {
		const struct mc_mat_chunk *c = &m->chunk[f->first_chunk + i];
		uint64_t at = c->off, end = c->off + c->len;

		spans[i].len = c->len;
		memcpy(spans[i].sha256, c->sha256, MC_SHA256_SIZE);
		for (unsigned k = 0; at < end; k++) {
			uint64_t next = (at | (MC_BLOCK_SIZE - 1)) + 1;
			uint32_t *block = &crc[at >> MC_BLOCK_SHIFT];

			next = next < end ? next : end;
			*block = (at & (MC_BLOCK_SIZE - 1)) == 0
				? c->crc[k]
				: mc_crc32c_join(*block, c->crc[k], next - at);
			at = next;
		}
	}
	mc_manifest_entry(f->view->tree, f->entry, &e);
	meta = (struct mc_new_meta){.mode = e.mode, .mtime_s = e.mtime_s, .mtime_ns = e.mtime_ns};
	return mc_writer_file(w, f->path, &meta, &file, err);
}

/* Whether the rank's tensor is one box of one source tensor, and which. */
static bool is_box(const struct mc_view_layout *l, const struct mc_rank_tensors *t,
	const struct mc_local *local, struct found *x)
{
	const struct mc_local_piece *p = &t->piece[local->first];

	if (local->constant || local->n != 1 || p->stacked || local->rank == 0)
		return false;
	for (unsigned d = 0; d < local->rank; d++) {
		if (p->box.len[d] != local->shape[d])
			return false;
		x->box_off[d] = p->box.off[d];
		x->global[d] = l->tensor[p->tensor].shape[d];
	}
	return true;
}

static int local_by_name(const void *key, const void *local)
{
	return strcmp(key, ((const struct mc_local *)local)->name);
}

static int add_found(struct mc_mat *m, struct table *t, uint32_t file,
	const struct mc_rank_tensors *rank, const struct mc_st_tensor *s)
{
	const struct mc_local *local =
		bsearch(s->name, rank->local, rank->n, sizeof(*rank->local), local_by_name);
	struct found *x;

	if (local == NULL)
		return -EINVAL;
	if (t->n == t->cap) {
		size_t cap = t->cap != 0 ? t->cap * 2 : 1024;
		void *p = reallocarray(t->v, cap, sizeof(*t->v));

		if (p == NULL)
			return -ENOMEM;
		t->v = p;
		t->cap = cap;
	}
	x = &t->v[t->n++];
	*x = (struct found){.name = local->name,
		.file = file,
		.dtype = s->dtype,
		.rank = s->rank,
		.off = s->off,
		.len = s->len};
	memcpy(x->shape, s->shape, sizeof(x->shape));
	x->boxed = is_box(m->in->layout, rank, local, x);
	return 0;
}

static int find_tensors(
	struct mc_mat *m, struct table *t, uint32_t file, uint32_t rank, struct mc_err *err)
{
	const struct mc_mat_file *f = &m->file[file];
	uint32_t where = f->view->where[f->entry];
	struct mc_safetensors *st;
	int r;

	if (where >= f->view->n_files || f->view->file[where].words == NULL)
		return 0;
	r = mc_safetensors_parse(
		f->view->file[where].header, f->view->file[where].header_len, f->size, &st, err);
	for (size_t i = 0; r == 0 && i < mc_safetensors_count(st); i++)
		r = add_found(m, t, file, &t->rank[rank], mc_safetensors_tensor(st, i));
	if (r == 0)
		mc_safetensors_close(st);
	return r;
}

static int found_compare(const void *a, const void *b)
{
	const struct found *x = a, *y = b;
	int c = strcmp(x->name, y->name);

	return c != 0 ? c : (x->file > y->file) - (x->file < y->file);
}

/* Tensors of one name: all are boxes, or there is only one. */
static int put_tensors(const struct mc_mat *m, struct mc_writer *w, const struct found *v, size_t n,
	struct mc_err *err)
{
	bool boxed = true;
	int r = 0;

	for (size_t i = 0; i < n; i++)
		boxed = boxed && v[i].boxed;
	for (size_t i = 0; i < n && r == 0 && (boxed || n == 1); i++) {
		struct mc_new_tensor t = {.name = v[i].name,
			.file = m->file[v[i].file].path,
			.dtype = v[i].dtype,
			.rank = v[i].rank,
			.shape = v[i].shape,
			.off = v[i].off,
			.len = v[i].len};

		if (n > 1) {
			t.box_off = v[i].box_off;
			t.global = v[i].global;
		}
		r = mc_writer_tensor(w, &t, err);
	}
	return r;
}

/* Which rank a file belongs to: that of its view, or of its name where a view has all. */
static uint32_t rank_of(const struct mc_mat *m, const struct mc_mat_file *f)
{
	unsigned rank = 0;

	if (mc_view_layout_ranks(m->in->layout) == 0)
		return sscanf(f->path, "model-rank-%u-", &rank) == 1 ? rank : 0;
	while (m->view[rank] != f->view)
		rank++;
	return rank;
}

static int add_tensors(struct mc_mat *m, struct mc_writer *w, struct mc_err *err)
{
	struct table t = {.n_ranks = mc_layout_world(m->in->layout->layout)};
	int r = 0;

	t.rank = calloc(t.n_ranks, sizeof(*t.rank));
	if (t.rank == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < t.n_ranks && r == 0; i++)
		r = mc_sharding_rank(m->in->layout->sharding, i, &t.rank[i], err);
	for (uint32_t i = 0; i < m->n_files && r == 0; i++)
		r = find_tensors(m, &t, i, rank_of(m, &m->file[i]), err);
	if (r == 0 && t.n > 1)
		qsort(t.v, t.n, sizeof(*t.v), found_compare);
	for (size_t i = 0, next; i < t.n && r == 0; i = next) {
		for (next = i + 1; next < t.n && strcmp(t.v[i].name, t.v[next].name) == 0;)
			next++;
		r = put_tensors(m, w, &t.v[i], next - i, err);
	}
	for (uint32_t i = 0; i < t.n_ranks; i++)
		mc_rank_tensors_done(&t.rank[i]);
	free(t.rank);
	free(t.v);
	return r;
}

static int fill(struct mc_mat *m, struct mc_writer *w, struct mc_err *err)
{
	struct mc_model model;
	struct mc_new_meta meta = {.mode = 0755};
	struct mc_entry root;
	int r = 0;

	mc_manifest_entry(m->in->layout->manifest, 0, &root);
	meta.mtime_s = root.mtime_s;
	meta.mtime_ns = root.mtime_ns;
	mc_writer_root(w, &meta);
	for (uint32_t i = 0; i < mc_view_layout_ranks(m->in->layout) && r == 0; i++) {
		char dir[MC_VIEW_RANK_NAME];

		mc_view_rank_name(i, dir);
		r = mc_writer_dir(w, dir, &meta, err);
	}
	for (uint32_t i = 0; i < m->n_files && r == 0; i++)
		r = add_file(m, w, &m->file[i], err);
	if (r == 0)
		r = add_tensors(m, w, err);
	mc_manifest_model(m->in->layout->manifest, &model);
	return r < 0 ? r : mc_writer_model(w, &model);
}

int mc_mat_publish(struct mc_mat *m, struct mc_materialise_result *ret, struct mc_err *err)
{
	cleanup_free char *json = NULL;
	struct mc_manifest *made = NULL;
	struct mc_writer *w;
	size_t len = 0;
	int r = mc_writer_open(&w);

	if (r < 0)
		return r;
	r = fill(m, w, err);
	if (r == 0)
		r = mc_writer_finish(w, &json, &len, &made, err);
	mc_writer_close(w);
	if (r < 0)
		return r;
	*ret = (struct mc_materialise_result){.name = m->in->name,
		.files = m->n_files,
		.bytes = m->total_bytes,
		.chunks = m->n_chunks,
		.new_chunks = m->new_chunks,
		.written_bytes = m->written_bytes};
	memcpy(ret->id, mc_manifest_id(made), MC_SHA256_SIZE);
	mc_manifest_unref(made);
	if (ret->name.rev[0] == '\0') {
		char hex[MC_SHA256_HEX + 1];

		mc_hex_encode(ret->id, MC_SHA256_SIZE, hex);
		snprintf(ret->name.rev, sizeof(ret->name.rev), "%.*s", MC_IMPORT_REV_HEX, hex);
	}
	return mc_catalogue_publish(m->in->catalogue, &ret->name, json, len, err);
}
