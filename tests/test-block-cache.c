/* Blocks of files on the device of a block tier: read back, found at a start, damaged, pushed out.
 */
#include "tests/kv-fixture.h"
#include "tests/store-fixture.h"
#include "tier/block-super.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define DRAM (16 * MIB)
#define DEVICE (128 * MIB)
#define SIZE (40 * MIB + 12345u)

/* A store and a KV store that share a device. */
struct tiers {
	struct place p;
	char device[96], kv_dram[96];
	struct mc_block_cache *blocks;
	struct mc_kv *kv;
};

static void tiers_make(struct tiers *t, uint64_t bytes)
{
	struct mc_block_format f = {.path = t->device, .bytes = bytes};
	struct mc_err err = {0};

	place_make(&t->p);
	snprintf(t->device, sizeof(t->device), "%s/device", t->p.dir);
	snprintf(t->kv_dram, sizeof(t->kv_dram), "%s/kv", t->p.dir);
	ck_assert_msg(mc_block_format(&f, &err) == 0, "%s", err.text);
}

static void tiers_open(struct tiers *t)
{
	struct mc_err err = {0};
	struct mc_store_opts o = {
		.dram_dir = t->p.dram, .dram_capacity = DRAM, .deadline_ms = 20000};
	struct mc_kv_opts k = {.dram_dir = t->kv_dram,
		.dram_capacity = 64 * MIB,
		.device = t->device,
		.node = "00c0ffee"};

	ck_assert_int_eq(mc_block_cache_open(&t->blocks), 0);
	ck_assert_int_eq(mc_remote_open(t->p.url, NULL, &t->p.remote, &err), 0);
	o.remote = t->p.remote;
	o.blocks = k.blocks = t->blocks;
	ck_assert_msg(mc_store_open(&o, &t->p.store, &err) == 0, "%s", err.text);
	ck_assert_msg(mc_kv_open(&k, &t->kv, &err) == 0, "%s", err.text);
}

static void tiers_close(struct tiers *t)
{
	ck_assert_int_eq(mc_kv_close(t->kv, 20000), 0);
	place_close(&t->p, false);
	mc_block_cache_close(t->blocks);
}

static void tiers_remove(struct tiers *t)
{
	umount2(t->kv_dram, MNT_DETACH);
	place_remove(&t->p);
}

/* What the remote had is not there any more. */
static void empty_remote(struct tiers *t)
{
	char away[128];

	snprintf(away, sizeof(away), "%s.away", t->p.remote_dir);
	ck_assert_int_eq(rename(t->p.remote_dir, away), 0);
	ck_assert_int_eq(mkdir(t->p.remote_dir, 0755), 0);
}

static struct mc_file_id id_of(const struct pattern *pat)
{
	struct mc_source *src = pattern_source(pat);
	struct mc_file_id id = src->id;

	src->ops->release(src);
	return id;
}

static uint64_t resident(struct tiers *t, const struct pattern *pat)
{
	const struct mc_file_id id = id_of(pat);
	struct mc_residency res;

	mc_store_residency(t->p.store, &id, &res);
	return res.nvme;
}

static void await_resident(struct tiers *t, const struct pattern *pat, uint64_t bytes)
{
	while (resident(t, pat) != bytes)
		usleep(1000);
}

static void read_all(struct tiers *t, const struct pattern *pat)
{
	struct mc_file *f = file_open(&t->p, pat);

	for (uint64_t b = 0; b < mc_block_count(pat->size); b++)
		ck_assert_int_eq(
			read_check(f, pat, b << MC_BLOCK_SHIFT, mc_block_len(pat->size, b)), 0);
	mc_file_put(f);
}

static struct pattern load(struct tiers *t, const char *name, uint64_t size)
{
	struct pattern pat = make_pattern(&t->p, name, size);

	/* What leaves DRAM while the device has enough to write is not kept: again. */
	do {
		read_all(t, &pat);
		usleep(1000);
	} while (resident(t, &pat) != size);
	return pat;
}

START_TEST(what_left_dram_is_read_from_the_device)
{
	struct tiers t;
	struct pattern pat;

	tiers_make(&t, DEVICE);
	tiers_open(&t);
	pat = load(&t, "a", SIZE);
	empty_remote(&t);
	read_all(&t, &pat);
	ck_assert_uint_ge(stats(&t.p).hits_nvme, (SIZE - DRAM) / MIB);
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
	ck_assert_uint_ge(stats(&t.p).hits_nvme, 41);
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
	ck_assert_uint_ge(stats(&t.p).hits_nvme, 40);
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
	ck_assert_int_eq(mc_store_evict(t.p.store, &id, MC_TIER_NVME, &why), 0);
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
	ck_assert_uint_lt(st.nvme_live, MIB);
	tiers_close(&t);
	tiers_remove(&t);
}
END_TEST

SUITE_MAIN("block-cache", what_left_dram_is_read_from_the_device,
	a_restart_finds_the_blocks_and_needs_no_remote, after_a_sigkill_what_was_resident_is_there,
	a_damaged_record_is_found_and_the_remote_serves,
	a_full_device_drops_blocks_and_keeps_objects, a_file_taken_out_by_hand_stays_out,
	blocks_are_no_objects)
