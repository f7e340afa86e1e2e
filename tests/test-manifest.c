/* A manifest written, parsed, saved as an index and mapped again gives the same answers. */
#include "tests/sample-manifest.h"
#include "tests/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static uint32_t entry_of(const struct mc_manifest *m, const char *path)
{
	uint32_t e = UINT32_MAX;

	ck_assert_msg(mc_manifest_walk(m, path, &e) == 0, "no %s", path);
	return e;
}

START_TEST(entries_form_a_tree_with_sorted_children)
{
	struct mc_manifest *m = sample_manifest();
	static const char *const root[] = {"config.json", "empty", "sub", "sub.d"};
	static const char *const sub[] = {"empty", "link", "model.safetensors", "sparse"};
	struct mc_entry e, c;
	char path[64];

	ck_assert_uint_eq(mc_manifest_entries(m), 9);
	mc_manifest_entry(m, 0, &e);
	ck_assert_int_eq(e.type, MC_ENTRY_DIR);
	ck_assert_uint_eq(e.mode, 0755);
	ck_assert_int_eq(e.mtime_s, -3);
	ck_assert_uint_eq(e.n_children, 4);
	for (uint32_t i = 0; i < 4; i++) {
		mc_manifest_entry(m, e.first_child + i, &c);
		ck_assert_str_eq(c.name, root[i]);
		ck_assert_uint_eq(c.parent, 0);
	}
	mc_manifest_entry(m, entry_of(m, "sub"), &e);
	ck_assert_uint_eq(e.n_children, 4);
	for (uint32_t i = 0; i < 4; i++) {
		mc_manifest_entry(m, e.first_child + i, &c);
		ck_assert_str_eq(c.name, sub[i]);
		ck_assert_uint_eq(c.parent, entry_of(m, "sub"));
	}
	ck_assert_int_eq(mc_manifest_path(m, entry_of(m, "sub/link"), path, sizeof(path)), 0);
	ck_assert_str_eq(path, "sub/link");
	ck_assert_int_eq(mc_manifest_path(m, entry_of(m, "sub/link"), path, 8), -ENAMETOOLONG);
	ck_assert_int_eq(mc_manifest_path(m, 0, path, 1), 0);
	ck_assert_str_eq(path, "");
	mc_manifest_unref(m);
}
END_TEST

START_TEST(lookup_answers_exactly_the_names_that_exist)
{
	static const struct {
		const char *path;
		int want;
	} rows[] = {{"", 0}, {"sub", 0}, {"sub/sparse", 0}, {"sub.d", 0}, {"sub.", -ENOENT},
		{"su", -ENOENT}, {"subb", -ENOENT}, {"sub/", -ENOENT}, {"sub//sparse", -ENOENT},
		{"/sub", -ENOENT}, {"sub/zzz", -ENOENT}, {"empty/x", -ENOTDIR},
		{"sub/link/x", -ENOTDIR}, {"..", -ENOENT}};
	struct mc_manifest *m = sample_manifest();
	uint32_t e;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		int r = mc_manifest_walk(m, rows[i].path, &e);

		ck_assert_msg(r == rows[i].want, "\"%s\": %d", rows[i].path, r);
	}
	ck_assert_int_eq(mc_manifest_lookup(m, 0, "emptyish", 5, &e), 0);
	ck_assert_uint_eq(e, entry_of(m, "empty"));
	mc_manifest_unref(m);
}
END_TEST

static void check_content(struct mc_manifest *m)
{
	struct mc_entry e;
	struct mc_chunk c;
	struct mc_span s;

	mc_manifest_entry(m, entry_of(m, "sub/sparse"), &e);
	ck_assert_int_eq(e.type, MC_ENTRY_FILE);
	ck_assert_uint_eq(e.size, (4 << 20) + 8);
	ck_assert_uint_eq(e.hole_bytes, 3 << 20);
	ck_assert_str_eq(e.parse_error, "header: \"x\"\tnot known");
	ck_assert_ptr_null(e.sha256);
	ck_assert(!e.external);
	ck_assert_ptr_null(e.ext_path);
	ck_assert_uint_eq(mc_manifest_spans(m, entry_of(m, "sub/sparse")), 3);
	mc_manifest_span(m, entry_of(m, "sub/sparse"), 1, &s);
	ck_assert(s.hole);
	ck_assert_uint_eq(s.off, (1 << 20) + 1);
	ck_assert_uint_eq(s.len, 3 << 20);
	mc_manifest_span(m, entry_of(m, "sub/sparse"), 2, &s);
	ck_assert(!s.hole);
	mc_manifest_chunk(m, s.chunk, &c);
	ck_assert_uint_eq(c.len, 7);
	ck_assert_uint_eq(c.sha256[31], 4);
	ck_assert(c.stored);
	mc_manifest_entry(m, entry_of(m, "sub/model.safetensors"), &e);
	ck_assert(e.external);
	ck_assert_str_eq(e.ext_path, "hf/blob");
	mc_manifest_span(m, entry_of(m, "sub/model.safetensors"), 0, &s);
	mc_manifest_chunk(m, s.chunk, &c);
	ck_assert(!c.stored);
	mc_manifest_entry(m, entry_of(m, "config.json"), &e);
	ck_assert_uint_eq(e.sha256[0], 0xab);
	ck_assert_uint_eq(e.mode, 0644);
	ck_assert_int_eq(e.mtime_s, 1700000000);
	ck_assert_uint_eq(e.mtime_ns, 5);
	mc_manifest_entry(m, entry_of(m, "sub/link"), &e);
	ck_assert_str_eq(e.target, "../config.json");
	ck_assert_uint_eq(e.size, strlen("../config.json"));
	ck_assert_uint_eq(mc_manifest_chunks(m), 6);
}

