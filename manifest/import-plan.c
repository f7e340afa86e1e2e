/* Planning an import: the headers of weight files are read, and every file is cut into chunks. */
#include "manifest/import-state.h"

#include "manifest/chunker.h"
#include "manifest/json.h"
#include "tier/cleanup.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define LINKS_MAX 40 /* as many as the kernel follows */

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && strcmp(s + n - m, end) == 0;
}

static int by_path(const void *key, const void *entry)
{
	return strcmp(key, ((const struct mc_scan_entry *)entry)->path);
}

static int by_entry(const void *key, const void *file)
{
	const struct mc_scan_entry *e = ((const struct mc_import_file *)file)->entry;

	return (const struct mc_scan_entry *)key < e ? -1 : (const struct mc_scan_entry *)key > e;
}

/* The path that target, read at the link's path, means; it stays inside by mc_link_fault. */
static int follow(const char *link, const char *target, char **ret)
{
	cleanup_free char *dir = strdup(link);
	char *slash;

	if (dir == NULL)
		return -ENOMEM;
	slash = strrchr(dir, '/');
	*(slash == NULL ? dir : slash) = '\0';
	for (; strncmp(target, "../", 3) == 0; target += 3) {
		slash = strrchr(dir, '/');
		*(slash == NULL ? dir : slash) = '\0';
	}
	return mc_scan_join(dir, target, ret);
}

struct mc_import_file *mc_import_find(struct mc_import *im, const char *path)
{
	cleanup_free char *at = strdup(path);

	for (int links = 0; at != NULL && links < LINKS_MAX; links++) {
		const struct mc_scan_entry *e =
			bsearch(at, im->scan.entries, im->scan.n, sizeof(*e), by_path);
		char *next;

		if (e == NULL || e->type == MC_ENTRY_DIR)
			return NULL;
		if (e->type == MC_ENTRY_FILE)
			return bsearch(e, im->files, im->n_files, sizeof(*im->files), by_entry);
		if (follow(at, e->target, &next) < 0)
			return NULL;
		free(at);
		at = next;
	}
	return NULL;
}

static int read_bytes(struct mc_import *im, const struct mc_import_file *f, void *buf, uint64_t len,
	struct mc_err *err)
{
	struct mc_import_source s;
	int r = mc_import_source_open(im, f, &s, err);

	for (uint64_t at = 0; at < len && r == 0;) {
		uint32_t part = len - at < MC_CHUNK_MAX ? (uint32_t)(len - at) : MC_CHUNK_MAX;

		r = mc_import_read(&s, at, part, (char *)buf + at, err);
		at += part;
	}
	mc_import_source_close(&s);
	return r;
}

int mc_import_slurp(struct mc_import *im, const struct mc_import_file *f, uint64_t max, char **ret,
	struct mc_err *err)
{
	uint64_t size = f->entry->size;
	char *buf;
	int r;

	if (size > max)
		return mc_err_set(err, -EFBIG, "source: %s: %llu bytes are more than %llu",
			f->open_path, (unsigned long long)size, (unsigned long long)max);
	buf = malloc(size + 1);
	if (buf == NULL)
		return mc_err_set(err, -ENOMEM, "out of memory");
	r = read_bytes(im, f, buf, size, err);
	if (r < 0) {
		free(buf);
		return r;
	}
	buf[size] = '\0';
	*ret = buf;
	return 0;
}

/* The size that a header's offsets promise, 0 when it cannot be told. Only for headers that the
 * strict parser refused: it tells a file that was cut off from one that never was right. */
static uint64_t promised_size(const char *header, uint64_t len)
{
	struct mc_err ignored = {0};
	uint64_t end = 0, v;
	const char *name;
	json_t *root, *tensor;

	if (mc_json_load(header + 8, len - 8, 8, &root, &ignored) < 0)
		return 0;
	json_object_foreach(root, name, tensor)
	{
		const json_t *offsets = json_object_get(tensor, "data_offsets");

		if (mc_json_uint(json_array_get(offsets, 1), MC_JSON_INT_MAX, &v) == 0 && v > end)
			end = v;
	}
	json_decref(root);
	return end == 0 ? 0 : len + end;
}

static int truncated(
	const struct mc_import_file *f, const char *at_least, uint64_t expected, struct mc_err *err)
{
	return mc_err_set(err, -EBADMSG,
		"source: %s is truncated: its header promises %s%llu bytes, the file has %llu; "
		"fetch it again, or remove it",
		f->open_path, at_least, (unsigned long long)expected,
		(unsigned long long)f->entry->size);
}

