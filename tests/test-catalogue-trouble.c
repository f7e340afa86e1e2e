/* The catalogue in trouble: damage there and here, races, publishing that fails anywhere. */
#include "tests/catalogue-fixture.h"
#include "tests/suite.h"

#include <errno.h>
#include <string.h>

START_TEST(damage_on_the_remote_is_named)
{
	static const struct {
		const char *file, *text, *want;
	} rows[] = {{"manifest.id", "abc\n", "manifest.id: not 64 hex digits"},
		{"manifest.id",
			"0000000000000000000000000000000000000000000000000000000000000000\n",
			"manifest.json: damaged, its SHA-256 is not"},
		{"manifest.json", "{}", "manifest.json: damaged, its SHA-256 is not"}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct mc_rev_name n = name("org/model@main");
		struct mc_err err = {0};
		struct mc_loaded l;
		char path[100];

		open_catalogue();
		ck_assert_int_eq(publish("org/model@main", 0755, NULL), 0);
		snprintf(path, sizeof(path), "checkpoints/org/model/main/%s", rows[i].file);
		write_file(path, rows[i].text);
		ck_assert_int_eq(mc_catalogue_load(cat, &n, &l, &err), -EBADMSG);
		ck_assert_msg(strstr(err.text, rows[i].want) != NULL, "row %zu: %s", i, err.text);
		close_catalogue();
	}
}
END_TEST

START_TEST(a_hostile_manifest_with_the_right_id_is_refused_by_its_path)
{
	struct mc_rev_name n = name("org/model@main");
	struct mc_err err = {0};
	struct mc_loaded l;

	open_catalogue();
	ck_assert_int_eq(mc_catalogue_publish(cat, &n, "[]", 2, NULL), 0);
	ck_assert_int_eq(mc_catalogue_load(cat, &n, &l, &err), -EBADMSG);
	ck_assert_msg(strncmp(err.text, "dir:", 4) == 0 &&
			strstr(err.text,
				": checkpoints/org/model/main/manifest.json: manifest: must be an "
				"object") != NULL,
		"%s", err.text);
	close_catalogue();
}
END_TEST

START_TEST(a_damaged_index_is_made_anew)
{
	struct mc_rev_name n = name("org/model@main");
	char hex[MC_SHA256_HEX + 1], path[200];
	uint8_t id[MC_SHA256_SIZE];
	struct mc_loaded l;

	open_catalogue();
	ck_assert_int_eq(publish("org/model@main", 0755, NULL), 0);
	ck_assert_int_eq(mc_catalogue_load(cat, &n, &l, NULL), 0);
	mc_manifest_unref(l.m);
	ck_assert_int_eq(mc_catalogue_id(cat, &n, id, NULL), 0);
	mc_hex_encode(id, sizeof(id), hex);
	snprintf(path, sizeof(path), "%s/%s.idx", idx, hex);
	ck_assert_int_eq(truncate(path, 300), 0);
	ck_assert_int_eq(mc_catalogue_load(cat, &n, &l, NULL), 0);
	ck_assert(!l.from_index);
	mc_manifest_unref(l.m);
	ck_assert_int_eq(mc_catalogue_load(cat, &n, &l, NULL), 0);
	ck_assert(l.from_index);
	mc_manifest_unref(l.m);
	close_catalogue();
}
END_TEST

START_TEST(the_loser_of_a_race_puts_the_winners_id_back)
{
	const struct mc_fault_rule late = {.op = MC_FAULT_STAT,
		.kind = MC_FAULT_FAIL,
		.path = "manifest.json",
		.count = 1,
		.error = -ENOENT};
	struct mc_rev_name n = name("org/model@main");
	uint8_t won[MC_SHA256_SIZE], id[MC_SHA256_SIZE];
	struct mc_loaded l;

	open_catalogue();
	ck_assert_int_eq(publish("org/model@main", 0755, NULL), 0);
	ck_assert_int_eq(mc_catalogue_id(cat, &n, won, NULL), 0);
	mc_fault_add(fault, &late);
	ck_assert_int_eq(publish("org/model@main", 0700, NULL), -EEXIST);
	ck_assert_uint_eq(mc_fault_hits(fault), 1);
	mc_fault_clear(fault);
	ck_assert_int_eq(mc_catalogue_id(cat, &n, id, NULL), 0);
	ck_assert_mem_eq(id, won, sizeof(id));
	ck_assert_int_eq(mc_catalogue_load(cat, &n, &l, NULL), 0);
	mc_manifest_unref(l.m);
	close_catalogue();
}
END_TEST

START_TEST(damaged_json_is_repaired_by_publishing_the_same_again_only)
{
	struct mc_rev_name n = name("org/model@main");
	struct mc_loaded l;

	open_catalogue();
	ck_assert_int_eq(publish("org/model@main", 0755, NULL), 0);
	write_file("checkpoints/org/model/main/manifest.json", "{}");
	ck_assert_int_eq(publish("org/model@main", 0700, NULL), -EEXIST);
	ck_assert_int_eq(mc_catalogue_load(cat, &n, &l, NULL), -EBADMSG);
	ck_assert_int_eq(publish("org/model@main", 0755, NULL), 0);
	ck_assert_int_eq(mc_catalogue_load(cat, &n, &l, NULL), 0);
	mc_manifest_unref(l.m);
	close_catalogue();
}
END_TEST

