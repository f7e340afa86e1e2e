/* Objects that reclaim moves or drops while somebody is about to read or copy them. */
#include "tests/kv-fixture.h"
#include "tests/suite.h"
#include "tier/kv-impl.h"
#include "tier/remote-fault.h"

#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static unsigned moves;       /* to be made before the next reads */
static bool gone;            /* nothing is found */
static struct mc_kv *moving; /* whose log */

void __real_mc_kv_log_read(struct mc_kv_log *log, struct mc_kv_log_read *r);
void __wrap_mc_kv_log_read(struct mc_kv_log *log, struct mc_kv_log_read *r);

/* The record moves, and its segment is given to others. */
static void move_away(struct mc_kv_log *log, const struct mc_kv_log_read *r)
{
	while (mc_kv_log_hold(log, r->version, &r->loc) == 0) {
		mc_kv_log_release(log, r->version, &r->loc);
		ck_assert_int_eq(mc_kv_log_seal(log), 0);
		ck_assert_int_eq(mc_kv_log_reclaim(log), 0);
	}
}

void __wrap_mc_kv_log_read(struct mc_kv_log *log, struct mc_kv_log_read *r)
{
	if (moving != NULL && log == moving->log && moves > 0) {
		moves--;
		move_away(log, r);
	}
	if (gone)
		r->done(r, -ESTALE);
	else
		__real_mc_kv_log_read(log, r);
}

/* "a" with size bytes, on NVMe alone. */
static void open_cold(struct kv_fixture *x, size_t size)
{
	kv_fixture_paths(x, 64 * MIB);
	x->opts.nvme_dir = x->nvme;
	x->opts.nvme_capacity = 64 * MIB;
	kv_fixture_start(x);
	moving = x->kv;
	ck_assert_int_eq(kv_put(x->kv, "a", size, 1, 0), 0);
	ck_assert_int_eq(mc_kv_sync(x->kv, "a"), 0);
	ck_assert_int_eq(mc_kv_evict(x->kv, "a"), 0);
}

static void end(struct kv_fixture *x)
{
	ck_assert_uint_eq(moves, 0);
	moving = NULL;
	kv_fixture_close(x);
}

/* More often than a version that another node replaced is looked for. */
START_TEST(an_object_that_moves_before_it_is_promoted_is_read_where_it_lies)
{
	struct kv_fixture x;

	open_cold(&x, 150000);
	moves = 6;
	kv_expect(x.kv, "a", 150000, 1);
	end(&x);
}
END_TEST

START_TEST(an_object_that_moves_before_a_range_of_it_is_read_is_read_where_it_lies)
{
	struct kv_fixture x;
	struct mc_kv_object *obj;

	open_cold(&x, 150000);
	ck_assert_int_eq(kv_open_object(x.kv, "a", &obj), 0);
	ck_assert_int_eq(mc_kv_evict(x.kv, "a"), 0);
	moves = 2;
	kv_expect_object(obj, 150000, 1);
	mc_kv_object_put(obj);
	end(&x);
}
END_TEST

START_TEST(an_object_that_moves_before_it_is_copied_to_the_remote_is_copied)
{
	struct mc_kv_attr attr;
	struct kv_fixture x;
	const char *why;

	kv_fixture_paths(&x, 64 * MIB);
	kv_fixture_remote(&x);
	x.opts.nvme_dir = x.nvme;
	x.opts.nvme_capacity = 64 * MIB;
	kv_fixture_start(&x);
	moving = x.kv;
	ck_assert_int_eq(kv_put(x.kv, "a", 150000, 1, 0), 0);
	ck_assert_int_eq(mc_kv_sync(x.kv, "a"), 0);
	ck_assert_int_eq(mc_kv_evict(x.kv, "a"), 0);
	moves = 2;
	ck_assert_int_eq(mc_kv_evict_from(x.kv, "a", MC_TIER_NVME, &why), 0);
	ck_assert_int_eq(mc_kv_lookup(x.kv, "a", &attr), 0);
	ck_assert_uint_eq(attr.remotes, 1);
	end(&x);
}
END_TEST

START_TEST(an_object_whose_place_is_gone_is_an_error)
{
	struct mc_kv_object *obj;
	struct kv_fixture x;

	open_cold(&x, 150000);
	gone = true;
	ck_assert_int_eq(kv_open_object(x.kv, "a", &obj), -EIO);
	gone = false;
	kv_expect(x.kv, "a", 150000, 1);
	end(&x);
}
END_TEST

static void spoil_segments(const char *nvme)
{
	static char bytes[65536];
	char pattern[128];
	glob_t found;

	memset(bytes, 0xaa, sizeof(bytes));
	snprintf(pattern, sizeof(pattern), "%s/segments/*", nvme);
	ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		int fd = open(found.gl_pathv[i], O_WRONLY);

		for (off_t at = 0; at < 1 << 20; at += sizeof(bytes))
			ck_assert_int_eq(pwrite(fd, bytes, sizeof(bytes), at), sizeof(bytes));
		close(fd);
	}
	globfree(&found);
}

/* Its record is found bad while a copy is made: it is dirty, and flushed, before the copy fails. */
START_TEST(an_object_flushed_again_while_its_copy_is_made_gets_one_although_that_one_fails)
{
	static const struct mc_fault_rule hang = {
		.op = MC_FAULT_PUT, .kind = MC_FAULT_HANG, .count = 1};
	static const struct mc_fault_rule fail = {
		.op = MC_FAULT_PUT, .kind = MC_FAULT_FAIL, .error = -EIO};
	struct mc_fault *fault;
	struct kv_fixture x;
	const char *why;

	kv_fixture_paths(&x, 64 * MIB);
	kv_fixture_remote(&x);
	ck_assert_int_eq(mc_remote_fault_open(x.remote, &fault, &x.remote), 0);
	x.opts.remote = x.remote;
	x.opts.replicas = 1;
	x.opts.nvme_dir = x.nvme;
	x.opts.nvme_capacity = 64 * MIB;
	kv_fixture_start(&x);
	ck_assert_int_eq(mc_kv_mkdir(x.kv, "d"), 0);
	mc_fault_add(fault, &hang); /* of the directory's own object, which comes first */
	mc_fault_add(fault, &fail);
	ck_assert_int_eq(kv_put(x.kv, "d/a", 150000, 1, 0), 0);
	ck_assert_int_eq(mc_kv_sync(x.kv, "d/a"), 0);
	mc_fault_wait_held(fault, 1);
	spoil_segments(x.nvme);
	ck_assert_int_eq(mc_kv_log_seal(x.kv->log), 0);
	ck_assert_int_eq(mc_kv_log_reclaim(x.kv->log), 0);
	ck_assert_int_eq(mc_kv_sync(x.kv, "d/a"), 0);
	mc_fault_release(fault);
	while (mc_fault_hits(fault) < 2)
		usleep(200);
	mc_fault_clear(fault);
	ck_assert_int_eq(mc_kv_evict_from(x.kv, "d/a", MC_TIER_NVME, &why), 0);
	ck_assert_int_eq(mc_kv_evict(x.kv, "d/a"), 0);
	kv_expect(x.kv, "d/a", 150000, 1);
	end(&x);
}
END_TEST

SUITE_MAIN("kv-moved", an_object_that_moves_before_it_is_promoted_is_read_where_it_lies,
	an_object_that_moves_before_a_range_of_it_is_read_is_read_where_it_lies,
	an_object_that_moves_before_it_is_copied_to_the_remote_is_copied,
	an_object_whose_place_is_gone_is_an_error,
	an_object_flushed_again_while_its_copy_is_made_gets_one_although_that_one_fails)
