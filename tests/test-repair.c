/* Verification of every copy on several remotes, and repair of those that are bad. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/catalogue.h"
#include "manifest/import.h"
#include "manifest/verify.h"
#include "tests/import-tree.h"
#include "tests/suite.h"
#include "tier/remote-set.h"

#define FILES 16
#define TEXTS 8192
#define EVERY_CHUNK "for f in $(cd a && find chunks -type f | sort); do "

static const struct mc_rev_name name = {.org = "o", .model = "m", .rev = "v1"};

static struct mc_remote *open_dirs(const struct tree *t, const char *dirs, unsigned copies)
{
	const struct mc_set_opts opts = {.copies = copies};
	struct mc_set_url urls[MC_SET_MAX] = {0};
	struct mc_remote *r = NULL;
	struct mc_err err = {0};
	unsigned n = 0;

	for (; dirs[n] != '\0'; n++) {
		char text[128];

		snprintf(text, sizeof(text), "dir:%s/%c#name=%c", t->top, dirs[n], dirs[n]);
		ck_assert_int_eq(mc_set_url_parse(text, &urls[n], NULL), 0);
	}
	ck_assert_msg(mc_remote_set_open(urls, n, &opts, &r, &err) == 0, "%s", err.text);
	while (n > 0)
		mc_set_url_done(&urls[--n]);
	return r;
}

/* o/m@v1 of FILES small chunks on the directories, each a letter. */
static void fill(struct tree *t, const char *dirs, unsigned copies)
{
	struct mc_import_result res;
	struct mc_err err = {0};

	tree_open(t);
	mc_remote_close(t->remote);
	tree_shell(t,
		"mkdir a b c; for i in $(seq %u); do head -c $((500 + i)) /dev/urandom > src/f$i; "
		"done",
		FILES);
	t->remote = open_dirs(t, dirs, copies);
	ck_assert_msg(tree_import(t, "v1", &res, &err) == 0, "%s", err.text);
	tree_shell(t, "cp -a a a.good");
}

/* What was told. */
struct told {
	char text[TEXTS];
	unsigned n, repaired;
};

static void keep(void *ctx, const char *text, bool repaired)
{
	struct told *told = ctx;
	size_t len = strlen(told->text);

	snprintf(told->text + len, TEXTS - len, "%s\n", text);
	told->n++;
	told->repaired += repaired;
}

static struct told told;

static int run(struct tree *t, struct mc_verify_opts opts, struct mc_verify_result *ret)
{
	struct mc_err err = {0};
	int r;

	told = (struct told){0};
	opts.jobs = 3;
	opts.damage = keep;
	opts.ctx = &told;
	r = mc_verify_revision(t->remote, &name, &opts, ret, &err);
	if (r < 0)
		snprintf(told.text, TEXTS, "%s", err.text);
	return r;
}

static int verify(struct tree *t, struct mc_verify_result *ret)
{
	return run(t, (struct mc_verify_opts){0}, ret);
}

static int repair(struct tree *t, struct mc_verify_result *ret)
{
	return run(t, (struct mc_verify_opts){.repair = true}, ret);
}

START_TEST(a_bad_copy_beside_a_good_one_is_found_and_only_it_is_written)
{
	struct mc_verify_result res;
	struct tree t;

	fill(&t, "ab", 2);
	ck_assert_int_eq(verify(&t, &res), 0);
	ck_assert_uint_eq(res.damaged, 0);
	ck_assert_uint_eq(res.chunks, FILES);
	ck_assert_uint_eq(res.copies, 2 * FILES);
	/* Every other chunk, in turn here and there: a flipped bit, a lost byte, nothing left. */
	tree_shell(&t,
		"i=0; " EVERY_CHUNK "i=$((i + 1)); case $((i %% 8)) in "
		"1) $MC_FLIP_BYTE a/$f 77;; 3) $MC_FLIP_BYTE b/$f 78;; "
		"5) truncate -s -1 a/$f;; 7) rm b/$f;; esac; done");
	ck_assert_int_eq(verify(&t, &res), 0);
	ck_assert_uint_eq(res.damaged, FILES / 2);
	ck_assert_uint_eq(res.repaired, 0);
	ck_assert_uint_eq(res.checked, 2 * FILES - FILES / 4);
	tree_shell(&t, "find a b -type f -printf '%%p %%i\\n' | sort > before");
	ck_assert_int_eq(repair(&t, &res), 0);
	ck_assert_uint_eq(res.damaged, FILES / 2);
	ck_assert_uint_eq(res.repaired, FILES / 2);
	ck_assert_uint_eq(told.repaired, FILES / 2);
	ck_assert_uint_eq(res.fetched_bytes, 0);
	ck_assert_uint_eq(res.checked, 2 * FILES - FILES / 4);
	tree_shell(&t, "diff -r a.good/chunks a/chunks && diff -r a.good/chunks b/chunks");
	tree_shell(&t,
		"find a b -type f -printf '%%p %%i\\n' | sort > after; "
		"test $(comm -13 before after | wc -l) = %u",
		FILES / 2);
	ck_assert_int_eq(repair(&t, &res), 0);
	ck_assert_uint_eq(res.damaged, 0);
	tree_close(&t);
}
END_TEST