/* A weight file that does not parse becomes plain bytes, with the reason kept. */
static int make_opaque(struct mc_import *im, struct mc_import_file *f, const struct mc_err *why,
	struct mc_err *err)
{
	if (im->opts->strict)
		return mc_err_set(err, -EBADMSG,
			"source: %s: %s; without --strict it is imported as plain bytes",
			f->open_path, why->text);
	mc_import_warn(
		im, "%s: %s; imported as plain bytes, without tensors", f->entry->path, why->text);
	f->parse_error = strdup(why->text);
	return f->parse_error == NULL ? mc_err_set(err, -ENOMEM, "out of memory") : 0;
}

static int parse_header(struct mc_import *im, struct mc_import_file *f, struct mc_err *err)
{
	uint8_t first[16] = {0};
	uint64_t size = f->entry->size, got = size < sizeof(first) ? size : sizeof(first), need = 0;
	cleanup_free char *header = NULL;
	struct mc_err why = {0};
	int r = read_bytes(im, f, first, got, err);

	if (r < 0)
		return r;
	r = mc_safetensors_header_size(first, got < 8 ? (size_t)got : 8, size, &need, &why);
	if (r < 0) {
		memcpy(&need, first, sizeof(need));
		need = le64toh(need);
		if (size > 8 && first[8] == '{' && need <= MC_SAFETENSORS_MAX_HEADER &&
			need + 8 > size)
			return truncated(f, "at least ", need + 8, err);
		return make_opaque(im, f, &why, err);
	}
	header = malloc(need);
	if (header == NULL)
		return mc_err_set(err, -ENOMEM, "out of memory");
	r = read_bytes(im, f, header, need, err);
	if (r < 0)
		return r;
	r = mc_safetensors_parse(header, need, size, &f->st, &why);
	if (r != -EBADMSG)
		return r < 0 ? mc_err_set(err, r, "source: %s: %s", f->open_path, why.text) : 0;
	need = promised_size(header, need);
	if (need > size)
		return truncated(f, "", need, err);
	return make_opaque(im, f, &why, err);
}

static int add_chunk(struct mc_import *im, uint32_t file, uint64_t off, uint32_t len)
{
	if (im->n_chunks == im->cap_chunks) {
		size_t cap = im->cap_chunks == 0 ? 256 : 2 * im->cap_chunks;
		struct mc_import_chunk *more = reallocarray(im->chunks, cap, sizeof(*more));

		if (more == NULL)
			return -ENOMEM;
		im->chunks = more;
		im->cap_chunks = cap;
	}
	im->chunks[im->n_chunks++] = (struct mc_import_chunk){.off = off, .len = len, .file = file};
	return 0;
}

static int cut(struct mc_import *im, uint32_t file)
{
	struct mc_import_file *f = &im->files[file];
	cleanup_free uint64_t *anchors = NULL;
	struct mc_chunk_input in = {
		.size = f->entry->size, .data = f->entry->data, .n_data = f->entry->n_data};
	struct mc_chunk_plan plan = {0};
	int r = 0;

	f->first_chunk = im->n_chunks;
	if (f->st != NULL)
		r = mc_chunk_anchors(f->st, &anchors, &in.n_anchors);
	in.anchors = anchors;
	if (r == 0 && in.size > 0)
		r = mc_chunk_plan(&in, &plan);
	for (size_t i = 0; r == 0 && i < plan.n; i++)
		if (!plan.spans[i].hole)
			r = add_chunk(im, file, plan.spans[i].off, (uint32_t)plan.spans[i].len);
	mc_chunk_plan_done(&plan);
	f->n_chunks = im->n_chunks - f->first_chunk;
	f->left = f->n_chunks;
	return r;
}

int mc_import_plan(struct mc_import *im, struct mc_err *err)
{
	int r = 0;

	mc_import_stage(im, "plan", 0, im->n_files);
	for (size_t i = 0; i < im->n_files && r == 0; i++) {
		struct mc_import_file *f = &im->files[i];

		mc_import_tick(im);
		if (ends_with(f->entry->path, ".safetensors"))
			r = parse_header(im, f, err);
		if (r < 0)
			return r;
		r = cut(im, (uint32_t)i);
		if (r < 0)
			return mc_err_set(err, r, "source: %s cannot be cut into chunks: %s",
				f->open_path, strerror(-r));
		im->done_items++;
	}
	if (im->n_chunks >= UINT32_MAX)
		return mc_err_set(err, -EFBIG, "source: more than 2^32 chunks");
	r = mc_import_tensors(im, err);
	return r < 0 ? r : mc_import_model(im, err);
}
