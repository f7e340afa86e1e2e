/* Mooncake's manifests: golden digests, ids and regions, made by running Mooncake's own package on
 * tests/golden/mooncake-*.json. */
#include "manifest/plan-json.h"
#include "manifest/weight-canon.h"
#include "manifest/weight-manifest.h"
#include "tests/suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define STORED_DIGEST "8463cfe3710dee9881cde0c534bf90442fa9704925e4e088368e0943fd48c171"
#define PLACEMENT_DIGEST "bfe3b491f63321c23c862b01ae06411d7d9cd1a1fed5c736b4fc9359de0b23b6"
#define PLACEMENT_ID "sha256:a3a889ad63c75f0930ed62e89b91340cc31c8170ebf0e61ef48589caa8f81268"
#define TOPOLOGY_ID "sha256:7849a6380a02b286947b749e8f46ad318374f474238eaf05c1898edf91563181"
#define TP0 "sha256:2db094d852573c2f5645c6f1d2a9a6c2a01d9d449ed0c2e5346f819596ff3036"
#define TP1 "sha256:24b4de5ea97b596588a10ca07a1beca94615ab79f00c2c50dd9a607f85799b30"
#define TP2 "sha256:59db6c72bf953741301eaa1339b85ce71395de21fca3213e5ea08a465a99f1d8"

/* MC_GOLDEN: the folder. */
static char stored_text[4096], placement_text[8192];

static void load(const char *name, char *out, size_t size)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), MC_GOLDEN "/%s", name);
	f = fopen(path, "r");
	if (f == NULL || fread(out, 1, size - 1, f) == 0)
		abort();
	fclose(f);
}

/* Before any test, once. */
__attribute__((constructor)) static void load_all(void)
{
	load("mooncake-stored.json", stored_text, sizeof(stored_text));
	load("mooncake-placement.json", placement_text, sizeof(placement_text));
}

static struct mc_weight_manifest *parse(const char *text)
{
	struct mc_weight_manifest *m = NULL;
	struct mc_err err = {{0}};
	int r = mc_weight_manifest_parse(text, strlen(text), &m, &err);

	ck_assert_msg(r == 0, "%s", err.text);
	return m;
}

START_TEST(digests_and_ids_are_mooncakes)
{
	struct mc_weight_manifest *s = parse(stored_text), *p = parse(placement_text);
	char digest[MC_WEIGHT_DIGEST];
	struct mc_weight_fragment f;

	ck_assert_int_eq(mc_weight_manifest_kind(s), MC_WEIGHT_STORED);
	ck_assert_int_eq(mc_weight_manifest_digest(s, digest), 0);
	ck_assert_str_eq(digest, STORED_DIGEST);
	ck_assert_int_eq(mc_weight_manifest_kind(p), MC_WEIGHT_PLACEMENT);
	ck_assert_int_eq(mc_weight_manifest_digest(p, digest), 0);
	ck_assert_str_eq(digest, PLACEMENT_DIGEST);
	ck_assert_str_eq(mc_weight_manifest_placement_id(p), PLACEMENT_ID);
	ck_assert_str_eq(mc_weight_manifest_topology_id(p), TOPOLOGY_ID);
	ck_assert_uint_eq(mc_weight_manifest_fragments(p), 3);
	mc_weight_manifest_fragment(p, 1, &f);
	ck_assert_str_eq(f.id, TP1);
	ck_assert_str_eq(mc_weight_manifest_participant(p, f.participant), "worker-1");
	mc_weight_manifest_free(s);
	mc_weight_manifest_free(p);
}
END_TEST

START_TEST(white_space_and_key_order_do_not_change_the_digest)
{
	json_t *root = json_loads(stored_text, 0, NULL);
	char *text = json_dumps(root, JSON_INDENT(3)), digest[MC_WEIGHT_DIGEST];
	struct mc_weight_manifest *m = parse(text);

	ck_assert_int_eq(mc_weight_manifest_digest(m, digest), 0);
	ck_assert_str_eq(digest, STORED_DIGEST);
	mc_weight_manifest_free(m);
	free(text);
	json_decref(root);
}
END_TEST

#define REGION(frag, src, dst, target, worker)                                                     \
	"{\"counts\":[2],\"inner_bytes\":4,\"source_fragment_id\":\"" frag                         \
	"\",\"source_offset\":" src ",\"source_strides\":[12],\"target_fragment_id\":\"" target    \
	"\",\"target_offset\":" dst ",\"target_participant_id\":\"" worker                         \
	"\",\"target_strides\":[4],\"tensor_id\":"                                                 \
	"\"model.layers.0.mlp.up_proj.weight\"}"

