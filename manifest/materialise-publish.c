/* What was materialised as a manifest. */
#include "manifest/materialise-state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/crc-combine.h"
#include "manifest/import.h"
#include "tier/cleanup.h"

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

static int fill(struct mc_mat *m, struct mc_writer *w, uint32_t *ret_unlisted, struct mc_err *err)
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
		r = mc_mat_tensors(m, w, ret_unlisted, err);
	mc_manifest_model(m->in->layout->manifest, &model);
	return r < 0 ? r : mc_writer_model(w, &model);
}

int mc_mat_publish(struct mc_mat *m, struct mc_materialise_result *ret, struct mc_err *err)
{
	cleanup_free char *json = NULL;
	struct mc_manifest *made = NULL;
	struct mc_writer *w;
	uint32_t unlisted;
	size_t len = 0;
	int r = mc_writer_open(&w);

	if (r < 0)
		return r;
	r = fill(m, w, &unlisted, err);
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
		.written_bytes = m->written_bytes,
		.resumed_bytes = m->resumed_bytes,
		.unlisted = unlisted};
	memcpy(ret->id, mc_manifest_id(made), MC_SHA256_SIZE);
	mc_manifest_unref(made);
	if (ret->name.rev[0] == '\0') {
		char hex[MC_SHA256_HEX + 1];

		mc_hex_encode(ret->id, MC_SHA256_SIZE, hex);
		snprintf(ret->name.rev, sizeof(ret->name.rev), "%.*s", MC_IMPORT_REV_HEX, hex);
	}
	return mc_catalogue_publish(m->in->catalogue, &ret->name, json, len, err);
}
