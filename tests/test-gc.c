/* Garbage collection of a remote, and taking revisions out of the catalogue. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/catalogue.h"
#include "manifest/gc.h"
#include "manifest/import.h"
#include "manifest/import-journal.h"
#include "manifest/verify.h"
#include "tests/import-tree.h"
#include "tests/suite.h"
#include "tier/remote-fault.h"

#define OLD "find remote/chunks -type f | xargs -r touch -d '10 days ago'"
#define DAY 86400

static void import_as(struct tree *t, const char *rev)
{
	struct mc_import_result res;
	struct mc_err err;

	ck_assert_msg(tree_import(t, rev, &res, &err) == 0, "%s", err.text);
}

/* Two revisions: one file is in both, one in each only. */
static void fill(struct tree *t)
{
	tree_open(t);
	tree_shell(t,
		"head -c 9000000 /dev/urandom > src/both.bin; "
		"head -c 5000000 /dev/urandom > src/first.bin");
	import_as(t, "v1");
	tree_shell(t, "rm src/first.bin; head -c 4000000 /dev/urandom > src/second.bin");
	import_as(t, "v2");
	tree_shell(t, OLD);
}

static int remove_revision(struct mc_remote *r, const char *rev, struct mc_err *err)
{
	struct mc_rev_name name = {.org = "o", .model = "m"};
	struct mc_catalogue *c;
	int res;

	strcpy(name.rev, rev);
	ck_assert_int_eq(mc_catalogue_open(r, NULL, &c, err), 0);
	res = mc_catalogue_remove(c, &name, err);
	mc_catalogue_close(c);
	return res;
}

static int collect(struct mc_remote *r, bool remove, struct mc_gc_result *ret, struct mc_err *err)
{
	const struct mc_gc_opts opts = {.grace_s = 7 * DAY, .jobs = 3, .remove = remove};

	err->text[0] = '\0';
	return mc_gc(r, &opts, ret, err);
}

static void expect_whole(struct tree *t, const char *rev)
{
	const struct mc_verify_opts opts = {.jobs = 2};
	struct mc_manifest *m = tree_load(t, rev);
	struct mc_verify_result res;
	struct mc_err err = {0};

	ck_assert_msg(mc_verify(t->remote, m, &opts, &res, &err) == 0, "%s", err.text);
	ck_assert_uint_eq(res.damaged, 0);
	mc_manifest_unref(m);
}

START_TEST(what_a_removed_revision_alone_used_goes_and_nothing_else)
{
	struct mc_gc_result res;
	struct mc_err err = {0};
	struct tree t;

	fill(&t);
	ck_assert_int_eq(collect(t.remote, false, &res, &err), 0);
	ck_assert_uint_eq(res.revisions, 2);
	ck_assert_uint_eq(res.chunks, 4); /* 8 MiB and the rest of both.bin, one of each other */
	ck_assert_uint_eq(res.referenced, 4);
	ck_assert_uint_eq(res.garbage, 0);
	ck_assert_msg(remove_revision(t.remote, "v1", &err) == 0, "%s", err.text);
	/* A dry run counts and changes nothing. */
	ck_assert_int_eq(collect(t.remote, false, &res, &err), 0);
	ck_assert_uint_eq(res.garbage, 1);
	ck_assert_uint_eq(res.garbage_bytes, 5000000);
	tree_shell(&t, "test $(find remote/chunks -type f | wc -l) = 4; test ! -e remote/tmp/gc");
	ck_assert_int_eq(collect(t.remote, true, &res, &err), 0);
	ck_assert_uint_eq(res.garbage, 1);
	ck_assert_uint_eq(res.missing, 0);
	tree_shell(&t,
		"test $(find remote/chunks -type f | wc -l) = 3; test -z \"$(ls remote/tmp/gc)\"");
	expect_whole(&t, "v2");
	ck_assert_int_eq(collect(t.remote, true, &res, &err), 0);
	ck_assert_uint_eq(res.garbage, 0);
	tree_close(&t);
}
END_TEST

START_TEST(removing_the_latest_makes_the_one_before_it_the_latest)
{
	struct mc_rev_name name = {.org = "o", .model = "m"};
	struct mc_err err = {0};
	struct mc_catalogue *c;
	struct tree t;

	fill(&t);
	ck_assert_int_eq(mc_catalogue_open(t.remote, NULL, &c, &err), 0);
	ck_assert_int_eq(remove_revision(t.remote, "v2", &err), 0);
	ck_assert_int_eq(mc_catalogue_latest(c, &name, NULL, &err), 0);
	ck_assert_str_eq(name.rev, "v1");
	ck_assert_int_eq(remove_revision(t.remote, "v2", &err), -ENOENT);
	ck_assert_int_eq(remove_revision(t.remote, "v1", &err), 0);
	ck_assert_int_eq(mc_catalogue_latest(c, &name, NULL, &err), -ENOENT);
	tree_shell(&t, "test -z \"$(ls remote/checkpoints)\"");
	mc_catalogue_close(c);
	tree_close(&t);
}
END_TEST

