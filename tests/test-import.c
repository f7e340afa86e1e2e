/* Import, verify and export against a dir: remote. */
#include "manifest/export.h"
#include "manifest/verify.h"
#include "tests/import-tree.h"
#include "tests/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LIST "find . -printf '%%p %%y %%m %%T@ %%l %%s\\n' | sort"

START_TEST(an_exported_tree_is_the_imported_one)
{
	struct mc_import_result res;
	struct mc_err err;
	struct tree t;

	tree_open(&t);
	tree_fill(&t);
	ck_assert_msg(tree_import(&t, "v1", &res, &err) == 0, "%s", err.text);
	ck_assert_uint_eq(res.files, 11);
	ck_assert_uint_eq(res.warnings, 0);
	tree_export(&t, "v1", "out");
	tree_shell(&t, "diff -r --no-dereference src out");
	tree_shell(&t, "(cd src; " LIST ") > a; (cd out; " LIST ") > b; diff a b");
	/* Directories' sizes say nothing; holes took no space. */
	tree_shell(&t, "test $(du -k out/sub/sparse | cut -f1) -le 1024");
	tree_shell(&t, "test $(du -k out/allhole | cut -f1) -le 64");
	tree_close(&t);
}
END_TEST

START_TEST(the_same_source_again_is_the_same_revision_and_writes_nothing)
{
	struct mc_import_result first, again;
	struct mc_err err;
	struct tree t;

	tree_open(&t);
	tree_fill(&t);
	ck_assert_msg(tree_import(&t, NULL, &first, &err) == 0, "%s", err.text);
	ck_assert_int_eq(first.existed, false);
	ck_assert_uint_eq(first.read_bytes, first.bytes - first.hole_bytes);
	/* blob.bin lies there twice and was written once. */
	ck_assert_uint_eq(first.written_bytes, first.read_bytes - 9437185);
	tree_shell(&t, "find remote -type f -printf '%%p %%s %%i\\n' | sort > before");
	ck_assert_msg(tree_import(&t, NULL, &again, &err) == 0, "%s", err.text);
	ck_assert_int_eq(again.existed, true);
	ck_assert_str_eq(again.name.rev, first.name.rev);
	ck_assert_mem_eq(again.id, first.id, sizeof(first.id));
	ck_assert_uint_eq(again.written_bytes, 0);
	tree_shell(&t,
		"find remote -type f -printf '%%p %%s %%i\\n' | sort > after; diff before after");
	tree_close(&t);
}
END_TEST

START_TEST(a_revision_with_other_content_is_refused_and_stays)
{
	struct mc_import_result res;
	struct mc_err err;
	struct tree t;

	tree_open(&t);
	tree_shell(&t, "echo one > src/f");
	ck_assert_int_eq(tree_import(&t, "v1", &res, &err), 0);
	tree_shell(&t, "echo two > src/f");
	ck_assert_int_eq(tree_import(&t, "v1", &res, &err), -EEXIST);
	ck_assert_msg(strstr(err.text, "o/m@v1 exists already with other content") != NULL, "%s",
		err.text);
	tree_export(&t, "v1", "out");
	tree_shell(&t, "test $(cat out/f) = one");
	ck_assert_int_eq(tree_import(&t, "v2", &res, &err), 0);
	tree_shell(&t, "grep -q ' v2$' remote/checkpoints/o/m/latest");
	tree_close(&t);
}
END_TEST

/* Every block checksum of the manifest is that of the source's bytes, holes and odd chunks
 * included. */
START_TEST(block_checksums_are_those_of_the_file)
{
	static const char *const names[] = {"model-1.safetensors", "model-2.safetensors",
		"blob.bin", "sub/sparse", "allhole", "config.json"};
	static uint8_t buf[MC_BLOCK_SIZE];
	struct mc_import_result res;
	struct mc_manifest *m;
	struct mc_err err;
	struct tree t;

	tree_open(&t);
	tree_fill(&t);
	ck_assert_msg(tree_import(&t, "v1", &res, &err) == 0, "%s", err.text);
	m = tree_load(&t, "v1");
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct mc_source *src;
		uint32_t entry;
		char path[256];
		int fd;

		ck_assert_int_eq(mc_manifest_walk(m, names[i], &entry), 0);
		ck_assert_int_eq(mc_manifest_source(m, entry, &src), 0);
		snprintf(path, sizeof(path), "%s/%s", t.src, names[i]);
		fd = open(path, O_RDONLY);
		ck_assert_int_ge(fd, 0);
		for (uint64_t b = 0; b < mc_block_count(src->id.size); b++) {
			uint32_t len = mc_block_len(src->id.size, b);

			ck_assert_int_eq(pread(fd, buf, len, (off_t)(b << MC_BLOCK_SHIFT)), len);
			ck_assert_msg(mc_crc32c(0, buf, len) == src->ops->block_crc(src, b),
				"%s block %llu", names[i], (unsigned long long)b);
		}
		close(fd);
		src->ops->release(src);
	}
	mc_manifest_unref(m);
	tree_close(&t);
}
END_TEST

