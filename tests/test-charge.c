/* Whose memory limit a client's own memory counts against, over made-up control groups. */
#include "fs/charge.h"
#include "tests/suite.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char root[] = "/tmp/mc-charge-XXXXXX";

static void shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *fmt, ...)
{
	char cmd[4096];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	ck_assert_msg(system(cmd) == 0, "%s", cmd);
}

/* A /proc with the daemon in own and task 7 in theirs, and groups with limits, "group:file value"
 * a word. mount: what of the hierarchy is mounted at /cg\040roup. */
static void make(const char *own, const char *theirs, const char *mount, const char *limits)
{
	shell("cd %s && rm -rf * && mkdir -p proc/self proc/7 proc/sys/vm && printf '%s\\n' > "
	      "proc/self/cgroup && printf '%s\\n' > proc/7/cgroup && "
	      "echo 0 > proc/sys/vm/overcommit_memory && "
	      "printf '1 0 0:1 / / rw - ext4 x rw\\n2 1 0:2 %s /cg\\\\040roup rw shared:3 - %s\\n' "
	      "> proc/self/mountinfo",
		root, own, theirs, mount,
		strstr(theirs, "memory:") != NULL ? "cgroup x rw,memory" : "cgroup2 x rw");
	shell("cd %s && for l in %s; do f=${l##*/} && "
	      "mkdir -p \"cg roup/${l%%/*}\" && echo ${f#*=} > \"cg roup/${l%%/*}/${f%%=*}\"; done",
		root, limits);
}

static enum mc_charge charge(pid_t tid)
{
	struct mc_charges *c;
	enum mc_charge r;

	ck_assert_int_eq(mc_charges_open(root, &c), 0);
	r = mc_charges_of(c, tid);
	ck_assert_int_eq(mc_charges_of(c, tid), r);
	mc_charges_close(c);
	return r;
}

/* Above any machine's memory, as version 1 says "none". */
#define NONE "9223372036854771712"

START_TEST(a_limit_counts_where_the_daemon_is_not_below_it_too)
{
	static const struct {
		const char *own, *theirs, *mount, *limits;
		enum mc_charge charge;
	} cases[] = {
		/* version 2: the group's own limit, that of one above, throttling, none */
		{"0::/d", "0::/a/b", "/", "a/b/memory.max=1048576 a/memory.max=max",
			MC_CHARGE_LIMITED},
		{"0::/d", "0::/a/b", "/", "a/b/memory.max=max a/memory.max=1048576",
			MC_CHARGE_LIMITED},
		{"0::/d", "0::/a", "/", "a/memory.max=max a/memory.high=1048576",
			MC_CHARGE_LIMITED},
		{"0::/d", "0::/a/b", "/", "a/b/memory.max=max a/memory.max=max", MC_CHARGE_FREE},
		{"0::/d", "0::/a/b", "/", "a/b/cgroup.procs=7 a/memory.max=max", MC_CHARGE_FREE},
		/* what is above both, or both are in */
		{"0::/k/d", "0::/k/a", "/", "k/memory.max=1048576 k/a/memory.max=max",
			MC_CHARGE_FREE},
		{"0::/k", "0::/k/a", "/", "k/memory.max=1048576 k/a/memory.max=max",
			MC_CHARGE_FREE},
		{"0::/k/a", "0::/k/a", "/", "k/a/memory.max=1048576", MC_CHARGE_FREE},
		{"0::/k/a/d", "0::/k/a", "/", "k/a/memory.max=1048576", MC_CHARGE_FREE},
		{"0::/ka", "0::/k", "/", "k/memory.max=1048576", MC_CHARGE_LIMITED},
		{"0::/", "0::/k", "/", "k/memory.max=1048576", MC_CHARGE_LIMITED},
		{"0::/k", "0::/", "/", "k/memory.max=1048576", MC_CHARGE_FREE},
		/* as much as no machine has */
		{"0::/d", "0::/a", "/", "a/memory.max=" NONE, MC_CHARGE_FREE},
		/* groups that cannot be looked at */
		{"0::/d", "0::/gone", "/", "a/memory.max=max", MC_CHARGE_UNKNOWN},
		{"0::/", "0::/../a", "/", "a/memory.max=max", MC_CHARGE_UNKNOWN},
		{"0::/d", "0::/a", "/d", "a/memory.max=max", MC_CHARGE_UNKNOWN},
		{"0::/x/d", "0::/x/a", "/x", "a/memory.max=max", MC_CHARGE_FREE},
		{"0::/x/d", "0::/x/a", "/x", "a/memory.max=4096", MC_CHARGE_LIMITED},
		{"0::/d", "0::/x/a", "/x", "a/memory.max=max", MC_CHARGE_FREE},
		{"0::/d", "0::/x/y/a", "/x/y", "a/memory.max=max", MC_CHARGE_UNKNOWN},
		/* version 1, with version 2 beside it */
		{"4:cpu,memory:/d\\n0::/", "4:cpu,memory:/a/b\\n0::/", "/",
			"a/b/memory.limit_in_bytes=" NONE " a/memory.limit_in_bytes=1048576",
			MC_CHARGE_LIMITED},
		{"4:cpu,memory:/d\\n0::/", "0::/\\n4:cpu,memory:/a", "/",
			"a/memory.limit_in_bytes=" NONE, MC_CHARGE_FREE},
		{"4:memory:/d", "0::/a", "/", "a/memory.max=max", MC_CHARGE_UNKNOWN},
		/* nothing counts memory */
		{"4:cpu:/d", "4:cpu:/a", "/", "a/memory.max=4096", MC_CHARGE_FREE},
	};

	ck_assert_ptr_nonnull(mkdtemp(root));
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		enum mc_charge r;

		make(cases[i].own, cases[i].theirs, cases[i].mount, cases[i].limits);
		r = charge(7);
		ck_assert_msg(r == cases[i].charge, "case %zu: %d", i, r);
	}
	shell("rm -r %s", root);
}
END_TEST

