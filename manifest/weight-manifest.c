/* Mooncake's stored manifest, and the frame for both kinds. */
#include "manifest/weight-manifest.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/json.h"
#include "manifest/weight-build.h"
#include "tier/cleanup.h"

#define JSON_DEPTH 16
#define MAX_TEXT ((size_t)1 << 30)

int mc_weight_bad(struct mc_weight_manifest *m, const char *fmt, ...)
{
	char why[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	return mc_err_set(m->err, -EBADMSG, "weight manifest: %s", why);
}

static int stored_fragment(struct mc_weight_manifest *m, json_t *o)
{
	static const char *const keys[] = {"fragment_id", "tensor_id", "global_offset",
		"local_shape", "object_key", "object_offset", "nbytes", "aliases", NULL, NULL};
	const char *group = json_string_value(json_object_get(m->root, "group_id"));
	struct mc_weight_fragment f = {.participant = 0};
	size_t len = strlen(group);
	int r = mc_weight_fields(m, o, keys, "fragment");

	if (r == 0)
		r = mc_weight_string(m, o, "fragment_id", &f.id);
	if (r == 0)
		r = mc_weight_string(m, o, "object_key", &f.object_key);
	if (r == 0)
		r = mc_weight_uint(m, o, "object_offset", 0, &f.object_offset);
	if (r == 0)
		r = mc_weight_fragment_parse(m, o, &f);
	if (r == 0 &&
		(strncmp(f.object_key, group, len) != 0 ||
			strncmp(f.object_key + len, "/payload/", 9) != 0))
		r = mc_weight_bad(
			m, "fragment %s: object_key is not under group_id + \"/payload/\"", f.id);
	if (r == 0 && f.bytes > (UINT64_C(1) << 62) - f.object_offset)
		r = mc_weight_bad(m, "fragment %s: object range overflows", f.id);
	return r < 0 ? r : mc_weight_fragment_add(m, &f);
}

static int by_tensor(const void *a, const void *b, void *fragments)
{
	const struct mc_weight_fragment *v = fragments;
	uint32_t x = v[*(const uint32_t *)a].tensor, y = v[*(const uint32_t *)b].tensor;

	return (x > y) - (x < y);
}

/* The boxes of one tensor: stored ones must not overlap, and together they are all of it. */
static int check_tensor(
	struct mc_weight_manifest *m, uint32_t tensor, const struct mc_box *boxes, size_t n)
{
	const struct weight_tensor *t = &m->tensor[tensor];
	uint64_t sum = 0;
	struct mc_cells c;
	int r = mc_cells_init(&c, boxes, n);

	if (r < 0)
		return r;
	for (size_t i = 0; i < c.n; i++)
		sum += mc_box_volume(&c.box[i]);
	sum *= t->t.itemsize;
	if (m->kind == MC_WEIGHT_STORED && (c.refined || c.n != n))
		r = mc_weight_bad(m, "fragments of tensor %s overlap", t->t.id);
	else if (sum != t->bytes)
		r = mc_weight_bad(m, "the fragments cover %llu of %llu bytes of tensor %s",
			(unsigned long long)sum, (unsigned long long)t->bytes, t->t.id);
	mc_cells_done(&c);
	return r;
}

int mc_weight_check_cover(struct mc_weight_manifest *m)
{
	cleanup_free struct mc_box *boxes = calloc((size_t)m->n_fragments + 1, sizeof(*boxes));
	cleanup_free uint32_t *order = malloc(((size_t)m->n_fragments + 1) * sizeof(*order));
	uint32_t at = 0;
	int r = 0;

	if (boxes == NULL || order == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < m->n_fragments; i++)
		order[i] = i;
	if (m->n_fragments > 0)
		qsort_r(order, m->n_fragments, sizeof(*order), by_tensor, m->fragment);
	for (uint32_t t = 0; t < m->n_tensors && r == 0; t++) {
		size_t n = 0;

		while (at < m->n_fragments && m->fragment[order[at]].tensor == t)
			boxes[n++] = m->fragment[order[at++]].box;
		r = check_tensor(m, t, boxes, n);
	}
	return r;
}

static int stored_parse(struct mc_weight_manifest *m)
{
	static const char *const keys[] = {"resource_kind", "namespace", "resource_id", "revision",
		"weight_generation", "group_id", "manifest_key", "tensors", "fragments",
		"created_at", NULL, NULL};
	static const char *const strings[] = {
		"namespace", "resource_id", "revision", "group_id", "manifest_key", "created_at"};
	const json_t *list = json_object_get(m->root, "fragments");
	const char *group = NULL, *key = NULL, *text;
	int r = mc_weight_fields(m, m->root, keys, "manifest");
	size_t len;

	for (size_t i = 0; i < sizeof(strings) / sizeof(*strings) && r == 0; i++)
		r = mc_weight_string(m, m->root, strings[i], &text);
	if (r < 0)
		return r;
	mc_weight_string(m, m->root, "group_id", &group);
	mc_weight_string(m, m->root, "manifest_key", &key);
	len = strlen(group);
	if (strncmp(key, group, len) != 0 || strcmp(key + len, "/manifest") != 0)
		return mc_weight_bad(m, "manifest_key is not group_id + \"/manifest\"");
	r = mc_weight_tensors_parse(m);
	if (r == 0 && !json_is_array(list))
		r = mc_weight_bad(m, "fragments is no array");
	for (size_t i = 0; i < json_array_size(list) && r == 0; i++)
		r = stored_fragment(m, json_array_get(list, i));
	if (r < 0)
		return r;
	m->participant = malloc(sizeof(*m->participant));
	if (m->participant == NULL)
		return -ENOMEM;
	m->participant[m->n_participants++] = group;
	return mc_weight_check_cover(m);
}

static int parse(struct mc_weight_manifest *m, const void *text, size_t len)
{
	cleanup_free char *copy = NULL;
	const char *kind = NULL;
	int r;

	if (len > MAX_TEXT)
		return mc_weight_bad(m, "%zu bytes are too many", len);
	r = mc_canon_take_generation(text, len, &copy, &m->generation);
	if (r == -EBADMSG)
		return mc_weight_bad(m, "weight_generation is missing or no 64-bit number");
	if (r == 0)
		r = mc_json_load(copy, len, JSON_DEPTH, &m->root, m->err);
	if (r == 0)
		r = mc_weight_string(m, m->root, "resource_kind", &kind);
	if (r == 0 && strcmp(kind, "model_weight") != 0)
		r = mc_weight_bad(m, "resource_kind is not model_weight");
	if (r < 0)
		return r;
	m->kind = json_object_get(m->root, "placement_id") != NULL ? MC_WEIGHT_PLACEMENT
								   : MC_WEIGHT_STORED;
	return m->kind == MC_WEIGHT_STORED ? stored_parse(m) : mc_weight_placement_parse(m);
}

int mc_weight_manifest_parse(
	const void *text, size_t len, struct mc_weight_manifest **ret, struct mc_err *err)
{
	struct mc_weight_manifest *m = calloc(1, sizeof(*m));
	int r;

	if (m == NULL)
		return mc_err_set(err, -ENOMEM, "no memory for the weight manifest");
	m->err = err;
	m->placement_id = m->topology_id = "";
	r = parse(m, text, len);
	m->err = NULL;
	if (r < 0) {
		mc_weight_manifest_free(m);
		return mc_err_set(err, r, "weight manifest: %s", strerror(-r));
	}
	*ret = m;
	return 0;
}

void mc_weight_manifest_free(struct mc_weight_manifest *m)
{
	if (m == NULL)
		return;
	json_decref(m->root);
	free(m->tensor);
	free(m->fragment);
	free(m->participant);
	free(m);
}

int mc_weight_manifest_digest(const struct mc_weight_manifest *m, char out[MC_WEIGHT_DIGEST])
{
	struct mc_canon c = {.ascii = m->kind == MC_WEIGHT_PLACEMENT, .generation = m->generation};
	int r;

	mc_canon_put(&c, m->root, NULL, NULL);
	r = mc_canon_digest(&c, out);
	mc_buffer_done(&c.out.b);
	return r;
}

enum mc_weight_kind mc_weight_manifest_kind(const struct mc_weight_manifest *m)
{
	return m->kind;
}

uint64_t mc_weight_manifest_generation(const struct mc_weight_manifest *m)
{
	return m->generation;
}

const char *mc_weight_manifest_placement_id(const struct mc_weight_manifest *m)
{
	return m->placement_id;
}

const char *mc_weight_manifest_topology_id(const struct mc_weight_manifest *m)
{
	return m->topology_id;
}

uint32_t mc_weight_manifest_tensors(const struct mc_weight_manifest *m)
{
	return m->n_tensors;
}

void mc_weight_manifest_tensor(
	const struct mc_weight_manifest *m, uint32_t i, struct mc_weight_tensor *ret)
{
	*ret = m->tensor[i].t;
}

uint32_t mc_weight_manifest_fragments(const struct mc_weight_manifest *m)
{
	return m->n_fragments;
}

void mc_weight_manifest_fragment(
	const struct mc_weight_manifest *m, uint32_t i, struct mc_weight_fragment *ret)
{
	*ret = m->fragment[i];
}

uint32_t mc_weight_manifest_participants(const struct mc_weight_manifest *m)
{
	return m->n_participants;
}

const char *mc_weight_manifest_participant(const struct mc_weight_manifest *m, uint32_t i)
{
	return m->participant[i];
}
