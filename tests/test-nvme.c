/* The NVMe tier: group commit, the cap, a failing disk, many threads. */
#include "tests/nvme-fixture.h"
#include "tests/suite.h"
#include "tier/io.h"

#include <errno.h>
#include <sys/mount.h>
#include <unistd.h>

#define PARENT "/var/tmp"

START_TEST(blocks_are_present_after_a_sync_and_not_before)
{
	const uint64_t size = 3 * MIB + 5000;
	char *dir = tier_dir_make(PARENT), path[4096];
	struct mc_nvme *n = nvme_open(dir, 64 * MIB);
	struct mc_nvme_image *img = nvme_file(n, 1, size);
	struct stat st;

	ck_assert(!mc_nvme_present(img, 0));
	ck_assert_int_eq(nvme_get(img, 1, size, 0), -ENOENT);
	ck_assert_int_eq(mc_nvme_sync(n), 0);
	for (uint64_t b = 0; b < 4; b++) {
		ck_assert(mc_nvme_present(img, b));
		ck_assert_int_eq(nvme_get(img, 1, size, b), 0);
	}
	ck_assert_uint_eq(mc_nvme_resident_bytes(img), size);
	ck_assert_uint_eq(nvme_stats(n).flushes, 1);
	ck_assert_uint_eq(nvme_stats(n).used, nvme_disk_bytes(dir));
	nvme_path(dir, 1, size, path, sizeof(path));
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_size, size);
	ck_assert(mc_nvme_verified(img));
	mc_nvme_image_put(img);
	mc_nvme_close(n);
	tier_dir_remove(dir);
}
END_TEST

START_TEST(a_group_commits_by_itself_when_its_time_has_come)
{
	char *dir = tier_dir_make(PARENT);
	struct mc_nvme_opts o = {.dir = dir, .capacity = 64 * MIB, .commit_ms = 1};
	struct mc_nvme *n = nvme_open_with(&o);
	struct mc_nvme_image *img = nvme_file(n, 1, MIB);

	while (!mc_nvme_present(img, 0))
		usleep(200);
	mc_nvme_image_put(img);
	mc_nvme_close(n);
	tier_dir_remove(dir);
}
END_TEST

START_TEST(full_tier_is_enospc_and_changes_nothing)
{
	char *dir = tier_dir_make(PARENT);
	struct mc_nvme *n = nvme_open(dir, 4 * MIB);
	struct mc_nvme_image *img = nvme_image(n, 1, 8 * MIB, true);

	for (uint64_t b = 0; b < 4; b++)
		ck_assert_int_eq(nvme_put(img, 1, 8 * MIB, b), 0);
	ck_assert_int_eq(nvme_put(img, 1, 8 * MIB, 4), -ENOSPC);
	ck_assert_int_eq(mc_nvme_sync(n), 0);
	ck_assert_uint_eq(mc_nvme_present_blocks(img), 4);
	ck_assert_uint_eq(nvme_stats(n).used, 4 * MIB);
	ck_assert_uint_eq(nvme_disk_bytes(dir), 4 * MIB);
	ck_assert_int_eq(mc_nvme_evict(img, 1, 2), 2 * (int64_t)MIB);
	ck_assert_uint_eq(nvme_disk_bytes(dir), 2 * MIB);
	ck_assert_int_eq(nvme_get(img, 1, 8 * MIB, 1), -ENOENT);
	ck_assert_int_eq(nvme_get(img, 1, 8 * MIB, 3), 0);
	ck_assert_int_eq(nvme_put(img, 1, 8 * MIB, 4), 0);
	mc_nvme_image_put(img);
	mc_nvme_close(n);
	tier_dir_remove(dir);
}
END_TEST

START_TEST(blocks_still_waiting_for_their_group_are_evicted_too)
{
	char *dir = tier_dir_make(PARENT);
	struct mc_nvme *n = nvme_open(dir, 4 * MIB);
	struct mc_nvme_image *img = nvme_file(n, 1, 4 * MIB);

	ck_assert_int_eq(mc_nvme_evict(img, 0, 4), 4 * (int64_t)MIB);
	ck_assert_uint_eq(nvme_stats(n).used, 0);
	ck_assert_int_eq(mc_nvme_sync(n), 0);
	ck_assert_uint_eq(mc_nvme_present_blocks(img), 0);
	ck_assert_uint_eq(nvme_disk_bytes(dir), 0);
	mc_nvme_image_put(img);
	mc_nvme_close(n);
	tier_dir_remove(dir);
}
END_TEST

