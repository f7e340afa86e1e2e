/* A device below a directory whose calls do not end: the directory goes on without it, and it is
 * used again when they have ended. */
#include "tests/io-switch.h"
#include "tests/kv-floors.h"
#include "tests/suite.h"
#include "tier/kv-log-check.h"

#define N (UPPER / OBJECT)

static struct io_switch disk;

static struct mc_kv_log *start_with_switches(void)
{
	make();
	io_switch_init(&disk);
	disk.only = "/device";
	opts.io = &disk.io;
	opts.slow_ms = 20;
	return start();
}

/* How many of the keys are there, all of them right. */
static unsigned count_whole(struct mc_kv_log *log, unsigned n)
{
	unsigned there = 0;

	for (unsigned i = 0; i < n; i++) {
		const struct kv_known *k = kv_find_locked(&owner, key_of(i));

		if (k == NULL || !k->there)
			continue;
		ck_assert_msg(kv_check(log, &owner, key_of(i), i + 1) == 0, "%u", i);
		there++;
	}
	return there;
}

/* The next life has what this one has. */
static struct mc_kv_log *restart(struct mc_kv_log *log, unsigned n)
{
	unsigned there;

	ck_assert_int_eq(mc_kv_log_seal(log), 0);
	there = count_whole(log, n);
	stop(log);
	log = start();
	ck_assert_uint_eq(count_whole(log, n), there);
	return log;
}

/* Puts until something moves down. The next key. */
static unsigned put_until_below(struct mc_kv_log *log, unsigned m)
{
	uint64_t live = kv_stats(log).below.live;

	for (; kv_stats(log).below.live <= live; m++)
		put_all(log, m, m + 1, OBJECT);
	return m;
}

/* What is durable while it hangs is there in the next life. */
static void expect_puts_go_on(_Atomic bool *hangs)
{
	struct mc_kv_log *log = start_with_switches();
	unsigned m;

	put_all(log, 0, N * 3 / 2, OBJECT);
	owner.keep = keep_none;
	atomic_store(hangs, true);
	for (m = N * 3 / 2; !kv_stats(log).below.slow || m < 4 * N; m++)
		put_all(log, m, m + 1, OBJECT);
	ck_assert(!kv_stats(log).slow);
	check_all(log, m - 10, m);
	ck_assert(kv_stats(log).below.slow);
	atomic_store(hangs, false);
	while (kv_stats(log).below.slow)
		usleep(1000);
	m = put_until_below(log, m);
	check_all(log, m - 10, m);
	log = restart(log, m);
	m = put_until_below(log, m);
	count_whole(log, m);
	stop(log);
	finish();
}

START_TEST(while_its_writes_hang_puts_are_durable_in_the_directory)
{
	expect_puts_go_on(&disk.hang);
}
END_TEST

START_TEST(while_its_syncs_hang_puts_are_durable_in_the_directory)
{
	expect_puts_go_on(&disk.syncs_hang);
}
END_TEST

/* They end, and their memory is the caller's again, before a write of it has. */
static void expect_given_up(struct mc_kv_log *log, unsigned n, uint64_t size)
{
	for (unsigned i = 0; i < n; i++) {
		struct kv_put *p = kv_put_make(&owner, key_of(i), i + 1, size);
		struct mc_kv_item *item = &p->item;

		item->below = true;
		mc_kv_log_put(log, &item, 1);
		ck_assert_int_ne(mc_kv_log_sync(log), 0);
		ck_assert_int_eq(kv_put_free(p), -EIO);
	}
}

static void expect_puts_below_end(_Atomic bool *hangs, uint64_t size)
{
	struct mc_kv_log *log = start_with_switches();
	struct kv_put *p;
	struct mc_kv_item *item;

	atomic_store(hangs, true);
	expect_given_up(log, 20, size);
	ck_assert_uint_eq(kv_stats(log).objects, 0);
	atomic_store(hangs, false);
	while (kv_stats(log).below.slow)
		usleep(1000);
	p = kv_put_make(&owner, "again", 77, size);
	item = &p->item;
	item->below = true;
	mc_kv_log_put(log, &item, 1);
	ck_assert_int_eq(mc_kv_log_sync(log), 0);
	ck_assert_int_eq(kv_put_free(p), 0);
	ck_assert(is_below("again"));
	stop(log);
	log = start();
	ck_assert_int_eq(kv_check(log, &owner, "again", 77), 0);
	ck_assert_uint_eq(kv_stats(log).objects, 1);
	stop(log);
	finish();
}

