/* Views: any range of a file is what copying element by element gives; names, splits, refusals. */
#include "manifest/dtype.h"
#include "manifest/profile.h"
#include "manifest/safetensors.h"
#include "manifest/view-build.h"
#include "tests/sample-manifest.h"
#include "tests/seed.h"
#include "tests/suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static unsigned seed;

struct part {
	const char *name, *file;
	uint8_t dtype, rank;
	uint64_t shape[2], off;
	uint64_t box[2], global[2]; /* global 0: whole */
};

/* A checkpoint in two files; "wide" lies in two parts by columns, the first of them twice. */
static const struct part parts[] = {
	{"emb", "a.safetensors", MC_DTYPE_BF16, 2, {10, 6}, 1000, {0}, {0}},
	{"q", "a.safetensors", MC_DTYPE_BF16, 2, {8, 6}, 1120, {0}, {0}},
	{"k", "b.safetensors", MC_DTYPE_BF16, 2, {4, 6}, 4096, {0}, {0}},
	{"exp.0.w", "b.safetensors", MC_DTYPE_F32, 2, {4, 4}, 5000, {0}, {0}},
	{"exp.1.w", "a.safetensors", MC_DTYPE_F32, 2, {4, 4}, 2000, {0}, {0}},
	{"norm", "b.safetensors", MC_DTYPE_F32, 1, {6}, 5064, {0}, {0}},
	{"scalar", "b.safetensors", MC_DTYPE_F64, 0, {0}, 5088, {0}, {0}},
	{"wide", "a.safetensors", MC_DTYPE_U8, 2, {6, 4}, 3000, {0, 0}, {6, 10}},
	{"wide", "b.safetensors", MC_DTYPE_U8, 2, {6, 4}, 7000, {0, 0}, {6, 10}},
	{"wide", "b.safetensors", MC_DTYPE_U8, 2, {6, 6}, 6000, {0, 4}, {6, 10}},
	{"big", "b.safetensors", MC_DTYPE_U8, 2, {1200, 1000}, 8192, {0}, {0}},
};
#define N_PARTS (sizeof(parts) / sizeof(*parts))

static const char head[] = "{\"format\":\"reshard-layout\",\"version\":1,\"name\":\"t\","
			   "\"mesh\":{\"axes\":[[\"tp\",2]]},";
static const char cuts[] =
	"\"rules\":["
	"{\"match\":\"emb\",\"split\":[{\"axis\":\"tp\",\"dim\":0,\"pad\":4}]},"
	"{\"match\":\"{q,k}\",\"split\":[{\"axis\":\"tp\",\"dim\":0}]},"
	"{\"match\":\"exp.#.w\",\"split\":[{\"axis\":\"tp\",\"dim\":1}]},"
	"{\"match\":\"wide\",\"split\":[{\"axis\":\"tp\",\"dim\":0}]},"
	"{\"match\":\"big\",\"split\":[{\"axis\":\"tp\",\"dim\":1}]},"
	"{\"match\":\"norm\",\"only\":{\"axis\":\"tp\",\"rank\":0},\"replicate\":true},"
	"{\"match\":\"scalar\",\"replicate\":true}]";
static const char consts[] =
	",\"const\":[{\"name\":\"one\",\"dtype\":\"F32\",\"shape\":[3],\"value\":1}]";

static struct mc_manifest *checkpoint(void)
{
	static const char *const files[] = {
		"a.safetensors", "b.safetensors", "config.json", "vocab.txt"};
	struct mc_new_span one = sample_chunk(1300000, 9);
	struct mc_manifest *m = NULL;
	struct mc_err err = {0};
	struct mc_writer *w;
	char *json;
	size_t len;

	ck_assert_int_eq(mc_writer_open(&w), 0);
	mc_writer_root(w, &sample_dir);
	for (size_t i = 0; i < 4; i++)
		sample_file(w, files[i],
			&(struct mc_new_file){.size = 1300000, .spans = &one, .n_spans = 1});
	for (size_t i = 0; i < N_PARTS; i++) {
		const struct part *p = &parts[i];
		struct mc_new_tensor t = {.name = p->name,
			.file = p->file,
			.dtype = p->dtype,
			.rank = p->rank,
			.shape = p->shape,
			.off = p->off};

		ck_assert_int_eq(mc_dtype_bytes(p->dtype, p->shape, p->rank, &t.len), 0);
		if (p->global[0] != 0) {
			t.box_off = p->box;
			t.global = p->global;
		}
		ck_assert_int_eq(mc_writer_tensor(w, &t, &err), 0);
	}
	len = 0;
	ck_assert_msg(mc_writer_finish(w, &json, &len, &m, &err) == 0, "%s", err.text);
	free(json);
	mc_writer_close(w);
	return m;
}