START_TEST(regions_from_the_stored_manifest_to_the_placement_are_mooncakes)
{
	static const char want[] = "[" REGION("f0", "0", "0", TP0, "worker-0") "," REGION(
		"f1", "0", "8", TP0, "worker-0") "," REGION("f0", "4", "0", TP1,
		"worker-1") "," REGION("f1", "4", "8", TP1, "worker-1") "," REGION("f0", "8", "0",
		TP2, "worker-2") "," REGION("f1", "8", "8", TP2, "worker-2") "]";
	static const uint32_t numbers[] = {0, 1, 2, 3};
	static const char *const names[] = {"model.layers.0.mlp.up_proj.weight"};
	struct mc_weight_manifest *s = parse(stored_text), *p = parse(placement_text);
	struct mc_side held, wanted;
	struct mc_reshard_in in = {.names = names,
		.n_tensors = 1,
		.held = &held,
		.wanted = &wanted,
		.n_participants = 4};
	struct mc_reshard *plan;
	struct mc_json_out out = {0};
	struct mc_err err = {{0}};

	ck_assert_int_eq(mc_weight_manifest_side(s, names, 1, numbers, &held, &err), 0);
	ck_assert_int_eq(mc_weight_manifest_side(p, names, 1, numbers + 1, &wanted, &err), 0);
	ck_assert_msg(mc_reshard_plan(&in, &plan, &err) == 0, "%s", err.text);
	ck_assert_int_eq(mc_plan_regions_json(plan, s, p, &out), 0);
	mc_json_put_mem(&out, "", 1);
	ck_assert_str_eq((const char *)out.b.p, want);
	mc_buffer_done(&out.b);
	mc_reshard_free(plan);
	mc_side_done(&held);
	mc_side_done(&wanted);
	mc_weight_manifest_free(s);
	mc_weight_manifest_free(p);
}
END_TEST

/* text with the first occurrence of from replaced. */
static char *edited(const char *text, const char *from, const char *to)
{
	const char *at = strstr(text, from);
	char *out = malloc(strlen(text) + strlen(to) + 1);

	ck_assert_msg(at != NULL, "%s", from);
	memcpy(out, text, (size_t)(at - text));
	strcpy(out + (at - text), to);
	strcat(out, at + strlen(from));
	return out;
}

START_TEST(documents_that_do_not_hold_together_are_refused)
{
	static const struct {
		const char *text, *from, *to, *want;
	} t[] = {
		{stored_text, "\"nbytes\":24", "\"nbytes\":23", "bytes"},
		{stored_text, "\"global_offset\":[2,0]", "\"global_offset\":[1,0]", "overlap"},
		{stored_text, "\"global_offset\":[2,0]", "\"global_offset\":[3,0]",
			"out of bounds"},
		{stored_text, "\"global_shape\":[4,6]", "\"global_shape\":[5,6]", "cover"},
		{stored_text, "step-42/manifest\"", "step-43/manifest\"", "manifest_key"},
		{stored_text, "step-42/payload/1", "step-42/other/1", "payload"},
		{stored_text, "\"itemsize\":2", "\"itemsize\":2.0", "itemsize"},
		{stored_text, "\"weight_generation\":42", "\"weight_generation\":-1",
			"weight_generation"},
		{stored_text, "\"weight_generation\":42",
			"\"weight_generation\":18446744073709551616", "weight_generation"},
		{stored_text, "\"namespace\":\"default\"", "\"namespace\":\"default\",\"extra\":1",
			"not known"},
		{stored_text, "\"kind\":\"tp\"", "\"kind\":\"zp\"", "axis kind"},
		{stored_text, "model_weight", "model_height", "resource_kind"},
		{placement_text, "\"set-0\"", "\"set-1\"", "placement_id"},
		{placement_text, "\"global_offset\":[0,2]", "\"global_offset\":[0,1]",
			"placement_fragment_id"},
		{placement_text, "\"tp_size\":3", "\"tp_size\":4", "topology_id"},
		{placement_text, "worker-2", "worker-1", "twice"},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		char *text = edited(t[i].text, t[i].from, t[i].to);
		struct mc_weight_manifest *m = NULL;
		struct mc_err err = {{0}};

		ck_assert_msg(mc_weight_manifest_parse(text, strlen(text), &m, &err) == -EBADMSG,
			"%s", t[i].to);
		ck_assert_msg(strstr(err.text, t[i].want) != NULL, "%s: %s", t[i].to, err.text);
		ck_assert_ptr_null(m);
		free(text);
	}
}
END_TEST

