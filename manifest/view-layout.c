/* A checkpoint under a layout: the tensor table from the manifest, and what stands beside it. */
#include "manifest/view-build.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/json.h"
#include "manifest/profile.h"
#include "tier/cleanup.h"

#define CONFIG_DEPTH 64
#define MAX_LINKS 8 /* symbolic links followed from a name to its file */

static void layout_free(struct mc_view_layout *l)
{
	mc_sharding_free(l->sharding);
	mc_layout_free(l->layout);
	free(l->tensor);
	free(l->first_part);
	free(l->beside);
	free(l->config);
	mc_manifest_unref(l->manifest);
	free(l);
}

struct mc_view_layout *mc_view_layout_ref(struct mc_view_layout *l)
{
	atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
	return l;
}

void mc_view_layout_unref(struct mc_view_layout *l)
{
	if (l != NULL && atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) == 1)
		layout_free(l);
}

/* Parts of one tensor follow each other in the manifest. */
static int make_table(struct mc_view_layout *l, struct mc_err *err)
{
	uint32_t n = mc_manifest_tensors(l->manifest);
	const char *last = NULL;

	if (n == 0)
		return mc_err_set(
			err, -EINVAL, "the checkpoint has no tensors that this program can read");
	l->tensor = calloc(n, sizeof(*l->tensor));
	l->first_part = calloc((size_t)n + 1, sizeof(*l->first_part));
	if (l->tensor == NULL || l->first_part == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		struct mc_layout_tensor *t = &l->tensor[l->n_tensors];
		struct mc_tensor m;

		mc_manifest_tensor(l->manifest, i, &m);
		if (last != NULL && strcmp(last, m.name) == 0)
			continue;
		last = m.name;
		*t = (struct mc_layout_tensor){.name = m.name, .dtype = m.dtype, .rank = m.rank};
		memcpy(t->shape, m.boxed ? m.global : m.shape, sizeof(t->shape));
		l->first_part[l->n_tensors++] = i;
	}
	l->first_part[l->n_tensors] = n;
	return 0;
}

bool mc_view_is_weights(const char *name)
{
	static const char *const ends[] = {".safetensors", ".safetensors.index.json", ".bin",
		".bin.index.json", ".pt", ".pth", ".gguf", ".distcp", ".msgpack", ".h5", ".onnx",
		".onnx_data"};
	size_t len = strlen(name);

	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		size_t n = strlen(ends[i]);

		if (len >= n && strcmp(name + len - n, ends[i]) == 0)
			return true;
	}
	return false;
}

/* The FILE a top entry is or, through links inside the top directory, means. */
static bool follow(const struct mc_manifest *m, uint32_t entry, uint32_t *ret)
{
	for (int i = 0; i < MAX_LINKS; i++) {
		struct mc_entry e;

		mc_manifest_entry(m, entry, &e);
		*ret = entry;
		if (e.type == MC_ENTRY_FILE)
			return true;
		if (e.type != MC_ENTRY_SYMLINK || mc_manifest_walk(m, e.target, &entry) < 0)
			return false;
	}
	return false;
}

static int find_beside(struct mc_view_layout *l)
{
	struct mc_entry root;
	cleanup_free bool *holds = calloc(mc_manifest_entries(l->manifest), sizeof(*holds));

	mc_manifest_entry(l->manifest, 0, &root);
	l->beside = calloc((size_t)root.n_children + 1, sizeof(*l->beside));
	if (l->beside == NULL || holds == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < mc_manifest_tensors(l->manifest); i++) {
		struct mc_tensor t;

		mc_manifest_tensor(l->manifest, i, &t);
		holds[t.entry] = true;
	}
	for (uint32_t i = 0; i < root.n_children; i++) {
		uint32_t entry = root.first_child + i, file;
		struct mc_entry e;

		mc_manifest_entry(l->manifest, entry, &e);
		if (!mc_view_is_weights(e.name) && follow(l->manifest, entry, &file) &&
			!holds[file])
			l->beside[l->n_beside++] =
				(struct mc_view_beside){.name = e.name, .entry = file};
	}
	return 0;
}

