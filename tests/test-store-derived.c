/* Derived files in the store: strided cuts of other files, with and without an image of their own.
 */
#include "tests/store-fixture.h"

#include <errno.h>
#include <pthread.h>

/* A derived file: a matrix of rows × width bytes cut to columns [from, from + n) of another file.
 */
struct cut {
	struct mc_source base;
	struct mc_file *of; /* owned */
	uint64_t width, from, n, rows;
};

static int cut_plan(const struct mc_source *base, uint64_t off, uint32_t len, struct mc_plan *plan)
{
	const struct cut *c = (const struct cut *)base;
	int r = 0;

	while (len > 0 && r == 0) {
		uint64_t row = off / c->n, in = off % c->n;
		struct mc_strides s = {.inner = c->n - in < len ? c->n - in : len};

		if (in == 0 && len >= c->n) {
			s.rank = 1;
			s.count[0] = len / c->n;
			s.stride[0] = c->width;
		}
		r = mc_plan_add_file(plan, c->of, row * c->width + c->from + in, &s);
		off += s.inner * (s.rank > 0 ? s.count[0] : 1);
		len -= (uint32_t)(s.inner * (s.rank > 0 ? s.count[0] : 1));
	}
	return r;
}

static int cut_next_data(
	const struct mc_source *base, uint64_t off, uint64_t *ret_start, uint64_t *ret_end)
{
	*ret_start = off;
	*ret_end = base->id.size;
	return off < base->id.size ? 0 : -ENXIO;
}

static void cut_release(struct mc_source *base)
{
	mc_file_put(((struct cut *)base)->of);
	free(base);
}

static struct mc_file *cut_open(struct place *p, struct mc_file *of, struct cut like)
{
	static const struct mc_source_ops ops = {cut_plan, NULL, cut_next_data, cut_release};
	struct cut *c = malloc(sizeof(*c));
	struct mc_file *f;
	char name[64];

	ck_assert_ptr_nonnull(c);
	*c = like;
	c->base.ops = &ops;
	c->base.id.size = c->n * c->rows;
	c->of = mc_file_ref(of);
	snprintf(name, sizeof(name), "cut %d", (int)c->from);
	ck_assert_int_eq(mc_sha256(name, strlen(name), c->base.id.digest), 0);
	ck_assert_int_eq(mc_store_file_get(p->store, &c->base, &f), 0);
	return f;
}

START_TEST(derived_blocks_are_gathered_and_their_sources_fetched_once)
{
	static const struct cut t[] = {{.width = 2048, .from = 256, .n = 256, .rows = 14000},
		{.width = 57344, .from = 7168, .n = 7168, .rows = 500},
		{.width = 3 * MIB + 8, .from = MIB - 3, .n = MIB + 11, .rows = 9}};

	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		uint64_t size = t[i].n * t[i].rows;
		struct place p;
		struct pattern pat;
		struct mc_file *of, *f;
		uint8_t *got = malloc(size);

		place_make(&p);
		pat = make_pattern(&p, "v", t[i].width * t[i].rows);
		place_open(&p, 128 * MIB, 0);
		of = file_open(&p, &pat);
		f = cut_open(&p, of, t[i]);
		mc_file_put(of);
		ck_assert_ptr_nonnull(got);
		for (uint64_t off = 0; off < size; off += MIB)
			read_copy(f, off, mc_block_len(size, off / MIB), got + off);
		for (uint64_t row = 0; row < t[i].rows; row++)
			ck_assert(pattern_equal(
				&pat, row * t[i].width + t[i].from, got + row * t[i].n, t[i].n));
		ck_assert_uint_le(stats(&p).fetched_bytes, pat.size);
		mc_file_put(f);
		place_close(&p, false);
		ck_assert_int_eq(pattern_live, 0);
		place_remove(&p);
		free(got);
	}
}
END_TEST

/* What is cut, and how the whole of it is read: blocks of step bytes. */
static const struct cut shapes[] = {{.width = 2048, .from = 256, .n = 256, .rows = 14000},
	{.width = 57344, .from = 7168, .n = 7168, .rows = 500},
	{.width = 3 * MIB + 8, .from = MIB - 3, .n = MIB + 11, .rows = 9},
	{.width = 9 * MIB, .from = 2 * MIB + 5, .n = 5 * MIB + 777, .rows = 1}};
#define SHAPES (sizeof(shapes) / sizeof(*shapes))

static int direct_read(struct sync_read *s, struct mc_file *f, uint64_t off, uint32_t len)
{
	*s = (struct sync_read){.r = {.file = f, .off = off, .len = len, .direct = true}};
	return sync_run(s);
}

/* Compares a part of the cut of pat with bytes. */
static bool cut_equal(const struct cut *c, const struct pattern *pat, uint64_t off,
	const uint8_t *bytes, size_t len)
{
	while (len > 0) {
		uint64_t row = off / c->n, in = off % c->n;
		size_t n = c->n - in < len ? c->n - in : len;

		if (!pattern_equal(pat, row * c->width + c->from + in, bytes, n))
			return false;
		off += n;
		bytes += n;
		len -= n;
	}
	return true;
}