START_TEST(only_homes_must_have_a_copy_and_any_member_may_give_one)
{
	struct mc_verify_result res;
	struct tree t;

	fill(&t, "abc", 2);
	ck_assert_int_eq(verify(&t, &res), 0);
	ck_assert_uint_eq(res.damaged, 0);
	ck_assert_uint_eq(res.copies, 2 * FILES);
	tree_shell(&t,
		"f=$(cd a && find chunks -type f | head -1); "
		"for d in a b c; do if test -e $d/$f; then $MC_FLIP_BYTE $d/$f 3; else "
		"mkdir -p $(dirname $d/$f); cp a.good/$f $d/$f; fi; done");
	ck_assert_int_eq(repair(&t, &res), 0);
	ck_assert_uint_eq(res.damaged, 2);
	ck_assert_uint_eq(res.repaired, 2);
	ck_assert_uint_gt(res.fetched_bytes, 500);
	ck_assert_int_eq(verify(&t, &res), 0);
	ck_assert_uint_eq(res.damaged, 0);
	tree_close(&t);
}
END_TEST

START_TEST(what_no_copy_has_right_is_named_and_comes_from_elsewhere)
{
	char source[128];
	struct mc_verify_result res;
	struct mc_remote *from;
	struct tree t;

	fill(&t, "ab", 2);
	tree_shell(&t,
		"cp -a b/. c; "
		"set -- $(cd a && find chunks -type f | head -3); $MC_FLIP_BYTE a/$1 5; "
		"$MC_FLIP_BYTE b/$1 9; rm a/$2 b/$2; $MC_FLIP_BYTE c/$2 1; "
		"rm a/$3; basename $1 > first; basename $2 > second");
	ck_assert_int_eq(repair(&t, &res), 0);
	ck_assert_uint_eq(res.damaged, 5);
	ck_assert_uint_eq(res.repaired, 1);
	ck_assert_ptr_nonnull(
		strstr(told.text, "wrong bytes on the remote: no good copy was found"));
	ck_assert_ptr_nonnull(strstr(told.text, "missing on the remote: no good copy was found"));
	ck_assert_ptr_nonnull(strstr(told.text, "missing on the remote: repaired"));
	from = open_dirs(&t, "c", 1);
	ck_assert_int_eq(
		run(&t, (struct mc_verify_opts){.repair = true, .from = &from, .n_from = 1}, &res),
		0);
	ck_assert_uint_eq(res.damaged, 4);
	ck_assert_uint_eq(res.repaired, 2); /* c has a right copy of one only */
	mc_remote_close(from);
	snprintf(source, sizeof(source), "%s/src", t.top);
	ck_assert_int_eq(
		run(&t, (struct mc_verify_opts){.repair = true, .source = source}, &res), 0);
	ck_assert_uint_eq(res.damaged, 2);
	ck_assert_uint_eq(res.repaired, 2);
	ck_assert_uint_eq(res.fetched_bytes, res.repaired_bytes / 2);
	tree_shell(&t, "diff -r a.good/chunks a/chunks && diff -r a.good/chunks b/chunks");
	tree_close(&t);
}
END_TEST