START_TEST(the_index_decides_which_tensors_there_are)
{
	struct mc_import_result res;
	struct mc_tensor tensor;
	struct mc_model model;
	struct mc_manifest *m;
	struct mc_err err;
	struct tree t;
	uint32_t n;

	tree_open(&t);
	tree_fill(&t);
	ck_assert_msg(tree_import(&t, "v1", &res, &err) == 0, "%s", err.text);
	m = tree_load(&t, "v1");
	ck_assert_uint_eq(mc_manifest_tensors(m), 6);
	ck_assert_int_eq(mc_manifest_tensor_find(m, "z0", &n), -ENOENT);
	ck_assert_int_eq(mc_manifest_tensor_find(m, "b1", &n), 0);
	mc_manifest_tensor(m, n, &tensor);
	ck_assert_uint_eq(tensor.len, 4096);
	mc_manifest_model(m, &model);
	ck_assert_str_eq(model.architecture, "LlamaForCausalLM");
	mc_manifest_unref(m);
	/* Without the index all files at the top count. */
	tree_shell(&t, "rm src/model.safetensors.index.json");
	ck_assert_msg(tree_import(&t, "v2", &res, &err) == 0, "%s", err.text);
	m = tree_load(&t, "v2");
	ck_assert_uint_eq(mc_manifest_tensors(m), 8);
	ck_assert_int_eq(mc_manifest_tensor_find(m, "z0", &n), 0);
	mc_manifest_unref(m);
	tree_close(&t);
}
END_TEST