static void check_tensors(struct mc_manifest *m)
{
	struct mc_tensor t;
	struct mc_model model;
	uint32_t i;

	ck_assert_uint_eq(mc_manifest_tensors(m), 4);
	ck_assert_int_eq(mc_manifest_tensor_find(m, "part", &i), 0);
	ck_assert_uint_eq(i, 0);
	mc_manifest_tensor(m, 1, &t);
	ck_assert_str_eq(t.name, "part");
	ck_assert(t.boxed);
	ck_assert_uint_eq(t.box_off[0], 1);
	ck_assert_uint_eq(t.global[0], 2);
	ck_assert_uint_eq(t.global[1], 3);
	ck_assert_uint_eq(t.entry, entry_of(m, "sub/model.safetensors"));
	ck_assert_int_eq(mc_manifest_tensor_find(m, "scalar", &i), 0);
	mc_manifest_tensor(m, i, &t);
	ck_assert_uint_eq(t.rank, 0);
	ck_assert_uint_eq(t.len, 1);
	ck_assert_int_eq(mc_manifest_tensor_find(m, "w.norm", &i), 0);
	mc_manifest_tensor(m, i, &t);
	ck_assert_uint_eq(t.shape[1], 3);
	ck_assert_uint_eq(t.dtype, MC_DTYPE_F32);
	ck_assert(!t.boxed);
	ck_assert_int_eq(mc_manifest_tensor_find(m, "par", &i), -ENOENT);
	ck_assert_int_eq(mc_manifest_tensor_find(m, "zz", &i), -ENOENT);
	mc_manifest_model(m, &model);
	ck_assert_str_eq(model.config_path, "config.json");
	ck_assert_str_eq(model.architecture, "LlamaForCausalLM");
	ck_assert_str_eq(model.quantisation, "");
}

START_TEST(files_links_and_tensors_say_what_was_written)
{
	struct mc_manifest *m = sample_manifest();

	check_content(m);
	check_tensors(m);
	mc_manifest_unref(m);
}
END_TEST

static char dir[] = "/tmp/mc-manifest-XXXXXX";

START_TEST(the_index_gives_the_same_answers_after_save_and_load)
{
	struct mc_manifest *m = sample_manifest(), *n;
	char path[64];

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/x.idx", dir);
	ck_assert_int_eq(mc_manifest_load_index(path, mc_manifest_id(m), &n), -ENOENT);
	ck_assert_int_eq(mc_manifest_save_index(m, path, NULL), 0);
	ck_assert_int_eq(mc_manifest_save_index(m, path, NULL), 0);
	ck_assert_int_eq(mc_manifest_load_index(path, mc_manifest_id(m), &n), 0);
	ck_assert_mem_eq(mc_manifest_id(n), mc_manifest_id(m), MC_SHA256_SIZE);
	mc_manifest_unref(m);
	check_content(n);
	check_tensors(n);
	mc_manifest_unref(n);
	unlink(path);
	rmdir(dir);
}
END_TEST

/* Flips one bit at off and expects the load to refuse the index; then flips it back. */
static void flip_is_refused(const char *path, const uint8_t *id, off_t off)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct mc_manifest *m;
	uint8_t b;

	ck_assert_int_eq(pread(fd, &b, 1, off), 1);
	b ^= 0x10;
	ck_assert_int_eq(pwrite(fd, &b, 1, off), 1);
	ck_assert_int_eq(mc_manifest_load_index(path, id, &m), -EBADMSG);
	b ^= 0x10;
	ck_assert_int_eq(pwrite(fd, &b, 1, off), 1);
	close(fd);
}

