/* Parsing one element of "files": names, holes, spans, external file, checksums, digest. */
#include "manifest/manifest-parse.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "manifest/base64.h"
#include "manifest/file-digest.h"
#include "manifest/path.h"

static int parse_holes(struct mc_parse *p, const json_t *holes, struct mc_index_entry *e)
{
	size_t n = json_array_size(holes);
	uint64_t at = 0; /* where the last hole ends */

	e->first_hole = (uint32_t)(p->b.section[MC_INDEX_HOLES].len / sizeof(struct mc_index_hole));
	if (holes != NULL && (!json_is_array(holes) || n == 0))
		return mc_parse_bad(p, "\"holes\" must be a non-empty array");
	for (size_t i = 0; i < n; i++) {
		const json_t *row = json_array_get(holes, i);
		struct mc_index_hole h;
		int r;

		if (json_array_size(row) != 2 ||
			mc_json_uint(json_array_get(row, 0), e->size, &h.off) < 0 ||
			mc_json_uint(json_array_get(row, 1), e->size - h.off, &h.len) < 0 ||
			h.len == 0)
			return mc_parse_bad(
				p, "hole %zu must be [offset, length] inside the file", i);
		if (i > 0 && h.off <= at)
			return mc_parse_bad(p,
				"hole %zu does not come after hole %zu with data between", i,
				i - 1);
		at = h.off + h.len;
		e->hole_bytes += h.len;
		r = mc_index_add(&p->b, MC_INDEX_HOLES, &h, sizeof(h), NULL);
		if (r < 0)
			return r;
	}
	e->n_holes = (uint32_t)n;
	return 0;
}

/* Adds the span at *at and moves *at behind it; the chunk must end at or before limit. */
static int add_chunk(struct mc_parse *p, const struct mc_index_entry *e, uint64_t *at,
	uint64_t limit, struct mc_file_digest *d)
{
	struct mc_index_chunk *c = (struct mc_index_chunk *)p->b.section[MC_INDEX_CHUNKS].p;
	struct mc_index_span s = {.off = *at, .chunk = p->next_chunk};
	int r;

	c += p->next_chunk;
	if (c->len > limit - *at)
		return mc_parse_bad(p, "chunk %u (%u bytes at %llu) runs past %llu, %s",
			p->next_chunk, c->len, (unsigned long long)*at, (unsigned long long)limit,
			limit == e->size ? "the end of the file" : "where a hole starts");
	c->stored = e->ext == MC_INDEX_NONE;
	*at += c->len;
	p->next_chunk++;
	r = mc_index_add(&p->b, MC_INDEX_SPANS, &s, sizeof(s), NULL);
	return r < 0 ? r : mc_file_digest_chunk(d, c->len, c->sha256);
}

static int add_hole(
	struct mc_parse *p, uint64_t *at, const struct mc_index_hole *h, struct mc_file_digest *d)
{
	struct mc_index_span s = {.off = h->off, .chunk = MC_INDEX_NONE};
	int r = mc_index_add(&p->b, MC_INDEX_SPANS, &s, sizeof(s), NULL);

	*at += h->len;
	return r < 0 ? r : mc_file_digest_hole(d, h->len);
}

/* Lays the file's chunks between its holes: together they must cover it exactly. */
static int parse_spans(
	struct mc_parse *p, uint64_t n_chunks, struct mc_index_entry *e, struct mc_file_digest *d)
{
	uint32_t end_chunk = p->next_chunk + (uint32_t)n_chunks, hole = 0;
	uint64_t at = 0;
	int r = 0;

	e->first = (uint32_t)(p->b.section[MC_INDEX_SPANS].len / sizeof(struct mc_index_span));
	while (r == 0 && at < e->size) {
		const struct mc_index_hole *h = (void *)p->b.section[MC_INDEX_HOLES].p;
		uint64_t limit = e->size;

		if (hole < e->n_holes)
			limit = h[e->first_hole + hole].off;
		if (at == limit)
			r = add_hole(p, &at, &h[e->first_hole + hole++], d);
		else if (p->next_chunk == end_chunk)
			return mc_parse_bad(p, "its chunks end at %llu, %llu bytes are missing",
				(unsigned long long)at, (unsigned long long)(limit - at));
		else
			r = add_chunk(p, e, &at, limit, d);
	}
	if (r < 0)
		return r;
	if (p->next_chunk != end_chunk)
		return mc_parse_bad(p, "%u chunks lie past its end", end_chunk - p->next_chunk);
	e->count = (uint32_t)(p->b.section[MC_INDEX_SPANS].len / sizeof(struct mc_index_span)) -
		e->first;
	return 0;
}

