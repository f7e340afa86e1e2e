/* Tensor tables from a directory's headers, a revision's manifest, or Mooncake's. */
#include "tools/model-table.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "manifest/json.h"
#include "manifest/safetensors.h"
#include "manifest/weight-payload.h"
#include "manifest/whole-file.h"
#include "tier/cleanup.h"
#include "tools/command.h"
#include "tools/load-revision.h"
#include "tools/open-remote.h"

#define CONFIG_MAX ((size_t)4 << 20) /* bytes */
#define CONFIG_DEPTH 64

static int fail(struct mc_err *err, const char *path, int code)
{
	return mc_err_set(err, code, "%s: %s", path, strerror(-code));
}

/* len bytes from the start of an open file. */
static int read_start(int fd, char *buf, size_t len)
{
	for (size_t at = 0; at < len;) {
		ssize_t n = pread(fd, buf + at, len - at, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ENODATA;
		at += (size_t)n;
	}
	return 0;
}

int mc_read_file(const char *path, size_t max, char **ret, size_t *ret_len, struct mc_err *err)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	cleanup_free char *buf = NULL;
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return fail(err, path, -errno);
	if (!S_ISREG(st.st_mode))
		return fail(err, path, -EINVAL);
	if ((uint64_t)st.st_size > max)
		return mc_err_set(err, -EFBIG, "%s: %lld bytes, more than %zu", path,
			(long long)st.st_size, max);
	buf = malloc((size_t)st.st_size + 1);
	if (buf == NULL)
		return -ENOMEM;
	r = read_start(fd, buf, (size_t)st.st_size);
	if (r < 0)
		return fail(err, path, r);
	buf[st.st_size] = '\0';
	*ret = steal_ptr(buf);
	*ret_len = (size_t)st.st_size;
	return 0;
}

static int read_header(const char *path, struct mc_safetensors **ret, struct mc_err *err)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	cleanup_free char *buf = NULL;
	struct stat st;
	char first[8] = {0};
	uint64_t len;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return fail(err, path, -errno);
	r = st.st_size >= 8 ? read_start(fd, first, sizeof(first)) : 0;
	if (r == 0)
		r = mc_safetensors_header_size(first, st.st_size < 8 ? (size_t)st.st_size : 8,
			(uint64_t)st.st_size, &len, err);
	if (r < 0)
		return mc_err_prefix(err, r, "%s", path);
	buf = malloc(len);
	if (buf == NULL)
		return -ENOMEM;
	r = read_start(fd, buf, len);
	if (r < 0)
		return fail(err, path, r);
	r = mc_safetensors_parse(buf, len, (uint64_t)st.st_size, ret, err);
	return r < 0 ? mc_err_prefix(err, r, "%s", path) : 0;
}

static int is_weights(const struct dirent *e)
{
	size_t n = strlen(e->d_name);

	return n > 12 && strcmp(e->d_name + n - 12, ".safetensors") == 0;
}

static int read_headers(struct mc_model_table *t, const char *dir, struct mc_err *err)
{
	struct dirent **list;
	int n = scandir(dir, &list, is_weights, alphasort), r = 0;

	if (n < 0)
		return fail(err, dir, -errno);
	t->file = calloc((size_t)n + 1, sizeof(struct mc_safetensors *));
	if (t->file == NULL)
		r = -ENOMEM;
	for (int i = 0; i < n; i++) {
		char path[4096 + 256];

		snprintf(path, sizeof(path), "%s/%s", dir, list[i]->d_name);
		if (r == 0)
			r = read_header(path, &t->file[t->n_files], err);
		t->n_files += r == 0;
		free(list[i]);
	}
	free(list);
	if (r == 0 && n == 0)
		r = mc_err_set(err, -ENOENT, "%s holds no *.safetensors", dir);
	return r;
}

static int tensor_compare(const void *a, const void *b)
{
	return strcmp(((const struct mc_layout_tensor *)a)->name,
		((const struct mc_layout_tensor *)b)->name);
}

static int make_table(struct mc_model_table *t, struct mc_err *err)
{
	struct mc_layout_tensor *v;
	const char **names;
	size_t n = 0;

	for (uint32_t f = 0; f < t->n_files; f++)
		n += mc_safetensors_count(t->file[f]);
	t->source.tensor = v = calloc(n + 1, sizeof(*v));
	t->source.name = names = calloc(n + 1, sizeof(*names));
	if (v == NULL || names == NULL)
		return -ENOMEM;
	for (uint32_t f = 0; f < t->n_files; f++) {
		for (size_t i = 0; i < mc_safetensors_count(t->file[f]); i++) {
			const struct mc_st_tensor *s = mc_safetensors_tensor(t->file[f], i);
			struct mc_layout_tensor *x = &v[t->n++];

			*x = (struct mc_layout_tensor){
				.name = s->name, .dtype = s->dtype, .rank = s->rank};
			memcpy(x->shape, s->shape, sizeof(x->shape));
		}
	}
	qsort(v, t->n, sizeof(*v), tensor_compare);
	for (uint32_t i = 0; i < t->n; i++) {
		names[i] = v[i].name;
		if (i > 0 && strcmp(names[i - 1], names[i]) == 0)
			return mc_err_set(err, -EINVAL,
				"tensor %s stands in two files: a checkpoint in parts has to be "
				"imported first",
				names[i]);
	}
	t->tensor = v;
	t->name = names;
	return mc_side_of_files(v, t->n, 0, &t->held);
}

