/*
 * The files of one directory of a view: tensors dealt out to safetensors files, their headers, the
 * index, and the tree that the mount shows.
 */
#include "manifest/view-build.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/dtype.h"
#include "manifest/json-out.h"
#include "manifest/safetensors.h"
#include "tier/cleanup.h"

#define INDEX_NAME "model.safetensors.index.json"
#define NAME_BYTES 64
#define MAX_FILE (UINT64_C(1) << 46) /* bytes: what no model has, but a padded dimension can */
/* A tensor's line in a header beside its name and shape; dimensions of ≤ 20 digits. */
#define TENSOR_LINE 80

struct opening {
	struct mc_view_layout *l;
	struct mc_view *v;
	struct {
		char name[NAME_BYTES];
		uint32_t file;
	} * name; /* of v's files; owned */
	uint32_t cap;
	struct mc_err *err;
};

static uint64_t header_estimate(const struct mc_local *l)
{
	return strlen(l->name) + TENSOR_LINE + 21 * (uint64_t)l->rank;
}

/* Where files begin, so that each header stays below the limit: first[i] … first[i + 1]. */
static int deal_out(const struct mc_view_layout *l, const struct mc_rank_tensors *t,
	uint32_t **ret_first, uint32_t *ret_n)
{
	uint64_t total = 0, sum = 0;
	uint32_t n, k = 0;
	uint32_t *first;

	for (uint32_t i = 0; i < t->n; i++)
		total += header_estimate(&t->local[i]);
	n = (uint32_t)(total / l->max_header + 1);
	first = calloc((size_t)n + 1, sizeof(*first));
	if (first == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < t->n; i++) {
		while (k + 1 < n && sum >= total / n * (k + 1))
			first[++k] = i;
		sum += header_estimate(&t->local[i]);
	}
	while (k < n)
		first[++k] = t->n;
	*ret_first = first;
	*ret_n = n;
	return 0;
}

/* "dp=0/1 pp=1/2 tp=3/8": the rank's coordinates and the sizes of the axes. */
static void coordinates(const struct mc_layout *layout, uint32_t rank, char *out, size_t size)
{
	static const char *const axes[] = {"dp", "pp", "tp", "ep"};
	size_t len = 0;

	out[0] = '\0';
	for (size_t i = 0; i < sizeof(axes) / sizeof(*axes); i++) {
		uint32_t at, n;

		if (mc_layout_coordinate(layout, axes[i], rank, &at, &n) == 0)
			len += (size_t)snprintf(out + len, size - len, "%s%s=%u/%u",
				len > 0 ? " " : "", axes[i], at, n);
	}
}

static int write_header(const struct mc_view_layout *l, uint32_t rank, struct mc_st_new *t,
	uint32_t n, struct mc_st_header *ret, struct mc_err *err)
{
	char source[MC_SHA256_HEX + 1], layout[MC_SHA256_HEX + 1];
	char where[16], at[160];
	const struct mc_st_meta meta[] = {{"format", "pt"}, {"mooncake.coordinates", at},
		{"mooncake.layout", mc_layout_name(l->layout)}, {"mooncake.layout_sha256", layout},
		{"mooncake.manifest", source}, {"mooncake.rank", where}};

	mc_hex_encode(mc_manifest_id(l->manifest), MC_SHA256_SIZE, source);
	mc_hex_encode(l->digest, MC_SHA256_SIZE, layout);
	snprintf(where, sizeof(where), "%u", rank);
	coordinates(l->layout, rank, at, sizeof(at));
	return mc_safetensors_write(t, n, meta, sizeof(meta) / sizeof(*meta), ret, err);
}

static int offset_compare(const void *a, const void *b)
{
	const struct mc_view_tensor *x = a, *y = b;

	return x->off != y->off ? (x->off > y->off) - (x->off < y->off)
				: (x->len > y->len) - (x->len < y->len);
}

static int identify(const struct mc_view_layout *l, const char *path, uint8_t *ret)
{
	uint8_t version = MC_VIEW_VERSION;
	struct mc_sha256 *h;
	int r = mc_sha256_open(&h);

	if (r < 0)
		return r;
	r = mc_sha256_update(h, "mooncake-view", sizeof("mooncake-view"));
	if (r == 0)
		r = mc_sha256_update(h, &version, sizeof(version));
	if (r == 0)
		r = mc_sha256_update(h, mc_manifest_id(l->manifest), MC_SHA256_SIZE);
	if (r == 0)
		r = mc_sha256_update(h, l->digest, MC_SHA256_SIZE);
	if (r == 0)
		r = mc_sha256_update(h, path, strlen(path));
	if (r == 0)
		r = mc_sha256_final(h, ret);
	mc_sha256_close(h);
	return r;
}