/* Reads the whole in steps, and compares. */
static void direct_check(
	struct mc_file *f, const struct cut *c, const struct pattern *pat, uint32_t step)
{
	uint64_t size = mc_file_id(f)->size;

	for (uint64_t off = 0; off < size; off += step) {
		uint64_t at = off;
		struct sync_read s;

		ck_assert_int_eq(
			direct_read(&s, f, off, size - off < step ? (uint32_t)(size - off) : step),
			0);
		for (unsigned i = 0; i < s.r.n_iov; i++) {
			ck_assert(cut_equal(c, pat, at, s.r.iov[i].iov_base, s.r.iov[i].iov_len));
			at += s.r.iov[i].iov_len;
		}
		ck_assert_uint_eq(at, off + s.r.len);
		mc_file_read_end(&s.r);
	}
}

static struct mc_residency residency(struct mc_file *f)
{
	struct mc_residency r;

	mc_file_residency(f, &r);
	return r;
}

START_TEST(a_first_pass_leaves_no_image_and_a_second_makes_one)
{
	static const uint32_t steps[] = {MIB, MIB + 4096, 100000, 3 * 4096};

	for (size_t i = 0; i < SHAPES; i++) {
		struct place p;
		struct pattern pat;
		struct mc_file *of, *f;
		uint64_t size = shapes[i].n * shapes[i].rows;

		place_make(&p);
		pat = make_pattern(&p, "v", shapes[i].width * shapes[i].rows);
		place_open(&p, 128 * MIB, 0);
		of = file_open(&p, &pat);
		f = cut_open(&p, of, shapes[i]);
		direct_check(f, &shapes[i], &pat, steps[i]);
		ck_assert_uint_eq(residency(f).dram, 0);
		ck_assert_uint_le(stats(&p).fetched_bytes, pat.size);
		mc_file_put(f); /* what was read is remembered across this */
		f = cut_open(&p, of, shapes[i]);
		direct_check(f, &shapes[i], &pat, steps[i]);
		ck_assert_uint_eq(residency(f).dram, size);
		direct_check(f, &shapes[i], &pat, steps[i]);
		ck_assert_uint_le(stats(&p).fetched_bytes, pat.size);
		mc_file_put(of);
		mc_file_put(f);
		place_close(&p, false);
		ck_assert_int_eq(pattern_live, 0);
		place_remove(&p);
	}
}
END_TEST

