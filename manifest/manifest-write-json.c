/* Writing the canonical JSON of a manifest: keys sorted, integers only, no white space. */
#include "manifest/manifest-writer.h"

#include <endian.h>
#include <string.h>

#include "manifest/base64.h"
#include "manifest/json-out.h"
#include "tier/cleanup.h"

static int item_order(const void *a, const void *b)
{
	return strcmp(((const struct mc_new_item *)a)->path, ((const struct mc_new_item *)b)->path);
}

static int item_find(const void *path, const void *item)
{
	return strcmp(path, ((const struct mc_new_item *)item)->path);
}

static int tensor_order(const void *va, const void *vb)
{
	const struct mc_writer_tensor *a = va, *b = vb;
	int c = strcmp(a->name, b->name);

	if (c != 0)
		return c;
	if (a->file_no != b->file_no)
		return a->file_no < b->file_no ? -1 : 1;
	return a->off < b->off ? -1 : a->off > b->off;
}

static void put_hex(struct mc_json_out *o, const uint8_t sha[MC_SHA256_SIZE])
{
	char hex[MC_SHA256_HEX + 1];

	mc_hex_encode(sha, MC_SHA256_SIZE, hex);
	mc_json_put_string(o, hex);
}

static void put_mtime(struct mc_json_out *o, int64_t s, uint32_t ns)
{
	mc_json_put(o, "\"mtime\":[");
	mc_json_put_int(o, s);
	mc_json_put(o, ",");
	mc_json_put_uint(o, ns);
	mc_json_put(o, "]");
}

static void put_meta(struct mc_json_out *o, const struct mc_new_meta *meta)
{
	mc_json_put(o, "\"mode\":");
	mc_json_put_uint(o, meta->mode);
	mc_json_put(o, ",");
	put_mtime(o, meta->mtime_s, meta->mtime_ns);
}

static void put_chunks(struct mc_json_out *o, const struct mc_writer *w)
{
	static const char *const column[] = {"{\"len\":[", "],\"sha256\":["};

	for (int c = 0; c < 2; c++) {
		bool first = true;

		mc_json_put(o, column[c]);
		for (size_t i = 0; i < w->n_items; i++) {
			for (size_t k = 0; k < w->items[i].n_spans; k++) {
				const struct mc_new_span *s = &w->items[i].spans[k];

				if (s->hole)
					continue;
				mc_json_put_comma(o, &first);
				if (c == 0)
					mc_json_put_uint(o, s->len);
				else
					put_hex(o, s->sha256);
			}
		}
	}
	mc_json_put(o, "]}");
}

static void put_crcs(struct mc_json_out *o, const struct mc_new_item *item)
{
	size_t n = mc_block_count(item->size), bytes = n * sizeof(uint32_t);
	char *at;

	mc_json_put(o, "\"crc32c\":\"");
	for (size_t i = 0; i < n; i++)
		item->crcs[i] = htole32(item->crcs[i]);
	at = o->failed ? NULL : mc_buffer_extend(&o->b, mc_base64_len(bytes));
	if (at != NULL)
		mc_base64_encode((const uint8_t *)item->crcs, bytes, at);
	else
		o->failed = true;
	for (size_t i = 0; i < n; i++)
		item->crcs[i] = le32toh(item->crcs[i]);
	mc_json_put(o, "\"");
}

static void put_holes(struct mc_json_out *o, const struct mc_new_item *item)
{
	bool first = true;
	uint64_t at = 0;

	for (size_t i = 0; i < item->n_spans; at += item->spans[i++].len) {
		if (!item->spans[i].hole)
			continue;
		mc_json_put(o, first ? ",\"holes\":[[" : ",[");
		first = false;
		mc_json_put_uint(o, at);
		mc_json_put(o, ",");
		mc_json_put_uint(o, item->spans[i].len);
		mc_json_put(o, "]");
	}
	if (!first)
		mc_json_put(o, "]");
}

/* The keys of a file up to holes; all sort before "mode". */
static void put_content(struct mc_json_out *o, const struct mc_new_item *item)
{
	uint64_t chunks = 0;

	for (size_t i = 0; i < item->n_spans; i++)
		chunks += !item->spans[i].hole;
	if (chunks > 0) {
		mc_json_put(o, "\"chunks\":");
		mc_json_put_uint(o, chunks);
		mc_json_put(o, ",");
	}
	put_crcs(o, item);
	mc_json_put(o, ",\"digest\":");
	put_hex(o, item->digest);
	if (item->ext_path != NULL) {
		mc_json_put(o, ",\"ext\":{");
		put_mtime(o, item->ext_guard.mtime_s, item->ext_guard.mtime_ns);
		mc_json_put(o, ",\"off\":");
		mc_json_put_uint(o, item->ext_off);
		mc_json_put(o, ",\"path\":");
		mc_json_put_string(o, item->ext_path);
		mc_json_put(o, ",\"size\":");
		mc_json_put_uint(o, item->ext_guard.size);
		mc_json_put(o, "}");
	}
	put_holes(o, item);
	mc_json_put(o, ",");
}