static const struct mc_profile *profile; /* of the layouts opened next */

static int open_layout(
	const char *more, uint64_t max_header, struct mc_view_layout **ret, struct mc_err *err)
{
	struct mc_view_in in = {
		.manifest = checkpoint(), .profile = profile, .max_header = max_header};
	char text[4096];
	int r;

	snprintf(text, sizeof(text), "%s%s}", head, more);
	r = mc_layout_parse(text, strlen(text), &in.layout, err);
	ck_assert_msg(r == 0, "%s", err->text);
	r = mc_view_layout_open(&in, ret, err);
	mc_manifest_unref(in.manifest);
	return r;
}

/* The byte at off of a checkpoint's file. */
static uint8_t source_byte(uint32_t entry, uint64_t off)
{
	return (uint8_t)((off * 2654435761u >> 7) ^ entry * 77 ^ off);
}

/* The byte of a source tensor's element, from whichever part holds it. */
static uint8_t element_byte(
	const struct mc_view_layout *l, uint32_t tensor, const uint64_t *at, unsigned byte)
{
	for (uint32_t i = l->first_part[tensor]; i < l->first_part[tensor + 1]; i++) {
		struct mc_tensor t;
		uint64_t index = 0;
		bool inside = true;

		mc_manifest_tensor(l->manifest, i, &t);
		for (unsigned d = 0; d < t.rank; d++) {
			uint64_t o = t.boxed ? t.box_off[d] : 0;

			inside = inside && at[d] >= o && at[d] - o < t.shape[d];
			index = index * t.shape[d] + (at[d] - o);
		}
		if (inside)
			return source_byte(
				t.entry, t.off + index * mc_dtype_bits(t.dtype) / 8 + byte);
	}
	ck_abort_msg("no part holds it");
}

static void copy_piece(const struct mc_view_layout *l, const struct mc_local *local,
	const struct mc_local_piece *p, uint8_t *out)
{
	unsigned size = mc_dtype_bits(local->dtype) / 8, shift = p->stacked ? 1 : 0;

	for (uint64_t i = 0; i < mc_box_volume(&p->box); i++) {
		uint64_t rest = i, at[MC_BOX_RANK] = {0}, dst[MC_BOX_RANK] = {0}, index = 0;

		dst[0] = p->at[0];
		for (unsigned d = p->box.rank; d-- > 0;) {
			at[d] = p->box.off[d] + rest % p->box.len[d];
			dst[d + shift] = p->at[d + shift] + rest % p->box.len[d];
			rest /= p->box.len[d];
		}
		for (unsigned d = 0; d < local->rank; d++)
			index = index * local->shape[d] + dst[d];
		for (unsigned b = 0; b < size; b++)
			out[index * size + b] = element_byte(l, p->tensor, at, b);
	}
}

/* A whole file: its header, and each tensor element by element. */
static uint8_t *expected(
	const struct mc_view_layout *l, uint32_t rank, const struct mc_view_file *f)
{
	uint8_t *out = calloc(1, f->size);
	struct mc_safetensors *st;
	struct mc_rank_tensors t;
	struct mc_err err = {0};

	memcpy(out, f->header, f->header_len);
	ck_assert_int_eq(mc_safetensors_parse(f->header, f->header_len, f->size, &st, &err), 0);
	ck_assert_int_eq(mc_sharding_rank(l->sharding, rank, &t, &err), 0);
	for (size_t i = 0; i < mc_safetensors_count(st); i++) {
		const struct mc_st_tensor *s = mc_safetensors_tensor(st, i);
		uint32_t k = 0;

		while (strcmp(t.local[k].name, s->name) != 0)
			ck_assert_uint_lt(++k, t.n);
		for (uint32_t x = 0; x < t.local[k].n; x++)
			copy_piece(l, &t.local[k], &t.piece[t.local[k].first + x], out + s->off);
		for (uint64_t b = 0; t.local[k].constant && b < s->len; b++)
			out[s->off + b] = t.local[k].value[b % 4];
	}
	mc_rank_tensors_done(&t);
	mc_safetensors_close(st);
	return out;
}