START_TEST(weight_generation_is_an_unsigned_64_bit_number)
{
	char *text = edited(stored_text, "\"weight_generation\":42",
		"\"weight_generation\": 18446744073709551615");
	struct mc_weight_manifest *m = parse(text);

	ck_assert_uint_eq(mc_weight_manifest_generation(m), UINT64_MAX);
	mc_weight_manifest_free(m);
	free(text);
}
END_TEST

START_TEST(strings_are_escaped_as_python_does)
{
	static const struct {
		bool ascii;
		const char *want;
	} t[] = {{false, "[\"\\u001f\\n\\t\\b\\f\\r\\\"\\\\/\x7f\xc3\xa9\xf0\x9f\x98\x80\"]"},
		{true, "[\"\\u001f\\n\\t\\b\\f\\r\\\"\\\\/\\u007f\\u00e9\\ud83d\\ude00\"]"}};
	json_t *v = json_loads(
		"[\"\\u001f\\n\\t\\b\\f\\r\\\"\\\\/\\u007f\\u00e9\\ud83d\\ude00\"]", 0, NULL);

	for (int i = 0; i < 2; i++) {
		struct mc_canon c = {.ascii = t[i].ascii};

		mc_canon_put(&c, v, NULL, NULL);
		mc_json_put_mem(&c.out, "", 1);
		ck_assert_str_eq((const char *)c.out.b.p, t[i].want);
		mc_buffer_done(&c.out.b);
	}
	json_decref(v);
}
END_TEST

START_TEST(a_plan_as_json_is_whole_and_parses)
{
	static const char *const names[] = {"a", "b"};
	struct mc_side held, wanted;
	struct mc_reshard_in in = {.names = names,
		.n_tensors = 2,
		.held = &held,
		.wanted = &wanted,
		.n_participants = 2};
	struct mc_reshard *plan;
	struct mc_binding *binding;
	struct mc_plan_json_in ji = {.names = names, .with_links = true};
	struct mc_json_out out = {0};
	struct mc_shard s = {.box = {.rank = 1, .len = {8192}}};
	struct mc_err err = {{0}};
	json_t *root, *cls;

	mc_address_dense(&s.box, 0, &s.place);
	ck_assert_int_eq(mc_side_init(&held, 2), 0);
	ck_assert_int_eq(mc_side_init(&wanted, 2), 0);
	for (uint32_t i = 0; i < 2; i++) {
		s.participant = 0;
		ck_assert_int_eq(mc_side_set(&held, i, &s, 1, NULL), 0);
		s.participant = 1;
		ck_assert_int_eq(mc_side_set(&wanted, i, &s, 1, NULL), 0);
	}
	ck_assert_int_eq(mc_reshard_plan(&in, &plan, &err), 0);
	ck_assert_int_eq(
		mc_binding_make(&(struct mc_binder_in){.plan = plan, .max_piece = 4096}, &binding),
		0);
	ji.plan = plan;
	ji.binding = binding;
	ck_assert_int_eq(mc_plan_json(&ji, &out), 0);
	root = json_loadb((const char *)out.b.p, out.b.len, JSON_REJECT_DUPLICATES, NULL);
	ck_assert_ptr_nonnull(root);
	ck_assert_int_eq(json_integer_value(json_object_get(root, "moved_bytes")), 16384);
	cls = json_array_get(json_object_get(root, "classes"), 0);
	ck_assert_uint_eq(json_array_size(json_object_get(cls, "tensors")), 2);
	ck_assert_uint_eq(json_array_size(json_object_get(cls, "links")), 1);
	ck_assert_uint_eq(
		json_array_size(json_object_get(json_object_get(root, "binding"), "pieces")),
		binding->n_pieces);
	json_decref(root);
	mc_buffer_done(&out.b);
	mc_binding_free(binding);
	mc_reshard_free(plan);
	mc_side_done(&held);
	mc_side_done(&wanted);
}
END_TEST

SUITE_MAIN("weight-manifest", digests_and_ids_are_mooncakes,
	white_space_and_key_order_do_not_change_the_digest,
	regions_from_the_stored_manifest_to_the_placement_are_mooncakes,
	documents_that_do_not_hold_together_are_refused,
	weight_generation_is_an_unsigned_64_bit_number, strings_are_escaped_as_python_does,
	a_plan_as_json_is_whole_and_parses)
