/* Numbered work on threads: everything once, the first failure wins and stops the rest. */
#include "manifest/crew.h"
#include "tests/suite.h"
#include "tier/lock.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define ITEMS 1000

struct count {
	_Atomic unsigned done[ITEMS];
	_Atomic unsigned workers[8];
	_Atomic unsigned ticks;
	struct mc_mutex lock;
	struct mc_cond failed;
	bool has_failed;
};

static int count_item(void *ctx, unsigned worker, uint64_t item, struct mc_err *err)
{
	struct count *c = ctx;

	(void)err;
	c->done[item]++;
	c->workers[worker]++;
	return 0;
}

START_TEST(every_item_is_done_once)
{
	static struct count c;
	struct mc_crew crew = {.items = ITEMS, .workers = 8, .run = count_item, .ctx = &c};
	struct mc_err err = {0};

	ck_assert_int_eq(mc_crew_run(&crew, &err), 0);
	for (size_t i = 0; i < ITEMS; i++)
		ck_assert_uint_eq(c.done[i], 1);
	crew.items = 0;
	ck_assert_int_eq(mc_crew_run(&crew, &err), 0);
}
END_TEST

static int fail_item_5(void *ctx, unsigned worker, uint64_t item, struct mc_err *err)
{
	struct count *c = ctx;

	(void)worker;
	c->done[item]++;
	return item == 5 ? mc_err_set(err, -ENOSPC, "item 5 is too large") : 0;
}

START_TEST(the_first_failure_stops_the_rest_and_keeps_its_text)
{
	static struct count c;
	const struct mc_crew crew = {.items = ITEMS, .workers = 1, .run = fail_item_5, .ctx = &c};
	struct mc_err err = {0};

	ck_assert_int_eq(mc_crew_run(&crew, &err), -ENOSPC);
	ck_assert_str_eq(err.text, "item 5 is too large");
	ck_assert_uint_eq(c.done[5], 1);
	ck_assert_uint_eq(c.done[6], 0);
}
END_TEST

/* Item 0 fails because item 1, which it waits for, is about to fail: its own word comes first. */
static int wait_for_item_1(void *ctx, unsigned worker, uint64_t item, struct mc_err *err)
{
	struct count *c = ctx;

	(void)worker;
	if (item == 0) {
		mc_mutex_lock(&c->lock);
		while (!c->has_failed)
			mc_cond_wait(&c->failed, &c->lock);
		mc_mutex_unlock(&c->lock);
		return -ECANCELED;
	}
	mc_mutex_lock(&c->lock);
	c->has_failed = true;
	mc_cond_broadcast(&c->failed);
	mc_mutex_unlock(&c->lock);
	return mc_err_set(err, -EIO, "the disk is gone");
}

START_TEST(who_waited_for_a_failure_does_not_hide_it)
{
	static struct count c;
	const struct mc_crew crew = {.items = 2, .workers = 2, .run = wait_for_item_1, .ctx = &c};

	mc_mutex_init(&c.lock);
	mc_cond_init(&c.failed);
	for (int i = 0; i < 200; i++) {
		struct mc_err err = {0};

		c.has_failed = false;
		ck_assert_int_eq(mc_crew_run(&crew, &err), -EIO);
		ck_assert_str_eq(err.text, "the disk is gone");
	}
	mc_cond_done(&c.failed);
	mc_mutex_done(&c.lock);
}
END_TEST

static void tick(void *ctx)
{
	struct count *c = ctx;

	mc_mutex_lock(&c->lock);
	c->ticks++;
	mc_cond_broadcast(&c->failed);
	mc_mutex_unlock(&c->lock);
}

static int wait_for_ticks(void *ctx, unsigned worker, uint64_t item, struct mc_err *err)
{
	struct count *c = ctx;

	(void)worker;
	(void)item;
	(void)err;
	mc_mutex_lock(&c->lock);
	while (c->ticks < 2)
		mc_cond_wait(&c->failed, &c->lock);
	mc_mutex_unlock(&c->lock);
	return 0;
}

START_TEST(the_caller_hears_of_progress_while_it_waits)
{
	static struct count c;
	const struct mc_crew crew = {
		.items = 1, .workers = 2, .run = wait_for_ticks, .tick = tick, .ctx = &c};
	struct mc_err err = {0};

	mc_mutex_init(&c.lock);
	mc_cond_init(&c.failed);
	ck_assert_int_eq(mc_crew_run(&crew, &err), 0);
	ck_assert_uint_ge(c.ticks, 2);
	mc_cond_done(&c.failed);
	mc_mutex_done(&c.lock);
}
END_TEST

SUITE_MAIN("crew", every_item_is_done_once, the_first_failure_stops_the_rest_and_keeps_its_text,
	who_waited_for_a_failure_does_not_hide_it, the_caller_hears_of_progress_while_it_waits)
