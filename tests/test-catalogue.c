/* The catalogue on a directory: names, READY, latest, index, damage, publishing twice. */
#include "manifest/catalogue.h"
#include "tests/sample-manifest.h"
#include "tests/suite.h"
#include "tier/remote-fault.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64], idx[80];
static struct mc_remote *remote;
static struct mc_fault *fault;
static struct mc_catalogue *cat;

static int rm(const char *path, const struct stat *st, int flag, struct FTW *f)
{
	(void)st;
	(void)flag;
	(void)f;
	return remove(path);
}

static void open_catalogue(void)
{
	struct mc_err err = {0};
	char url[80];

	snprintf(root, sizeof(root), "/tmp/mc-catalogue-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
	snprintf(idx, sizeof(idx), "%s.idx", root);
	snprintf(url, sizeof(url), "dir:%s", root);
	ck_assert_msg(mc_remote_open(url, NULL, &remote, &err) == 0, "%s", err.text);
	ck_assert_int_eq(mc_remote_fault_open(remote, &fault, &remote), 0);
	ck_assert_msg(mc_catalogue_open(remote, idx, &cat, &err) == 0, "%s", err.text);
}

static void close_catalogue(void)
{
	mc_catalogue_close(cat);
	mc_remote_close(remote);
	nftw(root, rm, 16, FTW_DEPTH | FTW_PHYS);
	nftw(idx, rm, 16, FTW_DEPTH | FTW_PHYS);
}

static struct mc_rev_name name(const char *text)
{
	struct mc_rev_name n;
	struct mc_err err = {0};

	ck_assert_msg(mc_rev_name_parse(text, &n, &err) == 0, "%s", err.text);
	return n;
}

/* The JSON of the sample manifest, with the root's mode to tell versions apart. */
static char *json(uint32_t mode, size_t *len)
{
	struct mc_writer *w = sample_writer();
	char *text;

	mc_writer_root(w, &(struct mc_new_meta){.mode = mode});
	ck_assert_int_eq(mc_writer_finish(w, &text, len, NULL, NULL), 0);
	mc_writer_close(w);
	return text;
}

static int publish(const char *rev, uint32_t mode, struct mc_err *err)
{
	struct mc_rev_name n = name(rev);
	size_t len;
	char *text = json(mode, &len);
	int r = mc_catalogue_publish(cat, &n, text, len, err);

	free(text);
	return r;
}

static void write_file(const char *path, const char *text)
{
	char full[400];
	FILE *f;

	snprintf(full, sizeof(full), "%s/%s", root, path);
	f = fopen(full, "we");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_ge(fputs(text, f), 0);
	fclose(f);
}

START_TEST(names_follow_the_rules)
{
	static const struct {
		const char *text;
		int want;
		const char *rev;
	} rows[] = {{"o/m", 0, ""}, {"o/m@main", 0, "main"}, {"o/m@a/b", 0, "a%2Fb"},
		{"o/m@a%2Fb", 0, "a%2Fb"}, {"o/m@50%", 0, "50%25"}, {"o/m@50%25", 0, "50%25"},
		{"o/m@a@b", 0, "a@b"}, {"Qwen/Qwen3-8B.x_y@v1.0", 0, "v1.0"}, {"o", -EINVAL, NULL},
		{"", -EINVAL, NULL}, {"/m", -EINVAL, NULL}, {"o/", -EINVAL, NULL},
		{"o/m@", -EINVAL, NULL}, {"o/m/x", -EINVAL, NULL}, {"../m", -EINVAL, NULL},
		{"o/..", -EINVAL, NULL}, {".o/m", -EINVAL, NULL}, {"o/.m", -EINVAL, NULL},
		{"o@x/m", -EINVAL, NULL}, {"o/m@.hidden", -EINVAL, NULL}, {"o/m@..", -EINVAL, NULL},
		{"o/m@latest", -EINVAL, NULL}, {"o/m@a\nb", -EINVAL, NULL}};
	struct mc_rev_name n;
	char longest[600] = "o/m@";

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		int r = mc_rev_name_parse(rows[i].text, &n, NULL);

		ck_assert_msg(r == rows[i].want, "\"%s\": %d", rows[i].text, r);
		if (r == 0)
			ck_assert_str_eq(n.rev, rows[i].rev);
	}
	memset(longest + 4, 'x', 253);
	ck_assert_int_eq(mc_rev_name_parse(longest, &n, NULL), 0);
	longest[4 + 253] = 'x';
	ck_assert_int_eq(mc_rev_name_parse(longest, &n, NULL), -EINVAL);
	memset(longest + 4, '/', 90);
	ck_assert_int_eq(mc_rev_name_parse(longest, &n, NULL), -EINVAL);
}
END_TEST