START_TEST(a_stretch_of_one_source_is_lent_where_it_lies)
{
	struct cut c = {.width = 4 * MIB, .from = MIB / 2, .n = 2 * MIB, .rows = 1};
	struct sync_read mine, theirs;
	struct mc_file *of, *f;
	struct pattern pat;
	struct place p;

	place_make(&p);
	pat = make_pattern(&p, "v", c.width);
	place_open(&p, 64 * MIB, 0);
	of = file_open(&p, &pat);
	f = cut_open(&p, of, c);
	ck_assert_int_eq(direct_read(&mine, f, 1000, MIB), 0);
	ck_assert_int_eq(sync_read(&theirs, of, MIB / 2 + 1000, MIB), 0);
	ck_assert_uint_eq(mine.r.n_iov, 2);
	ck_assert_uint_eq(theirs.r.n_iov, 2);
	for (int i = 0; i < 2; i++) {
		ck_assert_ptr_eq(mine.r.iov[i].iov_base, theirs.r.iov[i].iov_base);
		ck_assert_uint_eq(mine.r.iov[i].iov_len, theirs.r.iov[i].iov_len);
	}
	mc_file_read_end(&mine.r);
	mc_file_read_end(&theirs.r);
	mc_file_put(of);
	mc_file_put(f);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(a_stream_fetches_what_the_cut_needs_and_nothing_behind_it)
{
	/* 2 rows of 3 MiB and a bit, 16 MiB apart: blocks 4..7 and 20..23 of the source. */
	struct cut c = {.width = 16 * MIB, .from = 4 * MIB + 100, .n = 3 * MIB + 100, .rows = 2};
	struct mc_file *of, *f;
	struct pattern pat;
	struct place p;

	place_make(&p);
	pat = make_pattern(&p, "v", 40 * MIB);
	place_open(&p, 128 * MIB, 0);
	of = file_open(&p, &pat);
	f = cut_open(&p, of, c);
	direct_check(f, &c, &pat, 128 << 10);
	ck_assert_uint_eq(stats(&p).fetched_bytes, 8 * MIB);
	ck_assert_uint_gt(stats(&p).prefetched, 0);
	mc_file_put(of);
	mc_file_put(f);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(a_bad_source_block_is_an_error_of_the_reads_that_need_it)
{
	struct cut c = {.width = 64 << 10, .from = 1000, .n = 4096, .rows = 64};
	struct mc_file *of, *f;
	struct sync_read s;
	struct pattern pat;
	struct place p;

	place_make(&p);
	pat = make_pattern(&p, "v", 4 * MIB);
	pat.bad_block = 1;
	place_open(&p, 64 * MIB, 0);
	of = file_open(&p, &pat);
	f = cut_open(&p, of, c);
	ck_assert_int_eq(direct_read(&s, f, 0, 16 * 4096), 0); /* rows 0..15: block 0 */
	mc_file_read_end(&s.r);
	ck_assert_int_eq(direct_read(&s, f, 10 * 4096, 10 * 4096), -EIO);
	ck_assert_int_eq(direct_read(&s, f, 20 * 4096 + 7, 100), -EIO); /* one run: lent */
	ck_assert_int_eq(direct_read(&s, f, 32 * 4096, 32 * 4096), 0);
	mc_file_read_end(&s.r);
	mc_file_put(of);
	mc_file_put(f);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

/* A header that the plan carries, a hole, then a file. */
static int framed_plan(
	const struct mc_source *base, uint64_t off, uint32_t len, struct mc_plan *plan)
{
	static const char header[100] = "header";
	const struct cut *c = (const struct cut *)base;
	uint64_t at = off, end = off + len;
	int r = 0;

	if (at < sizeof(header)) {
		uint64_t n = (end < sizeof(header) ? end : sizeof(header)) - at;

		r = mc_plan_add_inline(plan, header + at, (uint32_t)n);
		at += n;
	}
	if (r == 0 && at < end && at < 4096) {
		uint64_t n = (end < 4096 ? end : 4096) - at;

		r = mc_plan_add_hole(plan, (uint32_t)n);
		at += n;
	}
	if (r == 0 && at < end)
		r = mc_plan_add_file(
			plan, c->of, at - 4096, &(struct mc_strides){.inner = end - at});
	return r;
}

START_TEST(what_the_plan_carries_and_holes_are_read_without_an_image)
{
	static const struct mc_source_ops ops = {framed_plan, NULL, cut_next_data, cut_release};
	struct cut *c = calloc(1, sizeof(*c));
	struct mc_file *of, *f;
	struct sync_read s;
	struct pattern pat;
	struct place p;
	char zeros[4096] = {0};

	place_make(&p);
	pat = make_pattern(&p, "v", MIB);
	place_open(&p, 64 * MIB, 0);
	of = file_open(&p, &pat);
	c->base.ops = &ops;
	c->base.id.size = MIB + 4096;
	c->of = mc_file_ref(of);
	ck_assert_int_eq(mc_store_file_get(p.store, &c->base, &f), 0);
	ck_assert_int_eq(direct_read(&s, f, 0, MIB), 0);
	ck_assert_uint_eq(s.r.n_iov, 1);
	ck_assert_str_eq(s.r.iov[0].iov_base, "header");
	ck_assert_mem_eq((char *)s.r.iov[0].iov_base + 100, zeros, 3996);
	ck_assert(pattern_equal(&pat, 0, (uint8_t *)s.r.iov[0].iov_base + 4096, MIB - 4096));
	mc_file_read_end(&s.r);
	ck_assert_int_eq(direct_read(&s, f, 50, 1000), 0);
	ck_assert_mem_eq(s.r.iov[0].iov_base, zeros, 1000);
	mc_file_read_end(&s.r);
	mc_file_put(of);
	mc_file_put(f);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

struct reader {
	pthread_t thread;
	struct mc_file *f;
	struct cut c;
	const struct pattern *pat;
};

static void *read_all(void *arg)
{
	struct reader *r = arg;

	for (int pass = 0; pass < 3; pass++)
		direct_check(r->f, &r->c, r->pat, MIB);
	return NULL;
}

START_TEST(eight_ranks_read_in_less_memory_than_they_have_to_get)
{
	enum { RANKS = 8 };
	struct reader r[RANKS];
	struct mc_file *of;
	struct pattern pat;
	struct place p;

	place_make(&p);
	pat = make_pattern(&p, "v", 48 * MIB);
	place_open(&p, 24 * MIB, 0);
	of = file_open(&p, &pat);
	for (uint64_t i = 0; i < RANKS; i++) {
		r[i] = (struct reader){.pat = &pat,
			.c = {.width = 8192, .from = i * 1024, .n = 1024, .rows = 6144}};
		r[i].f = cut_open(&p, of, r[i].c);
		ck_assert_int_eq(pthread_create(&r[i].thread, NULL, read_all, &r[i]), 0);
	}
	for (int i = 0; i < RANKS; i++) {
		ck_assert_int_eq(pthread_join(r[i].thread, NULL), 0);
		mc_file_put(r[i].f);
	}
	mc_file_put(of);
	place_close(&p, false);
	ck_assert_int_eq(pattern_live, 0);
	place_remove(&p);
}
END_TEST

SUITE_MAIN("store-derived", derived_blocks_are_gathered_and_their_sources_fetched_once,
	a_first_pass_leaves_no_image_and_a_second_makes_one,
	a_stretch_of_one_source_is_lent_where_it_lies,
	a_stream_fetches_what_the_cut_needs_and_nothing_behind_it,
	a_bad_source_block_is_an_error_of_the_reads_that_need_it,
	what_the_plan_carries_and_holes_are_read_without_an_image,
	eight_ranks_read_in_less_memory_than_they_have_to_get)