START_TEST(a_changed_source_repairs_nothing)
{
	struct mc_verify_result res;
	char source[128];
	struct tree t;

	fill(&t, "a", 1);
	tree_shell(&t,
		"for f in src/*; do $MC_FLIP_BYTE $f 2; done; "
		"rm $(find a/chunks -type f | head -1)");
	snprintf(source, sizeof(source), "%s/src", t.top);
	ck_assert_int_eq(
		run(&t, (struct mc_verify_opts){.repair = true, .source = source}, &res), 0);
	ck_assert_uint_eq(res.damaged, 1);
	ck_assert_uint_eq(res.repaired, 0);
	tree_shell(&t, "test $(find a/chunks -type f | wc -l) = %u", FILES - 1);
	tree_close(&t);
}
END_TEST

START_TEST(manifest_and_id_are_repaired_even_if_each_is_good_on_another_remote)
{
	struct mc_verify_result res;
	struct tree t;

	fill(&t, "ab", 2);
	tree_shell(&t,
		"$MC_FLIP_BYTE a/checkpoints/o/m/v1/manifest.id 3; "
		"echo >> b/checkpoints/o/m/v1/manifest.json");
	ck_assert_int_eq(verify(&t, &res), 0);
	ck_assert_uint_eq(res.damaged, 2);
	ck_assert_int_eq(repair(&t, &res), 0);
	ck_assert_uint_eq(res.repaired, 2);
	tree_shell(&t, "rm b/checkpoints/o/m/v1/*");
	ck_assert_int_eq(repair(&t, &res), 0);
	ck_assert_uint_eq(res.repaired, 2);
	tree_shell(&t,
		"diff -r a.good/checkpoints a/checkpoints; "
		"diff -r a.good/checkpoints b/checkpoints");
	tree_shell(&t,
		"echo >> a/checkpoints/o/m/v1/manifest.json; "
		"echo >> b/checkpoints/o/m/v1/manifest.json");
	ck_assert_int_eq(repair(&t, &res), -EBADMSG);
	ck_assert_ptr_nonnull(strstr(told.text, "manifest.json"));
	tree_close(&t);
}
END_TEST

START_TEST(another_revision_of_the_same_name_is_never_overwritten)
{
	struct mc_verify_result res;
	struct tree t;

	fill(&t, "ab", 2);
	tree_shell(&t,
		"echo ' ' >> b/checkpoints/o/m/v1/manifest.json; "
		"sha256sum < b/checkpoints/o/m/v1/manifest.json | cut -c 1-64 > "
		"b/checkpoints/o/m/v1/manifest.id; cp -a b b.good");
	ck_assert_int_eq(repair(&t, &res), 0);
	ck_assert_uint_eq(res.damaged, 2);
	ck_assert_uint_eq(res.repaired, 0);
	ck_assert_ptr_nonnull(strstr(told.text, "another revision of the same name"));
	tree_shell(&t, "for d in a b; do diff -r $d.good/checkpoints $d/checkpoints || exit; done");
	tree_close(&t);
}
END_TEST

START_TEST(the_pointer_to_the_latest_is_checked_and_repaired_on_every_remote)
{
	struct mc_import_result imported;
	struct mc_verify_result res;
	struct mc_err err = {0};
	struct tree t;

	fill(&t, "ab", 2);
	tree_shell(&t, "echo more > src/f1");
	ck_assert_msg(tree_import(&t, "v2", &imported, &err) == 0, "%s", err.text);
	tree_shell(&t, "cp a/checkpoints/o/m/latest newest; cp a.good/checkpoints/o/m/latest old");
	ck_assert_int_eq(verify(&t, &res), 0);
	ck_assert_uint_eq(res.damaged, 0);
	/* Missing; of the wrong form; of an id that is not the revision's. */
	tree_shell(&t, "rm a/checkpoints/o/m/latest; echo x > b/checkpoints/o/m/latest");
	ck_assert_int_eq(verify(&t, &res), 0);
	ck_assert_uint_eq(res.damaged, 2);
	ck_assert_ptr_nonnull(strstr(told.text, "o/m/latest: dir:"));
	ck_assert_int_eq(repair(&t, &res), 0);
	ck_assert_uint_eq(res.repaired, 2);
	tree_shell(&t, "for d in a b; do cmp newest $d/checkpoints/o/m/latest || exit; done");
	tree_shell(&t, "sed -i 's/^../00/' b/checkpoints/o/m/latest");
	ck_assert_int_eq(run(&t, (struct mc_verify_opts){.only = "a"}, &res), 0);
	ck_assert_uint_eq(res.damaged, 0);
	ck_assert_int_eq(repair(&t, &res), 0);
	ck_assert_uint_eq(res.repaired, 1);
	ck_assert_ptr_nonnull(strstr(told.text, "has another id than v2"));
	/* One that names what is gone, and copies that differ. */
	tree_shell(&t, "sed -i 's/v2/v3/' a/checkpoints/o/m/latest");
	ck_assert_int_eq(repair(&t, &res), 0);
	ck_assert_uint_eq(res.repaired, 1);
	ck_assert_ptr_nonnull(strstr(told.text, "names v3, which is not there"));
	tree_shell(&t, "cp old b/checkpoints/o/m/latest");
	ck_assert_int_eq(repair(&t, &res), 0);
	ck_assert_uint_eq(res.repaired, 1);
	tree_shell(&t, "cmp a/checkpoints/o/m/latest b/checkpoints/o/m/latest");
	ck_assert_int_eq(verify(&t, &res), 0);
	ck_assert_uint_eq(res.damaged, 0);
	tree_close(&t);
}
END_TEST

