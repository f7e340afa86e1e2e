/*
 * Mooncake's placement: topology, participants, parts. Its ids are SHA-256 over canonical JSON with
 * a "schema" field; a document whose ids are not these is refused.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/weight-build.h"

/* "sha256:" + digest of o with the schema, without one of its keys (NULL = all). */
static int canonical_id(const struct mc_weight_manifest *m, const json_t *o, const char *schema,
	const char *without, const char *also_without, char out[MC_WEIGHT_ID])
{
	struct mc_canon c = {.ascii = true, .generation = m->generation};
	json_t *copy = json_copy((json_t *)(uintptr_t)o);
	int r;

	if (copy == NULL)
		return -ENOMEM;
	if (without != NULL)
		json_object_del(copy, without);
	if (also_without != NULL)
		json_object_del(copy, also_without);
	mc_canon_put(&c, copy, "schema", schema);
	memcpy(out, "sha256:", 8);
	r = mc_canon_digest(&c, out + 7);
	mc_buffer_done(&c.out.b);
	json_decref(copy);
	return r;
}

static int check_id(
	struct mc_weight_manifest *m, const char *got, const char *want, const char *what)
{
	return strcmp(got, want) == 0
		? 0
		: mc_weight_bad(m, "%s is %s, its content gives %s", what, got, want);
}

static int rank_parse(struct mc_weight_manifest *m, const json_t *rank)
{
	static const char *const keys[] = {"dp", "tp", "pp", "ep", NULL, NULL};
	uint64_t v;
	int r = mc_weight_fields(m, rank, keys, "rank");

	for (size_t i = 0; i < 4 && r == 0; i++)
		r = mc_weight_uint(m, rank, keys[i], 0, &v);
	return r;
}

static int participant_parse(struct mc_weight_manifest *m, const json_t *topology, const json_t *o)
{
	static const char *const keys[] = {"participant_id", "rank", NULL, NULL};
	static const char *const axes[][2] = {
		{"dp", "dp_size"}, {"tp", "tp_size"}, {"pp", "pp_size"}, {"ep", "ep_size"}};
	const json_t *rank = json_object_get(o, "rank");
	int r = mc_weight_fields(m, o, keys, "participant");

	if (r == 0)
		r = rank_parse(m, rank);
	if (r == 0)
		r = mc_weight_string(m, o, "participant_id", &m->participant[m->n_participants]);
	for (size_t i = 0; i < 4 && r == 0; i++)
		if (json_integer_value(json_object_get(rank, axes[i][0])) >=
			json_integer_value(json_object_get(topology, axes[i][1])))
			r = mc_weight_bad(m, "participant %s: rank %s is beyond the topology",
				m->participant[m->n_participants], axes[i][0]);
	m->n_participants += r == 0;
	return r;
}

static int topology_parse(struct mc_weight_manifest *m)
{
	static const char *const keys[] = {"tp_size", "pp_size", "ep_size", "dp_size",
		"topology_id", "participants", NULL, NULL};
	const json_t *o = json_object_get(m->root, "topology");
	json_t *list = json_object_get(o, "participants");
	char id[MC_WEIGHT_ID];
	uint64_t v;
	int r = mc_weight_fields(m, o, keys, "topology");

	for (size_t i = 0; i < 4 && r == 0; i++)
		r = mc_weight_uint(m, o, keys[i], 1, &v);
	if (r == 0)
		r = mc_weight_string(m, o, "topology_id", &m->topology_id);
	if (r == 0 && (!json_is_array(list) || json_array_size(list) == 0))
		r = mc_weight_bad(m, "participants is no array");
	if (r == 0)
		r = mc_weight_sort(m, list, "participant_id", "participant");
	if (r < 0)
		return r;
	m->participant = calloc(json_array_size(list), sizeof(*m->participant));
	if (m->participant == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < json_array_size(list) && r == 0; i++)
		r = participant_parse(m, o, json_array_get(list, i));
	if (r == 0)
		r = canonical_id(m, o, "weight-parallel-topology", "topology_id", NULL, id);
	return r < 0 ? r : check_id(m, m->topology_id, id, "topology_id");
}