static int parse_ext(struct mc_parse *p, const json_t *obj, struct mc_index_entry *e)
{
	static const char *const known[] = {"mtime", "off", "path", "size", NULL};
	struct mc_index_ext x = {0};
	const char *path, *fault;
	int r;

	if (!json_is_object(obj) || mc_json_unknown_key(obj, known) != NULL)
		return mc_parse_bad(p, "\"ext\" must hold mtime, off, path and size");
	r = mc_parse_string(p, obj, "path", NULL, &path);
	if (r == 0)
		r = mc_parse_uint(p, obj, "off", MC_JSON_INT_MAX, &x.off);
	if (r == 0)
		r = mc_parse_uint(p, obj, "size", MC_JSON_INT_MAX, &x.size);
	if (r == 0)
		r = mc_parse_mtime(p, obj, &x.mtime_s, &x.mtime_ns);
	if (r < 0)
		return r;
	fault = mc_path_fault(path);
	if (fault != NULL)
		return mc_parse_bad(p, "external path %s", fault);
	if (x.off > x.size || e->size > x.size - x.off)
		return mc_parse_bad(p, "its range ends after the external file");
	r = mc_index_add_string(&p->b, path, &x.path);
	return r < 0 ? r : mc_index_add(&p->b, MC_INDEX_EXTS, &x, sizeof(x), &e->ext);
}

/* Blocks that lie in a hole must carry the checksum of zeros. */
static int check_zero_blocks(
	struct mc_parse *p, const struct mc_index_entry *e, const uint32_t *crc)
{
	const struct mc_index_hole *h = (void *)p->b.section[MC_INDEX_HOLES].p;

	for (uint32_t i = 0; i < e->n_holes; i++) {
		uint64_t off = h[e->first_hole + i].off, end = off + h[e->first_hole + i].len;
		uint64_t b = mc_block_count(off); /* the first block that starts in the hole */

		for (; b << MC_BLOCK_SHIFT < end; b++) {
			uint32_t len = mc_block_len(e->size, b);

			if ((b << MC_BLOCK_SHIFT) + len > end)
				break;
			if (crc[b] != (len == MC_BLOCK_SIZE ? p->zero_crc : mc_crc_of_zeros(len)))
				return mc_parse_bad(p,
					"block %llu is a hole but its crc32c is not"
					" that of zeros",
					(unsigned long long)b);
		}
	}
	return 0;
}

static int parse_crcs(struct mc_parse *p, const json_t *obj, struct mc_index_entry *e)
{
	const json_t *v = json_object_get(obj, "crc32c");
	uint64_t n = mc_block_count(e->size), first;
	size_t len = json_string_length(v);
	uint32_t *crc;

	/* The text's length bounds n before anything is allocated. */
	if (!json_is_string(v) || len / 4 < n)
		return mc_parse_bad(p, "crc32c must be the base64 of %llu block checksums",
			(unsigned long long)n);
	first = p->b.section[MC_INDEX_CRCS].len / sizeof(*crc);
	if (first + n >= MC_INDEX_NONE)
		return -EOVERFLOW;
	e->first_crc = (uint32_t)first;
	crc = mc_buffer_extend(&p->b.section[MC_INDEX_CRCS], n * sizeof(*crc));
	if (crc == NULL)
		return -ENOMEM;
	if (mc_base64_decode(json_string_value(v), len, (uint8_t *)crc, n * sizeof(*crc)) < 0)
		return mc_parse_bad(p, "crc32c must be the base64 of %llu block checksums",
			(unsigned long long)n);
	for (uint64_t i = 0; i < n; i++)
		crc[i] = le32toh(crc[i]);
	return check_zero_blocks(p, e, crc);
}

static int parse_digests(struct mc_parse *p, const json_t *obj,
	const uint8_t computed[MC_SHA256_SIZE], struct mc_index_entry *e)
{
	uint8_t sha[MC_SHA256_SIZE];
	const char *hex;
	int r = mc_parse_string(p, obj, "digest", NULL, &hex);

	if (r < 0)
		return r;
	if (mc_hex_decode(hex, e->digest, MC_SHA256_SIZE) < 0)
		return mc_parse_bad(p, "digest is not 64 hex digits");
	if (memcmp(e->digest, computed, MC_SHA256_SIZE) != 0)
		return mc_parse_bad(p, "digest is not that of its chunks and holes");
	e->sha256 = MC_INDEX_NONE;
	if (json_object_get(obj, "sha256") == NULL)
		return 0;
	r = mc_parse_string(p, obj, "sha256", NULL, &hex);
	if (r < 0)
		return r;
	if (mc_hex_decode(hex, sha, MC_SHA256_SIZE) < 0)
		return mc_parse_bad(p, "sha256 is not 64 hex digits");
	return mc_index_add(&p->b, MC_INDEX_DIGESTS, sha, sizeof(sha), &e->sha256);
}