/* Executes a plan's pieces; files are entry numbers in disguise. */
static void execute(const struct mc_plan *p, uint8_t *out)
{
	for (size_t i = 0; i < p->n; i++) {
		const struct mc_piece *x = &p->pieces[i];
		uint64_t index[MC_PLAN_DIMS] = {0}, runs = 1;

		if (x->kind == MC_PIECE_HOLE)
			memset(out, 0, x->len);
		if (x->kind == MC_PIECE_INLINE)
			memcpy(out, x->data, x->len);
		for (unsigned d = 0; x->kind == MC_PIECE_FILE && d < x->strides.rank; d++)
			runs *= x->strides.count[d];
		for (uint64_t n = 0; x->kind == MC_PIECE_FILE && n < runs; n++) {
			uint64_t src = x->off, rest = n;

			for (unsigned d = x->strides.rank; d-- > 0;) {
				index[d] = rest % x->strides.count[d];
				rest /= x->strides.count[d];
				src += index[d] * x->strides.stride[d];
			}
			for (uint64_t b = 0; b < x->strides.inner; b++)
				out[n * x->strides.inner + b] =
					source_byte((uint32_t)(uintptr_t)x->file, src + b);
		}
		out += x->len;
	}
}

static void check_range(
	const struct mc_view_file *f, const uint8_t *want, uint64_t off, uint32_t len)
{
	struct mc_file *files[8];
	uint8_t *got = malloc(len);
	struct mc_plan plan;

	ck_assert_uint_le(f->n_entries, 8);
	for (uint32_t i = 0; i < f->n_entries; i++)
		/* NOLINTNEXTLINE(performance-no-int-to-ptr) */
		files[i] = (struct mc_file *)(uintptr_t)f->entry[i];
	mc_plan_init(&plan);
	ck_assert_int_eq(mc_view_file_plan(f, files, off, len, &plan), 0);
	ck_assert_uint_eq(mc_plan_len(&plan), len);
	execute(&plan, got);
	ck_assert_msg(memcmp(got, want + off, len) == 0, "MC_SEED=%u: [%llu, +%u) differs", seed,
		(unsigned long long)off, len);
	mc_plan_done(&plan);
	free(got);
}

static void check_file(const struct mc_view_layout *l, uint32_t rank, const struct mc_view_file *f)
{
	uint8_t *want = expected(l, rank, f);

	check_range(f, want, 0, (uint32_t)f->size);
	for (int i = 0; i < 300; i++) {
		uint64_t off = (uint64_t)rand_r(&seed) % f->size, left = f->size - off;
		uint64_t len = 1 + (uint64_t)rand_r(&seed) % (i % 3 == 0 ? 2000 : 60);

		if (i % 2 == 0 && f->header_len < f->size) /* mostly among the small tensors */
			off = f->header_len + off % (f->size - f->header_len);
		left = f->size - off;
		check_range(f, want, off, (uint32_t)(len < left ? len : left));
	}
	free(want);
}

static void check_layout(const char *more, uint64_t max_header, uint32_t want_files)
{
	struct mc_err err = {0};
	struct mc_view_layout *l;
	int r = open_layout(more, max_header, &l, &err);

	ck_assert_msg(r == 0, "%s", err.text);
	for (uint32_t rank = 0; rank < 2; rank++) {
		struct mc_view *v;

		r = mc_view_open(l, rank, &v, &err);
		ck_assert_msg(r == 0, "%s", err.text);
		ck_assert_uint_eq(v->n_files, want_files);
		for (uint32_t i = 0; i < v->n_files; i++)
			if (v->file[i].n_segments > 0)
				check_file(l, rank, &v->file[i]);
		mc_view_unref(v);
	}
	mc_view_layout_unref(l);
}

START_TEST(any_range_is_what_copying_by_elements_gives)
{
	char more[2048];

	snprintf(more, sizeof(more), "%s%s", cuts, consts);
	check_layout(more, 0, 1);
}
END_TEST

START_TEST(fused_and_stacked_tensors_too)
{
	char more[2048];

	snprintf(more, sizeof(more),
		"%s,\"emit\":{\"style\":\"hf\","
		"\"fuse\":[{\"name\":\"qk\",\"dim\":1,\"from\":[\"exp.0.w\",\"exp.1.w\"]}]}",
		cuts);
	check_layout(more, 0, 1);
	snprintf(more, sizeof(more),
		"%s,\"emit\":{\"style\":\"hf\","
		"\"stack\":[{\"name\":\"all\",\"index\":1,\"from\":\"exp.#.w\"}]}",
		cuts);
	check_layout(more, 0, 1);
}
END_TEST

static const void *in_text(const struct mc_view_file *f, const char *text)
{
	return memmem(f->header, f->header_len, text, strlen(text));
}

