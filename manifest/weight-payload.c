/* Payload objects as files, and fragments as parts of tensors in them. */
#include "manifest/weight-payload.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/dtype.h"
#include "manifest/manifest-index.h"
#include "manifest/path.h"
#include "tier/cleanup.h"

struct making {
	const struct mc_weight_manifest *w;
	struct mc_remote *payload; /* NULL = nobody looks */
	struct mc_index_builder b;
	uint32_t *order;       /* fragments by object key; owned */
	uint32_t *entry;       /* by fragment: its file; owned */
	struct mc_sha256 *all; /* of everything that tells this checkpoint from another */
	struct mc_index_entry root;
	struct mc_err *err;
};

static int key_compare(const void *a, const void *b, void *manifest)
{
	struct mc_weight_fragment x, y;

	mc_weight_manifest_fragment(manifest, *(const uint32_t *)a, &x);
	mc_weight_manifest_fragment(manifest, *(const uint32_t *)b, &y);
	return strcmp(x.object_key, y.object_key);
}

static int tensor_compare(const void *a, const void *b, void *manifest)
{
	struct mc_weight_fragment x, y;

	mc_weight_manifest_fragment(manifest, *(const uint32_t *)a, &x);
	mc_weight_manifest_fragment(manifest, *(const uint32_t *)b, &y);
	if (x.tensor != y.tensor)
		return x.tensor < y.tensor ? -1 : 1;
	return mc_box_compare(&x.box, &y.box);
}

/* What lies at the key. */
static int look(struct making *m, const char *key, uint64_t need, struct mc_index_ext *ret)
{
	struct mc_remote_attr attr;
	int r = mc_remote_stat(m->payload, key, &attr, NULL);

	if (r < 0)
		return mc_err_set(m->err, r == -ENOMEM ? r : -EINVAL, "payload %s/%s: %s",
			mc_remote_url(m->payload), key, strerror(-r));
	if (attr.type != MC_REMOTE_FILE)
		return mc_err_set(m->err, -EINVAL, "payload %s/%s is no plain file",
			mc_remote_url(m->payload), key);
	if (attr.size < need)
		return mc_err_set(m->err, -EINVAL,
			"payload %s/%s has %llu bytes, its fragments need %llu",
			mc_remote_url(m->payload), key, (unsigned long long)attr.size,
			(unsigned long long)need);
	ret->size = attr.size;
	ret->mtime_s = attr.mtime_s;
	ret->mtime_ns = attr.mtime_ns;
	return 0;
}

/* What of a file's place and look goes into identities. */
static int add_identity(struct mc_sha256 *h, const char *key, const struct mc_index_ext *x)
{
	int r = mc_sha256_update(h, key, strlen(key) + 1);

	if (r == 0)
		r = mc_sha256_update(h, &x->size, sizeof(x->size));
	if (r == 0)
		r = mc_sha256_update(h, &x->mtime_s, sizeof(x->mtime_s));
	return r == 0 ? mc_sha256_update(h, &x->mtime_ns, sizeof(x->mtime_ns)) : r;
}

static int identify(const char *key, const struct mc_index_ext *x, const char *digest, uint8_t *ret)
{
	struct mc_sha256 *h;
	int r = mc_sha256_open(&h);

	if (r < 0)
		return r;
	r = mc_sha256_update(h, digest, MC_WEIGHT_DIGEST);
	if (r == 0)
		r = add_identity(h, key, x);
	if (r == 0)
		r = mc_sha256_final(h, ret);
	mc_sha256_close(h);
	return r;
}

/* The newest file says how old the checkpoint is. */
static void note_time(struct mc_index_entry *root, const struct mc_index_ext *x)
{
	if (x->mtime_s < root->mtime_s ||
		(x->mtime_s == root->mtime_s && x->mtime_ns <= root->mtime_ns))
		return;
	root->mtime_s = x->mtime_s;
	root->mtime_ns = x->mtime_ns;
}

static int add_file(struct making *m, const char *key, uint64_t need, const char *digest)
{
	struct mc_index_ext x = {.size = need};
	struct mc_index_entry e = {.type = MC_ENTRY_FILE, .mode = 0444, .sha256 = MC_INDEX_NONE};
	int r = m->payload != NULL ? look(m, key, need, &x) : 0;

	if (r == 0)
		r = identify(key, &x, digest, e.digest);
	if (r == 0)
		r = add_identity(m->all, key, &x);
	if (r == 0)
		r = mc_index_add_string(&m->b, key, &x.path);
	if (r == 0)
		r = mc_index_add(&m->b, MC_INDEX_EXTS, &x, sizeof(x), &e.ext);
	if (r < 0)
		return r;
	note_time(&m->root, &x);
	e.size = x.size;
	e.mtime_s = x.mtime_s;
	e.mtime_ns = x.mtime_ns;
	e.name = x.path;
	return mc_index_add(&m->b, MC_INDEX_ENTRIES, &e, sizeof(e), NULL);
}

