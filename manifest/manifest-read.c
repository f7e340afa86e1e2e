/* Reading a manifest: entries, look-ups, chunks, tensors. All from the flat index, no state. */
#include "manifest/manifest-index.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

const uint8_t *mc_manifest_id(const struct mc_manifest *m)
{
	return m->head->id;
}

uint32_t mc_manifest_entries(const struct mc_manifest *m)
{
	return m->n_entries;
}

void mc_manifest_entry(const struct mc_manifest *m, uint32_t entry, struct mc_entry *ret)
{
	const struct mc_index_entry *e = &m->entries[entry];

	assert(entry < m->n_entries);
	*ret = (struct mc_entry){.type = (enum mc_entry_type)e->type,
		.mode = e->mode,
		.mtime_s = e->mtime_s,
		.mtime_ns = e->mtime_ns,
		.size = e->size,
		.hole_bytes = e->hole_bytes,
		.name = m->strings + e->name,
		.parent = e->parent};
	if (e->type == MC_ENTRY_DIR) {
		ret->first_child = e->first;
		ret->n_children = e->count;
	} else if (e->type == MC_ENTRY_SYMLINK) {
		ret->target = m->strings + e->target;
	} else {
		ret->digest = e->digest;
		ret->sha256 = e->sha256 == MC_INDEX_NONE
			? NULL
			: m->digests + (size_t)e->sha256 * MC_SHA256_SIZE;
		ret->parse_error = m->strings + e->parse_error;
		ret->external = e->ext != MC_INDEX_NONE;
		ret->ext_path = ret->external ? m->strings + m->exts[e->ext].path : NULL;
	}
}

int mc_manifest_lookup(const struct mc_manifest *m, uint32_t dir, const char *name, size_t name_len,
	uint32_t *ret_entry)
{
	const struct mc_index_entry *d = &m->entries[dir];
	uint32_t lo = 0, hi;

	assert(dir < m->n_entries);
	if (d->type != MC_ENTRY_DIR)
		return -ENOTDIR;
	hi = d->count;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		const char *have = m->strings + m->entries[d->first + mid].name;
		int c = strncmp(have, name, name_len);

		if (c == 0 && have[name_len] != '\0')
			c = 1;
		if (c == 0) {
			*ret_entry = d->first + mid;
			return 0;
		}
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return -ENOENT;
}

int mc_manifest_walk(const struct mc_manifest *m, const char *path, uint32_t *ret_entry)
{
	uint32_t at = 0;

	while (*path != '\0') {
		size_t n = strcspn(path, "/");
		int r = mc_manifest_lookup(m, at, path, n, &at);

		if (r < 0)
			return r;
		path += n;
		if (*path == '/' && path[1] == '\0')
			return -ENOENT;
		path += *path == '/';
	}
	*ret_entry = at;
	return 0;
}

int mc_manifest_path(const struct mc_manifest *m, uint32_t entry, char *out, size_t size)
{
	size_t len = 0;

	for (uint32_t at = entry; at != 0; at = m->entries[at].parent)
		len += strlen(m->strings + m->entries[at].name) + (len > 0);
	if (len >= size)
		return -ENAMETOOLONG;
	out[len] = '\0';
	for (uint32_t at = entry; at != 0; at = m->entries[at].parent) {
		const char *name = m->strings + m->entries[at].name;
		size_t n = strlen(name);

		len -= n;
		memcpy(out + len, name, n);
		if (len > 0)
			out[--len] = '/';
	}
	return 0;
}

uint32_t mc_manifest_chunks(const struct mc_manifest *m)
{
	return m->n_chunks;
}

void mc_manifest_chunk(const struct mc_manifest *m, uint32_t chunk, struct mc_chunk *ret)
{
	const struct mc_index_chunk *c = &m->chunks[chunk];

	assert(chunk < m->n_chunks);
	*ret = (struct mc_chunk){.sha256 = c->sha256, .len = c->len, .stored = c->stored != 0};
}

void mc_chunk_path(const uint8_t sha256[MC_SHA256_SIZE], char out[MC_CHUNK_PATH])
{
	static const char prefix[] = "chunks/xx/";
	char *hex = out + sizeof(prefix) - 1;

	memcpy(out, prefix, sizeof(prefix) - 1);
	mc_hex_encode(sha256, MC_SHA256_SIZE, hex);
	memcpy(out + 7, hex, 2);
}

uint32_t mc_manifest_spans(const struct mc_manifest *m, uint32_t entry)
{
	assert(entry < m->n_entries && m->entries[entry].type == MC_ENTRY_FILE);
	return m->entries[entry].count;
}

void mc_manifest_span(
	const struct mc_manifest *m, uint32_t entry, uint32_t span, struct mc_span *ret)
{
	const struct mc_index_entry *e = &m->entries[entry];
	const struct mc_index_span *s = &m->spans[e->first + span];

	assert(span < mc_manifest_spans(m, entry));
	*ret = (struct mc_span){.off = s->off,
		.len = mc_index_span_end(m, e, e->first + span) - s->off,
		.hole = s->chunk == MC_INDEX_NONE,
		.chunk = s->chunk == MC_INDEX_NONE ? 0 : s->chunk};
}

uint32_t mc_manifest_tensors(const struct mc_manifest *m)
{
	return m->n_tensors;
}

void mc_manifest_tensor(const struct mc_manifest *m, uint32_t tensor, struct mc_tensor *ret)
{
	const struct mc_index_tensor *t = &m->tensors[tensor];

	assert(tensor < m->n_tensors);
	*ret = (struct mc_tensor){.name = m->strings + t->name,
		.dtype = t->dtype,
		.rank = t->rank,
		.entry = t->entry,
		.off = t->off,
		.len = t->len,
		.boxed = t->box != MC_INDEX_NONE};
	for (unsigned i = 0; i < t->rank; i++) {
		ret->shape[i] = m->numbers[t->shape + i];
		if (ret->boxed) {
			ret->box_off[i] = m->numbers[t->box + i];
			ret->global[i] = m->numbers[t->box + t->rank + i];
		}
	}
}

int mc_manifest_tensor_find(const struct mc_manifest *m, const char *name, uint32_t *ret_tensor)
{
	uint32_t lo = 0, hi = m->n_tensors;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (strcmp(m->strings + m->tensors[mid].name, name) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == m->n_tensors || strcmp(m->strings + m->tensors[lo].name, name) != 0)
		return -ENOENT;
	*ret_tensor = lo;
	return 0;
}

void mc_manifest_model(const struct mc_manifest *m, struct mc_model *ret)
{
	*ret = (struct mc_model){.config_path = m->strings + m->head->config_path,
		.architecture = m->strings + m->head->architecture,
		.quantisation = m->strings + m->head->quantisation};
}