START_TEST(one_of_the_remotes_can_be_verified_alone)
{
	struct mc_verify_result res;
	struct tree t;

	fill(&t, "ab", 2);
	tree_shell(&t, "rm $(find b/chunks -type f | head -1)");
	ck_assert_int_eq(run(&t, (struct mc_verify_opts){.only = "a"}, &res), 0);
	ck_assert_uint_eq(res.damaged, 0);
	ck_assert_uint_eq(res.copies, FILES);
	ck_assert_int_eq(run(&t, (struct mc_verify_opts){.only = "b"}, &res), 0);
	ck_assert_uint_eq(res.damaged, 1);
	ck_assert_int_eq(run(&t, (struct mc_verify_opts){.only = "c"}, &res), -EINVAL);
	tree_close(&t);
}
END_TEST

START_TEST(a_remote_that_is_away_ends_the_work_and_is_named)
{
	struct mc_verify_result res;
	struct tree t;

	fill(&t, "ab", 2);
	mc_remote_close(t.remote);
	tree_shell(&t, "mv b away");
	t.remote = open_dirs(&t, "ab", 2);
	ck_assert_int_eq(verify(&t, &res), -ENOTCONN);
	ck_assert_ptr_nonnull(strstr(told.text, "/b is away"));
	tree_close(&t);
}
END_TEST

START_TEST(a_changed_file_taken_by_reference_is_named_and_left)
{
	struct mc_import_result imported;
	struct mc_verify_result res;
	struct mc_err err = {0};
	struct tree t;
	struct mc_import_opts opts = {.src = t.src, .name = name, .jobs = 2, .reference = true};

	tree_open(&t);
	tree_shell(&t, "mkdir remote/src; head -c 5000 /dev/urandom > remote/src/f");
	snprintf(t.src, sizeof(t.src), "%s/remote/src", t.top);
	ck_assert_msg(mc_import(t.remote, &opts, &imported, &err) == 0, "%s", err.text);
	tree_shell(&t, "$MC_FLIP_BYTE remote/src/f 8; cp remote/src/f was");
	ck_assert_int_eq(repair(&t, &res), 0);
	ck_assert_uint_eq(res.damaged, 1);
	ck_assert_uint_eq(res.repaired, 0);
	ck_assert_ptr_nonnull(strstr(told.text, "by reference cannot be repaired"));
	tree_shell(&t, "cmp remote/src/f was");
	tree_close(&t);
}
END_TEST

SUITE_MAIN("repair", a_bad_copy_beside_a_good_one_is_found_and_only_it_is_written,
	only_homes_must_have_a_copy_and_any_member_may_give_one,
	what_no_copy_has_right_is_named_and_comes_from_elsewhere, a_changed_source_repairs_nothing,
	manifest_and_id_are_repaired_even_if_each_is_good_on_another_remote,
	another_revision_of_the_same_name_is_never_overwritten,
	the_pointer_to_the_latest_is_checked_and_repaired_on_every_remote,
	one_of_the_remotes_can_be_verified_alone, a_remote_that_is_away_ends_the_work_and_is_named,
	a_changed_file_taken_by_reference_is_named_and_left)
