/* The catalogue on a directory: names, READY, latest, the index, what is published once. */
#include "tests/catalogue-fixture.h"
#include "tests/suite.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

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

SUITE_MAIN("catalogue", names_follow_the_rules, only_ready_revisions_with_good_names_are_listed,
	a_second_load_comes_from_the_index, an_index_that_cannot_be_saved_does_not_fail_the_load,
	latest_names_the_revision_published_last, a_ready_revision_is_never_replaced)
