/* Passes of a scrub: where they begin and go on, who orders and awaits them. */
#include "tests/scrub-fixture.h"

START_TEST(a_pass_goes_on_where_the_last_daemon_was)
{
	struct place p;
	struct pattern pat;
	struct mc_scrub_opts o;
	struct mc_scrub_status st;
	struct mc_scrub *s;
	uint64_t before;

	place_make(&p);
	pat = make_pattern(&p, "a", 24 * MIB);
	place_open(&p, 64 * MIB, 64 * MIB);
	mc_file_put(on_nvme(&p, &pat));
	o = (struct mc_scrub_opts){.store = p.store, .dir = p.nvme, .rate = 2 * MIB};
	ck_assert_int_eq(mc_scrub_open(&o, &s), 0);
	do {
		usleep(1000);
		mc_scrub_status(s, &st);
	} while (st.now.checked < 2);
	mc_scrub_close(s);
	place_close(&p, false);
	place_open(&p, 64 * MIB, 64 * MIB);
	o.store = p.store;
	o.rate = 0;
	ck_assert_int_eq(mc_scrub_open(&o, &s), 0);
	mc_scrub_status(s, &st);
	ck_assert_uint_ge(st.now.checked, 2);
	ck_assert_uint_lt(st.now.checked, 24);
	before = st.now.checked;
	mc_scrub_set_rate(s, UINT64_C(1) << 40);
	do {
		usleep(1000);
		mc_scrub_status(s, &st);
	} while (st.passes == 0);
	ck_assert_uint_eq(st.last.checked, 24);
	ck_assert_uint_eq(st.ever.checked, 24 - before);
	ck_assert_int_gt(st.ended_s, 0);
	mc_scrub_close(s);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(a_place_that_cannot_be_read_is_the_beginning)
{
	static const char strange_image[] =
		"mooncakefs scrub 1\nbegan 1 ended 1 on 1 kv 0\nfile zz 5\nlog 0 0 "
		"00000000000000000000000000000000 0\ncounts 0 0 0 0 0 0 0 0\n";
	static const char *const texts[] = {
		"", "mooncakefs scrub 2\n", "mooncakefs scrub 1\nbegan x", strange_image};
	struct mc_scrub_status st;
	struct mc_scrub *s;
	struct place p;
	struct pattern pat;
	char path[128];

	place_make(&p);
	pat = make_pattern(&p, "a", 2 * MIB);
	place_open(&p, 64 * MIB, 64 * MIB);
	mc_file_put(on_nvme(&p, &pat));
	snprintf(path, sizeof(path), "%s/scrub", p.nvme);
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		FILE *out = fopen(path, "w");

		ck_assert_ptr_nonnull(out);
		fputs(texts[i], out);
		fclose(out);
		s = scrub_of(p.store, NULL, p.nvme);
		mc_scrub_status(s, &st);
		ck_assert_uint_eq(st.now.checked, 0);
		ck_assert_int_eq(st.ended_s, 0);
		ck_assert_uint_eq(whole_pass(s).checked, 2);
		mc_scrub_close(s);
	}
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(who_joins_an_ordered_pass_gets_its_result_and_who_leaves_ends_the_order)
{
	struct mc_scrub_status st;
	struct mc_scrub *s;
	struct place p;
	struct pattern pat;
	uint64_t a, b;

	place_make(&p);
	pat = make_pattern(&p, "a", 8 * MIB);
	place_open(&p, 64 * MIB, 64 * MIB);
	mc_file_put(on_nvme(&p, &pat));
	s = scrub_of(p.store, NULL, NULL);
	a = mc_scrub_start(s, 1); /* it would take for ever */
	mc_scrub_status(s, &st);
	ck_assert(st.ordered);
	ck_assert_uint_eq(st.rate, 1);
	ck_assert(!mc_scrub_wait(s, a, mc_now_ns()));
	mc_scrub_leave(s, a);
	mc_scrub_status(s, &st);
	ck_assert(!st.ordered);
	ck_assert(!st.running); /* off but for orders */
	a = mc_scrub_start(s, 1);
	b = mc_scrub_start(s, 0);
	ck_assert_uint_eq(a, b);
	while (!mc_scrub_wait(s, a, mc_now_ns() + SECOND))
		;
	mc_scrub_leave(s, a);
	ck_assert(mc_scrub_wait(s, b, mc_now_ns()));
	mc_scrub_status(s, &st);
	ck_assert_uint_eq(st.last.checked, 8);
	mc_scrub_leave(s, b);
	mc_scrub_close(s);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

SUITE_MAIN("scrub-passes", a_pass_goes_on_where_the_last_daemon_was,
	a_place_that_cannot_be_read_is_the_beginning,
	who_joins_an_ordered_pass_gets_its_result_and_who_leaves_ends_the_order)
