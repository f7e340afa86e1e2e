/* The pool for calls that block: every job once, a bounded queue, a bounded end. */
#include "fs/work.h"
#include "tests/suite.h"
#include "tier/lock.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>

static void count(void *arg)
{
	atomic_fetch_add((atomic_uint *)arg, 1);
}

/* A job that waits until it is let go. */
struct gate {
	struct mc_mutex lock;
	struct mc_cond moved;
	bool entered, open;
};

static void gate_init(struct gate *g)
{
	*g = (struct gate){0};
	mc_mutex_init(&g->lock);
	mc_cond_init(&g->moved);
}

static void pass(void *arg)
{
	struct gate *g = arg;

	mc_mutex_lock(&g->lock);
	g->entered = true;
	mc_cond_broadcast(&g->moved);
	while (!g->open)
		mc_cond_wait(&g->moved, &g->lock);
	mc_mutex_unlock(&g->lock);
}

static void wait_entered(struct gate *g)
{
	mc_mutex_lock(&g->lock);
	while (!g->entered)
		mc_cond_wait(&g->moved, &g->lock);
	mc_mutex_unlock(&g->lock);
}

static void open_gate(struct gate *g)
{
	mc_mutex_lock(&g->lock);
	g->open = true;
	mc_cond_broadcast(&g->moved);
	mc_mutex_unlock(&g->lock);
}

START_TEST(every_job_runs_once_before_close_returns)
{
	atomic_uint n = 0;
	struct mc_work *w;

	ck_assert_int_eq(mc_work_open(2, 100, &w), 0);
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(mc_work_submit(w, count, &n), 0);
	ck_assert_int_eq(mc_work_close(w, UINT64_MAX), 0);
	ck_assert_uint_eq(atomic_load(&n), 100);
}
END_TEST

START_TEST(a_full_queue_is_ebusy)
{
	atomic_uint n = 0;
	struct mc_work *w;
	struct gate g;

	gate_init(&g);
	ck_assert_int_eq(mc_work_open(1, 2, &w), 0);
	ck_assert_int_eq(mc_work_submit(w, pass, &g), 0);
	wait_entered(&g);
	ck_assert_int_eq(mc_work_submit(w, count, &n), 0);
	ck_assert_int_eq(mc_work_submit(w, count, &n), 0);
	ck_assert_int_eq(mc_work_submit(w, count, &n), -EBUSY);
	open_gate(&g);
	ck_assert_int_eq(mc_work_close(w, UINT64_MAX), 0);
	ck_assert_uint_eq(atomic_load(&n), 2);
}
END_TEST

START_TEST(close_gives_up_at_its_deadline)
{
	struct mc_work *w;
	struct gate g;

	gate_init(&g);
	ck_assert_int_eq(mc_work_open(1, 2, &w), 0);
	ck_assert_int_eq(mc_work_submit(w, pass, &g), 0);
	wait_entered(&g);
	ck_assert_int_eq(mc_work_close(w, mc_now_ns()), -ETIMEDOUT);
	ck_assert_int_eq(mc_work_submit(w, pass, &g), -ESHUTDOWN);
	open_gate(&g);
	ck_assert_int_eq(mc_work_close(w, UINT64_MAX), 0);
}
END_TEST

SUITE_MAIN("work", every_job_runs_once_before_close_returns, a_full_queue_is_ebusy,
	close_gives_up_at_its_deadline)