START_TEST(what_is_younger_than_the_grace_period_stays)
{
	struct mc_gc_result res;
	struct mc_err err = {0};
	struct tree t;

	fill(&t);
	ck_assert_int_eq(remove_revision(t.remote, "v1", &err), 0);
	ck_assert_int_eq(remove_revision(t.remote, "v2", &err), 0);
	tree_shell(&t, "touch -d '6 days ago' $(find remote/chunks -type f | head -n 2)");
	ck_assert_int_eq(collect(t.remote, true, &res, &err), 0);
	ck_assert_uint_eq(res.young, 2);
	ck_assert_uint_eq(res.garbage, 2);
	tree_shell(&t, "test $(find remote/chunks -type f | wc -l) = 2");
	tree_close(&t);
}
END_TEST

struct collector {
	struct mc_remote *remote;
	struct mc_gc_result res;
	struct mc_err err;
	int code;
};

static void *collect_aside(void *ctx)
{
	struct collector *c = ctx;

	c->code = collect(c->remote, true, &c->res, &c->err);
	return NULL;
}

/* The gc has decided to remove a chunk; an import finds it and counts on it in this moment. */
START_TEST(a_chunk_that_an_import_found_meanwhile_goes_back)
{
	struct collector c = {0};
	struct mc_remote *inner;
	struct mc_fault *fault;
	struct mc_err err = {0};
	pthread_t thread;
	struct tree t;

	fill(&t);
	ck_assert_int_eq(remove_revision(t.remote, "v2", &err), 0);
	ck_assert_int_eq(mc_remote_open(t.url, NULL, &inner, &err), 0);
	ck_assert_int_eq(mc_remote_fault_open(inner, &fault, &c.remote), 0);
	mc_fault_add(fault, &(struct mc_fault_rule){.op = MC_FAULT_RENAME, .kind = MC_FAULT_HANG});
	ck_assert_int_eq(pthread_create(&thread, NULL, collect_aside, &c), 0);
	mc_fault_wait_held(fault, 1);
	import_as(&t, "v3");
	mc_fault_clear(fault);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_msg(c.code == 0, "%s", c.err.text);
	ck_assert_uint_eq(c.res.restored, 1);
	ck_assert_uint_eq(c.res.garbage, 0);
	expect_whole(&t, "v3");
	expect_whole(&t, "v1");
	mc_remote_close(c.remote);
	tree_close(&t);
}
END_TEST

/* The n-th change of the remote fails, or is done and its answer lost, for every n. */
START_TEST(a_gc_that_ends_anywhere_is_completed_by_the_next)
{
	static const enum mc_fault_kind kinds[] = {MC_FAULT_FAIL, MC_FAULT_LOST};
	static const enum mc_fault_op ops[] = {MC_FAULT_RENAME, MC_FAULT_UNLINK, MC_FAULT_STAT};

	struct mc_gc_result res;
	struct mc_err err = {0};
	struct tree t;

	fill(&t);
	tree_shell(&t, "head -c 100 /dev/urandom > src/third.bin; rm src/second.bin");
	import_as(&t, "v3");
	tree_shell(&t, OLD);
	ck_assert_int_eq(remove_revision(t.remote, "v1", &err), 0);
	ck_assert_int_eq(remove_revision(t.remote, "v2", &err), 0);
	tree_shell(&t, "mv remote before");
	for (unsigned i = 0; i < 2 * 3 * 3; i++) {
		const struct mc_fault_rule rule = {.op = ops[i % 3],
			.kind = kinds[i / 3 % 2],
			.path = i % 3 == 0 ? "chunks/" : "tmp/gc/",
			.first = 1 + i / 6,
			.error = -EIO};
		struct mc_remote *inner, *remote;
		struct mc_fault *fault;

		tree_shell(&t, "rm -rf remote; cp -a before remote");
		mc_remote_close(t.remote);
		ck_assert_int_eq(mc_remote_open(t.url, NULL, &t.remote, &err), 0);
		ck_assert_int_eq(mc_remote_open(t.url, NULL, &inner, &err), 0);
		ck_assert_int_eq(mc_remote_fault_open(inner, &fault, &remote), 0);
		mc_fault_add(fault, &rule);
		if (collect(remote, true, &res, &err) < 0)
			ck_assert_uint_gt(mc_fault_hits(fault), 0);
		mc_remote_close(remote);
		expect_whole(&t, "v3");
		ck_assert_msg(collect(t.remote, true, &res, &err) == 0, "%s", err.text);
		tree_shell(&t,
			"test $(find remote/chunks -type f | wc -l) = 3; "
			"test -z \"$(ls remote/tmp/gc)\"");
		expect_whole(&t, "v3");
	}
	tree_close(&t);
}
END_TEST

START_TEST(a_chunk_left_in_the_trash_by_a_kill_goes_where_it_belongs)
{
	struct mc_gc_result res;
	struct mc_err err = {0};
	struct tree t;

	fill(&t);
	ck_assert_int_eq(remove_revision(t.remote, "v1", &err), 0);
	tree_shell(&t, "mkdir -p remote/tmp/gc; mv $(find remote/chunks -type f) remote/tmp/gc/");
	ck_assert_int_eq(collect(t.remote, true, &res, &err), 0);
	ck_assert_uint_eq(res.restored, 3);
	ck_assert_uint_eq(res.garbage, 1);
	ck_assert_uint_eq(res.missing, 0);
	expect_whole(&t, "v2");
	tree_close(&t);
}
END_TEST

