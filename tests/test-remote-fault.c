/* The fault remote: transparent without rules (the conformance suite), and what each rule does. */
#include "tests/remote-conformance.h"
#include "tests/remote-waiter.h"
#include "tests/suite.h"
#include "tier/lock.h"
#include "tier/remote-fault.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static char root[] = "/tmp/mc-test-fault-XXXXXX";
static struct mc_fault *control; /* of the remote opened last */

const char *kind_root(void)
{
	return root;
}

struct mc_remote *kind_open(const struct mc_remote_opts *opts)
{
	struct mc_err err = {0};
	struct mc_remote *inner = NULL, *r = NULL;
	char url[100];

	snprintf(url, sizeof(url), "dir:%s", root);
	ck_assert_msg(mc_remote_open(url, opts, &inner, &err) == 0, "%s", err.text);
	ck_assert_int_eq(mc_remote_fault_open(inner, &control, &r), 0);
	return r;
}

static void start(struct mc_remote *r, struct waiter *w)
{
	*w = (struct waiter){0};
	waiter_start(r, w, "f", 0, 10, w->buf);
}

static struct mc_remote *open_with_file(const struct mc_remote_opts *opts)
{
	struct mc_remote *r = kind_open(opts);

	ck_assert_int_eq(mc_remote_put(r, "f", "0123456789", 10, 0, NULL), 0);
	return r;
}

START_TEST(fail_hits_the_nth_matching_operation_only)
{
	static const struct mc_fault_rule rule = {.op = MC_FAULT_READ,
		.kind = MC_FAULT_FAIL,
		.path = "f",
		.first = 2,
		.count = 2,
		.error = -ESTALE};
	static const int want[] = {0, -ESTALE, -ESTALE, 0};
	struct mc_remote *r = open_with_file(NULL);
	struct waiter w;

	mc_fault_add(control, &rule);
	for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
		start(r, &w);
		ck_assert_int_eq(waiter_wait(&w), want[i]);
	}
	ck_assert_uint_eq(mc_fault_seen(control, MC_FAULT_READ), 4);
	ck_assert_uint_eq(mc_fault_hits(control), 2);
	mc_remote_close(r);
}
END_TEST

START_TEST(flip_and_short_change_what_was_said_and_nothing_else)
{
	struct mc_fault_rule flip = {.op = MC_FAULT_READ, .kind = MC_FAULT_FLIP, .value = 3 * 8};
	struct mc_fault_rule cut = {.op = MC_FAULT_READ, .kind = MC_FAULT_SHORT, .value = 4};
	struct mc_fault_rule torn = {.op = MC_FAULT_PUT, .kind = MC_FAULT_SHORT, .value = 4};
	struct mc_remote *r = open_with_file(NULL);
	struct mc_remote_attr attr;
	struct waiter w;

	mc_fault_add(control, &flip);
	start(r, &w);
	ck_assert_int_eq(waiter_wait(&w), 0);
	ck_assert_mem_eq(w.buf, "0122456789", 10);
	mc_fault_clear(control);
	mc_fault_add(control, &cut);
	start(r, &w);
	ck_assert_int_eq(waiter_wait(&w), 0);
	ck_assert_mem_eq(w.buf, "0123\0\0\0\0\0\0", 10);
	mc_fault_clear(control);
	mc_fault_add(control, &torn);
	ck_assert_int_eq(mc_remote_put(r, "g", "0123456789", 10, 0, NULL), 0);
	ck_assert_int_eq(mc_remote_stat(r, "g", &attr, NULL), 0);
	ck_assert_uint_eq(attr.size, 4);
	mc_remote_close(r);
}
END_TEST

START_TEST(a_full_remote_is_enospc_and_changes_nothing)
{
	struct mc_fault_rule full = {.op = MC_FAULT_PUT, .kind = MC_FAULT_FAIL, .error = -ENOSPC};
	struct mc_fault_rule lost = {
		.op = MC_FAULT_PUT, .kind = MC_FAULT_LOST, .error = -ETIMEDOUT};
	struct mc_remote *r = open_with_file(NULL);
	struct mc_remote_attr attr;
	struct mc_err err = {0};

	mc_fault_add(control, &full);
	ck_assert_int_eq(mc_remote_put(r, "f", "new", 3, 0, &err), -ENOSPC);
	ck_assert_ptr_nonnull(strstr(err.text, "f: No space left"));
	ck_assert_int_eq(mc_remote_stat(r, "f", &attr, NULL), 0);
	ck_assert_uint_eq(attr.size, 10);
	mc_fault_clear(control);
	mc_fault_add(control, &lost);
	ck_assert_int_eq(mc_remote_put(r, "f", "new", 3, 0, NULL), -ETIMEDOUT);
	ck_assert_int_eq(mc_remote_stat(r, "f", &attr, NULL), 0);
	ck_assert_uint_eq(attr.size, 3);
	mc_remote_close(r);
}
END_TEST