static int placed_fragment(
	struct mc_weight_manifest *m, json_t *o, const json_t *rank, uint32_t participant)
{
	static const char *const keys[] = {"placement_fragment_id", "tensor_id", "global_offset",
		"local_shape", "nbytes", "rank", "aliases", NULL, "pipeline_stage_id", NULL};
	struct mc_weight_fragment f = {.participant = participant, .object_key = ""};
	char id[MC_WEIGHT_ID];
	int r = mc_weight_fields(m, o, keys, "fragment");

	if (r == 0)
		r = mc_weight_string(m, o, "placement_fragment_id", &f.id);
	if (r == 0)
		r = mc_weight_fragment_parse(m, o, &f);
	if (r == 0 && !json_equal((json_t *)(uintptr_t)rank, json_object_get(o, "rank")))
		r = mc_weight_bad(m, "fragment %s: its rank is not that of its part", f.id);
	/* null means that no stage was assigned, as if the field were not there. */
	if (r == 0 && json_is_null(json_object_get(o, "pipeline_stage_id")))
		json_object_del(o, "pipeline_stage_id");
	if (r == 0)
		r = canonical_id(
			m, o, "weight-placement-fragment", "placement_fragment_id", NULL, id);
	if (r == 0)
		r = check_id(m, f.id, id, "placement_fragment_id");
	return r < 0 ? r : mc_weight_fragment_add(m, &f);
}

static int part_parse(struct mc_weight_manifest *m, const json_t *o, uint32_t participant)
{
	static const char *const keys[] = {"participant_id", "rank", "fragments", NULL, NULL};
	const json_t *topology = json_object_get(m->root, "topology");
	const json_t *expected =
		json_array_get(json_object_get(topology, "participants"), participant);
	json_t *list = json_object_get(o, "fragments");
	const char *name = NULL;
	int r = mc_weight_fields(m, o, keys, "part");

	if (r == 0)
		r = mc_weight_string(m, o, "participant_id", &name);
	if (r == 0 &&
		(strcmp(name, m->participant[participant]) != 0 ||
			!json_equal(json_object_get(o, "rank"), json_object_get(expected, "rank"))))
		r = mc_weight_bad(m, "part %s is no participant of the topology", name);
	if (r == 0 && !json_is_array(list))
		r = mc_weight_bad(m, "fragments is no array");
	if (r == 0)
		r = mc_weight_sort(m, list, "placement_fragment_id", "fragment");
	for (size_t i = 0; i < json_array_size(list) && r == 0; i++)
		r = placed_fragment(
			m, json_array_get(list, i), json_object_get(o, "rank"), participant);
	return r;
}

int mc_weight_placement_parse(struct mc_weight_manifest *m)
{
	static const char *const keys[] = {"resource_kind", "resource_id", "revision",
		"weight_generation", "placement_set_id", "placement_id", "topology", "tensors",
		"parts", NULL, NULL};
	static const char *const strings[] = {"resource_id", "revision", "placement_set_id"};
	json_t *parts = json_object_get(m->root, "parts"),
	       *tensors = json_object_get(m->root, "tensors");
	char id[MC_WEIGHT_ID];
	const char *text;
	int r = mc_weight_fields(m, m->root, keys, "placement");

	for (size_t i = 0; i < sizeof(strings) / sizeof(*strings) && r == 0; i++)
		r = mc_weight_string(m, m->root, strings[i], &text);
	if (r == 0)
		r = mc_weight_string(m, m->root, "placement_id", &m->placement_id);
	if (r == 0)
		r = topology_parse(m);
	if (r == 0)
		r = mc_weight_tensors_parse(m);
	if (r == 0)
		r = mc_weight_sort(m, tensors, "tensor_id", "tensor");
	if (r == 0 && (!json_is_array(parts) || json_array_size(parts) != m->n_participants))
		r = mc_weight_bad(m, "not one part for each participant");
	if (r == 0)
		r = mc_weight_sort(m, parts, "participant_id", "part");
	for (size_t i = 0; i < json_array_size(parts) && r == 0; i++)
		r = part_parse(m, json_array_get(parts, i), (uint32_t)i);
	if (r == 0)
		r = mc_weight_check_cover(m);
	if (r == 0)
		r = canonical_id(m, m->root, "complete-weight-placement", "placement_id",
			"resource_kind", id);
	return r < 0 ? r : check_id(m, m->placement_id, id, "placement_id");
}