START_TEST(a_revision_that_cannot_be_read_keeps_everything)
{
	struct mc_gc_result res;
	struct mc_err err = {0};
	struct tree t;

	fill(&t);
	ck_assert_int_eq(remove_revision(t.remote, "v1", &err), 0);
	tree_shell(&t, "echo >> remote/checkpoints/o/m/v2/manifest.json");
	ck_assert_int_eq(collect(t.remote, true, &res, &err), -EBADMSG);
	ck_assert_msg(strstr(err.text, "o/m@v2") != NULL, "%s", err.text);
	ck_assert_msg(strstr(err.text, "nothing was removed") != NULL, "%s", err.text);
	tree_shell(&t, "test $(find remote/chunks -type f | wc -l) = 4");
	tree_close(&t);
}
END_TEST

/* What an import that was interrupted has already written is not written again by the next. */
START_TEST(chunks_of_an_unfinished_import_on_this_machine_stay)
{
	struct mc_import_note note = {.len = 5000000};
	struct mc_import_journal *j;
	struct mc_gc_result res;
	struct mc_err err = {0};
	struct tree t;

	fill(&t);
	ck_assert_int_eq(remove_revision(t.remote, "v1", &err), 0);
	ck_assert_int_eq(collect(t.remote, false, &res, &err), 0);
	ck_assert_uint_eq(res.garbage, 1);
	tree_shell(&t, "find remote/chunks -size 5000000c -printf %%f > name");
	{
		char path[160], hex[MC_SHA256_HEX + 1] = "";
		FILE *f;

		snprintf(path, sizeof(path), "%s/name", t.top);
		f = fopen(path, "r");
		ck_assert_ptr_nonnull(f);
		ck_assert_ptr_nonnull(fgets(hex, sizeof(hex), f));
		fclose(f);
		ck_assert_int_eq(mc_hex_decode(hex, note.sha256, sizeof(note.sha256)), 0);
	}
	ck_assert_int_eq(mc_import_journal_open("import", t.url, "/elsewhere", &j, &err), 0);
	mc_import_journal_add(j, &note);
	ck_assert_int_eq(collect(t.remote, true, &res, &err), 0);
	ck_assert_uint_eq(res.garbage, 0);
	mc_import_journal_close(j, true);
	ck_assert_int_eq(collect(t.remote, true, &res, &err), 0);
	ck_assert_uint_eq(res.garbage, 1);
	tree_close(&t);
}
END_TEST

START_TEST(leftovers_go_after_a_day_and_strangers_never)
{
	struct mc_gc_result res;
	struct mc_err err = {0};
	struct tree t;

	fill(&t);
	tree_shell(&t,
		"mkdir -p remote/tmp/node; echo 1 > remote/tmp/node/young; "
		"echo 22 > remote/tmp/node/old; touch -d '8 days ago' remote/tmp/node/old; "
		"echo > remote/chunks/00-notes; mkdir -p remote/chunks/aa; "
		"echo > remote/chunks/aa/README; touch -d '1 year ago' remote/chunks/aa/README");
	ck_assert_int_eq(collect(t.remote, true, &res, &err), 0);
	ck_assert_uint_eq(res.leftovers, 1);
	ck_assert_uint_eq(res.leftover_bytes, 3);
	ck_assert_uint_eq(res.strangers, 1);
	tree_shell(&t,
		"test ! -e remote/tmp/node/old; test -e remote/tmp/node/young; "
		"test -e remote/chunks/aa/README; test -e remote/chunks/00-notes");
	tree_close(&t);
}
END_TEST

START_TEST(a_chunk_that_a_revision_needs_and_is_not_there_is_counted)
{
	struct mc_gc_result res;
	struct mc_err err = {0};
	struct tree t;

	fill(&t);
	tree_shell(&t, "rm $(find remote/chunks -size 4000000c)");
	ck_assert_int_eq(collect(t.remote, true, &res, &err), 0);
	ck_assert_uint_eq(res.missing, 1);
	ck_assert_uint_eq(res.garbage, 0);
	tree_close(&t);
}
END_TEST

SUITE_MAIN("gc", what_a_removed_revision_alone_used_goes_and_nothing_else,
	removing_the_latest_makes_the_one_before_it_the_latest,
	what_is_younger_than_the_grace_period_stays,
	a_chunk_that_an_import_found_meanwhile_goes_back,
	a_gc_that_ends_anywhere_is_completed_by_the_next,
	a_chunk_left_in_the_trash_by_a_kill_goes_where_it_belongs,
	a_revision_that_cannot_be_read_keeps_everything,
	chunks_of_an_unfinished_import_on_this_machine_stay,
	leftovers_go_after_a_day_and_strangers_never,
	a_chunk_that_a_revision_needs_and_is_not_there_is_counted)