/* One more file; dir is "" or "rank-00000/". */
static int add_file(struct opening *o, const char *dir, const char *name, struct mc_view_file **ret)
{
	char path[NAME_BYTES + MC_VIEW_RANK_NAME];
	struct mc_view_file *f = &o->v->file[o->v->n_files];

	snprintf(o->name[o->v->n_files].name, NAME_BYTES, "%s", name);
	o->name[o->v->n_files].file = o->v->n_files;
	o->v->n_files++;
	snprintf(path, sizeof(path), "%s%s", dir, name);
	*ret = f;
	return identify(o->l, path, f->digest);
}

/* Tensors first … end of the rank as one file. */
static int fill_file(struct opening *o, uint32_t rank, const struct mc_rank_tensors *t,
	const uint32_t range[2], struct mc_view_file *f)
{
	uint32_t n = range[1] - range[0];
	cleanup_free struct mc_st_new *st = calloc((size_t)n + 1, sizeof(*st));
	cleanup_free struct mc_view_tensor *v = calloc((size_t)n + 1, sizeof(*v));
	struct mc_st_header h;
	int r;

	if (st == NULL || v == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		const struct mc_local *l = &t->local[range[0] + i];

		st[i] = (struct mc_st_new){
			.name = l->name, .dtype = l->dtype, .rank = l->rank, .shape = l->shape};
	}
	r = write_header(o->l, rank, st, n, &h, o->err);
	if (r < 0)
		return r;
	f->header = h.bytes;
	f->header_len = h.len;
	f->size = h.file_size;
	if (f->size > MAX_FILE)
		return mc_err_set(o->err, -EINVAL,
			"a file of rank-%05u would have %llu bytes, more than %llu", rank,
			(unsigned long long)f->size, (unsigned long long)MAX_FILE);
	for (uint32_t i = 0; i < n; i++)
		v[i] = (struct mc_view_tensor){
			.local = &t->local[range[0] + i], .off = st[i].off, .len = st[i].len};
	qsort(v, n, sizeof(*v), offset_compare);
	return mc_view_regions(o->l, t, v, n, f, o->err);
}

static int add_index(struct opening *o, const char *dir, const struct mc_rank_tensors *t,
	const uint32_t *first, uint32_t n)
{
	uint32_t file = o->v->n_files - n;
	struct mc_json_out out = {0};
	struct mc_view_file *f;
	uint64_t total = 0;
	bool comma = true;
	int r = add_file(o, dir, INDEX_NAME, &f);

	for (uint32_t k = 0; k < n; k++)
		total += o->v->file[file + k].size - o->v->file[file + k].header_len;
	mc_json_put(&out, "{\"metadata\":{\"total_size\":");
	mc_json_put_uint(&out, total);
	mc_json_put(&out, "},\"weight_map\":{");
	for (uint32_t k = 0; k < n; k++) {
		for (uint32_t i = first[k]; i < first[k + 1]; i++) {
			mc_json_put_comma(&out, &comma);
			mc_json_put_string(&out, t->local[i].name);
			mc_json_put(&out, ":");
			mc_json_put_string(&out, o->name[file + k].name);
		}
	}
	mc_json_put(&out, "}}\n");
	f->header = (char *)out.b.p;
	f->header_len = f->size = out.b.len;
	return r == 0 && out.failed ? -ENOMEM : r;
}

static int grow(struct opening *o, uint32_t more)
{
	uint32_t cap = o->v->n_files + more;
	void *p = reallocarray(o->v->file, cap, sizeof(*o->v->file));

	if (p == NULL)
		return -ENOMEM;
	o->v->file = p;
	memset(o->v->file + o->v->n_files, 0, more * sizeof(*o->v->file));
	p = reallocarray(o->name, cap, sizeof(*o->name));
	if (p == NULL)
		return -ENOMEM;
	o->name = p;
	return 0;
}

static void file_name(
	const struct mc_view_layout *l, uint32_t rank, uint32_t k, uint32_t n, char out[NAME_BYTES])
{
	if (mc_layout_style(l->layout) == MC_STYLE_SHARDED)
		snprintf(out, NAME_BYTES, "model-rank-%u-part-%u.safetensors", rank, k);
	else if (n == 1)
		snprintf(out, NAME_BYTES, "model.safetensors");
	else
		snprintf(out, NAME_BYTES, "model-%05u-of-%05u.safetensors", k + 1, n);
}

