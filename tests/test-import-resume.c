/* Imports that are disturbed or killed: what they leave, and what the next one has to read again.
 */
#include "tests/import-tree.h"
#include "tests/suite.h"

#include <errno.h>
#include <string.h>

/* Runs a command at the first report of a stage. */
struct meddler {
	const struct tree *t;
	const char *stage, *command;
};

static void meddle(void *ctx, const struct mc_progress *now)
{
	struct meddler *m = ctx;

	if (m->stage == NULL || strcmp(now->stage, m->stage) != 0)
		return;
	m->stage = NULL;
	tree_shell(m->t, "%s", m->command);
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
		struct mc_import_opts opts = {.name = {.org = "o", .model = "m", .rev = "v1"},
			.jobs = 2,
			.progress = meddle};
		struct meddler m = {.stage = cases[i].stage, .command = cases[i].command};
		struct mc_import_result res;
		struct mc_err err = {0};
		struct tree t;
		int r;

		tree_open(&t);
		tree_fill(&t);
		opts.src = t.src;
		opts.ctx = &m;
		m.t = &t;
		r = mc_import(t.remote, &opts, &res, &err);
		ck_assert_msg(r == -ESTALE || r == -ENOENT, "%s: %d", cases[i].command, r);
		ck_assert_msg(strstr(err.text, cases[i].text) != NULL, "%s", err.text);
		tree_shell(&t, "test ! -e remote/checkpoints");
		tree_close(&t);
	}
}
END_TEST

START_TEST(what_a_failed_import_read_is_not_read_again)
{
	struct mc_import_opts opts = {
		.name = {.org = "o", .model = "m", .rev = "v1"}, .jobs = 3, .progress = meddle};
	struct meddler m = {.stage = "look at the source again", .command = "touch src/new"};
	struct mc_import_result res, fresh;
	struct mc_err err = {0};
	struct tree t;

	tree_open(&t);
	tree_fill(&t);
	opts.src = t.src;
	opts.ctx = &m;
	m.t = &t;
	ck_assert_int_eq(mc_import(t.remote, &opts, &res, &err), -ESTALE);
	/* One chunk is lost, one file is another: only they are read. */
	tree_shell(&t,
		"rm src/new; touch -d @1444444444.75 src; "
		"rm $(find remote/chunks -size +7M | head -1); echo '{}' > src/config.json");
	err.text[0] = '\0';
	ck_assert_msg(mc_import(t.remote, &opts, &res, &err) == 0, "%s", err.text);
	ck_assert_uint_gt(res.read_bytes, 3);
	ck_assert_uint_le(
		res.read_bytes, 2 * (8 << 20) + 3); /* blob.bin's first chunk lies there twice */
	ck_assert_uint_eq(res.read_bytes + res.resumed_bytes, res.bytes - res.hole_bytes);
	ck_assert_uint_gt(res.written_bytes, 7 << 20);
	tree_shell(&t, "test -z \"$(ls state/mooncakefs)\"");
	/* The same as an import in one go. */
	tree_shell(&t, "mv remote old; mkdir remote");
	mc_remote_close(t.remote);
	ck_assert_int_eq(mc_remote_open(t.url, NULL, &t.remote, &err), 0);
	ck_assert_msg(mc_import(t.remote, &opts, &fresh, &err) == 0, "%s", err.text);
	ck_assert_uint_eq(fresh.resumed_bytes, 0);
	ck_assert_mem_eq(fresh.id, res.id, sizeof(res.id));
	tree_shell(&t, "! diff -r old/chunks remote/chunks | grep -v '^Only in old'");
	tree_close(&t);
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
		struct mc_import_opts opts = {.name = {.org = "o", .model = "m", .rev = "v1"},
			.jobs = 2,
			.progress = meddle};
		struct meddler m = {
			.stage = "look at the source again", .command = "touch src/new"};
		struct mc_import_result res;
		struct mc_err err = {0};
		struct tree t;

		tree_open(&t);
		tree_fill(&t);
		opts.src = t.src;
		opts.ctx = &m;
		m.t = &t;
		ck_assert_int_eq(mc_import(t.remote, &opts, &res, &err), -ESTALE);
		tree_shell(&t,
			"rm src/new; touch -d @1444444444.75 src; "
			"j=$(ls state/mooncakefs/*.journal); %s",
			cases[i].damage);
		err.text[0] = '\0';
		ck_assert_msg(mc_import(t.remote, &opts, &res, &err) == 0, "%s", err.text);
		ck_assert_uint_eq(res.written_bytes, 0);
		ck_assert_msg((res.resumed_bytes == 0) == cases[i].all, "%s: %llu resumed",
			cases[i].damage, (unsigned long long)res.resumed_bytes);
		ck_assert_uint_eq(res.read_bytes + res.resumed_bytes, res.bytes - res.hole_bytes);
		tree_export(&t, "v1", "out");
		tree_shell(&t, "diff -r --no-dereference src out");
		tree_close(&t);
	}
}
END_TEST

static void import_again(void *ctx, const struct mc_progress *now)
{
	struct meddler *m = ctx;
	struct mc_import_result res;
	struct mc_err err;

	if (m->stage == NULL || strcmp(now->stage, m->stage) != 0)
		return;
	m->stage = NULL;
	ck_assert_int_eq(tree_import(m->t, "v1", &res, &err), -EBUSY);
	ck_assert_msg(strstr(err.text, "another import of") != NULL, "%s", err.text);
}

START_TEST(a_second_import_of_the_same_source_at_a_time_is_refused)
{
	struct mc_import_opts opts = {.name = {.org = "o", .model = "m", .rev = "v1"},
		.jobs = 2,
		.progress = import_again};
	struct meddler m = {.stage = "read"};
	struct mc_import_result res;
	struct mc_err err = {0};
	struct tree t;

	tree_open(&t);
	tree_fill(&t);
	opts.src = t.src;
	opts.ctx = &m;
	m.t = &t;
	ck_assert_msg(mc_import(t.remote, &opts, &res, &err) == 0, "%s", err.text);
	ck_assert_ptr_null(m.stage);
	tree_close(&t);
}
END_TEST

SUITE_MAIN("import resume", a_source_that_changes_meanwhile_is_an_error_and_nothing_is_visible,
	what_a_failed_import_read_is_not_read_again,
	a_damaged_journal_costs_reading_and_nothing_else,
	a_second_import_of_the_same_source_at_a_time_is_refused)
