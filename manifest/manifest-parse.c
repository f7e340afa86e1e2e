/* Parsing the JSON of a manifest, which is untrusted: the top level, chunks, and shared readers. */
#include "manifest/manifest-parse.h"

#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "manifest/file-digest.h"

#define FORMAT_NAME "mooncakefs-manifest"
#define FORMAT_VERSION 1
#define TRIM_BYTES (1u << 20)
#define MAX_DEPTH 16 /* the format needs 5; x- keys may hold more */

int mc_parse_bad(const struct mc_parse *p, const char *fmt, ...)
{
	char text[384];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (p->name != NULL)
		return mc_err_set(p->err, -EBADMSG, "%s %s: %s", p->kind, p->name, text);
	return mc_err_set(p->err, -EBADMSG, "%s: %s", p->kind, text);
}

int mc_parse_uint(
	const struct mc_parse *p, const json_t *obj, const char *key, uint64_t max, uint64_t *ret)
{
	if (mc_json_uint(json_object_get(obj, key), max, ret) == 0)
		return 0;
	return mc_parse_bad(
		p, "\"%s\" must be an integer from 0 to %llu", key, (unsigned long long)max);
}

int mc_parse_string(const struct mc_parse *p, const json_t *obj, const char *key, const char *def,
	const char **ret)
{
	const json_t *v = json_object_get(obj, key);

	if (v == NULL && def != NULL) {
		*ret = def;
		return 0;
	}
	if (!json_is_string(v))
		return mc_parse_bad(p, "\"%s\" must be a string", key);
	*ret = json_string_value(v);
	return 0;
}

int mc_parse_mtime(const struct mc_parse *p, const json_t *obj, int64_t *ret_s, uint32_t *ret_ns)
{
	const json_t *mtime = json_object_get(obj, "mtime"), *s = json_array_get(mtime, 0);
	json_int_t limit = (json_int_t)MC_JSON_INT_MAX;
	uint64_t ns;

	if (json_array_size(mtime) != 2 || !json_is_integer(s) || json_integer_value(s) > limit ||
		json_integer_value(s) < -limit ||
		mc_json_uint(json_array_get(mtime, 1), 999999999, &ns) < 0)
		return mc_parse_bad(p, "\"mtime\" must be [seconds, nanoseconds]");
	*ret_s = json_integer_value(s);
	*ret_ns = (uint32_t)ns;
	return 0;
}

int mc_parse_meta(const struct mc_parse *p, const json_t *obj, struct mc_index_entry *e)
{
	uint64_t mode;
	int r = mc_parse_uint(p, obj, "mode", 07777, &mode);

	if (r < 0)
		return r;
	e->mode = (uint32_t)mode;
	return mc_parse_mtime(p, obj, &e->mtime_s, &e->mtime_ns);
}

static int parse_top(struct mc_parse *p, const json_t *root)
{
	static const char *const known[] = {
		"chunks", "files", "format", "model", "root", "tensors", "version", NULL};
	const char *format, *key;
	uint64_t version;
	void *it;
	int r;

	if (!json_is_object(root))
		return mc_parse_bad(p, "must be an object");
	r = mc_parse_string(p, root, "format", NULL, &format);
	if (r < 0)
		return r;
	if (strcmp(format, FORMAT_NAME) != 0)
		return mc_parse_bad(p, "format is \"%.40s\", not \"" FORMAT_NAME "\"", format);
	r = mc_parse_uint(p, root, "version", MC_JSON_INT_MAX, &version);
	if (r < 0)
		return r;
	if (version != FORMAT_VERSION)
		return mc_parse_bad(p, "version %llu is not supported (this program reads %d)",
			(unsigned long long)version, FORMAT_VERSION);
	for (it = json_object_iter((json_t *)root); it != NULL;
		it = json_object_iter_next((json_t *)root, it)) {
		size_t i = 0;

		key = json_object_iter_key(it);
		if (strncmp(key, "x-", 2) == 0)
			continue;
		while (known[i] != NULL && strcmp(known[i], key) != 0)
			i++;
		if (known[i] == NULL)
			return mc_parse_bad(p, "unknown key \"%.80s\"", key);
	}
	return 0;
}

static int parse_chunks(struct mc_parse *p, const json_t *obj)
{
	static const char *const known[] = {"len", "sha256", NULL};
	const json_t *lens = json_object_get(obj, "len"), *shas = json_object_get(obj, "sha256");
	size_t n = json_array_size(shas);

	p->kind = "chunks";
	if (!json_is_array(lens) || !json_is_array(shas) || mc_json_unknown_key(obj, known) != NULL)
		return mc_parse_bad(p, "must hold the arrays \"len\" and \"sha256\"");
	if (json_array_size(lens) != n)
		return mc_parse_bad(p, "%zu lengths for %zu digests", json_array_size(lens), n);
	for (size_t i = 0; i < n; i++) {
		const char *hex = json_string_value(json_array_get(shas, i));
		struct mc_index_chunk c = {0};
		uint64_t len;
		int r;

		if (hex == NULL || mc_hex_decode(hex, c.sha256, MC_SHA256_SIZE) < 0)
			return mc_parse_bad(p, "sha256 of chunk %zu is not 64 hex digits", i);
		if (mc_json_uint(json_array_get(lens, i), MC_CHUNK_MAX, &len) < 0 || len == 0)
			return mc_parse_bad(
				p, "len of chunk %zu is not from 1 to %u", i, MC_CHUNK_MAX);
		c.len = (uint32_t)len;
		r = mc_index_add(&p->b, MC_INDEX_CHUNKS, &c, sizeof(c), NULL);
		if (r < 0)
			return r;
	}
	return 0;
}