/* One entry for each object; entry 0 is put in first and filled in at the end. */
static int add_files(struct making *m, uint32_t n)
{
	char digest[MC_WEIGHT_DIGEST];
	int r = mc_weight_manifest_digest(m->w, digest);

	if (r == 0)
		r = mc_sha256_update(m->all, digest, sizeof(digest));
	if (r == 0)
		r = mc_index_add(&m->b, MC_INDEX_ENTRIES, &m->root, sizeof(m->root), NULL);
	for (uint32_t i = 0, end; i < n && r == 0; i = end) {
		struct mc_weight_fragment first, f;
		const char *fault;
		uint64_t need = 0;

		mc_weight_manifest_fragment(m->w, m->order[i], &first);
		fault = mc_path_fault(first.object_key);
		if (fault != NULL)
			return mc_err_set(m->err, -EBADMSG,
				"fragment %s: object_key is no path below the root: %s", first.id,
				fault);
		m->root.count++;
		for (end = i; end < n; end++) {
			mc_weight_manifest_fragment(m->w, m->order[end], &f);
			if (strcmp(f.object_key, first.object_key) != 0)
				break;
			m->entry[m->order[end]] = m->root.count;
			if (f.object_offset + f.bytes > need)
				need = f.object_offset + f.bytes;
		}
		r = add_file(m, first.object_key, need, digest);
	}
	return r;
}

static int add_tensor(struct making *m, uint32_t fragment)
{
	struct mc_weight_fragment f;
	struct mc_weight_tensor t;
	struct mc_index_tensor x = {.box = MC_INDEX_NONE};
	int r;

	mc_weight_manifest_fragment(m->w, fragment, &f);
	mc_weight_manifest_tensor(m->w, f.tensor, &t);
	if (mc_dtype_parse_torch(t.dtype, &x.dtype) < 0 || mc_dtype_bits(x.dtype) != t.itemsize * 8)
		return mc_err_set(m->err, -EBADMSG,
			"tensor %s: \"%.64s\" of %u bytes is no type that safetensors has", t.id,
			t.dtype, t.itemsize);
	x.off = f.object_offset;
	x.len = f.bytes;
	x.entry = m->entry[fragment];
	x.rank = t.rank;
	r = mc_index_add_string(&m->b, t.id, &x.name);
	if (r == 0)
		r = mc_index_add(
			&m->b, MC_INDEX_NUMBERS, f.box.len, t.rank * sizeof(uint64_t), &x.shape);
	if (r == 0 && memcmp(f.box.len, t.shape, t.rank * sizeof(uint64_t)) != 0) {
		r = mc_index_add(
			&m->b, MC_INDEX_NUMBERS, f.box.off, t.rank * sizeof(uint64_t), &x.box);
		if (r == 0)
			r = mc_index_add(
				&m->b, MC_INDEX_NUMBERS, t.shape, t.rank * sizeof(uint64_t), NULL);
	}
	return r < 0 ? r : mc_index_add(&m->b, MC_INDEX_TENSORS, &x, sizeof(x), NULL);
}

static int fill(struct making *m, const struct mc_model *model, uint8_t id[MC_SHA256_SIZE])
{
	uint32_t n = mc_weight_manifest_fragments(m->w);
	int r;

	for (uint32_t i = 0; i < n; i++)
		m->order[i] = i;
	qsort_r(m->order, n, sizeof(*m->order), key_compare, (void *)(uintptr_t)m->w);
	r = add_files(m, n);
	if (r < 0)
		return r;
	memcpy(m->b.section[MC_INDEX_ENTRIES].p, &m->root, sizeof(m->root));
	qsort_r(m->order, n, sizeof(*m->order), tensor_compare, (void *)(uintptr_t)m->w);
	for (uint32_t i = 0; i < n && r == 0; i++)
		r = add_tensor(m, m->order[i]);
	if (r == 0)
		r = mc_index_add_string(&m->b, model->config_path, &m->b.config_path);
	if (r == 0)
		r = mc_index_add_string(&m->b, model->architecture, &m->b.architecture);
	if (r == 0)
		r = mc_index_add_string(&m->b, model->quantisation, &m->b.quantisation);
	return r == 0 ? mc_sha256_final(m->all, id) : r;
}

int mc_weight_payload(const struct mc_weight_manifest *w, struct mc_remote *payload,
	const struct mc_model *model, struct mc_manifest **ret, struct mc_err *err)
{
	size_t n = mc_weight_manifest_fragments(w);
	cleanup_free uint32_t *order = calloc(n + 1, sizeof(*order));
	cleanup_free uint32_t *entry = calloc(n + 1, sizeof(*entry));
	struct making m = {.w = w,
		.payload = payload,
		.order = order,
		.entry = entry,
		.root = {.type = MC_ENTRY_DIR,
			.mode = 0755,
			.first = 1,
			.ext = MC_INDEX_NONE,
			.sha256 = MC_INDEX_NONE},
		.err = err};
	uint8_t id[MC_SHA256_SIZE];
	int r = order != NULL && entry != NULL ? mc_index_builder_init(&m.b) : -ENOMEM;

	if (r == 0)
		r = mc_sha256_open(&m.all);
	if (r == 0)
		r = fill(&m, model, id);
	if (r == 0)
		r = mc_index_finish(&m.b, id, ret);
	mc_sha256_close(m.all);
	mc_index_builder_done(&m.b);
	return r < 0 ? mc_err_set(err, r, "weight manifest: %s", strerror(-r)) : 0;
}
