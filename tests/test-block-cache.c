/* Blocks of files on the device of a block tier: read back, found at a start, damaged, pushed out.
 */
#include "tests/block-fixture.h"
#include "tier/kv-table.h"
#include "tier/store-warm.h"

#include <malloc.h>
#include <signal.h>
#include <sys/wait.h>

START_TEST(what_left_dram_is_read_from_the_device)
{
	struct tiers t;
	struct pattern pat;

	tiers_make(&t, DEVICE);
	tiers_open(&t);
	pat = load(&t, "a", SIZE);
	empty_remote(&t);
	read_all(&t, &pat);
	ck_assert_uint_ge(stats(&t.p).hits_block, (SIZE - DRAM) / MIB);
	ck_assert_uint_eq(stats(&t.p).device.blocks, 41);
	tiers_close(&t);
	tiers_remove(&t);
}
END_TEST

START_TEST(a_restart_finds_the_blocks_and_needs_no_remote)
{
	struct tiers t;
	struct pattern pat;

	tiers_make(&t, DEVICE);
	tiers_open(&t);
	pat = load(&t, "a", SIZE);
	tiers_close(&t);
	empty_remote(&t);
	tiers_open(&t);
	await_resident(&t, &pat, SIZE);
	read_all(&t, &pat);
	ck_assert_uint_ge(stats(&t.p).hits_block, 41);
	ck_assert_uint_eq(stats(&t.p).fetches, 0);
	tiers_close(&t);
	tiers_remove(&t);
}
END_TEST

START_TEST(after_a_sigkill_what_was_resident_is_there)
{
	struct tiers t;
	struct pattern pat;
	int status;
	pid_t pid;

	tiers_make(&t, DEVICE);
	pat = make_pattern(&t.p, "a", SIZE);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		tiers_open(&t);
		load(&t, "a", SIZE);
		raise(SIGKILL);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(WTERMSIG(status), SIGKILL);
	umount2(t.p.dram, MNT_DETACH);
	umount2(t.kv_dram, MNT_DETACH);
	empty_remote(&t);
	tiers_open(&t);
	await_resident(&t, &pat, SIZE);
	read_all(&t, &pat);
	tiers_close(&t);
	tiers_remove(&t);
}
END_TEST

/* Flips a byte of a block's record on the device. */
static void flip(const struct tiers *t, const struct pattern *pat, uint64_t block)
{
	int fd = open(t->device, O_RDWR | O_CLOEXEC);
	uint8_t page[4096];
	uint64_t at = 0, found = 0;

	ck_assert_int_ge(fd, 0);
	while (pread(fd, page, sizeof(page), (off_t)at) == sizeof(page)) {
		if (pattern_equal(pat, block << MC_BLOCK_SHIFT, page, sizeof(page))) {
			page[100] ^= 1;
			ck_assert_int_eq(pwrite(fd, page, sizeof(page), (off_t)at), sizeof(page));
			found++;
		}
		at += sizeof(page);
	}
	close(fd);
	ck_assert_uint_eq(found, 1);
}

START_TEST(a_damaged_record_is_found_and_the_remote_serves)
{
	struct tiers t;
	struct pattern pat;

	tiers_make(&t, DEVICE);
	tiers_open(&t);
	pat = load(&t, "a", SIZE);
	tiers_close(&t);
	flip(&t, &pat, 7);
	tiers_open(&t);
	await_resident(&t, &pat, SIZE);
	read_all(&t, &pat);
	ck_assert_uint_eq(stats(&t.p).bad_blocks, 1);
	ck_assert_uint_eq(stats(&t.p).fetches, 1);
	ck_assert_uint_ge(stats(&t.p).hits_block, 40);
	await_resident(&t, &pat, SIZE); /* written anew */
	tiers_close(&t);
	tiers_remove(&t);
}
END_TEST

START_TEST(a_full_device_drops_blocks_and_keeps_objects)
{
	struct tiers t;
	struct pattern pat;

	tiers_make(&t, 64 * MIB);
	tiers_open(&t);
	for (uint32_t i = 0; i < 8; i++) {
		char key[16];

		snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(kv_put_wait(t.kv, key, MIB, i), 0);
	}
	pat = make_pattern(&t.p, "large", 150 * MIB);
	read_all(&t, &pat);
	read_all(&t, &pat);
	ck_assert_uint_le(stats(&t.p).device.used, 64 * MIB);
	ck_assert_int_eq(kv_put_wait(t.kv, "late", 20 * MIB, 99), 0);
	ck_assert_int_eq(mc_kv_sync(t.kv, "late"), 0);
	for (uint32_t i = 0; i < 8; i++) {
		char key[16];

		snprintf(key, sizeof(key), "k%u", i);
		kv_expect(t.kv, key, MIB, i);
	}
	tiers_close(&t);
	tiers_open(&t);
	for (uint32_t i = 0; i < 8; i++) {
		struct mc_kv_attr attr;
		char key[16];

		snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(kv_ask(t.kv, key, &attr), 0);
		kv_expect(t.kv, key, MIB, i);
	}
	kv_expect(t.kv, "late", 20 * MIB, 99);
	tiers_close(&t);
	tiers_remove(&t);
}
END_TEST

