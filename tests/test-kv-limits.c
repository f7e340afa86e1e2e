/* The KV store within the limits of its process, and when clocks jump. */
#include "tests/kv-trouble.h"
#include "tests/suite.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Atomic int64_t wall_clock_jump; /* seconds */

/* Every clock_gettime of this program: the wall clock jumps at a test's will. */
int clock_gettime(clockid_t id, struct timespec *ts)
{
	int r = (int)syscall(SYS_clock_gettime, id, ts);

	if (id == CLOCK_REALTIME)
		ts->tv_sec += wall_clock_jump;
	return r;
}

/* ---- limits of the process */

/* Takes all descriptors that are free now; the store's threads may give back some later. */
static void take_descriptors(int *taken, unsigned max, unsigned *have)
{
	while (*have < max && (taken[*have] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		++*have;
	ck_assert_uint_lt(*have, max);
}

START_TEST(without_descriptors_callers_are_told_so_and_nothing_is_lost)
{
	struct rlimit old, few = {.rlim_cur = 256};
	struct mc_kv_writer *w[64];
	struct mc_kv_object *obj;
	struct kv_fixture x;
	int taken[256], r = 0;
	unsigned have = 0, n = 0;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	few.rlim_max = old.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	paths(&x);
	with_nvme(&x);
	kv_fixture_start(&x);
	ck_assert_int_eq(kv_put(x.kv, "image", 12 * MIB, 1, 0), 0);
	ck_assert_int_eq(kv_put(x.kv, "small", 1000, 2, 0), 0);
	ck_assert_int_eq(kv_put(x.kv, "file", 300000, 3, 0), 0);
	ck_assert_int_eq(mc_kv_evict(x.kv, "image"), 0);
	ck_assert_int_eq(mc_kv_sync(x.kv, "small"), 0);
	for (r = 0; r == 0 && n < 64; n += r == 0) { /* warm files first */
		take_descriptors(taken, 256, &have);
		r = mc_kv_create(x.kv, 1000, &w[n]);
	}
	ck_assert_int_eq(r, -EMFILE);
	ck_assert_int_eq(kv_open_object(x.kv, "image", &obj), 0);
	take_descriptors(taken, 256, &have);
	kv_expect_object(obj, 12 * MIB, 1);
	kv_expect(x.kv, "small", 1000, 2);
	while (have > 0)
		close(taken[--have]);
	mc_kv_object_put(obj);
	kv_expect(x.kv, "file", 300000, 3);
	while (n > 0)
		mc_kv_discard(w[--n]);
	ck_assert_int_eq(kv_put(x.kv, "after", 1000, 4, 0), 0);
	forget_dram_and_restart(&x);
	kv_expect(x.kv, "after", 1000, 4);
	kv_fixture_close(&x);
	setrlimit(RLIMIT_NOFILE, &old);
}
END_TEST

/* ---- clocks */

START_TEST(a_wall_clock_that_jumps_changes_no_wait_and_no_answer)
{
	static const int64_t jumps[] = {315360000, -315360000, 3600, -3600};
	struct mc_kv_attr a;
	struct kv_fixture x;
	char key[16];

	paths(&x);
	with_nvme(&x);
	with_remote(&x);
	x.opts.replicas = 1;
	x.opts.retry_ms = 5000; /* a slow disk is no failure here */
	kv_fixture_start(&x);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_int_eq(kv_ask(x.kv, "absent", &a), -ENOENT);
		snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(kv_put(x.kv, key, 100000, i, 0), 0);
		wall_clock_jump = jumps[i];
		ck_assert_int_eq(mc_kv_sync(x.kv, key), 0);
		ck_assert_int_eq(kv_ask(x.kv, "absent", &a), -ENOENT);
		ck_assert_int_eq(kv_put_wait(x.kv, "filled", 20 * MIB, i), 0);
		for (unsigned k = 0; k <= i; k++) {
			snprintf(key, sizeof(key), "k%u", k);
			ck_assert_int_eq(kv_ask(x.kv, key, &a), 0);
			ck_assert_int_eq(a.mtime_s, 1000 + k);
			kv_expect(x.kv, key, 100000, k);
		}
	}
	wall_clock_jump = 0;
	ck_assert_ptr_null(stats(x.kv).degraded);
	ck_assert_uint_eq(told.degraded, 0);
	kv_fixture_close(&x);
}
END_TEST

SUITE_MAIN("KV limits", without_descriptors_callers_are_told_so_and_nothing_is_lost,
	a_wall_clock_that_jumps_changes_no_wait_and_no_answer)