static int parse_content(struct mc_parse *p, const json_t *obj, struct mc_index_entry *e)
{
	uint8_t digest[MC_SHA256_SIZE];
	const json_t *ext = json_object_get(obj, "ext");
	const char *parse_error;
	struct mc_file_digest d;
	uint64_t n_chunks = 0, left;
	int r = mc_parse_uint(p, obj, "size", MC_JSON_INT_MAX, &e->size);

	left = p->b.section[MC_INDEX_CHUNKS].len / sizeof(struct mc_index_chunk) - p->next_chunk;
	e->ext = MC_INDEX_NONE;
	if (r == 0 && json_object_get(obj, "chunks") != NULL)
		r = mc_parse_uint(p, obj, "chunks", left, &n_chunks);
	if (r == 0)
		r = parse_holes(p, json_object_get(obj, "holes"), e);
	if (r == 0 && ext != NULL)
		r = parse_ext(p, ext, e);
	if (r == 0)
		r = mc_parse_string(p, obj, "parse_error", "", &parse_error);
	if (r == 0)
		r = mc_index_add_string(&p->b, parse_error, &e->parse_error);
	if (r < 0)
		return r;
	r = mc_file_digest_init(&d);
	if (r < 0)
		return r;
	r = parse_spans(p, n_chunks, e, &d);
	if (r == 0)
		r = mc_file_digest_final(&d, digest);
	mc_file_digest_done(&d);
	if (r == 0)
		r = parse_digests(p, obj, digest, e);
	return r < 0 ? r : parse_crcs(p, obj, e);
}

static int parse_target(struct mc_parse *p, const json_t *obj, struct mc_raw_entry *raw)
{
	const char *target, *fault;
	int r = mc_parse_string(p, obj, "target", NULL, &target);

	if (r < 0)
		return r;
	fault = mc_link_fault(raw->path, target);
	if (fault != NULL)
		return mc_parse_bad(p, "link target %s", fault);
	raw->e.size = strlen(target);
	return mc_index_add_string(&p->b, target, &raw->e.target);
}

int mc_parse_entry(struct mc_parse *p, const json_t *obj, struct mc_raw_entry *raw)
{
	static const char *const dir_keys[] = {"mode", "mtime", "path", "type", NULL};
	static const char *const link_keys[] = {"mode", "mtime", "path", "target", "type", NULL};
	static const char *const file_keys[] = {"chunks", "crc32c", "digest", "ext", "holes",
		"mode", "mtime", "parse_error", "path", "sha256", "size", "type", NULL};
	const char *const *known = file_keys;
	const char *type, *fault, *key;
	int r;

	p->kind = "files";
	p->name = NULL;
	r = mc_parse_string(p, obj, "path", NULL, &raw->path);
	if (r < 0)
		return r;
	p->kind = "file";
	p->name = raw->path;
	fault = mc_path_fault(raw->path);
	if (fault != NULL)
		return mc_parse_bad(p, "path %s", fault);
	r = mc_parse_string(p, obj, "type", NULL, &type);
	if (r == 0)
		r = mc_parse_meta(p, obj, &raw->e);
	if (r < 0)
		return r;
	raw->e.type = MC_ENTRY_FILE;
	if (strcmp(type, "dir") == 0) {
		raw->e.type = MC_ENTRY_DIR;
		known = dir_keys;
	} else if (strcmp(type, "symlink") == 0) {
		raw->e.type = MC_ENTRY_SYMLINK;
		known = link_keys;
	} else if (strcmp(type, "file") != 0) {
		return mc_parse_bad(p, "type must be dir, file or symlink");
	}
	key = mc_json_unknown_key(obj, known);
	if (key != NULL)
		return mc_parse_bad(p, "unknown key \"%.80s\" for a %s", key, type);
	if (raw->e.type == MC_ENTRY_FILE)
		return parse_content(p, obj, &raw->e);
	return raw->e.type == MC_ENTRY_SYMLINK ? parse_target(p, obj, raw) : 0;
}