START_TEST(a_file_taken_out_by_hand_stays_out)
{
	struct tiers t;
	struct pattern pat;
	struct mc_file_id id;
	const char *why;

	tiers_make(&t, DEVICE);
	tiers_open(&t);
	pat = load(&t, "a", 5 * MIB + 1);
	id = id_of(&pat);
	ck_assert_int_eq(mc_store_evict(t.p.store, &id, MC_TIER_BLOCK, &why), 0);
	ck_assert_uint_eq(resident(&t, &pat), 0);
	tiers_close(&t);
	tiers_open(&t);
	ck_assert_int_eq(kv_put_wait(t.kv, "after-recovery", 1, 1), 0);
	ck_assert_uint_eq(resident(&t, &pat), 0);
	ck_assert_uint_eq(stats(&t.p).device.blocks, 0);
	tiers_close(&t);
	tiers_remove(&t);
}
END_TEST

START_TEST(warm_brings_a_file_to_the_device)
{
	const struct mc_warm_opts to_block = {.tier = MC_TIER_BLOCK},
				  to_nvme = {.tier = MC_TIER_NVME};
	struct tiers t;
	struct pattern pat;
	struct mc_file *f;

	tiers_make(&t, DEVICE);
	tiers_open(&t);
	ck_assert_int_eq(kv_put_wait(t.kv, "after-recovery", 1, 1), 0);
	ck_assert_int_eq(mc_kv_sync(t.kv, "after-recovery"), 0);
	pat = make_pattern(&t.p, "a", SIZE);
	f = file_open(&t.p, &pat);
	ck_assert_int_eq(mc_store_warm(f, &to_nvme), -ENODEV);
	ck_assert_int_eq(mc_store_warm(f, &to_block), 0);
	ck_assert_uint_eq(resident(&t, &pat), SIZE);
	mc_file_put(f);
	pat = make_pattern(&t.p, "larger", 2 * DEVICE);
	f = file_open(&t.p, &pat);
	ck_assert_int_eq(mc_store_warm(f, &to_block), -ENOSPC);
	mc_file_put(f);
	tiers_close(&t);
	tiers_remove(&t);
}
END_TEST

START_TEST(blocks_are_no_objects)
{
	struct tiers t;
	struct mc_kv_stats st;

	tiers_make(&t, DEVICE);
	tiers_open(&t);
	load(&t, "a", SIZE);
	ck_assert_int_eq(kv_put_wait(t.kv, "k", 1000, 1), 0);
	tiers_close(&t);
	tiers_open(&t);
	ck_assert_int_eq(kv_put_wait(t.kv, "k", 1000, 2), 0);
	mc_kv_stats(t.kv, &st);
	ck_assert_uint_eq(st.objects, 1);
	ck_assert_uint_lt(st.log_live, MIB);
	tiers_close(&t);
	tiers_remove(&t);
}
END_TEST

/* Bytes that malloc gave out, its own words included. */
static size_t in_use(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

/* In the log's table and in the cache's, as for a file of 100,000 blocks. */
START_TEST(a_block_on_the_device_takes_140_bytes_of_memory_at_most)
{
	enum { N = 100000 };
	struct mc_kv_loc loc = {.segment = 1};
	const uint8_t digest[16] = {1, 2, 3};
	uint32_t crc = 4, slot;
	char key[MC_BLOCK_KEY];
	struct mc_kv_meta meta = {.key = key, .size = MIB, .n_crc = 1, .crc = &crc};
	struct mc_block_cache *cache;
	struct mc_kv_table table;
	size_t before = in_use();

	memcpy(meta.version, digest, sizeof(digest));
	ck_assert_int_eq(mc_kv_table_init(&table), 0);
	ck_assert_int_eq(mc_block_cache_open(&cache), 0);
	for (unsigned i = 0; i < N; i++, loc.off += MIB + 4096) {
		mc_block_key(digest, i, key);
		ck_assert_int_eq(mc_kv_table_add(&table, MC_KV_OBJECT, &meta, &loc, &slot), 0);
		mc_block_cache_found(cache, &meta);
	}
	printf("%.1f bytes a block\n", (double)(in_use() - before) / N);
	ck_assert_uint_le((in_use() - before) / N, 140);
	mc_block_cache_close(cache);
	mc_kv_table_done(&table);
}
END_TEST

SUITE_MAIN("block-cache", what_left_dram_is_read_from_the_device,
	a_restart_finds_the_blocks_and_needs_no_remote, after_a_sigkill_what_was_resident_is_there,
	a_damaged_record_is_found_and_the_remote_serves,
	a_full_device_drops_blocks_and_keeps_objects, a_file_taken_out_by_hand_stays_out,
	warm_brings_a_file_to_the_device, blocks_are_no_objects,
	a_block_on_the_device_takes_140_bytes_of_memory_at_most)
