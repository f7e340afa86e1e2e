/* Range reads of objects that are not in DRAM whole: their blocks are kept, within its bounds. */
#include "tests/io-switch.h"
#include "tests/kv-fixture.h"
#include "tests/suite.h"

#include "tier/remote-fault.h"

#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

static const struct mc_fault_rule no_reads = {
	.op = MC_FAULT_READ, .kind = MC_FAULT_FAIL, .error = -EIO};

static struct mc_kv_stats stats(struct mc_kv *kv)
{
	struct mc_kv_stats s;

	mc_kv_stats(kv, &s);
	return s;
}

/* A node that puts what the test is about on a remote, and the node of the test above it. */
struct nodes {
	struct kv_fixture from, x;
	struct mc_fault *fault; /* between x and the remote */
};

static void nodes_open(struct nodes *n, uint64_t dram)
{
	struct mc_remote *inner;
	char url[128];

	kv_fixture_paths(&n->from, 512 * MIB);
	kv_fixture_remote(&n->from);
	n->from.opts.ack = MC_KV_ACK_REMOTE;
	kv_fixture_start(&n->from);
	kv_fixture_paths(&n->x, dram);
	snprintf(url, sizeof(url), "dir:%s", n->from.remote_dir);
	ck_assert_int_eq(mc_remote_open(url, NULL, &inner, NULL), 0);
	ck_assert_int_eq(mc_remote_fault_open(inner, &n->fault, &n->x.remote), 0);
	n->x.opts.remote = n->x.remote;
	n->x.opts.revalidate_ms = 3600000;
	kv_fixture_start(&n->x);
}

static void nodes_close(struct nodes *n)
{
	kv_fixture_close(&n->x);
	kv_fixture_close(&n->from);
}

static void put(struct nodes *n, const char *key, uint64_t size, uint32_t seed)
{
	struct mc_kv_attr a;

	ck_assert_int_eq(kv_put_wait(n->from.kv, key, size, seed), 0);
	ck_assert_int_eq(kv_ask(n->x.kv, key, &a), 0);
	ck_assert_uint_eq(a.size, size);
}

/* How many of its MiB can be read. */
static unsigned readable(struct mc_kv *kv, const char *key, uint64_t size)
{
	struct mc_kv_object *obj;
	unsigned n = 0;

	ck_assert_int_eq(kv_open_object(kv, key, &obj), 0);
	for (uint64_t off = 0; off < size; off += MIB)
		n += kv_read_range(obj, off, 1) == 0;
	mc_kv_object_put(obj);
	return n;
}

START_TEST(a_block_from_the_remote_is_read_once)
{
	struct nodes n;

	nodes_open(&n, 64 * MIB);
	put(&n, "large", 12 * MIB + 7, 1);
	kv_expect(n.x.kv, "large", 12 * MIB + 7, 1);
	mc_fault_add(n.fault, &no_reads);
	kv_expect(n.x.kv, "large", 12 * MIB + 7, 1);
	nodes_close(&n);
}
END_TEST

START_TEST(a_block_from_nvme_is_read_once)
{
	struct io_switch disk;
	struct kv_fixture x;

	io_switch_init(&disk);
	kv_fixture_paths(&x, 64 * MIB);
	x.opts.nvme_dir = x.nvme;
	x.opts.nvme_capacity = 64 * MIB;
	x.opts.io = &disk.io;
	kv_fixture_start(&x);
	ck_assert_int_eq(kv_put(x.kv, "large", 12 * MIB + 7, 1, 0), 0);
	ck_assert_int_eq(mc_kv_sync(x.kv, "large"), 0);
	ck_assert_int_eq(mc_kv_evict(x.kv, "large"), 0);
	kv_expect(x.kv, "large", 12 * MIB + 7, 1);
	disk.reads = -EIO;
	kv_expect(x.kv, "large", 12 * MIB + 7, 1);
	ck_assert_int_eq(mc_kv_evict(x.kv, "large"), 0); /* and with that its blocks go */
	ck_assert_uint_eq(readable(x.kv, "large", 12 * MIB + 7), 0);
	disk.reads = 0;
	kv_expect(x.kv, "large", 12 * MIB + 7, 1);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(bytes_that_do_not_match_are_not_kept)
{
	static const struct mc_fault_rule flip = {
		.op = MC_FAULT_READ, .kind = MC_FAULT_FLIP, .value = 77};
	struct nodes n;

	nodes_open(&n, 64 * MIB);
	put(&n, "large", 10 * MIB, 1);
	mc_fault_add(n.fault, &flip);
	ck_assert_uint_eq(readable(n.x.kv, "large", 10 * MIB), 0);
	mc_fault_clear(n.fault);
	kv_expect(n.x.kv, "large", 10 * MIB, 1);
	nodes_close(&n);
}
END_TEST

START_TEST(blocks_take_no_more_than_dram_has_and_go_with_their_object)
{
	struct nodes n;
	uint64_t before;

	nodes_open(&n, 16 * MIB);
	put(&n, "large", 60 * MIB, 1);
	put(&n, "next", 10 * MIB, 2);
	before = stats(n.x.kv).dram_used;
	kv_expect(n.x.kv, "large", 60 * MIB, 1);
	ck_assert_uint_le(stats(n.x.kv).dram_used, 16 * MIB);
	ck_assert_uint_ge(stats(n.x.kv).dram_used, 8 * MIB);
	kv_expect(n.x.kv, "next", 10 * MIB, 2);
	ck_assert_uint_le(stats(n.x.kv).dram_used, 16 * MIB);
	/* A put needs the room. */
	ck_assert_int_eq(kv_put_wait(n.x.kv, "put", 7 * MIB, 3), 0);
	ck_assert_uint_le(stats(n.x.kv).dram_used, 16 * MIB);
	ck_assert_int_eq(mc_kv_unlink(n.x.kv, "put"), 0);
	ck_assert_int_eq(mc_kv_unlink(n.x.kv, "large"), 0);
	ck_assert_int_eq(mc_kv_unlink(n.x.kv, "next"), 0);
	ck_assert_uint_le(stats(n.x.kv).dram_used, before + 7 * MIB); /* a pooled file */
	nodes_close(&n);
}
END_TEST

START_TEST(a_scan_of_a_large_object_leaves_the_blocks_that_are_read_again)
{
	struct nodes n;

	nodes_open(&n, 24 * MIB);
	put(&n, "hot", 9 * MIB, 1);
	put(&n, "warm", 9 * MIB, 2);
	put(&n, "scanned", 240 * MIB, 3);
	for (unsigned i = 0; i < 4; i++) {
		kv_expect(n.x.kv, "hot", 9 * MIB, 1);
		ck_assert_uint_eq(readable(n.x.kv, "warm", 9 * MIB), 9);
	}
	ck_assert_uint_eq(readable(n.x.kv, "scanned", 240 * MIB), 240);
	mc_fault_add(n.fault, &no_reads);
	ck_assert_uint_ge(readable(n.x.kv, "hot", 9 * MIB), 8);
	nodes_close(&n);
}
END_TEST

SUITE_MAIN("kv-range", a_block_from_the_remote_is_read_once, a_block_from_nvme_is_read_once,
	bytes_that_do_not_match_are_not_kept,
	blocks_take_no_more_than_dram_has_and_go_with_their_object,
	a_scan_of_a_large_object_leaves_the_blocks_that_are_read_again)
