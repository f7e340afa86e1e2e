/* A small manifest with one entry of each kind, for the tests of the manifest's readers. */
#pragma once

#include "manifest/dtype.h"
#include "manifest/file-digest.h"
#include "manifest/manifest-write.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const struct mc_new_meta sample_meta = {.mode = 0644, .mtime_s = 1700000000, .mtime_ns = 5};
static const struct mc_new_meta sample_dir = {.mode = 0755, .mtime_s = -3, .mtime_ns = 999999999};

/* A chunk whose digest is its number repeated. */
static inline struct mc_new_span sample_chunk(uint64_t len, uint8_t fill)
{
	struct mc_new_span s = {.len = len};

	memset(s.sha256, fill, sizeof(s.sha256));
	return s;
}

static inline void sample_file(struct mc_writer *w, const char *path, struct mc_new_file *f)
{
	struct mc_err err = {0};
	uint64_t n = mc_block_count(f->size);
	uint32_t crcs[64];

	ck_assert_uint_le(n, 64);
	for (uint64_t i = 0; i < n; i++)
		crcs[i] = (uint32_t)(1000 + i);
	if (f->crc32c == NULL)
		f->crc32c = crcs;
	ck_assert_int_eq(mc_writer_file(w, path, &sample_meta, f, &err), 0);
	f->crc32c = NULL;
}

static inline void sample_content(struct mc_writer *w)
{
	static const uint64_t mib = 1 << 20;
	struct mc_new_span plain[] = {sample_chunk(100, 1), sample_chunk(50, 2)};
	struct mc_new_span sparse[] = {
		sample_chunk(mib + 1, 3), {.len = 3 * mib, .hole = true}, sample_chunk(7, 4)};
	uint32_t z = mc_crc_of_zeros(MC_BLOCK_SIZE);
	uint32_t sparse_crcs[] = {11, 12, z, z, 15};
	uint8_t sha[MC_SHA256_SIZE];

	memset(sha, 0xab, sizeof(sha));
	sample_file(w, "config.json",
		&(struct mc_new_file){.size = 150, .spans = plain, .n_spans = 2, .sha256 = sha});
	sample_file(w, "empty", &(struct mc_new_file){.size = 0});
	sample_file(w, "sub/sparse",
		&(struct mc_new_file){.size = 4 * mib + 8,
			.spans = sparse,
			.n_spans = 3,
			.crc32c = sparse_crcs,
			.parse_error = "header: \"x\"\tnot known"});
	sample_file(w, "sub/model.safetensors",
		&(struct mc_new_file){.size = 150,
			.spans = plain,
			.n_spans = 2,
			.ext_path = "hf/blob",
			.ext_off = 10,
			.ext_guard = {.set = true, .size = 200, .mtime_s = 77, .mtime_ns = 8}});
}

static inline void sample_tensors(struct mc_writer *w)
{
	const uint64_t shape[] = {2, 3}, half[] = {1, 3}, box[] = {1, 0}, zero[] = {0, 0};
	const char *file = "sub/model.safetensors";
	const struct mc_new_tensor t[] = {
		{"w.norm", file, MC_DTYPE_F32, 2, shape, 100, 24, NULL, NULL},
		{"scalar", file, MC_DTYPE_U8, 0, shape, 124, 1, NULL, NULL},
		{"part", file, MC_DTYPE_BF16, 2, half, 130, 6, box, shape},
		{"part", "config.json", MC_DTYPE_BF16, 2, half, 0, 6, zero, shape},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++)
		ck_assert_int_eq(mc_writer_tensor(w, &t[i], NULL), 0);
}

/* The writer holds everything; the caller finishes and closes it. */
static inline struct mc_writer *sample_writer(void)
{
	struct mc_writer *w;

	ck_assert_int_eq(mc_writer_open(&w), 0);
	mc_writer_root(w, &sample_dir);
	ck_assert_int_eq(mc_writer_dir(w, "sub", &sample_dir, NULL), 0);
	ck_assert_int_eq(mc_writer_dir(w, "sub.d", &sample_dir, NULL), 0);
	ck_assert_int_eq(mc_writer_dir(w, "sub/empty", &sample_dir, NULL), 0);
	ck_assert_int_eq(mc_writer_symlink(w, "sub/link", &sample_meta, "../config.json", NULL), 0);
	sample_content(w);
	sample_tensors(w);
	ck_assert_int_eq(mc_writer_model(w,
				 &(struct mc_model){.config_path = "config.json",
					 .architecture = "LlamaForCausalLM"}),
		0);
	return w;
}

static inline struct mc_manifest *sample_manifest(void)
{
	struct mc_writer *w = sample_writer();
	struct mc_err err = {0};
	struct mc_manifest *m = NULL;
	char *json;
	size_t len;
	int r = mc_writer_finish(w, &json, &len, &m, &err);

	ck_assert_msg(r == 0, "%d: %s", r, err.text);
	free(json);
	mc_writer_close(w);
	return m;
}