struct seen {
	char text[400];
};

static int see(void *ctx, const char *entry)
{
	struct seen *s = ctx;
	size_t len = strlen(s->text);

	snprintf(s->text + len, sizeof(s->text) - len, "%s ", entry);
	return 0;
}

START_TEST(only_ready_revisions_with_good_names_are_listed)
{
	struct mc_rev_name m = name("org/model");
	struct seen orgs = {0}, models = {0}, revs = {0};
	char path[200];

	open_catalogue();
	ck_assert_int_eq(mc_catalogue_orgs(cat, see, &orgs, NULL), 0);
	ck_assert_str_eq(orgs.text, "");
	ck_assert_int_eq(mc_catalogue_models(cat, "org", see, &models, NULL), -ENOENT);
	ck_assert_int_eq(publish("org/model@a/b", 0755, NULL), 0);
	snprintf(path, sizeof(path), "%s/checkpoints/.snapshot", root);
	ck_assert_int_eq(mkdir(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/checkpoints/org/model/half", root);
	ck_assert_int_eq(mkdir(path, 0755), 0);
	write_file("checkpoints/org/model/half/manifest.id", "x");
	ck_assert_int_eq(mc_catalogue_orgs(cat, see, &orgs, NULL), 0);
	ck_assert_int_eq(mc_catalogue_models(cat, "org", see, &models, NULL), 0);
	ck_assert_int_eq(mc_catalogue_revisions(cat, &m, see, &revs, NULL), 0);
	ck_assert_str_eq(orgs.text, "org ");
	ck_assert_str_eq(models.text, "model ");
	ck_assert_str_eq(revs.text, "a%2Fb ");
	close_catalogue();
}
END_TEST

START_TEST(a_second_load_comes_from_the_index)
{
	struct mc_rev_name n = name("org/model@main");
	struct mc_loaded first, second;
	struct mc_catalogue *plain;
	uint8_t id[MC_SHA256_SIZE];

	open_catalogue();
	ck_assert_int_eq(mc_catalogue_load(cat, &n, &first, NULL), -ENOENT);
	ck_assert_int_eq(publish("org/model@main", 0755, NULL), 0);
	ck_assert_int_eq(mc_catalogue_load(cat, &n, &first, NULL), 0);
	ck_assert(!first.from_index);
	ck_assert_str_eq(first.index_error.text, "");
	ck_assert_int_eq(mc_catalogue_load(cat, &n, &second, NULL), 0);
	ck_assert(second.from_index);
	ck_assert_int_eq(mc_catalogue_id(cat, &n, id, NULL), 0);
	ck_assert_mem_eq(mc_manifest_id(first.m), id, sizeof(id));
	ck_assert_mem_eq(mc_manifest_id(second.m), id, sizeof(id));
	ck_assert_uint_eq(mc_manifest_entries(second.m), 9);
	mc_manifest_unref(first.m);
	mc_manifest_unref(second.m);
	ck_assert_int_eq(mc_catalogue_open(remote, NULL, &plain, NULL), 0);
	ck_assert_int_eq(mc_catalogue_load(plain, &n, &first, NULL), 0);
	ck_assert(!first.from_index);
	mc_manifest_unref(first.m);
	mc_catalogue_close(plain);
	close_catalogue();
}
END_TEST

START_TEST(an_index_that_cannot_be_saved_does_not_fail_the_load)
{
	struct mc_rev_name n = name("org/model@main");
	struct mc_loaded l;

	open_catalogue();
	ck_assert_int_eq(publish("org/model@main", 0755, NULL), 0);
	ck_assert_int_eq(rmdir(idx), 0);
	ck_assert_int_eq(mc_catalogue_load(cat, &n, &l, NULL), 0);
	ck_assert_ptr_nonnull(strstr(l.index_error.text, "cannot write the manifest index"));
	mc_manifest_unref(l.m);
	close_catalogue();
}
END_TEST

START_TEST(latest_names_the_revision_published_last)
{
	struct mc_rev_name n = name("org/model");
	uint8_t id[MC_SHA256_SIZE], want[MC_SHA256_SIZE];

	open_catalogue();
	ck_assert_int_eq(mc_catalogue_latest(cat, &n, id, NULL), -ENOENT);
	ck_assert_int_eq(publish("org/model@v/1", 0755, NULL), 0);
	ck_assert_int_eq(publish("org/model@v/2", 0700, NULL), 0);
	ck_assert_int_eq(mc_catalogue_latest(cat, &n, id, NULL), 0);
	ck_assert_str_eq(n.rev, "v%2F2");
	ck_assert_int_eq(mc_catalogue_id(cat, &n, want, NULL), 0);
	ck_assert_mem_eq(id, want, sizeof(id));
	ck_assert_int_eq(publish("org/model@v/1", 0755, NULL), 0);
	ck_assert_int_eq(mc_catalogue_latest(cat, &n, NULL, NULL), 0);
	ck_assert_str_eq(n.rev, "v%2F1");
	write_file("checkpoints/org/model/latest", "nonsense\n");
	ck_assert_int_eq(mc_catalogue_latest(cat, &n, NULL, NULL), -EBADMSG);
	close_catalogue();
}
END_TEST

START_TEST(a_ready_revision_is_never_replaced)
{
	struct mc_rev_name n = name("org/model@main");
	uint8_t before[MC_SHA256_SIZE], after[MC_SHA256_SIZE];
	struct mc_err err = {0};

	open_catalogue();
	ck_assert_int_eq(publish("org/model@main", 0755, NULL), 0);
	ck_assert_int_eq(mc_catalogue_id(cat, &n, before, NULL), 0);
	ck_assert_int_eq(publish("org/model@main", 0700, &err), -EEXIST);
	ck_assert_ptr_nonnull(strstr(err.text, "org/model@main exists already"));
	/* The other publisher of a race wrote its id between our id and our JSON. */
	write_file("checkpoints/org/model/main/manifest.id",
		"0000000000000000000000000000000000000000000000000000000000000000\n");
	ck_assert_int_eq(publish("org/model@main", 0755, NULL), 0);
	ck_assert_int_eq(mc_catalogue_id(cat, &n, after, NULL), 0);
	ck_assert_mem_eq(before, after, sizeof(before));
	close_catalogue();
}
END_TEST

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

SUITE_MAIN("catalogue", names_follow_the_rules, only_ready_revisions_with_good_names_are_listed,
	a_second_load_comes_from_the_index, an_index_that_cannot_be_saved_does_not_fail_the_load,
	latest_names_the_revision_published_last, a_ready_revision_is_never_replaced,
	damage_on_the_remote_is_named, a_hostile_manifest_with_the_right_id_is_refused_by_its_path,
	a_damaged_index_is_made_anew, the_loser_of_a_race_puts_the_winners_id_back,
	damaged_json_is_repaired_by_publishing_the_same_again_only,
	a_damaged_id_is_repaired_by_publishing_the_same_again_only,
	a_publish_that_fails_anywhere_leaves_a_whole_revision_or_none,
	no_damage_in_flight_gives_a_wrong_manifest)