/* A rank's tensors as files. */
static int add_rank(struct opening *o, uint32_t rank)
{
	enum mc_layout_style style = mc_layout_style(o->l->layout);
	char dir[MC_VIEW_RANK_NAME + 1] = "";
	cleanup_free uint32_t *first = NULL;
	struct mc_rank_tensors t;
	uint32_t n;
	int r = mc_sharding_rank(o->l->sharding, rank, &t, o->err);

	if (r < 0)
		return r;
	if (style != MC_STYLE_SHARDED) {
		mc_view_rank_name(rank, dir);
		strcat(dir, "/");
	}
	r = deal_out(o->l, &t, &first, &n);
	if (r == 0)
		r = grow(o, n + 1);
	for (uint32_t k = 0; r == 0 && k < n; k++) {
		char name[NAME_BYTES];
		struct mc_view_file *f;

		file_name(o->l, rank, k, n, name);
		r = add_file(o, dir, name, &f);
		if (r == 0)
			r = fill_file(o, rank, &t, first + k, f);
	}
	if (r == 0 && style != MC_STYLE_SHARDED && (n > 1 || style == MC_STYLE_SUBSET))
		r = add_index(o, dir, &t, first, n);
	mc_rank_tensors_done(&t);
	return r;
}

static void child_of_file(const struct opening *o, uint32_t file, struct mc_view_child *ret)
{
	const struct mc_view_file *f = &o->v->file[file];
	struct mc_entry root;

	mc_manifest_entry(o->l->manifest, 0, &root);
	*ret = (struct mc_view_child){.name = o->name[file].name,
		.where = file,
		.mode = 0444,
		.size = f->size,
		.mtime_s = root.mtime_s,
		.mtime_ns = root.mtime_ns,
		.digest = f->digest};
}

static void child_beside(const struct opening *o, uint32_t i, struct mc_view_child *ret)
{
	const struct mc_view_beside *b = &o->l->beside[i];
	struct mc_entry e;

	mc_manifest_entry(o->l->manifest, b->entry, &e);
	*ret = (struct mc_view_child){.name = b->name,
		.where = o->v->n_files + b->entry,
		.mode = e.mode,
		.size = e.size,
		.hole_bytes = e.hole_bytes,
		.mtime_s = e.mtime_s,
		.mtime_ns = e.mtime_ns,
		.digest = e.digest};
}

static int make_tree(struct opening *o, const char *path)
{
	const struct mc_view_layout *l = o->l;
	uint32_t n = 0, files = o->v->n_files;
	cleanup_free struct mc_view_child *c = calloc((size_t)files + l->n_beside + 1, sizeof(*c));
	uint8_t id[MC_SHA256_SIZE];
	struct mc_entry root;
	int r = identify(l, path, id);

	if (c == NULL)
		return -ENOMEM;
	for (; n < files; n++)
		child_of_file(o, n, &c[n]);
	for (uint32_t i = 0; i < l->n_beside; i++)
		child_beside(o, i, &c[n++]);
	mc_manifest_entry(l->manifest, 0, &root);
	c[n] = (struct mc_view_child){.mtime_s = root.mtime_s, .mtime_ns = root.mtime_ns};
	return r < 0 ? r : mc_view_tree_make(o->v, c, n, id);
}

static void view_free(struct mc_view *v)
{
	for (uint32_t i = 0; i < v->n_files; i++)
		mc_view_file_done(&v->file[i]);
	free(v->file);
	free(v->where);
	mc_manifest_unref(v->tree);
	mc_view_layout_unref(v->of);
	free(v);
}

int mc_view_open(struct mc_view_layout *l, uint32_t rank, struct mc_view **ret, struct mc_err *err)
{
	uint32_t ranks = mc_view_layout_ranks(l);
	char path[MC_VIEW_RANK_NAME] = "";
	struct opening o = {.l = l, .v = calloc(1, sizeof(*o.v)), .err = err};
	int r;

	if (o.v == NULL)
		return -ENOMEM;
	atomic_init(&o.v->refs, 1);
	o.v->of = mc_view_layout_ref(l);
	if (ranks > 0) {
		mc_view_rank_name(rank, path);
		r = add_rank(&o, rank);
	} else {
		r = 0;
		for (uint32_t i = 0; r == 0 && i < mc_layout_world(l->layout); i++)
			r = add_rank(&o, i);
	}
	if (r == 0)
		r = make_tree(&o, path);
	free(o.name);
	if (r < 0) {
		view_free(o.v);
		return r;
	}
	*ret = o.v;
	return 0;
}

struct mc_view *mc_view_ref(struct mc_view *v)
{
	atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
	return v;
}

void mc_view_unref(struct mc_view *v)
{
	if (v != NULL && atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) == 1)
		view_free(v);
}

struct mc_manifest *mc_view_tree(const struct mc_view *v)
{
	return v->tree;
}

struct mc_view_layout *mc_view_of(const struct mc_view *v)
{
	return v->of;
}

uint64_t mc_view_memory(const struct mc_view *v)
{
	uint64_t sum = sizeof(*v);

	for (uint32_t i = 0; i < v->n_files; i++)
		sum += v->file[i].header_len +
			v->file[i].n_segments * sizeof(struct mc_view_segment) +
			v->file[i].n_words * sizeof(uint64_t);
	return sum;
}