START_TEST(what_is_put_there_while_it_hangs_fails_and_leaves_nothing)
{
	expect_puts_below_end(&disk.hang, OBJECT);
	expect_puts_below_end(&disk.syncs_hang, OBJECT);
}
END_TEST

START_TEST(so_does_what_is_put_there_in_parts)
{
	expect_puts_below_end(&disk.hang, 600000);
	expect_puts_below_end(&disk.syncs_hang, 600000);
}
END_TEST

START_TEST(reads_of_reclaim_that_hang_are_given_up)
{
	struct mc_kv_log *log = start_with_switches();
	unsigned m = 0;

	owner.keep = keep_none;
	for (; owner.evicted == 0; m++)
		put_all(log, m, m + 1, OBJECT);
	owner.keep = NULL; /* what lies below has to be read to be kept */
	while (kv_put(log, &owner, key_of(m), m + 1, OBJECT) == 0)
		m++;
	disk.reads_hang = true;
	for (unsigned i = 0; i < N / 4; i++) {
		struct kv_known *k = kv_find_locked(&owner, key_of(m - 1 - i));

		ck_assert_int_eq(mc_kv_log_remove(log, k->key, k->version, &k->loc), 0);
		k->there = false;
	}
	owner.keep = keep_none;
	put_all(log, m, m + 2 * N, OBJECT);
	check_all(log, m + 2 * N - 10, m + 2 * N);
	disk.reads_hang = false;
	log = restart(log, m + 2 * N);
	check_all(log, m + 2 * N - 10, m + 2 * N);
	stop(log);
	finish();
}
END_TEST

static void no_bad(void *ctx, const struct mc_kv_meta *meta, const struct mc_kv_loc *loc)
{
	(void)ctx;
	(void)loc;
	ck_abort_msg("%s is not damaged", meta->key);
}

static struct mc_kv_log_checked check_through(struct mc_kv_log *log)
{
	struct mc_kv_log_checked sum = {0};
	struct mc_kv_log_check *c;
	int r;

	ck_assert_int_eq(mc_kv_log_check_open(log, NULL, no_bad, NULL, &c), 0);
	do
		r = mc_kv_log_check_next(c, &sum);
	while (r == 0);
	ck_assert_int_eq(r, -ENOENT);
	mc_kv_log_check_close(c);
	return sum;
}

START_TEST(a_scrub_leaves_out_what_hangs_and_says_how_much)
{
	struct mc_kv_log *log = start_with_switches();
	struct mc_kv_log_checked sum;

	put_all(log, 0, 2 * N, OBJECT);
	ck_assert_int_eq(mc_kv_log_seal(log), 0);
	disk.reads_hang = true;
	sum = check_through(log);
	ck_assert_uint_eq(sum.failed, count_below(2 * N));
	ck_assert_uint_eq(sum.records + sum.failed, 2 * N);
	ck_assert(kv_stats(log).below.slow);
	disk.reads_hang = false;
	/* On a busy machine a read may take as long as one that hangs. */
	do {
		usleep(1000);
		sum = check_through(log);
		ck_assert_uint_eq(sum.records + sum.failed, 2 * N);
	} while (sum.failed > 0);
	stop(log);
	finish();
}
END_TEST

SUITE_MAIN("kv-floors-hang", while_its_writes_hang_puts_are_durable_in_the_directory,
	while_its_syncs_hang_puts_are_durable_in_the_directory,
	what_is_put_there_while_it_hangs_fails_and_leaves_nothing,
	so_does_what_is_put_there_in_parts, reads_of_reclaim_that_hang_are_given_up,
	a_scrub_leaves_out_what_hangs_and_says_how_much)
