/* Plans, block checksums and data ranges of a file agree with a naive model, on random files. */
#include "tests/sample-manifest.h"
#include "tests/seed.h"
#include "tests/suite.h"

#include <errno.h>
#include <stdio.h>

#define MAX_SPANS 24
#define EXT_OFF 4096

/* What the file is, kept as plain arrays. */
struct model {
	struct mc_new_span spans[MAX_SPANS];
	uint64_t start[MAX_SPANS + 1];
	size_t n;
	uint32_t crcs[16];
	bool external;
};

static unsigned seed;

static uint64_t below(uint64_t n)
{
	return (uint64_t)rand_r(&seed) % n;
}

static void random_model(struct model *m)
{
	*m = (struct model){.external = below(3) == 0};
	m->n = 1 + below(MAX_SPANS);
	for (size_t i = 0; i < m->n; i++) {
		uint64_t len = 1 + below(below(3) == 0 ? 900000 : 5000);

		m->spans[i] = sample_chunk(len, (uint8_t)i);
		m->spans[i].hole = below(3) == 0;
		m->start[i + 1] = m->start[i] + len;
	}
}

static uint64_t size_of(const struct model *m)
{
	return m->start[m->n];
}

static size_t span_at(const struct model *m, uint64_t off)
{
	size_t i = 0;

	while (m->start[i + 1] <= off)
		i++;
	return i;
}

/* True when [off, off + len) is hole throughout. */
static bool is_hole(const struct model *m, uint64_t off, uint64_t len)
{
	for (size_t i = span_at(m, off); i < m->n && m->start[i] < off + len; i++)
		if (!m->spans[i].hole)
			return false;
	return true;
}

static struct mc_manifest *build(struct model *m)
{
	struct mc_new_file f = {
		.size = size_of(m), .spans = m->spans, .n_spans = m->n, .crc32c = m->crcs};
	struct mc_manifest *ret;
	struct mc_err err = {0};
	struct mc_writer *w;
	char *json;
	size_t len;

	ck_assert_uint_le(mc_block_count(f.size), 16);
	for (uint64_t b = 0; b < mc_block_count(f.size); b++) {
		uint32_t n = mc_block_len(f.size, b);

		m->crcs[b] = is_hole(m, b << MC_BLOCK_SHIFT, n) ? mc_crc_of_zeros(n)
								: (uint32_t)rand_r(&seed);
	}
	if (m->external) {
		f.ext_path = "ext/file";
		f.ext_off = EXT_OFF;
		f.ext_guard = (struct mc_guard){true, f.size + EXT_OFF + 1, 12, 34};
	}
	ck_assert_int_eq(mc_writer_open(&w), 0);
	ck_assert_int_eq(mc_writer_file(w, "f", &sample_meta, &f, &err), 0);
	ck_assert_msg(mc_writer_finish(w, &json, &len, &ret, &err) == 0, "%s", err.text);
	free(json);
	mc_writer_close(w);
	return ret;
}

/* One piece that claims to be [off, off + p->len) of the file. */
static void check_piece(const struct model *m, uint64_t off, const struct mc_piece *p)
{
	size_t first = span_at(m, off), last = span_at(m, off + p->len - 1);
	char path[MC_CHUNK_PATH];

	if (p->kind == MC_PIECE_HOLE) {
		ck_assert(is_hole(m, off, p->len));
		return;
	}
	ck_assert_int_eq(p->kind, MC_PIECE_OBJECT);
	for (size_t i = first; i <= last; i++)
		ck_assert(!m->spans[i].hole);
	if (m->external) {
		ck_assert_str_eq(p->path, "ext/file");
		ck_assert_uint_eq(p->off, off + EXT_OFF);
		ck_assert(p->guard.set);
		ck_assert_uint_eq(p->guard.size, size_of(m) + EXT_OFF + 1);
		ck_assert_int_eq(p->guard.mtime_s, 12);
		ck_assert_uint_eq(p->guard.mtime_ns, 34);
		return;
	}
	ck_assert_uint_eq(first, last);
	mc_chunk_path(m->spans[first].sha256, path);
	ck_assert_str_eq(p->path, path);
	ck_assert_uint_eq(p->off, off - m->start[first]);
	ck_assert(!p->guard.set);
}

