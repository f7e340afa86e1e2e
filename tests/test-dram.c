/* The DRAM tier: memory in pairs, the cap, leases, its mount. */
#include "tests/dram-fixture.h"
#include "tests/suite.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/vfs.h>

START_TEST(pairs_are_reserved_and_blocks_valid_only_once_committed)
{
	const uint64_t size = 5 * MIB + 4097;
	char *dir = tier_dir_make("/dev/shm");
	struct mc_dram *d = open_tier(dir, 64 * MIB);
	struct mc_dram_image *img = get(d, 1, size, true);
	struct stat st;

	ck_assert_int_eq(mc_dram_reserve(img, 1), 0);
	ck_assert_int_eq(mc_dram_reserve(img, 0), 0);
	ck_assert_uint_eq(stats(d).used, 2 * MIB);
	ck_assert(!mc_dram_present(img, 1));
	ck_assert_uint_eq(mc_dram_resident_bytes(img), 0);
	fill_block(img, 1, size, 1);
	ck_assert(mc_dram_present(img, 1));
	ck_assert(!mc_dram_present(img, 0));
	fill_block(img, 1, size, 5);
	ck_assert_uint_eq(mc_dram_present_blocks(img), 2);
	ck_assert_uint_eq(mc_dram_resident_bytes(img), MIB + 4097);
	/* Blocks 4 and 5: 1 MiB and two pages. */
	ck_assert_uint_eq(stats(d).used, 2 * MIB + MIB + 8192);
	ck_assert_int_eq(fstat(mc_dram_fd(img), &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_blocks * 512, stats(d).used);
	ck_assert_uint_eq((uint64_t)st.st_size, size);
	ck_assert_int_eq(mc_dram_punch(img, 2), (int64_t)MIB + 8192);
	ck_assert_int_eq(mc_dram_punch(img, 2), 0);
	ck_assert(!mc_dram_present(img, 5));
	ck_assert(tier_matches(mc_dram_ptr(img, 1), MIB, 1, MIB));
	mc_dram_image_put(img);
	ck_assert_uint_eq(stats(d).used, 2 * MIB);
	close_and_remove(d, dir);
}
END_TEST

START_TEST(an_image_is_closed_with_its_last_reference_and_found_again)
{
	char *dir = tier_dir_make("/dev/shm");
	struct mc_dram *d = open_tier(dir, 64 * MIB);
	struct mc_file_id absent = tier_file_id(9, 3 * MIB);
	struct mc_dram_image *img = get(d, 1, 3 * MIB, true), *again;

	ck_assert_int_eq(mc_dram_image_get(d, &absent, false, &again), -ENOENT);
	fill_block(img, 1, 3 * MIB, 0);
	ck_assert_int_eq(mc_dram_reserve(img, 2), 0);
	ck_assert_uint_eq(stats(d).used, 3 * MIB);
	again = get(d, 1, 3 * MIB, false);
	ck_assert_ptr_eq(again, img);
	mc_dram_image_put(again);
	mc_dram_image_put(img);
	/* The pair that was reserved and never filled is returned. */
	ck_assert_uint_eq(stats(d).used, 2 * MIB);
	img = get(d, 1, 3 * MIB, false);
	ck_assert_uint_eq(mc_dram_present_blocks(img), 1);
	ck_assert(tier_matches(mc_dram_ptr(img, 0), MIB, 1, 0));
	ck_assert_int_eq(mc_dram_punch(img, 0), 2 * (int64_t)MIB);
	mc_dram_image_put(img);
	/* Without a block nothing is left of it. */
	absent = tier_file_id(1, 3 * MIB);
	ck_assert_int_eq(mc_dram_image_get(d, &absent, false, &img), -ENOENT);
	close_and_remove(d, dir);
}
END_TEST

START_TEST(full_tier_is_enospc_and_changes_nothing)
{
	char *dir = tier_dir_make("/dev/shm");
	struct mc_dram *d = open_tier(dir, 4 * MIB);
	struct mc_dram_image *img = get(d, 1, 16 * MIB, true);

	fill_block(img, 1, 16 * MIB, 0);
	fill_block(img, 1, 16 * MIB, 2);
	ck_assert_int_eq(mc_dram_reserve(img, 4), -ENOSPC);
	ck_assert_uint_eq(stats(d).used, 4 * MIB);
	ck_assert_uint_eq(mc_dram_present_blocks(img), 2);
	ck_assert(tier_matches(mc_dram_ptr(img, 2), MIB, 1, 2 * MIB));
	ck_assert_int_eq(mc_dram_punch(img, 0), 2 * (int64_t)MIB);
	ck_assert_int_eq(mc_dram_reserve(img, 4), 0);
	mc_dram_image_put(img);
	close_and_remove(d, dir);
}
END_TEST

START_TEST(tmpfs_filled_by_others_is_enospc_and_changes_nothing)
{
	char *dir = tier_dir_make("/dev/shm"), *path;
	struct mc_dram *d = open_tier(dir, 8 * MIB);
	struct mc_dram_image *img = get(d, 1, 8 * MIB, true);
	struct statfs sf;
	int fd;

	if (!stats(d).mounted) {
		mc_dram_image_put(img);
		close_and_remove(d, dir);
		return;
	}
	fill_block(img, 1, 8 * MIB, 0);
	ck_assert_int_gt(asprintf(&path, "%s/foreign", dir), 0);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(statfs(dir, &sf), 0);
	ck_assert_int_eq(posix_fallocate(fd, 0, (off_t)(sf.f_bavail * (uint64_t)sf.f_bsize)), 0);
	ck_assert_int_eq(mc_dram_reserve(img, 2), -ENOSPC);
	ck_assert_uint_eq(stats(d).used, 2 * MIB);
	ck_assert(tier_matches(mc_dram_ptr(img, 0), MIB, 1, 0));
	close(fd);
	unlink(path);
	free(path);
	ck_assert_int_eq(mc_dram_reserve(img, 2), 0);
	mc_dram_image_put(img);
	close_and_remove(d, dir);
}
END_TEST

START_TEST(a_mapping_that_outlives_its_descriptor_keeps_its_bytes_under_pressure)
{
	const uint64_t size = 4 * MIB;
	char *dir = tier_dir_make("/dev/shm");
	struct mc_dram *d = open_tier(dir, 8 * MIB);
	struct mc_dram_image *img = fill_file(d, 1, size), *fresh;
	const char *map = client_map(dir, 1, size);

	ck_assert_int_eq(mc_dram_punch(img, 0), -EAGAIN);
	ck_assert_int_eq(mc_dram_punch(img, 1), -EAGAIN);
	ck_assert(mc_dram_present(img, 0));
	ck_assert_int_eq(mc_dram_drop(img), 0);
	ck_assert_uint_eq(stats(d).held, size);
	ck_assert_uint_eq(stats(d).used, size);
	mc_dram_image_put(img);
	fresh = fill_file(d, 1, size);
	ck_assert_uint_eq(stats(d).used, 2 * size);
	ck_assert_uint_eq(mc_dram_reap(d), 0);
	ck_assert(tier_matches(map, size, 1, 0));
	munmap((void *)(uintptr_t)map, size);
	ck_assert_uint_eq(mc_dram_reap(d), size);
	ck_assert_uint_eq(stats(d).held, 0);
	ck_assert_uint_eq(stats(d).used, size);
	ck_assert_int_eq(mc_dram_drop(fresh), (int64_t)size);
	ck_assert_uint_eq(stats(d).used, 0);
	mc_dram_image_put(fresh);
	close_and_remove(d, dir);
}
END_TEST

START_TEST(our_own_duplicate_and_mapping_do_not_stop_eviction)
{
	char *dir = tier_dir_make("/dev/shm");
	struct mc_dram *d = open_tier(dir, 8 * MIB);
	struct mc_dram_image *img = fill_file(d, 1, 4 * MIB);
	int copy = dup(mc_dram_fd(img));

	ck_assert_int_ge(copy, 0);
	ck_assert_int_eq(mc_dram_punch(img, 0), 2 * (int64_t)MIB);
	close(copy);
	mc_dram_image_put(img);
	close_and_remove(d, dir);
}
END_TEST

START_TEST(a_second_daemon_on_the_directory_is_refused)
{
	char *dir = tier_dir_make("/dev/shm");
	struct mc_dram_opts o = {.dir = dir, .capacity = 8 * MIB};
	struct mc_dram *d = open_tier(dir, 8 * MIB), *second;
	struct mc_err err = {0};

	ck_assert_int_eq(mc_dram_open(&o, &second, &err), -EBUSY);
	ck_assert_ptr_nonnull(strstr(err.text, dir));
	close_and_remove(d, dir);
}
END_TEST

START_TEST(clean_close_unmounts_and_keep_does_not)
{
	char *dir = tier_dir_make("/dev/shm");
	struct mc_dram *d = open_tier(dir, 8 * MIB);
	bool mounted = stats(d).mounted;
	struct stat before, after;

	ck_assert_int_eq(stat(dir, &before), 0);
	mc_dram_close(d, true);
	ck_assert_int_eq(stat(dir, &after), 0);
	ck_assert_uint_eq(before.st_dev, after.st_dev);
	mc_dram_close(open_tier(dir, 8 * MIB), false);
	ck_assert_int_eq(stat(dir, &after), 0);
	ck_assert_int_eq(before.st_dev != after.st_dev, mounted);
	tier_dir_remove(dir);
}
END_TEST

START_TEST(what_is_for_one_process_alone_lies_nowhere_in_the_tree)
{
	char *dir = tier_dir_make("/dev/shm");
	struct mc_dram_opts o = {.dir = dir, .capacity = 8 * MIB, .alone = true};
	struct mc_dram *d = open_with(&o);
	struct mc_dram_image *img = fill_file(d, 1, 3 * MIB);
	struct stat at_dir, at_image;

	ck_assert_int_eq(stat(dir, &at_dir), 0);
	ck_assert_int_eq(fstat(mc_dram_fd(img), &at_image), 0);
	ck_assert(at_dir.st_dev != at_image.st_dev || geteuid() != 0);
	for (uint64_t b = 0; b < 3; b++)
		ck_assert(tier_matches(mc_dram_ptr(img, b), MIB, 1, b * MIB));
	mc_dram_image_put(img);
	close_and_remove(d, dir);
}
END_TEST

struct racer {
	struct mc_dram *d;
	unsigned seed;
};

/* Fills and punches random blocks of four shared files; a block seen valid has its bytes. */
static void *race(void *arg)
{
	struct racer *r = arg;

	for (int i = 0; i < 400; i++) {
		unsigned file = (unsigned)rand_r(&r->seed) % 4;
		struct mc_file_id id = tier_file_id(file, 8 * MIB);
		uint64_t block = (uint64_t)rand_r(&r->seed) % 8;
		struct mc_dram_image *img;
		int64_t n;

		if (mc_dram_image_get(r->d, &id, true, &img) != 0)
			continue;
		if (rand_r(&r->seed) % 2 == 0) {
			if (mc_dram_reserve(img, block) == 0)
				(void)mc_dram_present(img, block);
		} else {
			n = mc_dram_punch(img, block / 2);
			ck_assert_msg(n >= 0, "punch %d", (int)n);
		}
		ck_assert_uint_le(stats(r->d).used, 16 * MIB);
		mc_dram_image_put(img);
	}
	return NULL;
}

START_TEST(accounting_is_exact_after_concurrent_reserve_and_punch)
{
	char *dir = tier_dir_make("/dev/shm");
	struct mc_dram *d = open_tier(dir, 16 * MIB);
	struct racer r[4];
	pthread_t t[4];

	for (unsigned i = 0; i < 4; i++) {
		r[i] = (struct racer){.d = d, .seed = i + 1};
		ck_assert_int_eq(pthread_create(&t[i], NULL, race, &r[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	ck_assert_uint_eq(stats(d).used, 0);
	close_and_remove(d, dir);
}
END_TEST

SUITE_MAIN("dram", pairs_are_reserved_and_blocks_valid_only_once_committed,
	an_image_is_closed_with_its_last_reference_and_found_again,
	full_tier_is_enospc_and_changes_nothing,
	tmpfs_filled_by_others_is_enospc_and_changes_nothing,
	a_mapping_that_outlives_its_descriptor_keeps_its_bytes_under_pressure,
	our_own_duplicate_and_mapping_do_not_stop_eviction,
	a_second_daemon_on_the_directory_is_refused, clean_close_unmounts_and_keep_does_not,
	what_is_for_one_process_alone_lies_nowhere_in_the_tree,
	accounting_is_exact_after_concurrent_reserve_and_punch)