/* After a publish that failed: not READY, or whole. */
static void check_absent_or_whole(const struct mc_rev_name *n)
{
	struct mc_loaded l;
	int r;

	/* Without an index the JSON itself is looked at. */
	nftw(idx, rm, 16, FTW_DEPTH | FTW_PHYS);
	r = mc_catalogue_load(cat, n, &l, NULL);
	ck_assert_msg(r == 0 || r == -ENOENT, "%d", r);
	if (r == 0)
		mc_manifest_unref(l.m);
}

START_TEST(a_damaged_id_is_repaired_by_publishing_the_same_again_only)
{
	struct mc_rev_name n = name("org/model@main");
	struct mc_err err = {0};
	struct mc_loaded l;

	open_catalogue();
	ck_assert_int_eq(publish("org/model@main", 0755, NULL), 0);
	write_file("checkpoints/org/model/main/manifest.id", "nonsense");
	ck_assert_int_eq(publish("org/model@main", 0700, &err), -EBADMSG);
	ck_assert_msg(
		strstr(err.text, "import the source it was made from") != NULL, "%s", err.text);
	ck_assert_int_eq(mc_catalogue_load(cat, &n, &l, NULL), -EBADMSG);
	ck_assert_int_eq(publish("org/model@main", 0755, NULL), 0);
	ck_assert_int_eq(mc_catalogue_load(cat, &n, &l, NULL), 0);
	mc_manifest_unref(l.m);
	close_catalogue();
}
END_TEST

START_TEST(a_publish_that_fails_anywhere_leaves_a_whole_revision_or_none)
{
	static const enum mc_fault_kind kinds[] = {MC_FAULT_FAIL, MC_FAULT_LOST};
	struct mc_rev_name n = name("org/model@main"), latest = name("org/model");
	unsigned failures = 0;

	for (size_t k = 0; k < 2; k++) {
		for (uint64_t nth = 1;; nth++) {
			const struct mc_fault_rule rule = {.op = MC_FAULT_OPS,
				.kind = kinds[k],
				.first = nth,
				.count = 1,
				.error = -EIO};
			struct mc_err err = {0};
			bool hit;
			int r;

			open_catalogue();
			mc_fault_add(fault, &rule);
			r = publish("org/model@main", 0755, &err);
			hit = mc_fault_hits(fault) > 0;
			mc_fault_clear(fault);
			ck_assert_msg(r == 0 || r == -EIO, "operation %d: %d", (int)nth, r);
			failures += r < 0;
			if (r < 0)
				ck_assert_ptr_nonnull(strstr(err.text, "cannot publish"));
			check_absent_or_whole(&n);
			ck_assert_int_eq(publish("org/model@main", 0755, NULL), 0);
			ck_assert_int_eq(mc_catalogue_latest(cat, &latest, NULL, NULL), 0);
			ck_assert_str_eq(latest.rev, "main");
			close_catalogue();
			if (!hit)
				break;
		}
	}
	ck_assert_uint_ge(failures, 12);
}
END_TEST

START_TEST(no_damage_in_flight_gives_a_wrong_manifest)
{
	static const enum mc_fault_kind kinds[] = {MC_FAULT_FLIP, MC_FAULT_SHORT};

	for (uint64_t value = 0; value < 2000; value += 97) {
		const struct mc_fault_rule rule = {
			.op = MC_FAULT_READ, .kind = kinds[value % 2], .value = value};
		struct mc_rev_name n = name("org/model@main");
		struct mc_catalogue *plain;
		struct mc_loaded l;
		int r;

		open_catalogue();
		ck_assert_int_eq(publish("org/model@main", 0755, NULL), 0);
		ck_assert_int_eq(mc_catalogue_open(remote, NULL, &plain, NULL), 0);
		mc_fault_add(fault, &rule);
		r = mc_catalogue_load(plain, &n, &l, NULL);
		/* SHORT beyond an object's end changes nothing. */
		ck_assert_msg(r == -EBADMSG || r == 0, "value %d: %d", (int)value, r);
		if (r == 0) {
			ck_assert_uint_eq(mc_manifest_entries(l.m), 9);
			mc_manifest_unref(l.m);
		}
		mc_catalogue_close(plain);
		close_catalogue();
	}
}
END_TEST

SUITE_MAIN("catalogue-trouble", damage_on_the_remote_is_named,
	a_hostile_manifest_with_the_right_id_is_refused_by_its_path, a_damaged_index_is_made_anew,
	the_loser_of_a_race_puts_the_winners_id_back,
	damaged_json_is_repaired_by_publishing_the_same_again_only,
	a_damaged_id_is_repaired_by_publishing_the_same_again_only,
	a_publish_that_fails_anywhere_leaves_a_whole_revision_or_none,
	no_damage_in_flight_gives_a_wrong_manifest)
