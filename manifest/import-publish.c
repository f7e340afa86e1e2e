/* The end of an import: what was read becomes a manifest. */
#include "manifest/import-state.h"

#include "manifest/catalogue.h"
#include "manifest/crc-combine.h"
#include "tier/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* The block checksums of a file while its parts are laid out in order. */
struct blocks {
	uint32_t *crc; /* one for each block; owned */
	uint64_t at;   /* bytes laid out */
	uint32_t zero; /* CRC32C of a whole block of zeros */
};

/* Lays out the part [at, next) of one block. */
static void add_part(struct blocks *b, uint64_t next, uint32_t crc)
{
	uint32_t *block = &b->crc[b->at >> MC_BLOCK_SHIFT];
	uint64_t len = next - b->at;

	*block = (b->at & (MC_BLOCK_SIZE - 1)) == 0 ? crc : mc_crc32c_join(*block, crc, len);
	b->at = next;
}

static void add_hole(struct blocks *b, uint64_t end)
{
	while (b->at < end) {
		uint64_t next = (b->at | (MC_BLOCK_SIZE - 1)) + 1;
		uint64_t len;

		if (next > end)
			next = end;
		len = next - b->at;
		add_part(b, next, len == MC_BLOCK_SIZE ? b->zero : mc_crc32c_zeros(0, len));
	}
}

static void add_chunk(struct blocks *b, const struct mc_import_chunk *c)
{
	uint64_t end = c->off + c->len;

	assert(b->at == c->off);
	for (unsigned i = 0; b->at < end; i++) {
		uint64_t next = (b->at | (MC_BLOCK_SIZE - 1)) + 1;

		assert(i < MC_CHUNK_BLOCKS);
		add_part(b, next < end ? next : end, c->crc[i]);
	}
}

/* Lays out chunks and the holes between them; spans has room for twice the chunks and one more. */
static size_t lay_out(const struct mc_import *im, const struct mc_import_file *f,
	struct mc_new_span *spans, struct blocks *b)
{
	size_t n = 0;

	for (size_t i = 0; i <= f->n_chunks; i++) {
		const struct mc_import_chunk *c =
			i < f->n_chunks ? &im->chunks[f->first_chunk + i] : NULL;
		uint64_t data = c != NULL ? c->off : f->entry->size;

		if (data > b->at) {
			spans[n++] = (struct mc_new_span){.len = data - b->at, .hole = true};
			add_hole(b, data);
		}
		if (c == NULL)
			break;
		spans[n] = (struct mc_new_span){.len = c->len};
		memcpy(spans[n++].sha256, c->sha256, MC_SHA256_SIZE);
		add_chunk(b, c);
	}
	return n;
}

static struct mc_new_meta meta_of(const struct mc_scan_entry *e)
{
	return (struct mc_new_meta){
		.mode = e->mode, .mtime_s = e->mtime_s, .mtime_ns = e->mtime_ns};
}

static int add_file(struct mc_import *im, const struct mc_import_file *f, struct mc_err *err)
{
	const struct mc_scan_entry *e = f->entry;
	const struct mc_new_meta meta = meta_of(e);
	cleanup_free struct mc_new_span *spans = calloc(2 * f->n_chunks + 1, sizeof(*spans));
	cleanup_free uint32_t *crc = calloc(mc_block_count(e->size) + 1, sizeof(*crc));
	struct blocks b = {.crc = crc, .zero = mc_crc32c_zeros(0, MC_BLOCK_SIZE)};
	struct mc_new_file file = {.size = e->size,
		.spans = spans,
		.crc32c = crc,
		.sha256 = f->hashed ? f->sha256 : NULL,
		.parse_error = f->parse_error};

	if (spans == NULL || crc == NULL)
		return mc_err_set(err, -ENOMEM, "out of memory");
	file.n_spans = lay_out(im, f, spans, &b);
	assert(b.at == e->size);
	if (f->ext_path != NULL && e->size > 0) {
		file.ext_path = f->ext_path;
		file.ext_guard = (struct mc_guard){.set = true,
			.size = e->size,
			.mtime_s = e->mtime_s,
			.mtime_ns = e->mtime_ns};
	}
	return mc_writer_file(im->writer, e->path, &meta, &file, err);
}

static int add_entries(struct mc_import *im, struct mc_err *err)
{
	size_t file = 0;
	int r = 0;

	for (size_t i = 0; i < im->scan.n && r == 0; i++) {
		const struct mc_scan_entry *e = &im->scan.entries[i];
		const struct mc_new_meta meta = meta_of(e);

		if (*e->path == '\0')
			mc_writer_root(im->writer, &meta);
		else if (e->type == MC_ENTRY_DIR)
			r = mc_writer_dir(im->writer, e->path, &meta, err);
		else if (e->type == MC_ENTRY_SYMLINK)
			r = mc_writer_symlink(im->writer, e->path, &meta, e->target, err);
		else
			r = add_file(im, &im->files[file++], err);
	}
	return r;
}

/* Without a name the revision is called by its content, so the same source gives the same revision.
 */
static void name_by_content(const uint8_t id[MC_SHA256_SIZE], struct mc_rev_name *name)
{
	mc_hex_encode(id, MC_IMPORT_REV_HEX / 2, name->rev);
}

/* What is there already is published again all the same: that is what repairs it. */
static int publish(struct mc_import *im, struct mc_import_result *ret, const char *json, size_t len,
	struct mc_err *err)
{
	uint8_t there[MC_SHA256_SIZE];
	struct mc_catalogue *c;
	struct mc_err ignored = {0};
	int r = mc_catalogue_open(im->remote, NULL, &c, err);

	if (r < 0)
		return mc_err_set(err, r, "out of memory");
	ret->existed = mc_catalogue_id(c, &ret->name, there, &ignored) == 0 &&
		memcmp(there, ret->id, sizeof(there)) == 0;
	r = mc_catalogue_publish(c, &ret->name, json, len, err);
	mc_catalogue_close(c);
	return r;
}

int mc_import_publish(struct mc_import *im, struct mc_import_result *ret, struct mc_err *err)
{
	cleanup_free char *json = NULL;
	size_t len;
	int r;

	mc_import_stage(im, "publish", 0, 0);
	mc_import_tick(im);
	r = add_entries(im, err);
	if (r == 0)
		r = mc_writer_finish(im->writer, &json, &len, NULL, err);
	if (r == 0)
		r = mc_sha256(json, len, ret->id);
	if (r < 0)
		return mc_err_set(err, r, "manifest: %s", strerror(-r));
	ret->name = im->opts->name;
	if (ret->name.rev[0] == '\0')
		name_by_content(ret->id, &ret->name);
	return publish(im, ret, json, len, err);
}
