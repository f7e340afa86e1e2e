/* model.safetensors.index.json: which file holds which tensor. */
#include "manifest/hf-index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/json.h"
#include "manifest/path.h"

#define MAX_DEPTH 32 /* the metadata may hold anything */

struct pair {
	const char *tensor, *file; /* borrowed from root */
};

struct mc_hf_index {
	json_t *root;       /* owned */
	struct pair *pairs; /* owned, by tensor */
	size_t n;
	const char **files; /* owned, distinct, sorted */
	size_t n_files;
};

static int pair_order(const void *a, const void *b)
{
	return strcmp(((const struct pair *)a)->tensor, ((const struct pair *)b)->tensor);
}

static int name_order(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int parse_map(struct mc_hf_index *x, const json_t *map, struct mc_err *err)
{
	void *it = json_object_iter((json_t *)map);
	size_t n = 0;

	if (!json_is_object(map))
		return mc_err_set(err, -EBADMSG, "weight_map must be an object");
	x->pairs = calloc(json_object_size(map) + 1, sizeof(*x->pairs));
	x->files = calloc(json_object_size(map) + 1, sizeof(*x->files));
	if (x->pairs == NULL || x->files == NULL)
		return -ENOMEM;
	for (; it != NULL; it = json_object_iter_next((json_t *)map, it)) {
		const char *tensor = json_object_iter_key(it), *fault;
		const char *file = json_string_value(json_object_iter_value(it));

		if (file == NULL)
			return mc_err_set(err, -EBADMSG,
				"weight_map: the file of \"%.200s\" must be a"
				" string",
				tensor);
		fault = mc_path_fault(file);
		if (fault != NULL)
			return mc_err_set(err, -EBADMSG,
				"weight_map: \"%.200s\" names \"%.200s\","
				" which %s",
				tensor, file, fault);
		x->files[x->n] = file;
		x->pairs[x->n++] = (struct pair){tensor, file};
	}
	qsort(x->pairs, x->n, sizeof(*x->pairs), pair_order);
	qsort(x->files, x->n, sizeof(*x->files), name_order);
	for (size_t i = 0; i < x->n; i++)
		if (n == 0 || strcmp(x->files[n - 1], x->files[i]) != 0)
			x->files[n++] = x->files[i];
	x->n_files = n;
	return 0;
}

int mc_hf_index_parse(const void *text, size_t len, struct mc_hf_index **ret, struct mc_err *err)
{
	struct mc_hf_index *x;
	int r;

	if (len > MC_HF_INDEX_MAX_BYTES)
		return mc_err_set(
			err, -EBADMSG, "%zu bytes, more than %u", len, MC_HF_INDEX_MAX_BYTES);
	x = calloc(1, sizeof(*x));
	if (x == NULL)
		return -ENOMEM;
	r = mc_json_load(text, len, MAX_DEPTH, &x->root, err);
	if (r == 0)
		r = parse_map(x, json_object_get(x->root, "weight_map"), err);
	if (r < 0) {
		mc_hf_index_close(x);
		return r;
	}
	*ret = x;
	return 0;
}

void mc_hf_index_close(struct mc_hf_index *x)
{
	if (x == NULL)
		return;
	json_decref(x->root);
	free(x->pairs);
	free(x->files);
	free(x);
}

size_t mc_hf_index_files(const struct mc_hf_index *x)
{
	return x->n_files;
}

const char *mc_hf_index_file(const struct mc_hf_index *x, size_t i)
{
	return x->files[i];
}

size_t mc_hf_index_tensors(const struct mc_hf_index *x)
{
	return x->n;
}

const char *mc_hf_index_tensor(const struct mc_hf_index *x, size_t i, const char **ret_file)
{
	*ret_file = x->pairs[i].file;
	return x->pairs[i].tensor;
}

const char *mc_hf_index_file_of(const struct mc_hf_index *x, const char *tensor)
{
	return json_string_value(json_object_get(json_object_get(x->root, "weight_map"), tensor));
}