START_TEST(a_damaged_truncated_or_foreign_index_is_ebadmsg)
{
	char tmpl[] = "/tmp/mc-manifest-XXXXXX", path[64];
	struct mc_manifest *m = sample_manifest(), *n;
	uint8_t other[MC_SHA256_SIZE] = {1};
	struct stat st;

	ck_assert_ptr_nonnull(mkdtemp(tmpl));
	snprintf(path, sizeof(path), "%s/x.idx", tmpl);
	ck_assert_int_eq(mc_manifest_save_index(m, path, NULL), 0);
	ck_assert_int_eq(stat(path, &st), 0);
	for (off_t off = 0; off < st.st_size; off += 7)
		flip_is_refused(path, mc_manifest_id(m), off);
	ck_assert_int_eq(mc_manifest_load_index(path, other, &n), -EBADMSG);
	ck_assert_int_eq(mc_manifest_load_index(path, mc_manifest_id(m), &n), 0);
	mc_manifest_unref(n);
	for (off_t len = st.st_size - 1; len >= 0; len = len > 64 ? len - 64 : len - 1) {
		ck_assert_int_eq(truncate(path, len), 0);
		ck_assert_int_eq(mc_manifest_load_index(path, mc_manifest_id(m), &n), -EBADMSG);
	}
	mc_manifest_unref(m);
	unlink(path);
	rmdir(tmpl);
}
END_TEST

START_TEST(the_order_of_adding_does_not_change_a_byte)
{
	struct mc_writer *a = sample_writer(), *b;
	struct mc_manifest *m;
	char *ja, *jb;
	size_t la, lb;

	ck_assert_int_eq(mc_writer_open(&b), 0);
	sample_tensors(b);
	ck_assert_int_eq(mc_writer_symlink(b, "sub/link", &sample_meta, "../config.json", NULL), 0);
	sample_content(b);
	ck_assert_int_eq(mc_writer_dir(b, "sub/empty", &sample_dir, NULL), 0);
	ck_assert_int_eq(mc_writer_dir(b, "sub.d", &sample_dir, NULL), 0);
	ck_assert_int_eq(mc_writer_dir(b, "sub", &sample_dir, NULL), 0);
	mc_writer_root(b, &sample_dir);
	ck_assert_int_eq(mc_writer_model(b,
				 &(struct mc_model){.config_path = "config.json",
					 .architecture = "LlamaForCausalLM"}),
		0);
	ck_assert_int_eq(mc_writer_finish(a, &ja, &la, &m, NULL), 0);
	ck_assert_int_eq(mc_writer_finish(b, &jb, &lb, NULL, NULL), 0);
	ck_assert_uint_eq(la, lb);
	ck_assert_mem_eq(ja, jb, la);
	mc_manifest_unref(m);
	free(ja);
	free(jb);
	mc_writer_close(a);
	mc_writer_close(b);
}
END_TEST

/* tests/golden/manifest-v1.json holds these bytes, and tests/test-golden.py checks them
 * independently. */
START_TEST(the_canonical_form_is_the_golden_one)
{
	struct mc_manifest *m = sample_manifest();
	char hex[MC_SHA256_HEX + 1];

	mc_hex_encode(mc_manifest_id(m), MC_SHA256_SIZE, hex);
	ck_assert_str_eq(hex, "4168fa39642c1cdedef35e6970d6192958cbf2ac664d49a29c1903ee6e6130ec");
	mc_manifest_unref(m);
}
END_TEST

START_TEST(contradictions_between_entries_are_refused_by_finish)
{
	static const struct {
		const char *a, *b, *text;
	} rows[] = {{"x", "x", "listed twice"}, {"x/y", "z", "its directory is not listed"},
		{"x", "x/y", "not a directory"}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct mc_err err = {0};
		struct mc_writer *w;
		size_t len;
		char *json;

		ck_assert_int_eq(mc_writer_open(&w), 0);
		sample_file(w, rows[i].a, &(struct mc_new_file){.size = 0});
		sample_file(w, rows[i].b, &(struct mc_new_file){.size = 0});
		ck_assert_int_eq(mc_writer_finish(w, &json, &len, NULL, &err), -EINVAL);
		ck_assert_msg(strstr(err.text, rows[i].text) != NULL, "%s", err.text);
		mc_writer_close(w);
	}
}
END_TEST

SUITE_MAIN("manifest", entries_form_a_tree_with_sorted_children,
	lookup_answers_exactly_the_names_that_exist, files_links_and_tensors_say_what_was_written,
	the_index_gives_the_same_answers_after_save_and_load,
	a_damaged_truncated_or_foreign_index_is_ebadmsg, the_order_of_adding_does_not_change_a_byte,
	the_canonical_form_is_the_golden_one, contradictions_between_entries_are_refused_by_finish)