START_TEST(a_damaged_source_is_an_error_that_names_the_file)
{
	static const struct {
		const char *damage;
		int r;
		const char *text;
	} cases[] = {
		{"truncate -s -1000 src/model-2.safetensors", -EBADMSG,
			"model-2.safetensors is truncated: its header promises 12004310 bytes, the "
			"file "
			"has 12003310"},
		{"truncate -s 100 src/model-2.safetensors", -EBADMSG, "promises at least"},
		{"rm src/model-2.safetensors", -ENOENT,
			"model.safetensors.index.json names model-2.safetensors, which is missing"},
		{"sed -i s/model-2/..\\\\/x/ src/model.safetensors.index.json", -EBADMSG, "../x"},
		{"rm src/model.safetensors.index.json; cp src/stray.safetensors "
		 "src/twice.safetensors",
			-EBADMSG, "z0"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct mc_import_result res;
		struct mc_err err;
		struct tree t;
		int r;

		tree_open(&t);
		tree_fill(&t);
		tree_shell(&t, "%s", cases[i].damage);
		r = tree_import(&t, "v1", &res, &err);
		ck_assert_msg(r == cases[i].r, "%s: %d %s", cases[i].damage, r, err.text);
		ck_assert_msg(strstr(err.text, cases[i].text) != NULL, "%s: %s", cases[i].damage,
			err.text);
		tree_shell(&t, "test ! -e remote/checkpoints");
		tree_close(&t);
	}
}
END_TEST

START_TEST(a_weight_file_that_does_not_parse_is_plain_bytes_unless_strict)
{
	struct mc_import_opts strict = {
		.name = {.org = "o", .model = "m", .rev = "v2"}, .jobs = 2, .strict = true};
	struct mc_import_result res;
	struct mc_manifest *m;
	struct mc_entry e;
	struct mc_err err;
	struct tree t;
	uint32_t entry;

	tree_open(&t);
	tree_fill(&t);
	strict.src = t.src;
	tree_shell(&t, "echo 'version https://git-lfs.github.com/spec/v1' > src/stray.safetensors");
	ck_assert_msg(tree_import(&t, "v1", &res, &err) == 0, "%s", err.text);
	ck_assert_uint_eq(res.warnings, 1);
	m = tree_load(&t, "v1");
	ck_assert_int_eq(mc_manifest_walk(m, "stray.safetensors", &entry), 0);
	mc_manifest_entry(m, entry, &e);
	ck_assert_str_ne(e.parse_error, "");
	mc_manifest_unref(m);
	tree_export(&t, "v1", "out");
	tree_shell(&t, "diff -r --no-dereference src out");
	ck_assert_int_eq(mc_import(t.remote, &strict, &res, &err), -EBADMSG);
	ck_assert_msg(strstr(err.text, "stray.safetensors") != NULL, "%s", err.text);
	tree_shell(&t, "test ! -e remote/checkpoints/o/m/v2");
	tree_close(&t);
}
END_TEST

START_TEST(a_reference_copies_nothing_and_notices_a_changed_file)
{
	struct mc_import_opts opts = {
		.name = {.org = "o", .model = "m", .rev = "v1"}, .jobs = 2, .reference = true};
	const struct mc_export_opts eopts = {.jobs = 2};
	const struct mc_verify_opts vopts = {.jobs = 2};
	struct mc_verify_result found;
	struct mc_export_result exported;
	struct mc_import_result res, copied;
	struct mc_manifest *m;
	struct mc_err err = {0};
	char out[128];
	struct tree t;

	tree_open(&t);
	tree_fill(&t);
	/* Not below the remote's root yet. */
	opts.src = t.src;
	ck_assert_int_eq(mc_import(t.remote, &opts, &res, &err), -EXDEV);
	err.text[0] = '\0';
	ck_assert_msg(tree_import(&t, "copied", &copied, &err) == 0, "%s", err.text);
	tree_shell(&t, "rm -r remote/*; mv src remote/models");
	snprintf(t.src, sizeof(t.src), "%s/remote/models", t.top);
	ck_assert_msg(mc_import(t.remote, &opts, &res, &err) == 0, "%s", err.text);
	ck_assert_uint_eq(res.written_bytes, 0);
	ck_assert_uint_eq(res.read_bytes, res.bytes - res.hole_bytes);
	tree_shell(&t, "test ! -e remote/chunks");
	m = tree_load(&t, "v1");
	ck_assert_msg(mc_verify(t.remote, m, &vopts, &found, &err) == 0, "%s", err.text);
	ck_assert_uint_eq(found.damaged, 0);
	tree_export(&t, "v1", "out");
	tree_shell(&t, "diff -r --no-dereference remote/models out");
	tree_shell(&t, "echo >> remote/models/blob.bin");
	ck_assert_int_eq(mc_verify(t.remote, m, &vopts, &found, &err), 0);
	ck_assert_uint_eq(found.damaged, 2); /* its two ranges */
	snprintf(out, sizeof(out), "%s/out2", t.top);
	ck_assert_int_eq(mc_export(t.remote, m, out, &eopts, &exported, &err), -ESTALE);
	ck_assert_msg(strstr(err.text, "blob.bin") != NULL, "%s", err.text);
	mc_manifest_unref(m);
	tree_close(&t);
}
END_TEST

static void keep_text(void *ctx, const char *text, bool repaired)
{
	(void)repaired;
	snprintf(ctx, 512, "%s", text);
}

START_TEST(verify_names_file_and_chunk_of_every_damage)
{
	static const struct {
		const char *damage, *text;
	} cases[] = {
		{"$MC_FLIP_BYTE $(find remote/chunks -size +7M | head -1) 77",
			"wrong bytes on the remote"},
		{"f=$(find remote/chunks -size +7M | head -1); truncate -s -1 $f", "instead of"},
		{"rm $(find remote/chunks -size +7M | head -1)", "missing on the remote"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char text[512] = "", out[128];
		const struct mc_verify_opts opts = {.jobs = 3, .damage = keep_text, .ctx = text};
		const struct mc_export_opts eopts = {.jobs = 3};
		struct mc_verify_result found;
		struct mc_export_result exported;
		struct mc_import_result res;
		struct mc_manifest *m;
		struct mc_err err;
		struct tree t;

		tree_open(&t);
		tree_fill(&t);
		ck_assert_msg(tree_import(&t, "v1", &res, &err) == 0, "%s", err.text);
		m = tree_load(&t, "v1");
		ck_assert_int_eq(mc_verify(t.remote, m, &opts, &found, &err), 0);
		ck_assert_uint_eq(found.damaged, 0);
		ck_assert_uint_eq(found.bytes, res.written_bytes);
		tree_shell(&t, "%s", cases[i].damage);
		ck_assert_int_eq(mc_verify(t.remote, m, &opts, &found, &err), 0);
		ck_assert_uint_eq(found.damaged, 1);
		ck_assert_msg(strstr(text, cases[i].text) != NULL, "%s", text);
		ck_assert_msg(strstr(text, ": chunk ") != NULL, "%s", text);
		snprintf(out, sizeof(out), "%s/out", t.top);
		ck_assert_int_lt(mc_export(t.remote, m, out, &eopts, &exported, &err), 0);
		tree_shell(&t, "test -z \"$(find out -name '.mooncakefs*')\"");
		mc_manifest_unref(m);
		tree_close(&t);
	}
}
END_TEST

START_TEST(export_refuses_a_directory_that_holds_something)
{
	const struct mc_export_opts opts = {.jobs = 2};
	struct mc_export_result exported;
	struct mc_import_result res;
	struct mc_manifest *m;
	struct mc_err err;
	char out[128];
	struct tree t;

	tree_open(&t);
	tree_fill(&t);
	ck_assert_msg(tree_import(&t, "v1", &res, &err) == 0, "%s", err.text);
	m = tree_load(&t, "v1");
	tree_shell(&t, "mkdir out; echo mine > out/config.json");
	snprintf(out, sizeof(out), "%s/out", t.top);
	ck_assert_int_eq(mc_export(t.remote, m, out, &opts, &exported, &err), -ENOTEMPTY);
	tree_shell(&t, "test $(cat out/config.json) = mine; test $(ls out | wc -l) = 1");
	mc_manifest_unref(m);
	tree_close(&t);
}
END_TEST

START_TEST(a_hugging_face_snapshot_is_imported_as_files)
{
	struct mc_import_result res;
	struct mc_err err;
	struct tree t;

	tree_open(&t);
	tree_shell(&t,
		"mkdir -p hub/blobs hub/snapshots/abc/sub; cd hub; head -c 100000 /dev/urandom > "
		"blobs/b1; "
		"echo '{}' > blobs/b2; ln -s ../../blobs/b1 snapshots/abc/weights.bin; "
		"ln -s ../../blobs/b2 snapshots/abc/config.json; "
		"ln -s ../../../blobs/b2 snapshots/abc/sub/config.json");
	snprintf(t.src, sizeof(t.src), "%s/hub/snapshots/abc", t.top);
	ck_assert_msg(tree_import(&t, "v1", &res, &err) == 0, "%s", err.text);
	ck_assert_uint_eq(res.files, 3);
	tree_export(&t, "v1", "out");
	tree_shell(&t, "diff -r hub/snapshots/abc out; test -z \"$(find out -type l)\"");
	tree_close(&t);
}
END_TEST

START_TEST(the_plain_sha256_of_a_file_is_recorded_when_asked)
{
	struct mc_import_opts opts = {
		.name = {.org = "o", .model = "m", .rev = "v1"}, .jobs = 2, .file_sha256 = true};
	static const char *const names[] = {"blob.bin", "sub/sparse", "empty", "allhole"};
	char hex[MC_SHA256_HEX + 1];
	struct mc_import_result res;
	struct mc_manifest *m;
	struct mc_entry e;
	struct mc_err err = {0};
	struct tree t;
	uint32_t entry;

	tree_open(&t);
	tree_fill(&t);
	opts.src = t.src;
	ck_assert_msg(mc_import(t.remote, &opts, &res, &err) == 0, "%s", err.text);
	m = tree_load(&t, "v1");
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		ck_assert_int_eq(mc_manifest_walk(m, names[i], &entry), 0);
		mc_manifest_entry(m, entry, &e);
		ck_assert_ptr_nonnull(e.sha256);
		mc_hex_encode(e.sha256, MC_SHA256_SIZE, hex);
		tree_shell(&t, "test $(sha256sum < src/%s | cut -c1-64) = %s", names[i], hex);
	}
	mc_manifest_unref(m);
	tree_close(&t);
}
END_TEST

SUITE_MAIN("import", an_exported_tree_is_the_imported_one,
	the_same_source_again_is_the_same_revision_and_writes_nothing,
	a_revision_with_other_content_is_refused_and_stays, block_checksums_are_those_of_the_file,
	the_index_decides_which_tensors_there_are, a_damaged_source_is_an_error_that_names_the_file,
	a_weight_file_that_does_not_parse_is_plain_bytes_unless_strict,
	a_reference_copies_nothing_and_notices_a_changed_file,
	verify_names_file_and_chunk_of_every_damage,
	export_refuses_a_directory_that_holds_something,
	a_hugging_face_snapshot_is_imported_as_files,
	the_plain_sha256_of_a_file_is_recorded_when_asked)