START_TEST(long_headers_are_split_and_indexed)
{
	struct mc_view_layout *l;
	struct mc_err err = {0};
	struct mc_view *v;
	struct mc_entry e;
	uint32_t entry;

	check_layout(cuts, 400, 4);
	ck_assert_int_eq(open_layout(cuts, 400, &l, &err), 0);
	ck_assert_int_eq(mc_view_open(l, 1, &v, &err), 0);
	ck_assert_int_eq(mc_manifest_walk(v->tree, "model-00003-of-00003.safetensors", &entry), 0);
	mc_manifest_entry(v->tree, entry, &e);
	ck_assert_uint_eq(e.size, v->file[v->where[entry]].size);
	ck_assert_int_eq(mc_manifest_walk(v->tree, "model.safetensors.index.json", &entry), 0);
	ck_assert_ptr_nonnull(
		in_text(&v->file[v->where[entry]], "\"wide\":\"model-00003-of-00003"));
	mc_view_unref(v);
	mc_view_layout_unref(l);
}
END_TEST

START_TEST(files_beside_the_weights_are_those_of_the_checkpoint)
{
	struct mc_view_layout *l;
	struct mc_err err = {0};
	struct mc_source *s;
	struct mc_entry e, of;
	struct mc_view *v;
	uint32_t entry, from;

	ck_assert_int_eq(open_layout(cuts, 0, &l, &err), 0);
	ck_assert_int_eq(mc_view_open(l, 0, &v, &err), 0);
	mc_manifest_entry(v->tree, 0, &e);
	ck_assert_uint_eq(e.n_children, 3);
	ck_assert_int_eq(mc_manifest_walk(v->tree, "vocab.txt", &entry), 0);
	ck_assert_int_eq(mc_manifest_walk(l->manifest, "vocab.txt", &from), 0);
	mc_manifest_entry(l->manifest, from, &of);
	mc_manifest_entry(v->tree, entry, &e);
	ck_assert_mem_eq(e.digest, of.digest, MC_SHA256_SIZE);
	ck_assert_int_eq(mc_view_source(v, entry, NULL, &s), 0);
	ck_assert_mem_eq(s->id.digest, of.digest, MC_SHA256_SIZE);
	ck_assert_int_eq(s->ops->block_crc != NULL, 1);
	s->ops->release(s);
	mc_view_unref(v);
	mc_view_layout_unref(l);
}
END_TEST

/* The digest of a rank's only weight file. */
static void digest_of(const char *more, uint32_t rank, uint8_t *ret)
{
	struct mc_view_layout *l;
	struct mc_err err = {0};
	struct mc_view *v;

	ck_assert_int_eq(open_layout(more, 0, &l, &err), 0);
	ck_assert_int_eq(mc_view_open(l, rank, &v, &err), 0);
	memcpy(ret, v->file[0].digest, MC_SHA256_SIZE);
	mc_view_unref(v);
	mc_view_layout_unref(l);
}

START_TEST(identity_is_of_layout_and_path)
{
	uint8_t a[MC_SHA256_SIZE], b[MC_SHA256_SIZE];
	char more[2048];

	digest_of(cuts, 0, a);
	digest_of(cuts, 0, b);
	ck_assert_mem_eq(a, b, sizeof(a));
	digest_of(cuts, 1, b);
	ck_assert_mem_ne(a, b, sizeof(a));
	snprintf(more, sizeof(more), "%s%s", cuts, consts);
	digest_of(more, 0, b);
	ck_assert_mem_ne(a, b, sizeof(a));
}
END_TEST

START_TEST(subset_has_whole_tensors_and_an_index)
{
	static const char more[] = "\"rules\":[{\"match\":\"exp.#.w\",\"own\":[{\"axis\":\"tp\","
				   "\"index\":1,\"count\":2}],"
				   "\"replicate\":true},{\"match\":\"**\",\"replicate\":true}],"
				   "\"emit\":{\"style\":\"subset\"}";
	struct mc_view_layout *l;
	struct mc_err err = {0};
	struct mc_view *v;
	uint32_t entry;
	int r = open_layout(more, 0, &l, &err);

	ck_assert_msg(r == 0, "%s", err.text);
	ck_assert_int_eq(mc_view_open(l, 1, &v, &err), 0);
	ck_assert_int_eq(mc_manifest_walk(v->tree, "model.safetensors.index.json", &entry), 0);
	ck_assert_ptr_null(in_text(&v->file[v->where[entry]], "exp.0.w"));
	ck_assert_ptr_nonnull(in_text(&v->file[v->where[entry]], "exp.1.w"));
	check_file(l, 1, &v->file[0]);
	mc_view_unref(v);
	mc_view_layout_unref(l);
}
END_TEST