static int parse_files(struct mc_parse *p, const json_t *files)
{
	size_t n = json_array_size(files), n_chunks;

	p->kind = "files";
	if (!json_is_array(files) || n >= MC_INDEX_NONE - 1)
		return mc_parse_bad(p, "must be an array");
	p->raw = calloc(n + 1, sizeof(*p->raw));
	if (p->raw == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		int r = mc_parse_entry(p, json_array_get(files, i), &p->raw[i]);

		if (r < 0)
			return r;
		p->n_raw++;
	}
	p->kind = "chunks";
	p->name = NULL;
	n_chunks = p->b.section[MC_INDEX_CHUNKS].len / sizeof(struct mc_index_chunk);
	if (p->next_chunk != n_chunks)
		return mc_parse_bad(p, "%zu chunks but the files use %u", n_chunks, p->next_chunk);
	return 0;
}

static int parse_root(struct mc_parse *p, const json_t *obj, struct mc_index_entry *root)
{
	static const char *const known[] = {"mode", "mtime", NULL};

	p->kind = "root";
	if (!json_is_object(obj) || mc_json_unknown_key(obj, known) != NULL)
		return mc_parse_bad(p, "must hold mode and mtime");
	return mc_parse_meta(p, obj, root);
}

static int find_file(const struct mc_parse *p, const char *path)
{
	for (uint32_t i = 0; i < p->n_raw; i++)
		if (strcmp(p->raw[i].path, path) == 0)
			return p->raw[i].e.type == MC_ENTRY_DIR ? -EISDIR : 0;
	return -ENOENT;
}

static int parse_model(struct mc_parse *p, const json_t *obj)
{
	static const char *const known[] = {"architecture", "config", "quantisation", NULL};
	const char *config, *architecture, *quantisation;
	int r;

	p->kind = "model";
	if (obj == NULL)
		return 0;
	if (!json_is_object(obj) || mc_json_unknown_key(obj, known) != NULL)
		return mc_parse_bad(p, "may hold architecture, config and quantisation only");
	r = mc_parse_string(p, obj, "config", "", &config);
	if (r == 0)
		r = mc_parse_string(p, obj, "architecture", "", &architecture);
	if (r == 0)
		r = mc_parse_string(p, obj, "quantisation", "", &quantisation);
	if (r < 0)
		return r;
	if (config[0] != '\0' && find_file(p, config) < 0)
		return mc_parse_bad(p, "config %.200s is not a file of the checkpoint", config);
	r = mc_index_add_string(&p->b, config, &p->b.config_path);
	if (r == 0)
		r = mc_index_add_string(&p->b, architecture, &p->b.architecture);
	if (r == 0)
		r = mc_index_add_string(&p->b, quantisation, &p->b.quantisation);
	return r;
}

static int parse_document(struct mc_parse *p, const json_t *root)
{
	struct mc_index_entry top = {0};
	int r = parse_top(p, root);

	if (r == 0)
		r = parse_root(p, json_object_get(root, "root"), &top);
	if (r == 0)
		r = parse_chunks(p, json_object_get(root, "chunks"));
	if (r == 0)
		r = parse_files(p, json_object_get(root, "files"));
	if (r == 0)
		r = mc_parse_tree(p, &top);
	if (r == 0)
		r = mc_parse_tensors(p, json_object_get(root, "tensors"));
	if (r == 0)
		r = parse_model(p, json_object_get(root, "model"));
	return r;
}

int mc_manifest_parse(const void *json, size_t len, struct mc_manifest **ret, struct mc_err *err)
{
	struct mc_parse p = {
		.err = err, .kind = "manifest", .zero_crc = mc_crc_of_zeros(MC_BLOCK_SIZE)};
	uint8_t id[MC_SHA256_SIZE];
	json_t *root = NULL;
	int r;

	if (len > MC_MANIFEST_MAX_BYTES)
		return mc_err_set(err, -EBADMSG, "manifest: %zu bytes, more than %llu", len,
			(unsigned long long)MC_MANIFEST_MAX_BYTES);
	r = mc_index_builder_init(&p.b);
	if (r == 0)
		r = mc_sha256(json, len, id);
	if (r == 0) {
		r = mc_json_load(json, len, MAX_DEPTH, &root, err);
		if (r < 0)
			mc_err_prefix(err, r, "manifest");
	}
	if (r == 0)
		r = parse_document(&p, root);
	json_decref(root);
	/* The document took several times the text in small pieces, which the allocator would keep.
	 */
	if (len >= TRIM_BYTES)
		malloc_trim(0);
	if (r == -EOVERFLOW)
		r = mc_err_set(err, -EBADMSG, "manifest: more than 2^32 records of one kind");
	if (r == 0)
		r = mc_index_finish(&p.b, id, ret);
	mc_index_builder_done(&p.b);
	free(p.raw);
	free(p.entry_of);
	return r;
}
