/* Two stores on one remote, as two nodes have them: what one changes the other one sees. */
#include "tests/kv-fixture.h"
#include "tests/suite.h"

#include "tier/lock.h"
#include "tier/remote-fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1u << 20)

/* Two nodes with an NVMe each; what x puts is on the remote when the put ends. y reaches the remote
 * through a wrapper that fails on order. */
struct nodes {
	struct kv_fixture x, y;
	struct mc_remote *inner;
	struct mc_fault *fault;
};

static void node_open(struct kv_fixture *n, const char *node)
{
	n->opts.nvme_dir = n->nvme;
	n->opts.nvme_capacity = UINT64_C(1) << 30;
	n->opts.node = node;
	n->opts.ack = MC_KV_ACK_REMOTE;
	n->opts.replicas = 1;
	n->opts.revalidate_ms = 250;
	kv_fixture_start(n);
}

static void nodes_open(struct nodes *n)
{
	char url[128];

	kv_fixture_paths(&n->x, 128 * MIB);
	kv_fixture_remote(&n->x);
	kv_fixture_paths(&n->y, 128 * MIB);
	snprintf(url, sizeof(url), "dir:%s", n->x.remote_dir);
	ck_assert_int_eq(mc_remote_open(url, NULL, &n->inner, NULL), 0);
	ck_assert_int_eq(mc_remote_fault_open(n->inner, &n->fault, &n->y.remote), 0);
	n->y.opts.remote = n->y.remote;
	node_open(&n->x, "00000001");
	node_open(&n->y, "00000002");
}

static void nodes_close(struct nodes *n)
{
	kv_fixture_close(&n->y);
	kv_fixture_close(&n->x);
}

static struct mc_kv_attr attr_of(struct mc_kv *kv, const char *key)
{
	struct mc_kv_attr a;

	ck_assert_int_eq(kv_ask(kv, key, &a), 0);
	return a;
}

/* Waits until kv finds that version under key. */
static void wait_version(struct mc_kv *kv, const char *key, const struct mc_kv_attr *want)
{
	struct mc_kv_attr a;

	while (kv_ask(kv, key, &a) != 0 || memcmp(a.version, want->version, sizeof(a.version)) != 0)
		usleep(200);
}

static void wait_gone(struct mc_kv *kv, const char *key)
{
	struct mc_kv_attr a;

	while (kv_ask(kv, key, &a) == 0)
		usleep(200);
}

START_TEST(what_another_node_replaced_or_removed_is_seen_wherever_this_one_had_it)
{
	static const char *const keys[] = {"d/memory", "d/below", "d/own"};
	struct mc_kv_object *open[3];
	struct nodes n;

	nodes_open(&n);
	ck_assert_int_eq(mc_kv_mkdir(n.x.kv, "d"), 0);
	ck_assert_int_eq(mc_kv_mkdir(n.y.kv, "d"), 0);
	/* In y's DRAM, on the remote alone, and y's own: on NVMe and the remote. */
	ck_assert_int_eq(kv_put(n.x.kv, keys[0], 2 * MIB, 1, 0), 0);
	ck_assert_int_eq(kv_put(n.x.kv, keys[1], 12 * MIB, 2, 0), 0);
	ck_assert_int_eq(kv_put(n.y.kv, keys[2], 3 * MIB, 3, 0), 0);
	for (unsigned i = 0; i < 3; i++) {
		attr_of(n.y.kv, keys[i]);
		attr_of(n.x.kv, keys[i]);
		ck_assert_int_eq(kv_open_object(n.y.kv, keys[i], &open[i]), 0);
	}
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(kv_put(n.x.kv, keys[i], MIB + i, 10 + i, 0), 0);
	for (unsigned i = 0; i < 3; i++) {
		const struct mc_kv_attr want = attr_of(n.x.kv, keys[i]);

		wait_version(n.y.kv, keys[i], &want);
		kv_expect(n.y.kv, keys[i], MIB + i, 10 + i);
	}
	kv_expect_object(open[0], 2 * MIB, 1); /* whoever has it open keeps it */
	kv_expect_object(open[2], 3 * MIB, 3);
	for (unsigned i = 0; i < 3; i++) {
		mc_kv_object_put(open[i]);
		ck_assert_int_eq(mc_kv_unlink(n.x.kv, keys[i]), 0);
	}
	for (unsigned i = 0; i < 3; i++)
		wait_gone(n.y.kv, keys[i]);
	nodes_close(&n);
}
END_TEST

