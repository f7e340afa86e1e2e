/*
 * The tensor table of an import. With model.safetensors.index.json the index decides which tensors
 * there are and where; without, all weight files at the top of the source do, and a name that
 * stands in several needs sharding information (dcp.h).
 */
#include "manifest/import-state.h"

#include "manifest/dcp.h"
#include "manifest/hf-index.h"
#include "manifest/json.h"
#include "tier/cleanup.h"

#include <errno.h>
#include <string.h>

#define INDEX_NAME "model.safetensors.index.json"
#define CONFIG_NAME "config.json"
#define CONFIG_MAX_BYTES (UINT64_C(64) << 20)

static int add_tensor(struct mc_import *im, const struct mc_import_file *f,
	const struct mc_st_tensor *t, const struct mc_dcp_part *part, struct mc_err *err)
{
	const struct mc_new_tensor n = {.name = t->name,
		.file = f->entry->path,
		.dtype = t->dtype,
		.rank = t->rank,
		.shape = t->shape,
		.off = t->off,
		.len = t->len,
		.box_off = part != NULL ? part->off : NULL,
		.global = part != NULL ? part->global : NULL};
	int r = mc_writer_tensor(im->writer, &n, err);

	return r < 0 ? mc_err_prefix(err, r, "source: %s", f->open_path) : 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* What the index names and no file holds. found is sorted here. */
static int report_missing(struct mc_import *im, const struct mc_hf_index *x, const char **found,
	size_t n, struct mc_err *err)
{
	size_t missing = mc_hf_index_tensors(x) - n, at = 0;
	const char *name = NULL, *file = NULL;

	if (missing == 0)
		return 0;
	qsort(found, n, sizeof(*found), by_name);
	for (size_t i = 0; i < mc_hf_index_tensors(x); i++, at++) {
		name = mc_hf_index_tensor(x, i, &file);
		if (at == n || strcmp(name, found[at]) != 0)
			break;
	}
	if (im->opts->strict)
		return mc_err_set(err, -EBADMSG,
			"source: " INDEX_NAME
			" says that tensor %s is in %s, which does not hold it "
			"(%zu such tensors)",
			name, file, missing);
	mc_import_warn(
		im, INDEX_NAME ": tensor %s is not in %s (%zu such tensors)", name, file, missing);
	return 0;
}

static int add_indexed(struct mc_import *im, const struct mc_hf_index *x, const char **found,
	size_t *ret_n, struct mc_err *err)
{
	for (size_t i = 0; i < mc_hf_index_files(x); i++) {
		const char *name = mc_hf_index_file(x, i);
		const struct mc_import_file *f = mc_import_find(im, name);

		if (f == NULL)
			return mc_err_set(err, -ENOENT,
				"source: " INDEX_NAME
				" names %s, which is missing; fetch it, or remove "
				"the index",
				name);
		for (size_t j = 0; f->st != NULL && j < mc_safetensors_count(f->st); j++) {
			const struct mc_st_tensor *t = mc_safetensors_tensor(f->st, j);
			const char *where = mc_hf_index_file_of(x, t->name);
			int r;

			if (where == NULL || strcmp(where, name) != 0)
				continue;
			r = add_tensor(im, f, t, NULL, err);
			if (r < 0)
				return r;
			found[(*ret_n)++] = t->name;
		}
	}
	return 0;
}

static int tensors_by_index(
	struct mc_import *im, const struct mc_import_file *index, struct mc_err *err)
{
	cleanup_free char *text = NULL;
	cleanup_free const char **found = NULL;
	struct mc_hf_index *x;
	size_t n = 0;
	int r = mc_import_slurp(im, index, MC_HF_INDEX_MAX_BYTES, &text, err);

	if (r < 0)
		return r;
	r = mc_hf_index_parse(text, index->entry->size, &x, err);
	if (r < 0)
		return mc_err_prefix(err, r, "source: %s", index->open_path);
	found = calloc(mc_hf_index_tensors(x) + 1, sizeof(*found));
	r = found == NULL ? mc_err_set(err, -ENOMEM, "out of memory")
			  : add_indexed(im, x, found, &n, err);
	if (r == 0)
		r = report_missing(im, x, found, n, err);
	mc_hf_index_close(x);
	return r;
}

/* A tensor in a file, found again by its name's address after the parts were sorted. */
struct place {
	const struct mc_st_tensor *tensor;
	const struct mc_import_file *file;
};

static int by_address(const void *a, const void *b)
{
	const char *x = ((const struct place *)a)->tensor->name;
	const char *y = ((const struct place *)b)->tensor->name;

	return x < y ? -1 : x > y;
}

struct parts {
	struct mc_dcp_part *part; /* owned */
	struct place *place;      /* owned */
	size_t n;
};

static bool at_top(const struct mc_import_file *f)
{
	return f->st != NULL && strchr(f->entry->path, '/') == NULL;
}

static int fill_box(struct mc_dcp_part *p, const struct mc_dcp *dcp)
{
	int r;

	if (dcp == NULL)
		return 0;
	r = mc_dcp_box(dcp, p->name, p->rank, p->off, p->global, &p->has_global);
	p->boxed = r == 0;
	return r == -ENOENT ? 0 : r;
}

static int add_parts(struct parts *all, const struct mc_import_file *f, struct mc_err *err)
{
	const char *text = mc_safetensors_metadata(f->st, MC_DCP_KEY);
	struct mc_dcp *dcp = NULL;
	int r = text == NULL ? 0 : mc_dcp_parse(text, &dcp, err);

	for (size_t i = 0; r == 0 && i < mc_safetensors_count(f->st); i++) {
		const struct mc_st_tensor *t = mc_safetensors_tensor(f->st, i);
		struct mc_dcp_part *p = &all->part[all->n];

		*p = (struct mc_dcp_part){.name = t->name,
			.file = f->entry->path,
			.dtype = t->dtype,
			.rank = t->rank};
		memcpy(p->shape, t->shape, sizeof(p->shape));
		all->place[all->n++] = (struct place){.tensor = t, .file = f};
		r = fill_box(p, dcp);
		if (r < 0)
			mc_err_set(err, r, "tensor %s: " MC_DCP_KEY " does not fit its shape",
				t->name);
	}
	mc_dcp_close(dcp);
	return r < 0 ? mc_err_prefix(err, r, "source: %s", f->open_path) : 0;
}

static int add_resolved(struct mc_import *im, const struct parts *all, struct mc_err *err)
{
	for (size_t i = 0; i < all->n; i++) {
		const struct mc_dcp_part *p = &all->part[i];
		const struct mc_st_tensor by = {.name = p->name};
		const struct place key = {.tensor = &by};
		const struct place *place =
			bsearch(&key, all->place, all->n, sizeof(*all->place), by_address);
		int r;

		if (p->replica)
			continue;
		r = add_tensor(im, place->file, place->tensor, p->boxed ? p : NULL, err);
		if (r < 0)
			return r;
	}
	return 0;
}

static int tensors_of_all(struct mc_import *im, struct mc_err *err)
{
	struct parts all = {0};
	size_t total = 0;
	int r = 0;

	for (size_t i = 0; i < im->n_files; i++)
		if (at_top(&im->files[i]))
			total += mc_safetensors_count(im->files[i].st);
	if (total == 0)
		return 0;
	all.part = calloc(total, sizeof(*all.part));
	all.place = calloc(total, sizeof(*all.place));
	if (all.part == NULL || all.place == NULL)
		r = mc_err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < im->n_files && r == 0; i++)
		if (at_top(&im->files[i]))
			r = add_parts(&all, &im->files[i], err);
	if (r == 0) {
		r = mc_dcp_resolve(all.part, all.n, err);
		if (r < 0)
			mc_err_prefix(err, r, "source");
	}
	if (r == 0) {
		qsort(all.place, all.n, sizeof(*all.place), by_address);
		r = add_resolved(im, &all, err);
	}
	free(all.part);
	free(all.place);
	return r;
}