START_TEST(what_hangs_goes_on_after_a_release)
{
	struct mc_fault_rule hang = {.op = MC_FAULT_READ, .kind = MC_FAULT_HANG};
	struct mc_remote *r = open_with_file(NULL);
	struct mc_remote_stats st;
	struct waiter w[3];

	mc_fault_add(control, &hang);
	for (int i = 0; i < 3; i++)
		start(r, &w[i]);
	mc_fault_wait_held(control, 3);
	mc_remote_stats(r, &st);
	ck_assert_uint_eq(st.in_flight, 3);
	mc_fault_release(control);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(waiter_wait(&w[i]), 0);
		ck_assert_mem_eq(w[i].buf, "0123456789", 10);
	}
	mc_remote_close(r);
}
END_TEST

START_TEST(what_hangs_ends_at_its_deadline)
{
	static const struct mc_remote_opts opts = {.deadline_ms = 100};
	struct mc_fault_rule hang = {.op = MC_FAULT_OPS, .kind = MC_FAULT_HANG};
	struct mc_remote *r = open_with_file(&opts);
	struct mc_remote_attr attr;
	struct waiter w;

	mc_fault_add(control, &hang);
	start(r, &w);
	ck_assert_int_eq(waiter_wait(&w), -ETIMEDOUT);
	ck_assert_int_eq(mc_remote_stat(r, "f", &attr, NULL), -ETIMEDOUT);
	mc_remote_close(r);
}
END_TEST

static void *hanging_stat(void *arg)
{
	struct mc_remote_attr attr;

	return (void *)(intptr_t)mc_remote_stat(arg, "f", &attr, NULL);
}

START_TEST(close_ends_what_hangs_with_eshutdown_exactly_once)
{
	struct mc_fault_rule hang = {.op = MC_FAULT_OPS, .kind = MC_FAULT_HANG};
	struct mc_remote *r = open_with_file(NULL);
	struct waiter w[3];
	pthread_t t;
	void *res;

	mc_fault_add(control, &hang);
	for (int i = 0; i < 3; i++)
		start(r, &w[i]);
	ck_assert_int_eq(pthread_create(&t, NULL, hanging_stat, r), 0);
	mc_fault_wait_held(control, 4);
	mc_remote_close(r);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(waiter_wait(&w[i]), -ESHUTDOWN);
	pthread_join(t, &res);
	ck_assert_int_eq((int)(intptr_t)res, -ESHUTDOWN);
}
END_TEST

START_TEST(a_delayed_operation_begins_later)
{
	struct mc_fault_rule delay = {.op = MC_FAULT_READ, .kind = MC_FAULT_DELAY, .value = 50};
	struct mc_remote *r = open_with_file(NULL);
	uint64_t begin = mc_now_ns();
	struct waiter w;

	mc_fault_add(control, &delay);
	start(r, &w);
	ck_assert_int_eq(waiter_wait(&w), 0);
	ck_assert_uint_ge(mc_now_ns() - begin, 50000000);
	mc_remote_close(r);
}
END_TEST

int main(void)
{
	const TTest *const own[] = {
		fail_hits_the_nth_matching_operation_only,
		flip_and_short_change_what_was_said_and_nothing_else,
		a_full_remote_is_enospc_and_changes_nothing,
		what_hangs_goes_on_after_a_release,
		what_hangs_ends_at_its_deadline,
		close_ends_what_hangs_with_eshutdown_exactly_once,
		a_delayed_operation_begins_later,
	};
	char cmd[100];
	int res;

	if (mkdtemp(root) == NULL)
		return 77;
	res = conformance_run("remote fault", own, sizeof(own) / sizeof(*own));
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", root);
	return system(cmd) == 0 ? res : EXIT_FAILURE;
}