START_TEST(what_another_node_replaced_does_not_come_back_from_nvme)
{
	struct mc_kv_attr old, want, a;
	struct mc_kv_stats s;
	struct nodes n;

	nodes_open(&n);
	ck_assert_int_eq(kv_put(n.y.kv, "key", 1000, 1, 0), 0);
	ck_assert_int_eq(kv_put(n.y.kv, "gone", 1000, 2, 0), 0);
	ck_assert_int_eq(mc_kv_sync(n.y.kv, "key"), 0);
	old = attr_of(n.x.kv, "key");
	attr_of(n.x.kv, "gone");
	ck_assert_int_eq(kv_put(n.x.kv, "key", 2000, 3, 0), 0);
	ck_assert_int_eq(mc_kv_unlink(n.x.kv, "gone"), 0);
	want = attr_of(n.x.kv, "key");
	wait_version(n.y.kv, "key", &want);
	wait_gone(n.y.kv, "gone");
	ck_assert_int_eq(mc_kv_close(n.y.kv, 20000), 0);
	n.y.kv = NULL;
	kv_fixture_forget_dram(&n.y);
	kv_fixture_start(&n.y);
	do {
		mc_kv_stats(n.y.kv, &s);
		usleep(200);
	} while (s.recovering);
	ck_assert_int_eq(mc_kv_lookup(n.y.kv, "gone", &a), -ENOENT);
	a = attr_of(n.y.kv, "key");
	ck_assert_mem_ne(a.version, old.version, sizeof(a.version));
	kv_expect(n.y.kv, "key", 2000, 3);
	nodes_close(&n);
}
END_TEST

START_TEST(a_remote_that_hangs_holds_up_no_lookup_of_what_is_here)
{
	const struct mc_fault_rule hang = {.op = MC_FAULT_STAT, .kind = MC_FAULT_HANG};
	struct mc_kv_attr want, a;
	struct nodes n;

	nodes_open(&n);
	ck_assert_int_eq(kv_put(n.x.kv, "key", MIB, 1, 0), 0);
	attr_of(n.y.kv, "key");
	kv_expect(n.y.kv, "key", MIB, 1);
	ck_assert_int_eq(kv_put(n.x.kv, "key", MIB, 2, 0), 0);
	want = attr_of(n.x.kv, "key");
	mc_fault_add(n.fault, &hang);
	do
		a = attr_of(n.y.kv, "key"); /* each answers, whether it asks or not */
	while (!a.ask);
	ck_assert_mem_ne(a.version, want.version, sizeof(a.version));
	ck_assert_int_eq(kv_ask(n.y.kv, "unknown", &a), -ENOENT);
	kv_expect(n.y.kv, "key", MIB, 1);
	mc_fault_clear(n.fault);
	wait_version(n.y.kv, "key", &want);
	nodes_close(&n);
}
END_TEST

/* What a node finds that comes anew. */
static int found_anew(struct nodes *n, const char *key, struct mc_kv_attr *ret)
{
	struct kv_fixture z;
	int r;

	kv_fixture_paths(&z, 64 * MIB);
	z.opts.remote = n->x.remote;
	kv_fixture_start(&z);
	r = kv_ask(z.kv, key, ret);
	kv_fixture_close(&z);
	return r;
}

START_TEST(another_node_finds_the_directories_of_what_was_put)
{
	struct mc_kv_attr a;
	struct nodes n;

	nodes_open(&n);
	ck_assert_int_eq(mc_kv_mkdir(n.x.kv, "a"), 0);
	ck_assert_int_eq(mc_kv_mkdir(n.x.kv, "a/b"), 0);
	ck_assert_int_eq(kv_put(n.x.kv, "a/b/key", 1000, 1, 0), 0);
	ck_assert_int_eq(attr_of(n.y.kv, "a").is_dir, true);
	ck_assert_int_eq(attr_of(n.y.kv, "a/b").is_dir, true);
	ck_assert_int_eq(attr_of(n.y.kv, "a/b/key").is_dir, false);
	kv_expect(n.y.kv, "a/b/key", 1000, 1);
	ck_assert_int_eq(kv_put(n.y.kv, "a/b/other", 2000, 2, 0), 0);
	attr_of(n.x.kv, "a/b/other");
	kv_expect(n.x.kv, "a/b/other", 2000, 2);
	ck_assert_int_eq(mc_kv_unlink(n.x.kv, "a/b/key"), 0);
	ck_assert_int_eq(mc_kv_unlink(n.x.kv, "a/b/other"), 0);
	ck_assert_int_eq(mc_kv_rmdir(n.x.kv, "a/b"), 0);
	ck_assert_int_eq(kv_ask(n.x.kv, "a/b", &a), -ENOENT);
	while (found_anew(&n, "a/b", &a) == 0)
		usleep(200);
	ck_assert_int_eq(found_anew(&n, "a", &a), 0);
	/* What was removed can be made again, as the one or the other. */
	ck_assert_int_eq(kv_put(n.x.kv, "a/b", 3000, 3, 0), 0);
	ck_assert_int_eq(found_anew(&n, "a/b", &a), 0);
	ck_assert_int_eq(a.is_dir, false);
	ck_assert_int_eq(mc_kv_unlink(n.x.kv, "a/b"), 0);
	ck_assert_int_eq(mc_kv_mkdir(n.x.kv, "a/b"), 0);
	ck_assert_int_eq(kv_put(n.x.kv, "a/b/key", 1000, 4, 0), 0);
	ck_assert_int_eq(found_anew(&n, "a/b", &a), 0);
	ck_assert_int_eq(a.is_dir, true);
	nodes_close(&n);
}
END_TEST