START_TEST(file_system_filled_by_others_is_enospc_and_changes_nothing)
{
	char *dir = tier_dir_make(PARENT), path[4096];
	struct mc_nvme_image *img;
	struct mc_nvme *n;
	unsigned stored = 0, left = 0;
	int fd;

	if (mount("test", dir, "tmpfs", 0, "size=48m") != 0) {
		tier_dir_remove(dir);
		return;
	}
	n = nvme_open(dir, 64 * MIB);
	img = nvme_image(n, 1, 40 * MIB, true);
	snprintf(path, sizeof(path), "%s/foreign", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(posix_fallocate(fd, 0, (off_t)(30 * MIB)), 0);
	while (nvme_put(img, 1, 40 * MIB, stored) == 0)
		stored++;
	ck_assert_uint_gt(stored, 2);
	ck_assert_uint_lt(stored, 18);
	ck_assert_int_eq(nvme_put(img, 1, 40 * MIB, stored), -ENOSPC);
	ck_assert_int_eq(mc_nvme_sync(n), 0);
	ck_assert_uint_eq(nvme_stats(n).used, stored * MIB);
	ck_assert_uint_eq(nvme_disk_bytes(dir), stored * MIB);
	ck_assert_uint_eq(nvme_stats(n).errors, 0);
	/* Room is made by evicting, on a disk that is full. */
	ck_assert_int_eq(mc_nvme_evict(img, 0, 2), 2 * (int64_t)MIB);
	ck_assert_int_eq(nvme_put(img, 1, 40 * MIB, stored), 0);
	ck_assert_int_eq(mc_nvme_sync(n), 0);
	for (uint64_t b = 0; b <= stored; b++)
		left += nvme_get(img, 1, 40 * MIB, b) == 0;
	ck_assert_uint_eq(left, stored - 1);
	close(fd);
	mc_nvme_image_put(img);
	mc_nvme_close(n);
	umount2(dir, MNT_DETACH);
	tier_dir_remove(dir);
}
END_TEST

static unsigned fail_writes, fail_syncs; /* how many calls still fail */

static bool take(unsigned *n)
{
	unsigned left = __atomic_load_n(n, __ATOMIC_RELAXED);

	while (left > 0)
		if (__atomic_compare_exchange_n(
			    n, &left, left - 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return true;
	return false;
}

static int64_t bad_pwrite(const struct mc_io *io, int fd, const void *buf, size_t len, uint64_t off)
{
	(void)io;
	return take(&fail_writes) ? -EIO : mc_io_real()->pwrite(mc_io_real(), fd, buf, len, off);
}

static int bad_fdatasync(const struct mc_io *io, int fd)
{
	(void)io;
	return take(&fail_syncs) ? -EIO : mc_io_real()->fdatasync(mc_io_real(), fd);
}

static struct mc_nvme *open_failing(const char *dir, struct mc_io *io)
{
	struct mc_nvme_opts o = {
		.dir = dir, .capacity = 64 * MIB, .io = io, .commit_ms = 1000000, .probe_ms = 1};

	*io = *mc_io_real();
	io->pwrite = bad_pwrite;
	io->fdatasync = bad_fdatasync;
	return nvme_open_with(&o);
}

START_TEST(a_spent_error_budget_bypasses_until_a_probe_succeeds)
{
	char *dir = tier_dir_make(PARENT);
	struct mc_io io;
	struct mc_nvme *n = open_failing(dir, &io);
	struct mc_nvme_image *img = nvme_image(n, 1, 64 * MIB, true);
	struct mc_file_id other = tier_file_id(2, MIB);
	struct mc_nvme_image *none;
	uint64_t written;

	ck_assert_int_eq(nvme_put(img, 1, 64 * MIB, 0), 0);
	ck_assert_int_eq(mc_nvme_sync(n), 0);
	__atomic_store_n(&fail_writes, UINT32_MAX, __ATOMIC_RELAXED);
	for (unsigned i = 1; i <= 16; i++)
		ck_assert_int_eq(nvme_put(img, 1, 64 * MIB, i), -EIO);
	ck_assert(nvme_stats(n).bypassed);
	written = nvme_stats(n).errors;
	ck_assert_int_eq(nvme_put(img, 1, 64 * MIB, 20), -EIO);
	ck_assert_int_eq(nvme_get(img, 1, 64 * MIB, 0), -EIO);
	ck_assert_int_eq(nvme_get(img, 1, 64 * MIB, 20), -ENOENT);
	ck_assert_int_eq(mc_nvme_image_get(n, &other, true, &none), -EIO);
	ck_assert_uint_ge(nvme_stats(n).errors, written);
	ck_assert_uint_eq(nvme_stats(n).used, MIB);
	__atomic_store_n(&fail_writes, 0, __ATOMIC_RELAXED);
	while (nvme_stats(n).bypassed)
		usleep(200);
	ck_assert_int_eq(nvme_put(img, 1, 64 * MIB, 20), 0);
	ck_assert_int_eq(mc_nvme_sync(n), 0);
	ck_assert_int_eq(nvme_get(img, 1, 64 * MIB, 20), 0);
	ck_assert_int_eq(nvme_get(img, 1, 64 * MIB, 0), 0);
	ck_assert_uint_eq(nvme_stats(n).used, nvme_disk_bytes(dir));
	mc_nvme_image_put(img);
	mc_nvme_close(n);
	tier_dir_remove(dir);
}
END_TEST

START_TEST(a_failed_sync_loses_its_blocks_and_says_so)
{
	char *dir = tier_dir_make(PARENT);
	struct mc_io io;
	struct mc_nvme *n = open_failing(dir, &io);
	struct mc_nvme_image *img = nvme_file(n, 1, 2 * MIB);

	__atomic_store_n(&fail_syncs, 1, __ATOMIC_RELAXED);
	ck_assert_int_eq(mc_nvme_sync(n), -EIO);
	ck_assert_uint_eq(mc_nvme_present_blocks(img), 0);
	ck_assert_int_eq(mc_nvme_sync(n), 0);
	ck_assert_uint_eq(mc_nvme_present_blocks(img), 0);
	/* Their space serves the next attempt. */
	ck_assert_uint_eq(nvme_stats(n).used, 2 * MIB);
	ck_assert_int_eq(nvme_put(img, 1, 2 * MIB, 0), 0);
	ck_assert_int_eq(nvme_put(img, 1, 2 * MIB, 1), 0);
	ck_assert_uint_eq(nvme_stats(n).used, 2 * MIB);
	/* The data syncs, the journal does not: the blocks wait for a new generation. */
	ck_assert_int_eq(mc_nvme_sync(n), 0);
	ck_assert_int_eq(mc_nvme_evict(img, 0, 2), 2 * (int64_t)MIB);
	ck_assert_int_eq(nvme_put(img, 1, 2 * MIB, 0), 0);
	__atomic_store_n(&fail_syncs, 0, __ATOMIC_RELAXED);
	ck_assert_int_eq(mc_nvme_sync(n), 0);
	ck_assert_int_eq(nvme_get(img, 1, 2 * MIB, 0), 0);
	mc_nvme_image_put(img);
	mc_nvme_close(n);
	tier_dir_remove(dir);
}
END_TEST

struct racer {
	struct mc_nvme *n;
	unsigned seed;
};

#define RACE_SIZE (6 * MIB + 777)

static void *race(void *arg)
{
	struct racer *r = arg;

	for (int i = 0; i < 150; i++) {
		unsigned file = (unsigned)rand_r(&r->seed) % 3;
		uint64_t block = (uint64_t)rand_r(&r->seed) % 7;
		struct mc_file_id id = tier_file_id(file, RACE_SIZE);
		struct mc_nvme_image *img;
		int k;

		if (mc_nvme_image_get(r->n, &id, true, &img) != 0)
			continue;
		switch (rand_r(&r->seed) % 10) {
		case 0:
			ck_assert_int_ge(mc_nvme_evict(img, block, 2), 0);
			break;
		case 1:
			ck_assert_int_ge(mc_nvme_drop(img), 0);
			break;
		case 2:
			ck_assert_int_eq(mc_nvme_sync(r->n), 0);
			break;
		case 3:
		case 4:
		case 5:
			k = nvme_get(img, file, RACE_SIZE, block);
			ck_assert_msg(k == 0 || k == -ENOENT, "read %d", k);
			break;
		default:
			k = nvme_put(img, file, RACE_SIZE, block);
			ck_assert_msg(k == 0 || k == -ENOSPC || k == -ESTALE || k == -EAGAIN,
				"write %d", k);
		}
		mc_nvme_image_put(img);
	}
	return NULL;
}

START_TEST(concurrent_use_never_gives_wrong_bytes_and_accounts_exactly)
{
	char *dir = tier_dir_make(PARENT);
	struct mc_nvme_opts o = {.dir = dir, .capacity = 10 * MIB, .commit_ms = 2};
	struct mc_nvme *n = nvme_open_with(&o);
	struct racer r[4];
	pthread_t t[4];

	for (unsigned i = 0; i < 4; i++) {
		r[i] = (struct racer){.n = n, .seed = i + 1};
		ck_assert_int_eq(pthread_create(&t[i], NULL, race, &r[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	ck_assert_int_eq(mc_nvme_sync(n), 0);
	ck_assert_uint_eq(nvme_stats(n).bad_blocks, 0);
	ck_assert_uint_eq(nvme_stats(n).errors, 0);
	ck_assert_uint_eq(nvme_stats(n).used, nvme_disk_bytes(dir));
	ck_assert_uint_le(nvme_stats(n).used, 10 * MIB);
	mc_nvme_close(n);
	n = nvme_open(dir, 10 * MIB);
	ck_assert_uint_eq(nvme_stats(n).used, nvme_disk_bytes(dir));
	mc_nvme_close(n);
	tier_dir_remove(dir);
}
END_TEST

SUITE_MAIN("nvme", blocks_are_present_after_a_sync_and_not_before,
	a_group_commits_by_itself_when_its_time_has_come, full_tier_is_enospc_and_changes_nothing,
	blocks_still_waiting_for_their_group_are_evicted_too,
	file_system_filled_by_others_is_enospc_and_changes_nothing,
	a_spent_error_budget_bypasses_until_a_probe_succeeds,
	a_failed_sync_loses_its_blocks_and_says_so,
	concurrent_use_never_gives_wrong_bytes_and_accounts_exactly)