/* An engine finds its rank's files by the tensor-parallel rank alone. */
static int check_sharded(const struct mc_layout *layout, struct mc_err *err)
{
	static const char *const other[] = {"dp", "pp"};
	uint32_t at, size;

	for (size_t i = 0; i < sizeof(other) / sizeof(*other); i++)
		if (mc_layout_coordinate(layout, other[i], 0, &at, &size) == 0 && size > 1)
			return mc_err_set(err, -EINVAL,
				"style sharded-state: an engine looks for its files by tensor "
				"parallel rank; %s is %u, it must be 1",
				other[i], size);
	return 0;
}

/* A sharded state is what its profile says, or is not served. */
static int check_profile(struct mc_view_layout *l, const struct mc_view_in *in,
	const json_t *config, struct mc_err *err)
{
	const char *name = mc_layout_profile(l->layout);
	struct mc_profile *built = NULL;
	uint32_t world = mc_layout_world(l->layout);
	int r = 0;

	if (mc_layout_style(l->layout) != MC_STYLE_SHARDED)
		return 0;
	if (name[0] == '\0')
		return mc_err_set(err, -EINVAL, "style sharded-state needs a profile");
	if (in->profile == NULL)
		r = mc_profile_builtin(name, config, world, &built, err);
	for (uint32_t i = 0; i < world && r == 0; i++) {
		struct mc_rank_tensors t;

		r = mc_sharding_rank(l->sharding, i, &t, err);
		if (r < 0)
			break;
		r = mc_profile_check(in->profile != NULL ? in->profile : built, &t, i, err);
		mc_rank_tensors_done(&t);
	}
	mc_profile_free(built);
	return r == -ENOENT ? -EINVAL : r;
}

static int compile(struct mc_view_layout *l, const struct mc_view_in *in, struct mc_err *err)
{
	struct mc_layout_in li = {.layout = l->layout};
	json_t *config = NULL;
	int r = mc_layout_digest(l->layout, l->digest);

	if (r == 0 && mc_layout_style(l->layout) == MC_STYLE_SHARDED)
		r = check_sharded(l->layout, err);
	if (r == 0)
		r = make_table(l, err);
	if (r == 0)
		r = find_beside(l);
	if (r == 0 && in->config != NULL)
		r = mc_json_load(in->config, in->config_len, CONFIG_DEPTH, &config, err);
	if (r == 0) {
		li.config = config;
		li.tensors = l->tensor;
		li.n_tensors = l->n_tensors;
		r = mc_layout_compile(&li, &l->sharding, err);
	}
	if (r == 0)
		r = check_profile(l, in, config, err);
	json_decref(config);
	return r == -EBADMSG ? mc_err_prefix(err, -EINVAL, "config.json") : r;
}

int mc_view_layout_open(
	const struct mc_view_in *in, struct mc_view_layout **ret, struct mc_err *err)
{
	struct mc_view_layout *l = calloc(1, sizeof(*l));
	int r;

	if (l == NULL) {
		mc_layout_free(in->layout);
		return -ENOMEM;
	}
	atomic_init(&l->refs, 1);
	l->layout = in->layout;
	l->manifest = mc_manifest_ref(in->manifest);
	l->max_header = in->max_header != 0 ? in->max_header : MC_VIEW_MAX_HEADER;
	r = compile(l, in, err);
	if (r < 0) {
		layout_free(l);
		return r;
	}
	*ret = l;
	return 0;
}

const uint8_t *mc_view_layout_digest(const struct mc_view_layout *l)
{
	return l->digest;
}

struct mc_manifest *mc_view_layout_manifest(const struct mc_view_layout *l)
{
	return l->manifest;
}

uint32_t mc_view_layout_ranks(const struct mc_view_layout *l)
{
	return mc_layout_style(l->layout) == MC_STYLE_SHARDED ? 0 : mc_layout_world(l->layout);
}

void mc_view_rank_name(uint32_t rank, char out[MC_VIEW_RANK_NAME])
{
	snprintf(out, MC_VIEW_RANK_NAME, "rank-%05u", rank);
}

int mc_view_rank_parse(const char *name, uint32_t *ret)
{
	char again[MC_VIEW_RANK_NAME];
	unsigned long v;

	if (strncmp(name, "rank-", 5) != 0 || name[5] < '0' || name[5] > '9')
		return -ENOENT;
	v = strtoul(name + 5, NULL, 10);
	if (v >= MC_LAYOUT_MAX_WORLD)
		return -ENOENT;
	mc_view_rank_name((uint32_t)v, again);
	if (strcmp(name, again) != 0)
		return -ENOENT;
	*ret = (uint32_t)v;
	return 0;
}
