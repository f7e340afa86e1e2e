/* The store's table of files: opened again while they leave, and more of them than descriptors. */
#include "tests/store-fixture.h"
#include "tests/suite.h"

#include <stdio.h>
#include <sys/resource.h>

/* A source whose release opens the file anew and reads it. */
struct reopening {
	struct mc_source base;
	struct mc_source *inner; /* owned */
	struct place *p;
	const struct pattern *pat;
	struct mc_file *again; /* the caller's, once released */
};

static int reopening_plan(
	const struct mc_source *s, uint64_t off, uint32_t len, struct mc_plan *plan)
{
	const struct mc_source *inner = ((const struct reopening *)s)->inner;

	return inner->ops->plan(inner, off, len, plan);
}

static uint32_t reopening_crc(const struct mc_source *s, uint64_t block)
{
	const struct mc_source *inner = ((const struct reopening *)s)->inner;

	return inner->ops->block_crc(inner, block);
}

static int reopening_next(
	const struct mc_source *s, uint64_t off, uint64_t *ret_start, uint64_t *ret_end)
{
	const struct mc_source *inner = ((const struct reopening *)s)->inner;

	return inner->ops->next_data(inner, off, ret_start, ret_end);
}

static void reopening_release(struct mc_source *s)
{
	struct reopening *r = (struct reopening *)s;

	r->inner->ops->release(r->inner);
	r->again = file_open(r->p, r->pat);
	read_whole(r->again, r->pat);
}

START_TEST(a_file_opened_again_while_it_leaves_keeps_its_bytes)
{
	static const struct mc_source_ops ops = {
		reopening_plan, reopening_crc, reopening_next, reopening_release};
	struct place p;
	struct pattern pat, other;
	struct reopening r = {.p = &p, .pat = &pat};
	struct mc_residency res;
	struct mc_file *f, *o;

	place_make(&p);
	pat = make_pattern(&p, "a", 2 * MIB);
	other = make_pattern(&p, "b", 24 * MIB);
	place_open(&p, 8 * MIB, 0);
	r.inner = pattern_source(&pat);
	r.base = (struct mc_source){.ops = &ops, .id = r.inner->id};
	ck_assert_int_eq(mc_store_file_get(p.store, &r.base, &f), 0);
	ck_assert_int_eq(read_check(f, &pat, 0, 100), 0);
	o = file_open(&p, &other);
	do {
		read_whole(o, &other);
		mc_file_residency(f, &res);
	} while (res.dram > 0);
	mc_file_put(f);
	ck_assert_ptr_nonnull(r.again);
	read_whole(r.again, &pat);
	mc_file_put(r.again);
	mc_file_put(o);
	place_close(&p, false);
	ck_assert_int_eq(pattern_live, 0);
	place_remove(&p);
}
END_TEST

static void limit_files(rlim_t n, struct rlimit *ret_old)
{
	struct rlimit l;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &l), 0);
	*ret_old = l;
	l.rlim_cur = n;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &l), 0);
}

/* Each file is opened, read, closed; then all once more. The remote's bytes afterwards. */
static uint64_t read_many(struct place *p, struct pattern *pat, char (*names)[8], int n)
{
	for (int i = 0; i < n; i++) {
		struct mc_file *f;

		snprintf(names[i], sizeof(names[i]), "%c%03d", 'a' + i % 26, i);
		pat[i] = (struct pattern){.dir = p->remote_dir,
			.name = names[i],
			.size = 5000,
			.bad_block = UINT64_MAX};
		pattern_write(&pat[i]);
		f = file_open(p, &pat[i]);
		ck_assert_int_eq(read_check(f, &pat[i], 0, 5000), 0);
		mc_file_put(f);
	}
	for (int i = 0; i < n; i++) {
		struct mc_file *f = file_open(p, &pat[i]);

		ck_assert_int_eq(read_check(f, &pat[i], 0, 5000), 0);
		mc_file_put(f);
	}
	return stats(p).fetched_bytes;
}

START_TEST(more_files_are_resident_than_descriptors_allowed)
{
	enum { N = 900 };
	static struct pattern pat[N];
	static char names[N][8];
	struct place p;
	struct rlimit old;

	place_make(&p);
	limit_files(800, &old);
	place_open(&p, 64 * MIB, 64 * MIB);
	ck_assert_uint_eq(read_many(&p, pat, names, N), N * 5000);
	ck_assert_uint_eq(stats(&p).nvme.errors, 0);
	ck_assert_uint_eq(stats(&p).behind_skipped, 0);
	place_close(&p, true);
	place_open(&p, 64 * MIB, 64 * MIB); /* adopts them all */
	ck_assert_uint_eq(read_many(&p, pat, names, N), 0);
	place_close(&p, false);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
	place_remove(&p);
}
END_TEST

SUITE_MAIN("store-files", more_files_are_resident_than_descriptors_allowed,
	a_file_opened_again_while_it_leaves_keeps_its_bytes)