START_TEST(a_missing_key_is_asked_for_once_a_second)
{
	struct mc_kv_attr a;
	struct nodes n;
	uint64_t begin, before;

	nodes_open(&n);
	begin = mc_now_ns();
	before = mc_fault_seen(n.fault, MC_FAULT_STAT);
	for (unsigned i = 0; i < 5000; i++)
		ck_assert_int_eq(kv_ask(n.y.kv, "missing", &a), -ENOENT);
	ck_assert_uint_ge(mc_fault_seen(n.fault, MC_FAULT_STAT), before + 1);
	ck_assert_uint_le(mc_fault_seen(n.fault, MC_FAULT_STAT),
		before + 1 + (mc_now_ns() - begin) / 1000000000);
	nodes_close(&n);
}
END_TEST

START_TEST(a_remote_that_lost_everything_takes_nothing_away)
{
	char kv[160], away[160];
	struct mc_kv_attr a;
	struct nodes n;

	nodes_open(&n);
	ck_assert_int_eq(kv_put(n.y.kv, "key", MIB, 1, 0), 0);
	snprintf(kv, sizeof(kv), "%s/kv", n.x.remote_dir);
	snprintf(away, sizeof(away), "%s/away", n.x.remote_dir);
	ck_assert_int_eq(rename(kv, away), 0);
	while (mc_fault_seen(n.fault, MC_FAULT_STAT) < 8) {
		attr_of(n.y.kv, "key");
		usleep(200);
	}
	ck_assert_int_eq(rename(away, kv), 0);
	do
		a = attr_of(n.y.kv, "key");
	while (a.ask);
	kv_expect(n.y.kv, "key", MIB, 1);
	nodes_close(&n);
}
END_TEST

/* The command of README.md, whatever the age of the files. */
static void clear_remote(const struct nodes *n)
{
	char command[256];

	snprintf(command, sizeof(command), "find %s/kv -type f -size +8k -delete", n->x.remote_dir);
	ck_assert_int_eq(system(command), 0);
}

START_TEST(what_an_administrator_removes_on_the_remote_is_removed)
{
	struct mc_kv_attr a;
	struct nodes n;

	nodes_open(&n);
	ck_assert_int_eq(mc_kv_mkdir(n.x.kv, "d"), 0);
	ck_assert_int_eq(kv_put(n.x.kv, "d/key", MIB, 1, 0), 0);
	attr_of(n.y.kv, "d/key");
	clear_remote(&n);
	wait_gone(n.x.kv, "d/key");
	wait_gone(n.y.kv, "d/key");
	ck_assert_int_eq(kv_put(n.x.kv, "d/key", MIB, 2, 0), 0);
	while (kv_ask(n.y.kv, "d/key", &a) != 0)
		usleep(200);
	kv_expect(n.y.kv, "d/key", MIB, 2);
	ck_assert_int_eq(found_anew(&n, "d", &a), 0); /* directories stay */
	ck_assert(a.is_dir);
	nodes_close(&n);
}
END_TEST

SUITE_MAIN("kv-nodes", what_another_node_replaced_or_removed_is_seen_wherever_this_one_had_it,
	what_another_node_replaced_does_not_come_back_from_nvme,
	another_node_finds_the_directories_of_what_was_put,
	a_missing_key_is_asked_for_once_a_second,
	a_remote_that_hangs_holds_up_no_lookup_of_what_is_here,
	a_remote_that_lost_everything_takes_nothing_away,
	what_an_administrator_removes_on_the_remote_is_removed)
