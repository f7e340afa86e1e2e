/* A block tier whose reads do not end: the remote serves, and it is used again when they do. */
#include "tests/block-fixture.h"
#include "tests/io-switch.h"
#include "tier/disk-health.h"

static struct io_switch disk;

/* On the device, and on the remote or not, but not in DRAM. */
static struct pattern cold(struct tiers *t, unsigned deadline_ms, bool remote)
{
	struct pattern pat;

	tiers_make(t, DEVICE);
	tiers_open(t);
	pat = load(t, "a", SIZE);
	tiers_close(t);
	if (!remote)
		empty_remote(t);
	io_switch_init(&disk);
	t->io = &disk.io;
	t->deadline_ms = deadline_ms;
	tiers_open(t);
	await_resident(t, &pat, SIZE);
	return pat;
}

static void await_answers(struct tiers *t)
{
	while (stats(&t->p).device.lost > 0)
		usleep(1000);
}

START_TEST(a_device_that_hangs_is_left_out_and_used_again)
{
	struct tiers t;
	struct pattern pat = cold(&t, 60000, true);
	struct mc_kv_stats st;

	disk.reads_hang = true;
	read_all(&t, &pat);
	ck_assert_uint_eq(stats(&t.p).fetches, 41);
	ck_assert_uint_eq(stats(&t.p).hits_block, 0);
	ck_assert_uint_gt(stats(&t.p).device.lost, 0);
	do
		mc_kv_stats(t.kv, &st);
	while (st.nvme_trouble == NULL);
	ck_assert_ptr_nonnull(strstr(st.nvme_trouble, "slow"));
	disk.reads_hang = false;
	await_answers(&t);
	read_all(&t, &pat); /* more than DRAM has */
	ck_assert_uint_gt(stats(&t.p).hits_block, 0);
	ck_assert_uint_eq(stats(&t.p).bad_blocks, 0);
	tiers_close(&t);
	tiers_remove(&t);
}
END_TEST

START_TEST(without_the_remote_a_hung_read_is_eio_and_right_once_the_device_answers)
{
	struct tiers t;
	struct pattern pat = cold(&t, 4000, false);
	struct mc_file *f = file_open(&t.p, &pat);

	disk.reads_hang = true;
	ck_assert_int_eq(read_check(f, &pat, 7 * MIB, MIB), -EIO);
	disk.reads_hang = false;
	await_answers(&t);
	ck_assert_int_eq(read_check(f, &pat, 7 * MIB, MIB), 0);
	mc_file_put(f);
	tiers_close(&t);
	tiers_remove(&t);
}
END_TEST

static void note_result(struct mc_block_op *op, int res)
{
	__atomic_store_n((int *)op->ctx, res, __ATOMIC_RELEASE);
}

START_TEST(what_is_given_up_ends_at_once_and_leaves_its_memory_alone)
{
	struct tiers t;
	struct pattern pat = cold(&t, 3600000, true);
	const struct mc_file_id id = id_of(&pat);
	uint8_t *buf = aligned_alloc(4096, MIB);
	int res = 1;
	struct mc_block_op op = {.cache = t.blocks,
		.id = &id,
		.block = 3,
		.buf = buf,
		.done = note_result,
		.ctx = &res};

	memset(buf, 0x77, MIB);
	disk.reads_hang = true;
	mc_block_cache_read(&op);
	mc_block_cache_look(t.blocks, 0);
	ck_assert_int_eq(__atomic_load_n(&res, __ATOMIC_ACQUIRE), -ETIMEDOUT);
	ck_assert_uint_eq(stats(&t.p).device.lost, 1);
	ck_assert(!mc_block_cache_has(t.blocks, &id, 3));
	disk.reads_hang = false;
	await_answers(&t);
	ck_assert(mc_block_cache_has(t.blocks, &id, 3));
	for (size_t i = 0; i < MIB; i++)
		ck_assert_uint_eq(buf[i], 0x77);
	res = 1;
	mc_block_cache_read(&op);
	while (__atomic_load_n(&res, __ATOMIC_ACQUIRE) == 1)
		usleep(1000);
	ck_assert_int_eq(res, 0);
	ck_assert(pattern_equal(&pat, 3 * MIB, buf, MIB));
	free(buf);
	tiers_close(&t);
	tiers_remove(&t);
}
END_TEST

static const char *nvme_trouble(struct tiers *t)
{
	struct mc_kv_stats st;

	mc_kv_stats(t->kv, &st);
	return st.nvme_trouble;
}

START_TEST(a_device_is_said_to_hang_as_long_as_a_read_has_not_ended)
{
	struct tiers t;
	struct pattern pat = cold(&t, 3600000, true);
	const struct mc_file_id id = id_of(&pat);
	int res = 1;
	struct mc_block_op op = {.cache = t.blocks,
		.id = &id,
		.block = 3,
		.buf = aligned_alloc(4096, MIB),
		.done = note_result,
		.ctx = &res};

	disk.reads_hang = true;
	mc_block_cache_read(&op);
	mc_block_cache_look(t.blocks, 0);
	ck_assert_int_eq(__atomic_load_n(&res, __ATOMIC_ACQUIRE), -ETIMEDOUT);
	mc_block_cache_look(t.blocks, UINT64_C(3600000000000)); /* gives up no other */
	while (nvme_trouble(&t) == NULL)
		usleep(1000);
	ck_assert_ptr_nonnull(strstr(nvme_trouble(&t), "slow"));
	disk.reads_hang = false;
	await_answers(&t);
	free(op.buf);
	tiers_close(&t);
	tiers_remove(&t);
}
END_TEST

START_TEST(what_is_said_to_hang_again_is_probed_later)
{
	struct mc_disk_health h = {0};

	mc_disk_health_init(&h, 3600000, 0);
	ck_assert(mc_disk_hangs(&h));
	h.probe_at_ns = 0;
	ck_assert(mc_disk_probe_due(&h));
	ck_assert(!mc_disk_hangs(&h));
	ck_assert(!mc_disk_probe_due(&h));
	mc_disk_probed(&h, 0, 0);
	ck_assert(!mc_disk_ails(&h));
}
END_TEST

SUITE_MAIN("block-hang", a_device_that_hangs_is_left_out_and_used_again,
	without_the_remote_a_hung_read_is_eio_and_right_once_the_device_answers,
	what_is_given_up_ends_at_once_and_leaves_its_memory_alone,
	a_device_is_said_to_hang_as_long_as_a_read_has_not_ended,
	what_is_said_to_hang_again_is_probed_later)
