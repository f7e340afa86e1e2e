/* Imports that are disturbed or killed: what they leave, and what the next one has to read again.
 */
#include "tests/import-tree.h"
#include "tests/suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* An import during which something happens, at the first report of a stage. */
struct disturbed {
	struct tree t;
	const char *stage;   /* NULL once it has happened */
	const char *command; /* NULL: the same import again */
	struct mc_import_opts opts;
	struct mc_import_result res;
	struct mc_err err;
};

static void meddle(void *ctx, const struct mc_progress *now)
{
	struct disturbed *d = ctx;
	struct mc_import_result res;
	struct mc_err err;

	if (d->stage == NULL || strcmp(now->stage, d->stage) != 0)
		return;
	d->stage = NULL;
	if (d->command != NULL) {
		tree_shell(&d->t, "%s", d->command);
		return;
	}
	ck_assert_int_eq(tree_import(&d->t, "v1", &res, &err), -EBUSY);
	ck_assert_msg(strstr(err.text, "another import of") != NULL, "%s", err.text);
}

/* The result of the import; the caller closes the tree. */
static int disturb(struct disturbed *d, const char *stage, const char *command)
{
	*d = (struct disturbed){.stage = stage, .command = command};
	tree_open(&d->t);
	tree_fill(&d->t);
	d->opts = (struct mc_import_opts){.src = d->t.src,
		.name = {.org = "o", .model = "m", .rev = "v1"},
		.jobs = 2,
		.progress = meddle,
		.ctx = d};
	return mc_import(d->t.remote, &d->opts, &d->res, &d->err);
}

static void import_rest(struct disturbed *d, const char *changes)
{
	tree_shell(&d->t, "rm src/new; touch -d @1444444444.75 src; %s", changes);
	d->err.text[0] = '\0';
	ck_assert_msg(mc_import(d->t.remote, &d->opts, &d->res, &d->err) == 0, "%s", d->err.text);
}

START_TEST(a_source_that_changes_meanwhile_is_an_error_and_nothing_is_visible)
{
	static const struct {
		const char *stage, *command, *text;
	} cases[] = {
		{"look at the source again", "echo x >> src/config.json",
			"config.json changed its size"},
		{"look at the source again", "touch src/new", "new appeared"},
		{"look at the source again", "rm src/blob.bin", "blob.bin disappeared"},
		{"read", "truncate -s 100 src/blob.bin", "blob.bin changed"},
		{"read", "rm src/blob.bin", "blob.bin cannot be read: No such file"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct disturbed d;
		int r = disturb(&d, cases[i].stage, cases[i].command);

		ck_assert_msg(r == -ESTALE || r == -ENOENT, "%s: %d", cases[i].command, r);
		ck_assert_msg(strstr(d.err.text, cases[i].text) != NULL, "%s", d.err.text);
		tree_shell(&d.t, "test ! -e remote/checkpoints");
		tree_close(&d.t);
	}
}
END_TEST

START_TEST(what_a_failed_import_read_is_not_read_again)
{
	struct mc_import_result fresh;
	struct disturbed d;

	ck_assert_int_eq(disturb(&d, "look at the source again", "touch src/new"), -ESTALE);
	/* One chunk is lost, one file is another: only they are read. */
	import_rest(
		&d, "rm $(find remote/chunks -size +7M | head -1); echo '{}' > src/config.json");
	ck_assert_uint_gt(d.res.read_bytes, 3);
	ck_assert_uint_le(
		d.res.read_bytes, 2 * (8 << 20) + 3); /* blob.bin's first chunk lies there twice */
	ck_assert_uint_eq(d.res.read_bytes + d.res.resumed_bytes, d.res.bytes - d.res.hole_bytes);
	ck_assert_uint_gt(d.res.written_bytes, 7 << 20);
	tree_shell(&d.t, "test -z \"$(ls state/mooncakefs)\"");
	/* The same as an import in one go. */
	tree_shell(&d.t, "mv remote old; mkdir remote");
	mc_remote_close(d.t.remote);
	ck_assert_int_eq(mc_remote_open(d.t.url, NULL, &d.t.remote, &d.err), 0);
	ck_assert_msg(mc_import(d.t.remote, &d.opts, &fresh, &d.err) == 0, "%s", d.err.text);
	ck_assert_uint_eq(fresh.resumed_bytes, 0);
	ck_assert_mem_eq(fresh.id, d.res.id, sizeof(d.res.id));
	tree_shell(&d.t, "! diff -r old/chunks remote/chunks | grep -v '^Only in old'");
	tree_close(&d.t);
}
END_TEST

/* Notes that were damaged are forgotten, not believed; so is what stands behind them. */
START_TEST(a_damaged_journal_costs_reading_and_nothing_else)
{
	static const struct {
		const char *damage;
		bool all; /* nothing is left to resume */
	} cases[] = {
		{"$MC_FLIP_BYTE $j 50", true},
		{"$MC_FLIP_BYTE $j $(($(stat -c %s $j) - 1))", false},
		{"truncate -s -7 $j", false},
		{"head -c 1000 /dev/urandom >> $j", false},
		{"head -c 5000 /dev/urandom > $j", true},
		{": > $j", true},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct disturbed d;
		char damage[200];

		snprintf(damage, sizeof(damage), "j=$(ls state/mooncakefs/*.journal); %s",
			cases[i].damage);
		ck_assert_int_eq(disturb(&d, "look at the source again", "touch src/new"), -ESTALE);
		import_rest(&d, damage);
		ck_assert_uint_eq(d.res.written_bytes, 0);
		ck_assert_msg((d.res.resumed_bytes == 0) == cases[i].all, "%s: %llu resumed",
			cases[i].damage, (unsigned long long)d.res.resumed_bytes);
		ck_assert_uint_eq(
			d.res.read_bytes + d.res.resumed_bytes, d.res.bytes - d.res.hole_bytes);
		tree_export(&d.t, "v1", "out");
		tree_shell(&d.t, "diff -r --no-dereference src out");
		tree_close(&d.t);
	}
}
END_TEST

START_TEST(a_second_import_of_the_same_source_at_a_time_is_refused)
{
	struct disturbed d;
	int r = disturb(&d, "read", NULL);

	ck_assert_msg(r == 0, "%s", d.err.text);
	ck_assert_ptr_null(d.stage);
	tree_close(&d.t);
}
END_TEST

SUITE_MAIN("import resume", a_source_that_changes_meanwhile_is_an_error_and_nothing_is_visible,
	what_a_failed_import_read_is_not_read_again,
	a_damaged_journal_costs_reading_and_nothing_else,
	a_second_import_of_the_same_source_at_a_time_is_refused)