int mc_import_tensors(struct mc_import *im, struct mc_err *err)
{
	const struct mc_import_file *index = mc_import_find(im, INDEX_NAME);

	return index != NULL ? tensors_by_index(im, index, err) : tensors_of_all(im, err);
}

static const char *string_at(const json_t *v)
{
	return json_is_string(v) ? json_string_value(v) : "";
}

int mc_import_model(struct mc_import *im, struct mc_err *err)
{
	const struct mc_import_file *f = mc_import_find(im, CONFIG_NAME);
	cleanup_free char *text = NULL;
	struct mc_model model = {0};
	struct mc_err why = {0};
	json_t *root;
	int r;

	if (f == NULL)
		return 0;
	r = mc_import_slurp(im, f, CONFIG_MAX_BYTES, &text, &why);
	if (r == 0)
		r = mc_json_load(text, f->entry->size, 64, &root, &why);
	if (r == -EFBIG || r == -EBADMSG) {
		mc_import_warn(
			im, CONFIG_NAME ": %s; the model's architecture is not recorded", why.text);
		return 0;
	}
	if (r < 0)
		return mc_err_set(err, r, "%s", why.text);
	model.architecture = string_at(json_array_get(json_object_get(root, "architectures"), 0));
	model.quantisation = string_at(
		json_object_get(json_object_get(root, "quantization_config"), "quant_method"));
	model.config_path = f->entry->path;
	r = mc_writer_model(im->writer, &model);
	json_decref(root);
	return r < 0 ? mc_err_set(err, r, CONFIG_NAME " cannot be recorded: %s", strerror(-r)) : 0;
}