static void put_item(struct mc_json_out *o, const struct mc_new_item *item)
{
	static const char *const type[] = {
		[MC_ENTRY_DIR] = "dir", [MC_ENTRY_FILE] = "file", [MC_ENTRY_SYMLINK] = "symlink"};

	mc_json_put(o, "{");
	if (item->type == MC_ENTRY_FILE)
		put_content(o, item);
	put_meta(o, &item->meta);
	if (item->parse_error != NULL) {
		mc_json_put(o, ",\"parse_error\":");
		mc_json_put_string(o, item->parse_error);
	}
	mc_json_put(o, ",\"path\":");
	mc_json_put_string(o, item->path);
	if (item->has_sha256) {
		mc_json_put(o, ",\"sha256\":");
		put_hex(o, item->sha256);
	}
	if (item->type == MC_ENTRY_FILE) {
		mc_json_put(o, ",\"size\":");
		mc_json_put_uint(o, item->size);
	}
	if (item->type == MC_ENTRY_SYMLINK) {
		mc_json_put(o, ",\"target\":");
		mc_json_put_string(o, item->target);
	}
	mc_json_put(o, ",\"type\":");
	mc_json_put_string(o, type[item->type]);
	mc_json_put(o, "}");
}

static void put_model(struct mc_json_out *o, const struct mc_writer *w)
{
	const char *const keys[] = {"architecture", "config", "quantisation"};
	const char *const values[] = {w->architecture, w->config_path, w->quantisation};
	bool first = true;

	mc_json_put(o, "{");
	for (int i = 0; i < 3; i++) {
		if (values[i] == NULL)
			continue;
		mc_json_put_comma(o, &first);
		mc_json_put_string(o, keys[i]);
		mc_json_put(o, ":");
		mc_json_put_string(o, values[i]);
	}
	mc_json_put(o, "}");
}

static void put_document(struct mc_json_out *o, const struct mc_writer *w)
{
	mc_json_put(o, "{\"chunks\":");
	put_chunks(o, w);
	mc_json_put(o, ",\"files\":[");
	for (size_t i = 0; i < w->n_items; i++) {
		mc_json_put(o, i > 0 ? "," : "");
		put_item(o, &w->items[i]);
	}
	mc_json_put(o, "],\"format\":\"mooncakefs-manifest\",\"model\":");
	put_model(o, w);
	mc_json_put(o, ",\"root\":{");
	put_meta(o, &w->root);
	mc_json_put(o, "},\"tensors\":");
	mc_writer_put_tensors(o, w);
	mc_json_put(o, ",\"version\":1}");
}

/* Puts files and tensors in order and resolves the tensors' files. */
static int put_in_order(struct mc_writer *w, struct mc_err *err)
{
	if (w->n_items > 0)
		qsort(w->items, w->n_items, sizeof(*w->items), item_order);
	for (size_t i = 0; i < w->n_tensors; i++) {
		struct mc_writer_tensor *t = &w->tensors[i];
		const struct mc_new_item *item = w->n_items == 0
			? NULL
			: bsearch(t->file, w->items, w->n_items, sizeof(*w->items), item_find);

		if (item == NULL)
			return mc_err_set(err, -EINVAL, "tensor %s: its file %s was not added",
				t->name, t->file);
		t->file_no = (size_t)(item - w->items);
	}
	if (w->n_tensors > 0)
		qsort(w->tensors, w->n_tensors, sizeof(*w->tensors), tensor_order);
	return 0;
}

int mc_writer_finish(struct mc_writer *w, char **ret_json, size_t *ret_len,
	struct mc_manifest **ret, struct mc_err *err)
{
	struct mc_json_out o = {0};
	struct mc_manifest *m;
	int r = put_in_order(w, err);

	if (r < 0)
		return r;
	put_document(&o, w);
	if (o.failed)
		r = -ENOMEM;
	else if (o.b.len > MC_MANIFEST_MAX_BYTES)
		r = mc_err_set(err, -EFBIG, "the manifest has %zu bytes, more than %llu", o.b.len,
			(unsigned long long)MC_MANIFEST_MAX_BYTES);
	else
		r = mc_manifest_parse(o.b.p, o.b.len, &m, err);
	if (r < 0) {
		mc_buffer_done(&o.b);
		return r == -EBADMSG ? -EINVAL : r;
	}
	if (ret != NULL)
		*ret = m;
	else
		mc_manifest_unref(m);
	*ret_json = (char *)o.b.p;
	*ret_len = o.b.len;
	return 0;
}