START_TEST(a_task_that_is_not_seen_is_unknown)
{
	ck_assert_ptr_nonnull(mkdtemp(root));
	make("0::/d", "0::/a", "/", "a/memory.max=max");
	ck_assert_int_eq(charge(7), MC_CHARGE_FREE);
	ck_assert_int_eq(charge(0), MC_CHARGE_UNKNOWN);
	ck_assert_int_eq(charge(8), MC_CHARGE_UNKNOWN);
	shell("rm -r %s", root);
}
END_TEST

START_TEST(a_machine_that_overcommits_nothing_is_a_limit_for_everybody)
{
	ck_assert_ptr_nonnull(mkdtemp(root));
	make("0::/a", "0::/a", "/", "a/memory.max=max");
	ck_assert_int_eq(charge(7), MC_CHARGE_FREE);
	shell("echo 2 > %s/proc/sys/vm/overcommit_memory", root);
	ck_assert_int_eq(charge(7), MC_CHARGE_LIMITED);
	shell("rm -r %s", root);
}
END_TEST

START_TEST(a_change_is_seen_after_a_second_and_a_move_at_once)
{
	struct mc_charges *c;

	ck_assert_ptr_nonnull(mkdtemp(root));
	make("0::/d", "0::/a", "/", "a/memory.max=max b/memory.max=4096");
	ck_assert_int_eq(mc_charges_open(root, &c), 0);
	ck_assert_int_eq(mc_charges_of(c, 7), MC_CHARGE_FREE);
	shell("echo 0::/b > %s/proc/7/cgroup", root);
	ck_assert_int_eq(mc_charges_of(c, 7), MC_CHARGE_LIMITED);
	shell("echo 0::/a > %s/proc/7/cgroup; echo 4096 > '%s/cg roup/a/memory.max'", root, root);
	while (mc_charges_of(c, 7) != MC_CHARGE_LIMITED) /* the limit of the test is for never */
		usleep(200);
	mc_charges_close(c);
	shell("rm -r %s", root);
}
END_TEST

START_TEST(many_groups_are_told_apart)
{
	struct mc_charges *c;

	ck_assert_ptr_nonnull(mkdtemp(root));
	make("0::/d", "0::/0", "/", "0/memory.max=max");
	shell("cd '%s/cg roup'; for i in $(seq 0 99); do mkdir -p $i; [ $((i %% 3)) = 0 ] && "
	      "v=4096 || "
	      "v=max; echo $v > $i/memory.max; mkdir -p ../proc/$((1000 + i)); echo 0::/$i > "
	      "../proc/$((1000 + i))/cgroup; done",
		root);
	ck_assert_int_eq(mc_charges_open(root, &c), 0);
	for (int i = 0; i < 200; i++)
		ck_assert_int_eq(mc_charges_of(c, 1000 + i % 100),
			i % 100 % 3 == 0 ? MC_CHARGE_LIMITED : MC_CHARGE_FREE);
	mc_charges_close(c);
	shell("rm -r %s", root);
}
END_TEST

SUITE_MAIN("charge", a_limit_counts_where_the_daemon_is_not_below_it_too,
	a_task_that_is_not_seen_is_unknown,
	a_machine_that_overcommits_nothing_is_a_limit_for_everybody,
	a_change_is_seen_after_a_second_and_a_move_at_once, many_groups_are_told_apart)