static void check_plan(const struct model *m, const struct mc_source *s, uint64_t off, uint32_t len)
{
	struct mc_plan plan;
	uint64_t at = off;

	mc_plan_init(&plan);
	ck_assert_int_eq(s->ops->plan(s, off, len, &plan), 0);
	for (size_t i = 0; i < plan.n; i++) {
		ck_assert_uint_gt(plan.pieces[i].len, 0);
		check_piece(m, at, &plan.pieces[i]);
		at += plan.pieces[i].len;
		/* Neighbours that could be one request are one. */
		if (i > 0 && (m->external || plan.pieces[i].kind == MC_PIECE_HOLE))
			ck_assert_int_ne(plan.pieces[i].kind, plan.pieces[i - 1].kind);
	}
	ck_assert_uint_eq(at, off + len);
	ck_assert_int_eq(mc_plan_is_hole(&plan), is_hole(m, off, len));
	mc_plan_done(&plan);
}

static void check_next_data(const struct model *m, const struct mc_source *s, uint64_t off)
{
	uint64_t start, end, want = off;
	size_t i = span_at(m, off);
	int r = s->ops->next_data(s, off, &start, &end);

	while (i < m->n && m->spans[i].hole)
		want = m->start[++i];
	if (i == m->n) {
		ck_assert_int_eq(r, -ENXIO);
		return;
	}
	ck_assert_int_eq(r, 0);
	ck_assert_uint_eq(start, want);
	while (i < m->n && !m->spans[i].hole)
		i++;
	ck_assert_uint_eq(end, m->start[i]);
}

static void check_source(const struct model *m, struct mc_manifest *mf)
{
	struct mc_source *s;
	uint32_t entry;

	ck_assert_int_eq(mc_manifest_walk(mf, "f", &entry), 0);
	ck_assert_int_eq(mc_manifest_source(mf, entry, &s), 0);
	ck_assert_uint_eq(s->id.size, size_of(m));
	check_plan(m, s, 0, (uint32_t)size_of(m));
	for (int i = 0; i < 40; i++) {
		uint64_t off = below(size_of(m));

		if (i < 8) /* start or end exactly at a boundary */
			off = m->start[below(m->n)];
		check_plan(m, s, off, 1 + (uint32_t)below(size_of(m) - off));
		check_next_data(m, s, off);
	}
	for (uint64_t b = 0; b < mc_block_count(size_of(m)); b++) {
		check_plan(m, s, b << MC_BLOCK_SHIFT, mc_block_len(size_of(m), b));
		ck_assert_uint_eq(s->ops->block_crc(s, b), m->crcs[b]);
	}
	s->ops->release(s);
}

START_TEST(random_files_give_the_plans_of_the_naive_model)
{
	seed = seed_choose();
	for (int round = 0; round < 500; round++) {
		struct mc_manifest *mf;
		struct model m;

		random_model(&m);
		mf = build(&m);
		check_source(&m, mf);
		mc_manifest_unref(mf);
	}
}
END_TEST

START_TEST(a_source_outlives_the_reference_it_was_made_from)
{
	struct mc_manifest *m = sample_manifest();
	struct mc_source *s;
	struct mc_plan plan;
	uint32_t e;

	ck_assert_int_eq(mc_manifest_walk(m, "sub/model.safetensors", &e), 0);
	ck_assert_int_eq(mc_manifest_source(m, e, &s), 0);
	mc_manifest_unref(m);
	mc_plan_init(&plan);
	ck_assert_int_eq(s->ops->plan(s, 5, 140, &plan), 0);
	ck_assert_uint_eq(plan.n, 1);
	ck_assert_uint_eq(plan.pieces[0].off, 15);
	mc_plan_done(&plan);
	s->ops->release(s);
}
END_TEST

START_TEST(the_same_content_has_one_identity_stored_or_referenced)
{
	struct mc_manifest *m = sample_manifest();
	struct mc_source *a, *b;
	uint32_t e;

	ck_assert_int_eq(mc_manifest_walk(m, "config.json", &e), 0);
	ck_assert_int_eq(mc_manifest_source(m, e, &a), 0);
	ck_assert_int_eq(mc_manifest_walk(m, "sub/model.safetensors", &e), 0);
	ck_assert_int_eq(mc_manifest_source(m, e, &b), 0);
	ck_assert_mem_eq(a->id.digest, b->id.digest, MC_SHA256_SIZE);
	ck_assert_uint_eq(a->id.size, b->id.size);
	a->ops->release(a);
	b->ops->release(b);
	mc_manifest_unref(m);
}
END_TEST

SUITE_MAIN("manifest-plan", random_files_give_the_plans_of_the_naive_model,
	a_source_outlives_the_reference_it_was_made_from,
	the_same_content_has_one_identity_stored_or_referenced)