/* config.json of a directory or, when where is none, of manifest; none is no failure. */
static int read_config(struct mc_model_table *t, const char *dir, struct mc_remote *remote,
	struct mc_manifest *manifest, struct mc_err *err)
{
	char path[4096 + 32];
	int r;

	if (dir != NULL) {
		snprintf(path, sizeof(path), "%s/config.json", dir);
		r = mc_read_file(path, CONFIG_MAX, &t->config_text, &t->config_len, err);
	} else {
		r = mc_whole_config(remote, manifest, &t->config_text, &t->config_len, err);
	}
	if (r == 0 && t->config_text != NULL)
		r = mc_json_load(t->config_text, t->config_len, CONFIG_DEPTH, &t->config, err);
	if (r == -ENOENT) {
		err->text[0] = '\0';
		r = 0;
	}
	return r < 0 ? mc_err_prefix(err, r, "config.json") : 0;
}

static int open_directory(struct mc_model_table *t, const char *dir, struct mc_err *err)
{
	int r = read_config(t, dir, NULL, NULL, err);

	if (r == 0)
		r = read_headers(t, dir, err);
	return r < 0 ? r : make_table(t, err);
}

static int from_manifest(struct mc_model_table *t, struct mc_err *err)
{
	int r = mc_layout_source_init(&t->source, t->manifest, 0, err);

	if (r < 0)
		return r;
	t->tensor = t->source.tensor;
	t->name = t->source.name;
	t->n = t->source.n;
	t->held = t->source.side;
	t->source.side = (struct mc_side){0};
	return 0;
}

static int load_revision(struct mc_model_table *t, const struct mc_options *o, const char *where,
	struct mc_manifest **ret)
{
	struct mc_rev_name name;
	struct mc_remote *remote;
	struct mc_err err = {0};
	int r = mc_open_remote(o, &remote);

	if (r != 0)
		return r;
	r = mc_load_revision(o, remote, where, &name, ret);
	if (r == 0) {
		r = read_config(t, NULL, remote, *ret, &err);
		r = r < 0 ? mc_fail(&err, r) : 0;
	}
	mc_remote_close(remote);
	return r;
}

static bool is_directory(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* An exit code; what was opened is closed again when it is not 0. */
static int opened(struct mc_model_table *t, int r)
{
	if (r != 0)
		mc_model_table_done(t);
	return r;
}

int mc_model_table_open_revision(
	const struct mc_options *o, const char *where, struct mc_model_table *ret)
{
	struct mc_err err = {0};
	int r;

	memset(ret, 0, sizeof(*ret));
	r = load_revision(ret, o, where, &ret->manifest);
	if (r == 0) {
		r = from_manifest(ret, &err);
		r = r < 0 ? mc_fail(&err, r) : 0;
	}
	return opened(ret, r);
}

int mc_model_table_open(const struct mc_options *o, const char *where, struct mc_model_table *ret)
{
	struct mc_err err = {0};
	int r;

	if (!is_directory(where))
		return mc_model_table_open_revision(o, where, ret);
	memset(ret, 0, sizeof(*ret));
	r = open_directory(ret, where, &err);
	return opened(ret, r < 0 ? mc_fail(&err, r) : 0);
}

/* What the manifest of a revision says about the model, here from config.json. */
static struct mc_model model_of(const struct mc_model_table *t)
{
	const json_t *quant = json_object_get(t->config, "quantization_config");
	const char *of[] = {
		json_string_value(json_array_get(json_object_get(t->config, "architectures"), 0)),
		json_string_value(json_object_get(quant, "quant_method"))};

	return (struct mc_model){.config_path = t->config != NULL ? "config.json" : "",
		.architecture = of[0] != NULL ? of[0] : "",
		.quantisation = of[1] != NULL ? of[1] : ""};
}

int mc_model_table_of_weights(const struct mc_options *o, const struct mc_weight_manifest *w,
	struct mc_remote *payload, struct mc_model_table *ret)
{
	const char *where = mc_options_text(o, MC_OPT_MODEL);
	struct mc_manifest *other = NULL;
	struct mc_err err = {0};
	struct mc_model model;
	int r = 0;

	memset(ret, 0, sizeof(*ret));
	if (where != NULL && is_directory(where)) {
		r = read_config(ret, where, NULL, NULL, &err);
		r = r < 0 ? mc_fail(&err, r) : 0;
	} else if (where != NULL) {
		r = load_revision(ret, o, where, &other);
		mc_manifest_unref(other);
	}
	if (r != 0)
		return opened(ret, r);
	model = model_of(ret);
	r = mc_weight_payload(w, payload, &model, &ret->manifest, &err);
	if (r == 0)
		r = from_manifest(ret, &err);
	return opened(ret, r < 0 ? mc_fail(&err, r) : 0);
}

void mc_model_table_done(struct mc_model_table *t)
{
	json_decref(t->config);
	free(t->config_text);
	mc_side_done(&t->held);
	mc_layout_source_done(&t->source);
	for (uint32_t i = 0; i < t->n_files; i++)
		mc_safetensors_close(t->file[i]);
	free(t->file);
	mc_manifest_unref(t->manifest);
	memset(t, 0, sizeof(*t));
}