/* What each of the two ranks holds. */
static const char rank_profile[] =
	"{\"format\":\"engine-profile\",\"version\":1,\"engine\":\"e\",\"engine_version\":\"1\","
	"\"tensors\":{"
	"\"emb\":{\"dtype\":\"BF16\",\"shape\":[6,6]},\"q\":{\"dtype\":\"BF16\",\"shape\":[4,6]},"
	"\"k\":{\"dtype\":\"BF16\",\"shape\":[2,6]},\"norm\":{\"dtype\":\"F32\",\"shape\":[6]},"
	"\"exp.0.w\":{\"dtype\":\"F32\",\"shape\":[4,2]},"
	"\"exp.1.w\":{\"dtype\":\"F32\",\"shape\":[4,2]},"
	"\"scalar\":{\"dtype\":\"F64\",\"shape\":[]},\"wide\":{\"dtype\":\"U8\",\"shape\":[3,10]},"
	"\"big\":{\"dtype\":\"U8\",\"shape\":[1200,500]}}}";

START_TEST(sharded_state_is_one_directory)
{
	char more[2048];
	struct mc_profile *p;
	struct mc_view_layout *l;
	struct mc_err err = {0};
	struct mc_view *v;
	uint32_t entry;
	int r;

	snprintf(more, sizeof(more), "%s,\"emit\":{\"style\":\"sharded-state\",\"profile\":\"p\"}",
		cuts);
	ck_assert_int_eq(open_layout(more, 0, &l, &err), -EINVAL);
	ck_assert_str_eq(err.text, "no profile \"p\"");
	err.text[0] = '\0';
	ck_assert_int_eq(mc_profile_parse(rank_profile, strlen(rank_profile), &p, &err), 0);
	profile = p;
	r = open_layout(more, 0, &l, &err);
	ck_assert_msg(r == 0, "%s", err.text);
	ck_assert_uint_eq(mc_view_layout_ranks(l), 0);
	ck_assert_int_eq(mc_view_open(l, 0, &v, &err), 0);
	ck_assert_int_eq(mc_manifest_walk(v->tree, "model-rank-1-part-0.safetensors", &entry), 0);
	check_file(l, 1, &v->file[v->where[entry]]);
	mc_view_unref(v);
	mc_view_layout_unref(l);
	mc_profile_free(p);
	profile = NULL;
}
END_TEST

START_TEST(gaps_below_a_block_are_data)
{
	struct mc_view_layout *l;
	struct mc_err err = {0};
	uint64_t start, end;
	struct mc_view *v;

	ck_assert_int_eq(open_layout(cuts, 0, &l, &err), 0);
	ck_assert_int_eq(mc_view_open(l, 1, &v, &err), 0);
	ck_assert_int_eq(mc_view_file_next_data(&v->file[0], 0, &start, &end), 0);
	ck_assert_uint_eq(start, 0);
	ck_assert_uint_eq(end, v->file[0].size);
	ck_assert_int_eq(mc_view_file_next_data(&v->file[0], v->file[0].size - 1, &start, &end), 0);
	ck_assert_uint_eq(start, v->file[0].size - 1);
	mc_view_unref(v);
	mc_view_layout_unref(l);
}
END_TEST

START_TEST(names_of_ranks_are_five_digits)
{
	uint32_t rank = 7;

	ck_assert_int_eq(mc_view_rank_parse("rank-00012", &rank), 0);
	ck_assert_uint_eq(rank, 12);
	ck_assert_int_eq(mc_view_rank_parse("rank-12", &rank), -ENOENT);
	ck_assert_int_eq(mc_view_rank_parse("rank-000012", &rank), -ENOENT);
	ck_assert_int_eq(mc_view_rank_parse("rank-+0012", &rank), -ENOENT);
	ck_assert_int_eq(mc_view_rank_parse("rank-70000", &rank), -ENOENT);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {any_range_is_what_copying_by_elements_gives,
		fused_and_stacked_tensors_too, long_headers_are_split_and_indexed,
		files_beside_the_weights_are_those_of_the_checkpoint,
		identity_is_of_layout_and_path, subset_has_whole_tensors_and_an_index,
		sharded_state_is_one_directory, gaps_below_a_block_are_data,
		names_of_ranks_are_five_digits};

	seed = seed_choose();
	return suite_run("view", tests, sizeof(tests) / sizeof(*tests));
}
