/* Readers of a store while there are no file descriptors. */
#include "tests/store-fixture.h"
#include "tier/remote-fault.h"

#include <errno.h>

static char told[1024];

static void on_event(void *ctx, const char *event, const char *text)
{
	(void)ctx;
	snprintf(told, sizeof(told), "%s %s", event, text);
}

static struct mc_fault *open_faulty(struct place *p)
{
	struct mc_store_opts o = {.dram_dir = p->dram,
		.dram_capacity = 64 * MIB,
		.deadline_ms = 20000,
		.event = on_event};
	struct mc_err err = {0};
	struct mc_fault *fault;
	struct mc_remote *inner;

	ck_assert_int_eq(mc_remote_open(p->url, NULL, &inner, &err), 0);
	ck_assert_int_eq(mc_remote_fault_open(inner, &fault, &p->remote), 0);
	o.remote = p->remote;
	ck_assert_int_eq(mc_store_open(&o, &p->store, &err), 0);
	return fault;
}

START_TEST(a_reader_for_whom_no_descriptor_is_left_is_told_so_with_the_way_out)
{
	static const struct {
		int error;
		const char *way_out;
	} limits[] = {{-EMFILE, "LimitNOFILE"}, {-ENFILE, "fs.file-max"}, {-EIO, "machine"}};

	for (unsigned i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		struct place p;
		struct pattern pat;
		struct mc_fault *fault;
		struct mc_file *f;

		place_make(&p);
		pat = (struct pattern){
			.dir = p.remote_dir, .name = "g", .size = MIB, .bad_block = UINT64_MAX};
		pattern_write(&pat);
		fault = open_faulty(&p);
		f = file_open(&p, &pat);
		mc_fault_add(fault,
			&(struct mc_fault_rule){.op = MC_FAULT_READ, .error = limits[i].error});
		told[0] = '\0';
		ck_assert_int_eq(read_check(f, &pat, 0, 4096), limits[i].error);
		ck_assert_msg(strstr(told, "fetch-failed") == told &&
				strstr(told, limits[i].way_out) != NULL,
			"%s", told);
		mc_fault_clear(fault);
		ck_assert_int_eq(read_check(f, &pat, 0, 4096), 0);
		mc_file_put(f);
		place_close(&p, false);
		place_remove(&p);
	}
}
END_TEST

SUITE_MAIN("store limits", a_reader_for_whom_no_descriptor_is_left_is_told_so_with_the_way_out)
